//! What one line of the client's stdin means. Pure.
//!
//! Clients differ: byte order marks, CRLF, empty lines, stray text, batches, notifications before the handshake, arguments
//! encoded once more as a string. None of it may end the conversation, and every request gets an answer under its id.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetMeta as _, ProtocolVersion};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

/// Stands in `arguments` for a value that is no object, under this one key, so that the tool's own check can name it.
pub(crate) const NOT_AN_OBJECT: &str = "\u{0}not an object";

const INVALID_REQUEST: i32 = -32600;
const PARSE_ERROR: i32 = -32700;

/// One thing to do about a line.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// To be handled.
    Message(Box<ClientJsonRpcMessage>),
    /// Cannot be handled; this line answers it, without its end.
    Answer(String),
}

/// Whether the conversation has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before `initialize` and before the first stateless request: rmcp ends when anything but a request comes.
    Opening,
    /// After it.
    Open,
}

/// The parts of a message that can be read even when the rest cannot.
#[derive(Deserialize)]
struct Head {
    id: Option<Value>,
    method: Option<String>,
}

/// Reads one line, which has no line end. Moves the phase on when the line opens the conversation.
pub(crate) fn decode(line: &[u8], phase: &mut Phase) -> Vec<Incoming> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
    if line.starts_with(b"[") {
        // A batch, which the 2025-03-26 protocol had. Its answers go out one by one.
        let parts: Vec<&RawValue> = serde_json::from_slice(line).unwrap_or_default();
        return parts.iter().filter_map(|part| decode_one(part.get().as_bytes(), phase)).collect();
    }
    decode_one(line, phase).into_iter().collect()
}

fn decode_one(line: &[u8], phase: &mut Phase) -> Option<Incoming> {
    if !line.starts_with(b"{") {
        return None;
    }
    let mut message: Value = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(error) => return unreadable(line, &error),
    };
    repair(&mut message);
    let id = message.get("id").cloned();
    let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
    if *phase == Phase::Opening && (id.is_none() || method.is_none()) {
        tracing::debug!("message before the handshake dropped");
        return None;
    }
    match (serde_json::from_value(message), id, method) {
        (Ok(message), ..) => {
            if opens(&message) {
                *phase = Phase::Open;
            }
            Some(Incoming::Message(Box::new(message)))
        }
        (Err(_), Some(id), Some(method)) => {
            let what = format!("the {method} request is not valid; its id is a string or an integer");
            Some(Incoming::Answer(failure(&id, INVALID_REQUEST, &what)))
        }
        (Err(_), ..) => {
            tracing::debug!("message of unknown shape dropped");
            None
        }
    }
}

/// A line that begins like a message and cannot be parsed: text that is not Unicode, or too deep a nesting.
fn unreadable(line: &[u8], error: &serde_json::Error) -> Option<Incoming> {
    let head: Head = serde_json::from_slice(line).ok()?;
    let id = head.id?;
    let what = format!(
        "the request cannot be read ({error}); text must be valid Unicode: write a lone surrogate in a program as an \
         escape of the language, such as \\\\ud800, not as the character"
    );
    Some(Incoming::Answer(if head.method.as_deref() == Some("tools/call") {
        // Models see the text of a tool result, and nothing of a protocol error.
        json!({
            "jsonrpc": "2.0", "id": id,
            "result": {"content": [{"type": "text", "text": what}], "isError": true},
        })
        .to_string()
    } else {
        failure(&id, PARSE_ERROR, &what)
    }))
}

/// Makes the known slips of clients into what they meant.
fn repair(message: &mut Value) {
    let Some(fields) = message.as_object_mut() else { return };
    fields.entry("jsonrpc").or_insert_with(|| "2.0".into());
    if fields.get("method").and_then(Value::as_str) != Some("tools/call") {
        return;
    }
    let Some(params) = fields.get_mut("params").and_then(Value::as_object_mut) else { return };
    let Some(arguments) = params.get_mut("arguments") else { return };
    if let Value::String(text) = arguments
        && let Ok(inner @ (Value::Object(_) | Value::Null)) = serde_json::from_str(text)
    {
        *arguments = inner;
    }
    match arguments {
        Value::Object(_) => {}
        Value::Null => {
            params.remove("arguments");
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            *arguments = json!({ NOT_AN_OBJECT: kind(arguments) });
        }
    }
}

