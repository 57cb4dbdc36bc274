//! From bytes to JSON-RPC messages, as lenient as can be without guessing: whatever still tells which request it
//! answers, answers it.

use std::{borrow::Cow, fmt};

use rmcp::model::RequestId;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::scan::IdScan;
use crate::supervisor::log::cut;

/// Places in a line of noise at which a message is looked for.
const TRIES_IN_NOISE: usize = 8;

/// What is kept of the data of an error that has a message, in bytes.
const DATA_BYTES: usize = 500;

/// Code of JSON-RPC's internal error, for errors that carry no usable code.
const INTERNAL_ERROR: i64 = -32603;

/// What a piece of input was.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// An answer; the id is none when it was null, absent or of a wrong type.
    Response { id: Option<RequestId>, result: Result<&'a RawValue, RpcError> },
    /// A request of the server, with its id as it wrote it.
    Request { id: &'a RawValue, method: Cow<'a, str> },
    /// A notification of the server.
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// JSON that begins like an answer and cannot be read.
    Broken { id: RequestId, detail: String },
    /// Anything else; worth a line in the server's log.
    Noise(&'a str),
}

/// An error object, whatever form it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    /// The protocol versions in its `data`, of a server that does not speak the one it was asked for.
    pub(super) supported: Vec<String>,
}

/// Splits one line, or one event, into its messages. Blank input gives none.
pub(super) fn decode(text: &str) -> Vec<Message<'_>> {
    let text = text.trim_start_matches('\u{feff}').trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
    if text.is_empty() {
        return Vec::new();
    }
    if !text.starts_with(['{', '[']) {
        return vec![behind_noise(text).unwrap_or(Message::Noise(text))];
    }
    let mut messages = Vec::new();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    loop {
        let start = values.byte_offset();
        match values.next() {
            None => return messages,
            Some(Ok(value)) => members(value.get(), &mut messages),
            Some(Err(error)) => {
                let rest = &text[start..];
                messages.push(match IdScan::of(rest.as_bytes()).response_id() {
                    Some(id) => Message::Broken { id, detail: format!("not JSON: {error}") },
                    None => Message::Noise(rest),
                });
                return messages;
            }
        }
    }
}

/// The messages in one JSON value: itself, or those of a batch.
fn members<'a>(value: &'a str, messages: &mut Vec<Message<'a>>) {
    if value.starts_with('[') {
        match serde_json::from_str::<Vec<&RawValue>>(value) {
            Ok(batch) if !batch.is_empty() => messages.extend(batch.into_iter().map(|item| message(item.get()))),
            Ok(_) | Err(_) => messages.push(Message::Noise(value)),
        }
    } else {
        messages.push(message(value));
    }
}

/// A complete answer behind other text on the same line, as left by a `print` without its newline.
fn behind_noise(text: &str) -> Option<Message<'_>> {
    text.match_indices('{').take(TRIES_IN_NOISE).find_map(|(at, _)| {
        let value: &RawValue = serde_json::from_str(&text[at..]).ok()?;
        match message(value.get()) {
            answer @ Message::Response { id: Some(_), .. } => Some(answer),
            _ => None,
        }
    })
}

fn message(value: &str) -> Message<'_> {
    let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(value) else { return Message::Noise(value) };
    let id = envelope.id.filter(|id| id.get() != "null");
    match envelope {
        // Some servers repeat the method in their answer.
        Envelope { method: Some(method), params, result: None, error: None, .. } => match id {
            Some(id) => Message::Request { id, method },
            None => Message::Notification { method, params },
        },
        // Both members present: servers that fill the unused one with null, or with nothing much, mean the other.
        Envelope { error: Some(error), result, .. } if !says_nothing(error, result) => {
            Message::Response { id: id.and_then(request_id), result: Err(rpc_error(error.get())) }
        }
        Envelope { result: Some(result), .. } => Message::Response { id: id.and_then(request_id), result: Ok(result) },
        Envelope { error: Some(_), .. } => Message::Response {
            id: id.and_then(request_id),
            result: Err(RpcError {
                code: INTERNAL_ERROR,
                message: "the server answered with an empty error".into(),
                supported: Vec::new(),
            }),
        },
        // A log line of the server may have an id too, but not our protocol's mark.
        Envelope { rpc: true, .. } => match id.and_then(request_id) {
            Some(id) => Message::Broken { id, detail: "it has neither a result nor an error".into() },
            None => Message::Noise(value),
        },
        Envelope { .. } => Message::Noise(value),
    }
}

/// Whether an error beside this result is no error: the zero value of the server's language.
fn says_nothing(error: &RawValue, result: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Zero {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: Option<String>,
        #[serde(default)]
        data: Option<IgnoredAny>,
    }
    match error.get() {
        "null" | "false" | "\"\"" | "0" => true,
        text if text.starts_with('{') && result.is_some_and(|result| result.get() != "null") => {
            serde_json::from_str(text).is_ok_and(|zero: Zero| {
                zero.code == 0 && zero.message.is_none_or(|text| text.is_empty()) && zero.data.is_none()
            })
        }
        _ => false,
    }
}

