//! The transport of MCP 2024-11-05: one stream of events on which everything comes, and an address named in its first
//! event to which everything goes. When the stream ends, so does the connection.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, header};
use reqwest::Response;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
};
use url::Url;

use super::{
    http::{
        events::{Events, Item},
        exchange::refusal,
        is_type,
        patience::{Manner, Patience},
        read_body,
        remote::{Outgoing, Remote, SendError, body_error, same_origin},
        take_in,
        verdict::{Asked, Verdict},
    },
    link::{Link, StartErrorKind},
    log::ServerLog,
    wire::{Frame, MAX_MESSAGE_BYTES, ReplyError, Wire},
};

/// The event that names the address comes within this time, or not at all.
const ENDPOINT_LIMIT: Duration = Duration::from_secs(30);

/// A stream without a single byte for so long is dead: our pings alone bring more.
const SILENCE_LIMIT: Duration = Duration::from_secs(600);

/// What the acceptance of a message may take; some servers answer only when the work is done.
const POST_LIMIT: Duration = Duration::from_secs(600);

/// Messages without an answer that may be under way at once; more are dropped.
const SMALL_TALK: usize = 64;

/// A conversation with a server.
#[derive(Debug)]
struct Talk {
    remote: Remote,
    wire: Arc<Wire>,
    log: ServerLog,
    /// Where messages go, once the server has said it.
    endpoint: watch::Sender<Option<Url>>,
    patience: Patience,
}

/// Opens a connection to the server whose stream is at this address.
pub(super) fn open(remote: Remote, log: &ServerLog) -> Link {
    let (wire, transport, frames) = Wire::new(log.clone(), &[]);
    let talk = Arc::new(Talk {
        remote,
        wire: Arc::clone(&wire),
        log: log.clone(),
        endpoint: watch::Sender::new(None),
        patience: Patience::default(),
    });
    let mut tasks = JoinSet::new();
    let writer = tasks.spawn(write(Arc::clone(&talk), frames));
    tasks.spawn(async move {
        let (kind, reason) = talk.read().await;
        talk.wire.end_as(kind, &reason);
    });
    Link { wire, transport: Some(transport), tasks, writer, process: None, session: None, needs_pings: true }
}

type End = (StartErrorKind, String);

impl Talk {
    /// Reads the stream to its end; tells why it ended.
    async fn read(&self) -> End {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let outgoing = Outgoing { method: Method::GET, url: self.remote.url(), headers, body: None };
        let mut response = match self.remote.send(outgoing).await {
            Ok(response) => response,
            Err(error) => return (kind_of(&error), error.to_string()),
        };
        if !response.status().is_success() {
            return opening(refusal(&mut response).await.judge(self.asked()));
        }
        if !is_type(&response, "text/event-stream") {
            let kind = super::http::content_type(&response);
            let kind = if kind.is_empty() { "no stream of events" } else { kind };
            let text = format!(
                "the server answered with {kind} in place of text/event-stream; check `url`, or set `transport: http`"
            );
            return (StartErrorKind::Broken, text);
        }
        // Redirects may have led to another path, which relative addresses start from.
        let base = response.url().clone();
        let mut events = Events::default();
        loop {
            let limit = if self.endpoint.borrow().is_some() { SILENCE_LIMIT } else { ENDPOINT_LIMIT };
            let chunk = match tokio::time::timeout(limit, response.chunk()).await {
                Err(_) if self.endpoint.borrow().is_none() => {
                    let text = format!("the server named no endpoint within {} s", limit.as_secs());
                    return (StartErrorKind::Transient, text);
                }
                Err(_) => return (StartErrorKind::Transient, "the server's stream has fallen silent".to_owned()),
                Ok(Ok(None)) => return (StartErrorKind::Transient, "the server closed its stream".to_owned()),
                Ok(Err(error)) => {
                    return (StartErrorKind::Transient, format!("the server's stream broke: {}", body_error(&error)));
                }
                Ok(Ok(Some(chunk))) => chunk,
            };
            for item in events.feed(&chunk) {
                if let Err(end) = self.take(item, &base).await {
                    return end;
                }
            }
        }
    }

