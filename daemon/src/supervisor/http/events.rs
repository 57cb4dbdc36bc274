//! Splits a stream of server-sent events. Pure and bounded: an event over the limit costs no more memory than the
//! limit, and tells which request it would have answered.

use std::time::Duration;

use rmcp::model::RequestId;

use crate::supervisor::wire::{IdScan, MAX_MESSAGE_BYTES};

/// Longest value of a field that is not data, in bytes.
const FIELD_BYTES: usize = 4096;

/// What the stream held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::supervisor) enum Item {
    /// An event with data; the name is empty where the server gave none.
    Event { name: String, data: Vec<u8> },
    /// An event over the limit: whom it answers, and its size in bytes.
    Oversized { id: Option<RequestId>, bytes: u64 },
}

/// The reader of one stream.
#[derive(Debug)]
pub(in crate::supervisor) struct Events {
    limit: usize,
    /// The line being read.
    line: Vec<u8>,
    /// The last line ended with a carriage return, so that a newline now belongs to it.
    returned: bool,
    /// Nothing has been read yet: a byte order mark may come.
    fresh: bool,
    name: String,
    data: Option<Vec<u8>>,
    overflow: Option<Overflow>,
    last_id: Option<String>,
    /// The id of the event being read; counts when that is whole.
    next_id: Option<String>,
    retry: Option<Duration>,
}

/// An event over the limit.
#[derive(Debug, Default)]
struct Overflow {
    scan: IdScan,
    bytes: u64,
    /// Bytes seen of the present line; an empty line ends the event.
    line: usize,
}

impl Default for Events {
    fn default() -> Self {
        Self::with_limit(MAX_MESSAGE_BYTES)
    }
}