/// An id as we send them: a number; or the same number as text or with a fraction of zero.
fn request_id(id: &RawValue) -> Option<RequestId> {
    let text = id.get();
    if let Ok(number) = text.parse() {
        return Some(RequestId::Number(number));
    }
    if let Ok(text) = serde_json::from_str::<String>(text) {
        return Some(text.trim().parse().map_or_else(|_| RequestId::String(text.into()), RequestId::Number));
    }
    let whole = text.split_once('.').filter(|(_, fraction)| fraction.bytes().all(|digit| digit == b'0'))?.0;
    whole.parse().ok().map(RequestId::Number)
}

fn rpc_error(text: &str) -> RpcError {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        code: Option<&'a RawValue>,
        #[serde(borrow)]
        message: Option<&'a RawValue>,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Supported {
        #[serde(alias = "supportedVersions")]
        supported: Vec<String>,
    }
    let plain = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
    let Ok(error) = serde_json::from_str::<Object<'_>>(text) else {
        let message = serde_json::from_str(text).unwrap_or_else(|_| text.to_owned());
        return RpcError { code: INTERNAL_ERROR, message, supported: Vec::new() };
    };
    let number = error.code.and_then(|code| code.get().parse::<i64>().ok());
    let code = number.unwrap_or(INTERNAL_ERROR);
    let supported = error.data.and_then(|data| serde_json::from_str(data.get()).ok());
    let supported = supported.map(|Supported { supported }| supported).unwrap_or_default();
    let data = error.data.filter(|data| data.get() != "null" && supported.is_empty()).map(plain);
    let mut told = [error.message.map(plain), data].into_iter().flatten().filter(|text| !text.trim().is_empty());
    let told = match (told.next(), told.next()) {
        // What a person needs is often in the data alone, behind a message such as `Invalid params`.
        (Some(message), Some(data)) if !message.contains(data.trim()) => {
            Some(format!("{message}: {}", cut(&data, DATA_BYTES)))
        }
        (told, _) => told,
    };
    let message = match (told, number, error.code.map(plain)) {
        (Some(text), None, Some(word)) => format!("{word}: {text}"),
        (Some(text), _, _) => text,
        (None, None, Some(word)) => format!("error {word} without a message"),
        (None, _, _) => format!("error {code} without a message"),
    };
    RpcError { code, message, supported }
}