    async fn take(&self, item: Item, base: &Url) -> Result<(), End> {
        match item {
            Item::Event { name, data } => match name.as_str() {
                "endpoint" => {
                    let endpoint = endpoint(base, &String::from_utf8_lossy(&data));
                    self.endpoint.send_replace(Some(endpoint.map_err(|text| (StartErrorKind::Broken, text))?));
                }
                "" | "message" => take_in(&self.wire, data, None).await,
                _ => {}
            },
            Item::Oversized { id: Some(id), bytes } => {
                self.wire.fail(&id, ReplyError::TooLarge { bytes: Some(bytes) });
            }
            Item::Oversized { id: None, .. } => self.log.warn_once("sent a notice that is too large to be read"),
        }
        Ok(())
    }

    /// Sends one message, and settles its request when it was not accepted.
    async fn post(&self, frame: Frame) {
        let endpoint = self.endpoint.subscribe().wait_for(Option::is_some).await.ok().and_then(|url| url.clone());
        let Some(endpoint) = endpoint else { return };
        let opening_request = frame.method.as_deref() == Some("initialize");
        let fail = |error: ReplyError| match &frame.request {
            Some(id) => self.wire.fail(id, error),
            None => self.log.note(&format!("a notification was not accepted: {error}")),
        };
        let body = bytes::Bytes::from(frame.text);
        let patient = !opening_request && frame.method.as_deref() != Some("ping");
        let mut tries = self.patience.tries(if patient { Manner::Patient } else { Manner::Once });
        let (verdict, refusal) = loop {
            if let Err(error) = tries.turn().await {
                return fail(ReplyError::Busy { reason: error.to_string() });
            }
            if frame.request.as_ref().is_some_and(|id| !self.wire.waits_for(id)) {
                return;
            }
            let mut response = match self.send(&endpoint, body.clone()).await {
                Ok(response) => response,
                Err(error) if opening_request => return self.wire.end_as(kind_of(&error), &error.to_string()),
                Err(error @ (SendError::Broke { .. } | SendError::Silent { .. })) => {
                    self.wire.suspect();
                    return fail(ReplyError::Lost { reason: error.to_string() });
                }
                Err(error) => {
                    self.wire.suspect();
                    return fail(ReplyError::Unsent { reason: error.to_string() });
                }
            };
            if response.status().is_success() {
                // Some answer in the response as well, or in its place.
                let body = read_body(&mut response, MAX_MESSAGE_BYTES).await.unwrap_or_default();
                if body.trim_ascii_start().starts_with(b"{") {
                    take_in(&self.wire, body, frame.request).await;
                }
                return;
            }
            let refusal = refusal(&mut response).await;
            let verdict = refusal.judge(self.asked());
            if !tries.again(&verdict) {
                break (verdict, refusal);
            }
        };
        if opening_request && verdict != Verdict::Answer {
            let (kind, reason) = opening(verdict);
            return self.wire.end_as(kind, &reason);
        }
        match verdict {
            Verdict::Answer => {
                take_in(&self.wire, refusal.body, frame.request.clone()).await;
                fail(ReplyError::Malformed { detail: format!("the server answered {}", refusal.status) });
            }
            // The session lives and dies with the stream.
            Verdict::Expired(reason) => {
                fail(ReplyError::Expired { reason: reason.clone() });
                self.wire.end_as(StartErrorKind::Expired, &reason);
            }
            Verdict::SignIn(reason) => {
                self.wire.suspect();
                fail(ReplyError::Unsent { reason });
            }
            Verdict::Busy { reason, .. } => fail(ReplyError::Busy { reason }),
            Verdict::Gone(reason) => {
                self.wire.suspect();
                fail(ReplyError::Lost { reason });
            }
            Verdict::Forbidden(message) | Verdict::Missing(message) | Verdict::Failed(message) => {
                fail(ReplyError::Rpc { code: -32603, message });
            }
        }
    }

