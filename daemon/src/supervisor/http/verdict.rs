//! What a response means for the request, the session and the server. Pure.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use jiff::{Timestamp, fmt::rfc2822};
use serde::Deserialize;

use crate::supervisor::log::cut;

/// Texts of servers are repeated up to so many bytes.
const QUOTED_BYTES: usize = 300;

/// Only a short answer can be one about the session.
const SESSION_ERROR_BYTES: usize = 4096;

/// Longest message of an error about the session, in bytes.
const SESSION_WORDS_BYTES: usize = 120;

/// Code of JSON-RPC.
const METHOD_NOT_FOUND: i64 = -32601;

/// What was asked.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::supervisor) struct Asked {
    /// It named a session.
    pub(in crate::supervisor) in_session: bool,
    /// It carried credentials.
    pub(in crate::supervisor) has_credentials: bool,
    /// The address looks like that of the older transport.
    pub(in crate::supervisor) sse_address: bool,
}

/// A response that does not say success.
#[derive(Debug, Clone)]
pub(in crate::supervisor) struct Refusal {
    pub(in crate::supervisor) status: StatusCode,
    /// From `Retry-After`.
    pub(in crate::supervisor) retry_after: Option<Duration>,
    /// From `WWW-Authenticate`.
    pub(in crate::supervisor) challenge: Option<String>,
    /// The beginning of the body.
    pub(in crate::supervisor) body: Vec<u8>,
}

/// What a refusal means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::supervisor) enum Verdict {
    /// The body is the answer in JSON-RPC.
    Answer,
    /// The session is over; the request was not looked at.
    Expired(String),
    /// A person must sign in.
    SignIn(String),
    /// The credentials do not suffice.
    Forbidden(String),
    /// The server asks for patience; the request was not looked at.
    Busy { after: Option<Duration>, reason: String },
    /// There is nothing of ours at this address.
    Missing(String),
    /// The server could not be reached by whoever stands before it.
    Gone(String),
    /// Anything else.
    Failed(String),
}

impl Refusal {
    /// Reads the head; the body has been read as far as it is of use.
    pub(in crate::supervisor) fn new(status: StatusCode, headers: &HeaderMap, body: Vec<u8>, now: Timestamp) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status,
            retry_after: text(header::RETRY_AFTER).and_then(|value| retry_after(value, now)),
            challenge: text(header::WWW_AUTHENTICATE).map(|value| cut(value, QUOTED_BYTES).to_owned()),
            body,
        }
    }

    /// What it means.
    pub(in crate::supervisor) fn judge(&self, asked: Asked) -> Verdict {
        let error = RpcError::read(&self.body);
        let about_session =
            String::from_utf8_lossy(&self.body[..self.body.len().min(SESSION_ERROR_BYTES)]).to_ascii_lowercase();
        let about_session = about_session.contains("session");
        let said = self.said(error.as_ref());
        match self.status.as_u16() {
            // A method that a server does not know, such as `ping`, is no end of the session.
            404 if error.as_ref().is_some_and(|error| error.has_id && error.code == Some(METHOD_NOT_FOUND)) => {
                Verdict::Answer
            }
            404 if asked.in_session => Verdict::Expired("its session has expired (404 Not Found)".to_owned()),
            400 if asked.in_session && about_session && error.as_ref().is_none_or(|error| !error.has_id) => {
                Verdict::Expired(format!("its session has expired ({said})"))
            }
            401 => Verdict::SignIn(self.sign_in(asked)),
            // What to do comes first: tables cut what is long.
            403 => Verdict::Forbidden(format!(
                "forbidden: the configured {} do not suffice, check `headers` of the server ({said})",
                if asked.has_credentials { "credentials" } else { "headers" }
            )),
            429 | 503 if self.status == StatusCode::TOO_MANY_REQUESTS || self.retry_after.is_some() => {
                let wait = self.retry_after.map(|after| format!(", it asks to wait {} s", after.as_secs()));
                Verdict::Busy { after: self.retry_after, reason: format!("{said}{}", wait.unwrap_or_default()) }
            }
            404 | 405 if error.is_none() || asked.sse_address => {
                let hint = if asked.sse_address {
                    "; if it speaks the older transport, set `transport: sse`"
                } else {
                    "; check `url`"
                };
                Verdict::Missing(format!("no MCP server at this address: {said}{hint}"))
            }
            _ if error.is_some() => Verdict::Answer,
            502..=504 => Verdict::Gone(said),
            _ => Verdict::Failed(said),
        }
    }

    fn sign_in(&self, asked: Asked) -> String {
        let challenge = self.challenge.as_ref().map(|text| format!(", it asks for {text}")).unwrap_or_default();
        let advice = if asked.has_credentials {
            "the configured `Authorization` header was refused, renew it"
        } else {
            "add `headers: { Authorization: \"Bearer …\" }` to the server in the configuration"
        };
        format!("needs sign-in: {advice} (the server answered 401 Unauthorized{challenge})")
    }

    /// The status, and what the server said about it.
    fn said(&self, error: Option<&RpcError>) -> String {
        let status = format!("the server answered {}", self.status);
        match error.map(|error| error.message.clone()).or_else(|| words(&self.body)) {
            Some(text) => format!("{status}: {}", cut(text.trim(), QUOTED_BYTES)),
            None => status,
        }
    }
}

/// Whether a message that came with success says that the session is over; then what it says.
pub(in crate::supervisor) fn expired_in(body: &[u8]) -> Option<String> {
    if body.len() > SESSION_ERROR_BYTES {
        return None;
    }
    let message = RpcError::read(body)?.message;
    let text = message.to_ascii_lowercase();
    let over = ["expired", "not found", "invalid", "unknown", "terminated", "no valid"];
    // Errors of tools that have sessions of their own mostly say more; should one not, a new session does no harm.
    let is =
        text.len() <= SESSION_WORDS_BYTES && text.contains("session") && over.iter().any(|word| text.contains(word));
    is.then(|| format!("its session has expired ({})", cut(message.trim(), QUOTED_BYTES)))
}

