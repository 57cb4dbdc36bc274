//! Finds the top-level `id` of a JSON message without parsing it: for lines that are too long to keep, and for lines
//! that are not JSON after all.

use rmcp::model::RequestId;

/// Longest key or id that is kept, in bytes.
const TOKEN_BYTES: usize = 128;

/// An incremental scanner; feed it the message from its first byte on, in pieces of any size.
#[derive(Debug, Default)]
pub(in crate::supervisor) struct IdScan {
    depth: u32,
    place: Place,
    key: Vec<u8>,
    id: Vec<u8>,
    id_is_text: bool,
    has_id: bool,
    has_method: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Between tokens, where a top-level key may begin.
    #[default]
    BeforeKey,
    /// In a string; what it is for, and whether the next byte is escaped.
    Text(Role, bool),
    /// After a top-level key, before its colon.
    AfterKey,
    /// After the colon of a top-level key.
    BeforeValue,
    /// In the number or word that is the id.
    Bare,
    /// Anywhere in a value.
    Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Key,
    Id,
    Other,
}

impl IdScan {
    /// Scans all of a text.
    pub(super) fn of(text: &[u8]) -> Self {
        let mut scan = Self::default();
        scan.feed(text);
        scan
    }

    /// Scans the next piece.
    pub(in crate::supervisor) fn feed(&mut self, piece: &[u8]) {
        for &byte in piece {
            self.take(byte);
        }
    }

    /// The id of the response, once it has been seen whole. None for a message that has a `method`: its id is the
    /// server's own.
    pub(in crate::supervisor) fn response_id(&self) -> Option<RequestId> {
        if !self.has_id || self.has_method || self.place == Place::Bare || self.id.len() > TOKEN_BYTES {
            return None;
        }
        let text = std::str::from_utf8(&self.id).ok()?;
        // Ours are numbers; some servers send them back as text.
        match text.trim().parse() {
            Ok(number) => Some(RequestId::Number(number)),
            Err(_) if self.id_is_text => Some(RequestId::String(text.into())),
            Err(_) => None,
        }
    }

    fn take(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (Place::Text(role, true), _) => Place::Text(role, false),
            (Place::Text(role, false), b'\\') => Place::Text(role, true),
            (Place::Text(Role::Key, false), b'"') => {
                self.has_method |= self.key == b"method";
                Place::AfterKey
            }
            (Place::Text(Role::Id, false), b'"') => Place::Value,
            (Place::Text(Role::Other, false), b'"') => Place::Value,
            (Place::Text(role, false), _) => {
                match role {
                    Role::Key => push(&mut self.key, byte),
                    Role::Id => push(&mut self.id, byte),
                    Role::Other => {}
                }
                Place::Text(role, false)
            }
            (Place::AfterKey, b':') => Place::BeforeValue,
            (Place::BeforeKey, b'"') if self.depth == 1 => {
                self.key.clear();
                Place::Text(Role::Key, false)
            }
            (Place::BeforeValue, b'"') if self.key == b"id" => {
                self.start_id(true);
                Place::Text(Role::Id, false)
            }
            (Place::BeforeValue, b'-' | b'0'..=b'9') if self.key == b"id" => {
                self.start_id(false);
                push(&mut self.id, byte);
                Place::Bare
            }
            (Place::Bare, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') => {
                push(&mut self.id, byte);
                Place::Bare
            }
            (_, b'"') => Place::Text(Role::Other, false),
            (_, b'{' | b'[') => {
                self.depth += 1;
                if self.depth == 1 { Place::BeforeKey } else { Place::Value }
            }
            (_, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                Place::Value
            }
            (_, b',') if self.depth == 1 => Place::BeforeKey,
            (Place::BeforeKey | Place::AfterKey | Place::BeforeValue, b' ' | b'\t' | b'\r' | b'\n') => self.place,
            _ => Place::Value,
        };
    }

    fn start_id(&mut self, is_text: bool) {
        self.id.clear();
        self.id_is_text = is_text;
        self.has_id = true;
    }
}

fn push(token: &mut Vec<u8>, byte: u8) {
    if token.len() <= TOKEN_BYTES {
        token.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> Option<RequestId> {
        IdScan::of(text.as_bytes()).response_id()
    }

    #[test]
    fn the_top_level_id_is_found_wherever_it_stands() {
        let number = Some(RequestId::Number(7));
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":7,"result":{"id":8,"x":"\"id\":9"}}"#), number);
        assert_eq!(id(r#"{"result":{"a":[{"id":1}],"b":"}\\"}, "id" : 7 }"#), number);
        assert_eq!(id(r#"{"id":"ab","result":1"#), Some(RequestId::String("ab".into())));
        assert_eq!(id(r#"{"id":"7","result":1"#), number);
    }

    #[test]
    fn broken_text_still_tells_its_id() {
        assert_eq!(id(r#"{"id":7,"result":{"x":NaN}}"#), Some(RequestId::Number(7)));
        assert_eq!(id(r#"{"id":7,"result":{"content":[{"te"#), Some(RequestId::Number(7)));
    }

    #[test]
    fn requests_and_cut_ids_tell_nothing() {
        assert_eq!(id(r#"{"id":7,"method":"roots/list"}"#), None);
        assert_eq!(id(r#"{"result":{},"id":7"#), None, "more digits may follow");
        assert_eq!(id(r#"{"id":null}"#), None);
        assert_eq!(id("id: 7"), None);
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_id(number in any::<i64>(), cut in 0..60_usize, noise in "[a-z\"\\\\{}]{0,20}") {
            let text = serde_json::json!({"jsonrpc": "2.0", "result": {"id": noise}, "id": number}).to_string();
            let cut = cut.min(text.len());
            let mut scan = IdScan::default();
            scan.feed(&text.as_bytes()[..cut]);
            scan.feed(&text.as_bytes()[cut..]);
            prop_assert_eq!(scan.response_id(), Some(RequestId::Number(number)));
        }
    }
}
