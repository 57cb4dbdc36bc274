//! What a program printed, within a limit: the beginning and the end are kept, the middle is counted.

use std::collections::VecDeque;

use ptc_protocol::api::Stream;

/// Of the limit, the share kept for the beginning: three quarters.
const fn head_share(limit: usize) -> usize {
    limit / 4 * 3
}

/// Collects raw bytes and never holds more than the limit and a quarter of it.
#[derive(Debug)]
pub(super) struct Output {
    limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Output {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let room = self.limit.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        let keep = self.limit - head_share(self.limit);
        let rest = rest.get(rest.len().saturating_sub(keep)..).unwrap_or_default();
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(keep);
        self.tail.drain(..excess);
    }

    /// All bytes that came, kept or not.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// The text, at most the limit in bytes of UTF-8 plus a notice when something was dropped, and the number of bytes
    /// dropped. Invalid UTF-8 becomes U+FFFD. `rest` ends the notice; it is told where in the text the gap begins.
    pub(super) fn finish(self, rest: impl FnOnce(usize) -> String) -> (String, u64) {
        let fits = u64::try_from(self.head.len()).is_ok_and(|kept| kept == self.total);
        if fits {
            let text = String::from_utf8_lossy(&self.head).into_owned();
            if text.len() <= self.limit {
                return (text, 0);
            }
        }
        let end: Vec<u8> = if fits {
            self.head.get(head_share(self.limit)..).unwrap_or_default().to_vec()
        } else {
            let mut end: Vec<u8> = self.head.get(head_share(self.limit)..).unwrap_or_default().to_vec();
            end.extend(self.tail.iter());
            end
        };
        let start = lossy_prefix(self.head.get(..head_share(self.limit)).unwrap_or(&self.head), head_share(self.limit));
        let end = lossy_suffix(&end, self.limit - head_share(self.limit));
        let kept = u64::try_from(start.len() + end.len()).unwrap_or(u64::MAX);
        let dropped = self.total.saturating_sub(kept).max(1);
        let rest = rest(start.len());
        (format!("{start}\n... (truncated: {dropped} bytes left out here{rest})\n{end}"), dropped)
    }
}

/// At most `limit` bytes of text from the beginning, not ending in half a character.
fn lossy_prefix(bytes: &[u8], limit: usize) -> String {
    let whole = bytes.len() - incomplete_end(bytes);
    let mut text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or(bytes)).into_owned();
    while text.len() > limit {
        text.pop();
    }
    text
}

/// At most `limit` bytes of text from the end, not beginning with half a character.
fn lossy_suffix(bytes: &[u8], limit: usize) -> String {
    let bytes = bytes.get(bytes.len().saturating_sub(limit)..).unwrap_or(bytes);
    let skip = bytes.iter().take(3).take_while(|byte| (**byte & 0b1100_0000) == 0b1000_0000).count();
    let text = String::from_utf8_lossy(bytes.get(skip..).unwrap_or_default());
    let mut from = text.len().saturating_sub(limit);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default().to_owned()
}

/// Bytes at the end that begin a character but do not finish it: 0 to 3.
fn incomplete_end(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes.get(bytes.len() - back).copied().unwrap_or(0);
        let needs = match byte {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        return if needs > back { back } else { 0 };
    }
    0
}

/// Cuts a stream of bytes into pieces of text at character borders.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    held: Vec<u8>,
}

impl Decoder {
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let whole = self.held.len() - incomplete_end(&self.held);
        let rest = self.held.split_off(whole);
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = rest;
        text
    }
}

/// One decoder a stream.
#[derive(Debug, Default)]
pub(super) struct Decoders {
    stdout: Decoder,
    stderr: Decoder,
}

impl Decoders {
    pub(super) fn of(&mut self, stream: Stream) -> &mut Decoder {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn collect(limit: usize, pieces: &[&[u8]]) -> (String, u64) {
        let mut output = Output::new(limit);
        for piece in pieces {
            output.push(piece);
        }
        output.finish(|_| String::new())
    }

    #[test]
    fn the_notice_is_told_where_the_gap_begins() {
        let mut output = Output::new(8);
        output.push(b"abcdefghijklmnop");
        assert_eq!(
            output.finish(|at| format!("; at {at}")).0,
            "abcdef\n... (truncated: 8 bytes left out here; at 6)\nop"
        );
    }

    #[test]
    fn output_up_to_the_limit_is_whole() {
        assert_eq!(collect(8, &[b"1234", b"5678"]), ("12345678".into(), 0));
    }

    #[test]
    fn beginning_and_end_are_kept_with_a_notice_between() {
        let (text, dropped) = collect(8, &[b"abcdefghijklmnop", b"qrstuvwxyz"]);
        assert_eq!(text, "abcdef\n... (truncated: 18 bytes left out here)\nyz");
        assert_eq!(dropped, 18);
    }

    #[test]
    fn characters_are_never_split() {
        let text = "é".repeat(100);
        let (kept, _) = collect(9, &[text.as_bytes()]);
        assert!(!kept.contains('\u{fffd}'), "{kept}");
    }

    #[test]
    fn invalid_bytes_are_replaced_within_the_limit() {
        assert_eq!(collect(9, &[b"a\xffb"]).0, "a\u{fffd}b");
        let (text, dropped) = collect(8, &[&[0xff; 8]]);
        assert!(text.len() <= 8 + 60 && dropped > 0, "{text}");
    }

    #[test]
    fn pieces_are_cut_at_character_borders() {
        let mut decoder = Decoder::default();
        let euro = "€".as_bytes();
        assert_eq!((decoder.push(&euro[..2]), decoder.push(&euro[2..])), (String::new(), "€".to_owned()));
    }

    proptest! {
        #[test]
        fn the_limit_holds_for_any_bytes(limit in 4_usize..64, pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let mut output = Output::new(limit);
            for piece in &pieces {
                output.push(piece);
            }
            let (text, dropped) = output.finish(|_| String::new());
            let notice = if dropped > 0 { 64 } else { 0 };
            prop_assert!(text.len() <= limit + notice);
        }

        #[test]
        fn valid_text_within_the_limit_is_unchanged(text in "\\PC{0,20}") {
            let mut output = Output::new(text.len().max(4));
            output.push(text.as_bytes());
            prop_assert_eq!(output.finish(|_| String::new()), (text, 0));
        }
    }
}