impl Events {
    fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            returned: false,
            fresh: true,
            name: String::new(),
            data: None,
            overflow: None,
            last_id: None,
            next_id: None,
            retry: None,
        }
    }

    /// The id of the last event that had one; a broken stream can be taken up behind it.
    pub(in crate::supervisor) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How long the server wants a client to wait before it connects again.
    pub(in crate::supervisor) const fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Takes in a piece of the stream; gives what it completed.
    pub(in crate::supervisor) fn feed(&mut self, mut piece: &[u8]) -> Vec<Item> {
        let mut items = Vec::new();
        while !piece.is_empty() {
            if std::mem::take(&mut self.returned) && piece[0] == b'\n' {
                piece = &piece[1..];
                continue;
            }
            let end = piece.iter().position(|&byte| byte == b'\n' || byte == b'\r');
            self.extend(&piece[..end.unwrap_or(piece.len())]);
            let Some(end) = end else { break };
            self.returned = piece[end] == b'\r';
            piece = &piece[end + 1..];
            items.extend(self.end_line());
        }
        items
    }

    /// The stream has ended: an event without its empty line may be whole all the same.
    pub(in crate::supervisor) fn finish(&mut self) -> Option<Item> {
        if !self.line.is_empty() {
            drop(self.end_line());
        }
        self.next_id = None;
        let item = self.end_event();
        self.fresh = true;
        self.returned = false;
        item
    }

    fn extend(&mut self, bytes: &[u8]) {
        if let Some(overflow) = &mut self.overflow {
            overflow.scan.feed(bytes);
            overflow.bytes += bytes.len() as u64;
            overflow.line += bytes.len();
            return;
        }
        let held = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        if held + bytes.len() <= self.limit {
            self.line.extend_from_slice(bytes);
            return;
        }
        let mut overflow = Overflow { bytes: (held + bytes.len()) as u64, line: 1, ..Overflow::default() };
        overflow.scan.feed(&self.data.take().unwrap_or_default());
        let line = std::mem::take(&mut self.line);
        overflow.scan.feed(line.strip_prefix(b"data:").unwrap_or(&line));
        overflow.scan.feed(bytes);
        self.overflow = Some(overflow);
    }

    fn end_line(&mut self) -> Option<Item> {
        if let Some(overflow) = &mut self.overflow {
            return if std::mem::take(&mut overflow.line) == 0 { self.end_whole_event() } else { None };
        }
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.fresh) && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.end_whole_event();
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let value_at = match line.get(colon + 1) {
            Some(b' ') => colon + 2,
            Some(_) => colon + 1,
            None => line.len(),
        };
        if &line[..colon] == b"data" {
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(&line[value_at..]);
                }
                // The first line, mostly the only one, is not copied.
                none => {
                    line.drain(..value_at);
                    *none = Some(line);
                }
            }
            return None;
        }
        let value = String::from_utf8_lossy(&line[value_at..]);
        match &line[..colon] {
            b"event" if value.len() <= FIELD_BYTES => self.name = value.into_owned(),
            b"id" if value.len() <= FIELD_BYTES && !value.contains('\0') => {
                self.next_id = Some(value.into_owned());
            }
            b"retry" => self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry),
            // Comments and fields that nobody knows.
            _ => {}
        }
        None
    }

    fn end_whole_event(&mut self) -> Option<Item> {
        if let Some(id) = self.next_id.take() {
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        self.end_event()
    }

    fn end_event(&mut self) -> Option<Item> {
        let name = std::mem::take(&mut self.name);
        let data = self.data.take();
        if let Some(overflow) = self.overflow.take() {
            return Some(Item::Oversized { id: overflow.scan.response_id(), bytes: overflow.bytes });
        }
        data.map(|data| Item::Event { name, data })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(name: &str, data: &str) -> Item {
        Item::Event { name: name.into(), data: data.into() }
    }

    fn read(text: &str) -> Vec<Item> {
        let mut events = Events::default();
        let mut items = events.feed(text.as_bytes());
        items.extend(events.finish());
        items
    }

    #[test]
    fn comments_and_unknown_fields_are_skipped_and_data_lines_joined() {
        let text = ": keep-alive\r\n\r\nevent: ping\r\ndata: x\r\n\r\nfoo: bar\ndata: {\"a\":\ndata:1}\n\ndata\n\n";
        assert_eq!(read(text), [event("ping", "x"), event("", "{\"a\":\n1}"), event("", "")]);
        assert_eq!(read("\u{feff}data: a\r\rdata: b\r\r"), [event("", "a"), event("", "b")]);
    }

    #[test]
    fn ids_and_the_time_to_retry_are_kept() {
        let mut events = Events::default();
        assert_eq!(events.feed(b"id: 7\nretry: 1500\ndata: \n\nid: 8\n"), [event("", "")]);
        assert_eq!((events.last_id(), events.retry()), (Some("7"), Some(Duration::from_millis(1500))));
        assert_eq!(events.feed(b"\n"), []);
        assert_eq!(events.last_id(), Some("8"));
    }

    #[test]
    fn the_last_event_may_lack_its_end() {
        assert_eq!(read("data: {}"), [event("", "{}")]);
        assert_eq!(read("event: x\n"), []);
    }

    #[test]
    fn an_event_over_the_limit_names_its_request_and_the_next_one_is_read() {
        let mut events = Events::with_limit(64);
        let long = format!("data: {{\"id\":5,\"result\":\"{}\"}}\r\n\r\ndata: b\n\n", "x".repeat(500));
        let items = events.feed(long.as_bytes());
        assert_eq!(items, [Item::Oversized { id: Some(RequestId::Number(5)), bytes: 526 }, event("", "b")]);
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_events(
            lines in prop::collection::vec("(data: [a-z]{0,5}|: c|event: e|id: [0-9]|)(\n|\r|\r\n)", 0..20),
            cuts in prop::collection::vec(1..9_usize, 1..40),
        ) {
            let text = lines.concat();
            let mut events = Events::default();
            let mut rest = text.as_bytes();
            let mut items = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                items.extend(events.feed(piece));
                rest = tail;
            }
            items.extend(events.finish());
            prop_assert_eq!(items, read(&text));
        }
    }
}