#[derive(Default)]
struct Envelope<'a> {
    /// Whether there is a member `jsonrpc`.
    rpc: bool,
    id: Option<&'a RawValue>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Envelope<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON-RPC message")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
                let mut envelope = Envelope::default();
                // A repeated member counts as its last occurrence, as in most servers' own JSON libraries.
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    match &*key {
                        "id" => envelope.id = Some(map.next_value()?),
                        "params" => envelope.params = Some(map.next_value()?),
                        "result" => envelope.result = Some(map.next_value()?),
                        "error" => envelope.error = Some(map.next_value()?),
                        "method" => {
                            let method: &RawValue = map.next_value()?;
                            envelope.method = serde_json::from_str(method.get()).ok().map(Cow::Owned);
                        }
                        other => {
                            envelope.rpc |= other == "jsonrpc";
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(envelope)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Message<'_> {
        let mut messages = decode(text);
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages.remove(0)
    }

    fn error(text: &str) -> RpcError {
        match one(text) {
            Message::Response { id: Some(RequestId::Number(5)), result: Err(error) } => error,
            other => panic!("{other:?}"),
        }
    }

    fn result(text: &str) -> String {
        match one(text) {
            Message::Response { id: Some(RequestId::Number(5)), result: Ok(raw) } => raw.get().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_that_says_nothing_ends_its_request() {
        assert!(matches!(one(r#"{"jsonrpc":"2.0","id":5}"#), Message::Broken { id: RequestId::Number(5), .. }));
        assert!(matches!(one(r#"{"level":"info","id":5}"#), Message::Noise(_)));
    }

    #[test]
    fn errors_in_odd_forms_keep_whatever_text_they_have() {
        let told = |code, message: &str| RpcError { code, message: message.into(), supported: Vec::new() };
        let wrapped = |error: &str| format!(r#"{{"jsonrpc":"2.0","id":5,"result":null,"error":{error}}}"#);
        assert_eq!(error(&wrapped(r#"{"code":-1,"message":"x"}"#)), told(-1, "x"));
        assert_eq!(error(&wrapped(r#"{"code":-32000}"#)), told(-32000, "error -32000 without a message"));
        assert_eq!(error(&wrapped(r#"{"code":"E42","message":"p"}"#)), told(INTERNAL_ERROR, "E42: p"));
        assert_eq!(error(&wrapped(r#""boom""#)), told(INTERNAL_ERROR, "boom"));
        assert_eq!(error(&wrapped(r#"{"code":1,"message":{"a":1}}"#)), told(1, r#"{"a":1}"#));
        assert_eq!(error(&wrapped("[1]")), told(INTERNAL_ERROR, "[1]"));
        let empty = r#"{"code":-32603,"message":" ","data":{"cause":"disk"}}"#;
        assert_eq!(error(&wrapped(empty)), told(-32603, r#"{"cause":"disk"}"#));
        let both = |data: &str| error(&wrapped(&format!(r#"{{"code":1,"message":"no","data":{data}}}"#))).message;
        assert_eq!(both(r#"{"field":"q"}"#), r#"no: {"field":"q"}"#);
        assert_eq!((both("null"), both("\"no\""), both("\"why\"")), ("no".into(), "no".into(), "no: why".into()));
        assert_eq!(both(&format!("\"{}\"", "é".repeat(5000))).len(), "no: ".len() + DATA_BYTES);
        assert_eq!(error(r#"{"id":5,"method":"tools/call","error":{"code":1,"message":"x"}}"#), told(1, "x"));
    }

    #[test]
    fn an_error_that_says_nothing_beside_a_result_is_none() {
        for nothing in ["null", "false", "\"\"", "0", "{}", r#"{"code":0,"message":""}"#, r#"{"code":0,"data":null}"#] {
            assert_eq!(result(&format!(r#"{{"id":5,"error":{nothing},"result":[1]}}"#)), "[1]", "{nothing}");
        }
        for nothing in ["null", "false", "\"\"", "0", "{}"] {
            let message = error(&format!(r#"{{"id":5,"error":{nothing}}}"#)).message;
            assert!(
                message == "the server answered with an empty error" || message == "error -32603 without a message"
            );
        }
        assert_eq!(error(r#"{"id":5,"result":[1],"error":{"code":0,"message":"x"}}"#).message, "x");
        assert_eq!(result(r#"{"id":5,"result":null,"error":null}"#), "null");
        assert_eq!(result(r#"{"id":"5","method":"tools/call","result":[1]}"#), "[1]");
    }

    #[test]
    fn versions_that_a_server_would_speak_are_kept() {
        let refusal = r#"{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2024-11-05"]}}"#;
        assert_eq!(error(&format!(r#"{{"id":5,"error":{refusal}}}"#)).supported, ["2024-11-05"]);
    }

    #[test]
    fn answers_are_found_in_all_spellings() {
        assert_eq!(result(r#"{"id":5,"result":{"content":[]}}"#), r#"{"content":[]}"#);
        assert_eq!(result("\u{feff}  {\"id\":\"5\",\"result\":null}\r"), "null");
        assert_eq!(result(r#"{"id":5.0,"result":12345678901234567890123,"error":null}"#), "12345678901234567890123");
        assert_eq!(result(r#"working... {"jsonrpc":"2.0","id":5,"result":{"a":"\ud800"}}"#), r#"{"a":"\ud800"}"#);
    }

    #[test]
    fn several_messages_may_share_a_line() {
        assert!(matches!(
            decode(r#"{"id":1,"result":1}{"method":"a"} [{"id":2,"result":2},7]"#)[..],
            [Message::Response { .. }, Message::Notification { .. }, Message::Response { .. }, Message::Noise("7")]
        ));
    }

    #[test]
    fn broken_answers_name_their_request() {
        match one(r#"{"jsonrpc":"2.0","id":5,"result":{"x":NaN}}"#) {
            Message::Broken { id, detail } => {
                assert_eq!(id, RequestId::Number(5));
                assert_eq!(detail, "not JSON: expected value at line 1 column 39");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_else_is_noise() {
        for text in ["[INFO] {\"level\":1}", "{\"level\":\"info\"}", "{oops", "[]", "42", "[INFO] handling tools/list"]
        {
            assert!(matches!(one(text), Message::Noise(_)), "{text}");
        }
        assert!(decode("\r\n").is_empty());
        assert!(decode("\u{feff}").is_empty());
    }

    #[test]
    fn requests_of_the_server_keep_their_id_verbatim() {
        match one(r#"{"jsonrpc":"2.0","id":"p1","method":"ping"}"#) {
            Message::Request { id, method } => assert_eq!((id.get(), &*method), ("\"p1\"", "ping")),
            other => panic!("{other:?}"),
        }
        assert!(matches!(one(r#"{"id":null,"method":"n"}"#), Message::Notification { .. }));
        match one(r#"{"id":null,"error":{"code":-32700,"message":"Parse error"}}"#) {
            Message::Response { id: None, result: Err(error) } => assert_eq!(error.code, -32700),
            other => panic!("{other:?}"),
        }
    }
}