/// The JSON type of a value, with its article.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Whether rmcp takes this request as the beginning, by the same rule as it does.
fn opens(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    match &request.request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        stateless => {
            let meta = stateless.get_meta();
            let known = meta.protocol_version().is_some_and(|asked| ProtocolVersion::KNOWN_VERSIONS.contains(&asked));
            known && meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
        }
    }
}

fn failure(id: &Value, code: i32, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(line: &[u8]) -> Vec<Incoming> {
        decode(line, &mut Phase::Open)
    }

    fn arguments(sent: &str) -> Option<Value> {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{sent}}}}}"#);
        let [Incoming::Message(message)] = &all(line.as_bytes())[..] else { panic!("no message") };
        let ClientJsonRpcMessage::Request(request) = &**message else { panic!("no request") };
        let ClientRequest::CallToolRequest(call) = &request.request else { panic!("no call") };
        call.params.arguments.clone().map(Value::Object)
    }

    #[test]
    fn marks_spaces_and_carriage_returns_do_not_matter() {
        let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        for line in [&b"\xEF\xBB\xBF"[..], b"  ", b""] {
            let line = [line, ping, b"\r"].concat();
            assert!(matches!(all(&line)[..], [Incoming::Message(_)]), "{line:?}");
        }
    }

    #[test]
    fn what_is_no_message_is_dropped_without_a_word() {
        for line in [&b""[..], b"\r", b"npm WARN x", b"42", b"null", b"{}", b"{\"a\":", b"[1,2]", b"\xff\xfe"] {
            assert!(all(line).is_empty(), "{line:?}");
        }
    }

    #[test]
    fn arguments_encoded_as_text_are_read_and_null_is_none() {
        assert_eq!(arguments(r#""{\"code\":\"print(1)\"}""#), Some(json!({"code": "print(1)"})));
        assert_eq!(arguments("null"), None);
        assert_eq!(arguments(r#""null""#), None);
        assert_eq!(arguments(r#"{"code":"x"}"#), Some(json!({"code": "x"})));
        assert_eq!(arguments("[1]"), Some(json!({NOT_AN_OBJECT: "an array"})));
        assert_eq!(arguments(r#""print(1)""#), Some(json!({NOT_AN_OBJECT: "a string"})));
    }

    #[test]
    fn a_request_that_cannot_be_read_is_answered_under_its_id() {
        let deep = format!(r#"{{"id":"x","method":"tools/list","params":{}{}}}"#, "[".repeat(300), "]".repeat(300));
        let [Incoming::Answer(answer)] = &all(deep.as_bytes())[..] else { panic!("no answer") };
        assert_eq!(serde_json::from_str::<Value>(answer).unwrap()["id"], "x");

        let lone = br#"{"id":7,"method":"tools/call","params":{"name":"t","arguments":{"code":"print('\ud800')"}}}"#;
        let [Incoming::Answer(answer)] = &all(lone)[..] else { panic!("no answer") };
        let answer: Value = serde_json::from_str(answer).unwrap();
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(7), &json!(true)));

        let bad = br#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#;
        let [Incoming::Answer(answer)] = &all(bad)[..] else { panic!("no answer") };
        assert_eq!(serde_json::from_str::<Value>(answer).unwrap()["id"], 1.5);
    }

    #[test]
    fn batches_are_taken_apart() {
        let batch = br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]"#;
        assert_eq!(all(batch).len(), 2);
    }

    #[test]
    fn notifications_before_the_handshake_are_dropped_and_later_ones_are_not() {
        let mut phase = Phase::Opening;
        let foo = br#"{"jsonrpc":"2.0","method":"notifications/foo"}"#;
        assert!(decode(foo, &mut phase).is_empty());
        let discover = br#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert_eq!(decode(discover, &mut phase).len(), 1);
        // Neither a handshake nor a stateless request that lacks something opens the conversation.
        decode(br#"{"jsonrpc":"2.0","id":5,"method":"initialize","params":{}}"#, &mut phase);
        decode(br#"{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#, &mut phase);
        assert_eq!(phase, Phase::Opening);
        let initialize = br#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
        assert_eq!(decode(initialize, &mut phase).len(), 1);
        assert_eq!(phase, Phase::Open);
        assert_eq!(decode(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, &mut phase).len(), 1);
    }
}
