//! The headers by which the stateless protocol wants a message to be routed: what stands in it, said once more. Pure.

use base64::Engine as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::ProtocolVersion;

use super::PROTOCOL_VERSION;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// What the names of mirrored arguments begin with.
const PARAM: &str = "mcp-param-";

/// A coded value stands between these.
const CODED: (&str, &str) = ("=?base64?", "?=");

/// The headers of a message with this method, which calls this tool, if it does, with these arguments mirrored.
pub(super) fn routing(method: &str, tool: Option<&str>, mirrored: &[(String, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(ProtocolVersion::V_2026_07_28.as_str()));
    headers.extend(value(method).map(|method| (METHOD, method)));
    headers.extend(tool.and_then(value).map(|tool| (NAME, tool)));
    for (name, argument) in mirrored {
        let name = HeaderName::from_bytes(format!("{PARAM}{name}").as_bytes());
        if let (Ok(name), Some(argument)) = (name, value(argument)) {
            headers.insert(name, argument);
        }
    }
    headers
}

/// A value as it is, or coded where a header could not hold it or would be taken for a coded one.
fn value(text: &str) -> Option<HeaderValue> {
    let (before, after) = CODED;
    let printable = text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    let ambiguous = text.starts_with(before) && text.ends_with(after);
    if printable && !ambiguous && text.trim_ascii() == text {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::from_str(&format!("{before}{}{after}", base64::prelude::BASE64_STANDARD.encode(text))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_header_can_hold_is_coded() {
        let coded = |text: &str| value(text).unwrap().to_str().unwrap().to_owned();
        for plain in ["get_price", "us west 1", "a\tb", "", "=?base64?x", "~!@"] {
            assert_eq!(coded(plain), plain);
        }
        for (text, expected) in [
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("\tindented", "=?base64?CWluZGVudGVk?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("\u{7f}", "=?base64?fw==?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(coded(text), expected);
        }
    }

    #[test]
    fn a_message_says_what_it_is_and_whom_it_is_for() {
        let headers = routing("tools/call", Some("preis_é"), &[("Region".into(), "us-west1".into())]);
        let told: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        let expected = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "=?base64?cHJlaXNfw6k=?="),
            ("mcp-param-region", "us-west1"),
        ];
        assert_eq!(told, expected);
        assert!(!routing("tools/list", None, &[]).contains_key(NAME));
    }
}