/// A JSON-RPC error.
#[derive(Debug)]
struct RpcError {
    code: Option<i64>,
    message: String,
    has_id: bool,
}

impl RpcError {
    fn read(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(default)]
            id: serde_json::Value,
            jsonrpc: Option<serde_json::Value>,
            error: serde_json::Value,
        }
        let envelope: Envelope = serde_json::from_slice(body).ok()?;
        let code = envelope.error.get("code");
        // Others answer with an `error` too; a code or the protocol's mark makes it ours.
        code.or(envelope.jsonrpc.as_ref())?;
        let message = envelope.error.get("message").and_then(serde_json::Value::as_str).unwrap_or_default();
        let code = code.and_then(serde_json::Value::as_i64);
        Some(Self { code, message: message.to_owned(), has_id: !envelope.id.is_null() })
    }
}

/// The words of a body that people can read; none of a page or of nothing.
fn words(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * QUOTED_BYTES)]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        return None;
    }
    Some(if text.starts_with('<') { "(a page)".to_owned() } else { cut(&text, QUOTED_BYTES).to_owned() })
}

/// Seconds, or a date.
fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = rfc2822::parse(value).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Asked = Asked { in_session: true, has_credentials: false, sse_address: false };

    fn refusal(status: u16, body: &str) -> Refusal {
        let status = StatusCode::from_u16(status).unwrap();
        Refusal::new(status, &HeaderMap::new(), body.into(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_lost_session_is_known_in_all_its_forms() {
        let error = r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#;
        assert!(matches!(refusal(404, error).judge(SESSION), Verdict::Expired(_)));
        assert!(matches!(refusal(404, "").judge(SESSION), Verdict::Expired(_)));
        let everything =
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
        assert!(matches!(refusal(400, everything).judge(SESSION), Verdict::Expired(_)));
        assert!(matches!(refusal(400, everything).judge(Asked::default()), Verdict::Answer));
        let other = r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"unknown session type"}}"#;
        assert!(matches!(refusal(400, other).judge(SESSION), Verdict::Answer));
        let unknown = r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32601,"message":"Method not found"}}"#;
        assert!(matches!(refusal(404, unknown).judge(SESSION), Verdict::Answer));
        assert!(expired_in(error.as_bytes()).is_some());
        assert!(
            expired_in(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"session expired"}}"#).is_some()
        );
        assert!(
            expired_in(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"file not found"}}"#).is_none()
        );
        assert!(expired_in(br#"{"jsonrpc":"2.0","id":1,"result":{"error":"session expired"}}"#).is_none());
    }

    #[test]
    fn people_hear_what_to_do() {
        let mut denied = refusal(401, "");
        denied.challenge = Some("Bearer realm=\"x\"".into());
        assert_eq!(
            denied.judge(SESSION),
            Verdict::SignIn(
                "needs sign-in: add `headers: { Authorization: \"Bearer …\" }` to the server in the configuration (the \
                 server answered 401 Unauthorized, it asks for Bearer realm=\"x\")"
                    .into()
            )
        );
        let asked = Asked { has_credentials: true, ..Asked::default() };
        assert!(matches!(denied.judge(asked), Verdict::SignIn(text) if text.contains("renew it")));
        assert!(matches!(refusal(403, "no").judge(asked), Verdict::Forbidden(text) if text.contains("`headers`")));
        let asked = Asked { sse_address: true, ..Asked::default() };
        for status in [404, 405] {
            let verdict = refusal(status, "").judge(asked);
            assert!(matches!(verdict, Verdict::Missing(text) if text.contains("`transport: sse`")));
            let verdict = refusal(status, "<html>").judge(Asked::default());
            assert!(matches!(verdict, Verdict::Missing(text) if text.ends_with("(a page); check `url`")));
        }
    }

    #[test]
    fn patience_is_asked_in_seconds_or_as_a_date() {
        assert_eq!(retry_after("7", Timestamp::UNIX_EPOCH), Some(Duration::from_secs(7)));
        let date = "Thu, 01 Jan 1970 00:01:30 GMT";
        assert_eq!(retry_after(date, Timestamp::UNIX_EPOCH), Some(Duration::from_secs(90)));
        assert_eq!(retry_after(date, Timestamp::from_second(100).unwrap()), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", Timestamp::UNIX_EPOCH), None);
        let mut busy = refusal(503, "");
        assert!(matches!(busy.judge(SESSION), Verdict::Gone(_)));
        busy.retry_after = Some(Duration::from_secs(7));
        let reason = "the server answered 503 Service Unavailable, it asks to wait 7 s".to_owned();
        assert_eq!(busy.judge(SESSION), Verdict::Busy { after: Some(Duration::from_secs(7)), reason });
        assert!(matches!(refusal(429, "").judge(SESSION), Verdict::Busy { after: None, .. }));
    }

    #[test]
    fn errors_of_json_rpc_are_answers_whatever_the_status() {
        let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"boom"}}"#;
        assert_eq!(refusal(500, error).judge(SESSION), Verdict::Answer);
        assert_eq!(refusal(404, error).judge(Asked::default()), Verdict::Answer);
        let failed = Verdict::Failed("the server answered 500 Internal Server Error: {\"error\":\"boom\"}".into());
        assert_eq!(refusal(500, r#"{"error":"boom"}"#).judge(SESSION), failed);
        assert_eq!(refusal(502, "").judge(SESSION), Verdict::Gone("the server answered 502 Bad Gateway".into()));
    }
}