    async fn send(&self, endpoint: &Url, body: bytes::Bytes) -> Result<Response, SendError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let outgoing = Outgoing { method: Method::POST, url: endpoint, headers, body: Some(body) };
        let sent = tokio::time::timeout(POST_LIMIT, self.remote.send(outgoing)).await;
        sent.unwrap_or_else(|_| Err(SendError::Silent { limit: POST_LIMIT }))
    }

    fn asked(&self) -> Asked {
        let in_session = self.endpoint.borrow().is_some();
        Asked { in_session, has_credentials: self.remote.has_credentials(), sse_address: false }
    }
}

async fn write(talk: Arc<Talk>, mut frames: mpsc::Receiver<Frame>) {
    let small_talk = Arc::new(Semaphore::new(SMALL_TALK));
    let mut posts = JoinSet::new();
    loop {
        let frame = tokio::select! {
            biased;
            _ = talk.wire.ended() => return,
            Some(ended) = posts.join_next(), if !posts.is_empty() => {
                let ended: Result<(), tokio::task::JoinError> = ended;
                if let Err(error) = ended {
                    tracing::error!(%error, "sending a message panicked");
                    talk.wire.end("sending failed on our side");
                }
                continue;
            }
            frame = frames.recv() => frame,
        };
        let Some(frame) = frame else { return };
        talk.wire.written(frame.text.len());
        if frame.method.as_deref() == Some("notifications/initialized") {
            // Nothing may overtake it.
            talk.post(frame).await;
            continue;
        }
        let place = match frame.request {
            Some(_) => None,
            None => match Arc::clone(&small_talk).try_acquire_owned() {
                Ok(place) => Some(place),
                Err(_) => {
                    talk.log.warn_once("is too slow to take notifications; some were dropped");
                    continue;
                }
            },
        };
        let talk = Arc::clone(&talk);
        posts.spawn(async move {
            talk.post(frame).await;
            drop(place);
        });
    }
}

/// The address an `endpoint` event names: on the origin of the stream, or refused.
fn endpoint(base: &Url, text: &str) -> Result<Url, String> {
    let url = base.join(text.trim()).map_err(|error| format!("the server's endpoint event is no address: {error}"))?;
    if same_origin(base, &url) {
        return Ok(url);
    }
    let origin = url.origin().ascii_serialization();
    Err(format!("the server's endpoint event names another origin, {origin}; nothing was sent there"))
}

fn kind_of(error: &SendError) -> StartErrorKind {
    match error {
        SendError::Redirected(_) => StartErrorKind::Broken,
        SendError::Connect { .. } | SendError::Broke { .. } | SendError::Silent { .. } | SendError::Setup(_) => {
            StartErrorKind::Transient
        }
    }
}

/// What a refusal means while nothing works yet.
fn opening(verdict: Verdict) -> End {
    match verdict {
        Verdict::SignIn(reason) => (StartErrorKind::SignIn, reason),
        Verdict::Forbidden(reason) | Verdict::Missing(reason) => (StartErrorKind::Broken, reason),
        Verdict::Busy { after, reason } => (after.map_or(StartErrorKind::Transient, StartErrorKind::Wait), reason),
        Verdict::Expired(reason) | Verdict::Gone(reason) | Verdict::Failed(reason) => {
            (StartErrorKind::Transient, reason)
        }
        Verdict::Answer => (StartErrorKind::Transient, "the server refused the connection".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_follow_the_rules_of_addresses_and_stay_on_their_origin() {
        let base = Url::parse("https://h.test/pre/sse").unwrap();
        let read = |text: &str| endpoint(&base, text).map(String::from);
        assert_eq!(read("/messages?sid=1"), Ok("https://h.test/messages?sid=1".into()));
        assert_eq!(read("messages?sid=1\n"), Ok("https://h.test/pre/messages?sid=1".into()));
        assert_eq!(read("?sid=1"), Ok("https://h.test/pre/sse?sid=1".into()));
        assert_eq!(read("https://h.test/pre/m?sid=1"), Ok("https://h.test/pre/m?sid=1".into()));
        for other in ["https://evil.test/m", "//evil.test/m", "http://h.test/m", "https://h.test:1/m"] {
            assert!(read(other).unwrap_err().contains("another origin"), "{other}");
        }
    }
}
