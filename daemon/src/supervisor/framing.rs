//! Cuts a stream into lines of bounded length. A line over the limit fails the request it answers, and costs no more
//! memory than the limit.

use super::{
    log::ServerLog,
    wire::{IdScan, MAX_MESSAGE_BYTES, ReplyError, Wire},
};

/// Buffers over this are given back once their line is done.
const KEPT_BYTES: usize = 1 << 20;

/// The line being read.
#[derive(Debug, Default)]
pub(super) struct LineFrames {
    line: Vec<u8>,
    overflow: Option<Overflow>,
}

/// A line over the limit, of which only the size and the id are kept.
#[derive(Debug)]
struct Overflow {
    scan: IdScan,
    bytes: usize,
    failed: bool,
}

impl LineFrames {
    /// Takes in a piece of the stream up to the next end of a line: the line and the rest of the piece, or none when
    /// the piece is used up.
    pub(super) fn next<'p>(
        &mut self,
        mut piece: &'p [u8],
        wire: &Wire,
        log: &ServerLog,
    ) -> Option<(Vec<u8>, &'p [u8])> {
        loop {
            let Some(at) = piece.iter().position(|&byte| byte == b'\n') else {
                self.extend(piece, wire);
                return None;
            };
            self.extend(&piece[..at], wire);
            piece = &piece[at + 1..];
            match self.overflow.take() {
                Some(overflow) => overflow.finish(wire, log),
                None => return Some((std::mem::take(&mut self.line), piece)),
            }
        }
    }

    /// Gives a line back, so that its memory serves the next one.
    pub(super) fn reuse(&mut self, mut line: Vec<u8>) {
        if self.line.is_empty() && line.capacity() <= KEPT_BYTES {
            line.clear();
            self.line = line;
        }
    }

    /// What came after the last end of a line.
    pub(super) fn finish(self) -> Vec<u8> {
        self.line
    }

    fn extend(&mut self, head: &[u8], wire: &Wire) {
        if let Some(overflow) = &mut self.overflow {
            overflow.feed(head, wire);
        } else if self.line.len() + head.len() > MAX_MESSAGE_BYTES {
            let mut overflow = Overflow { scan: IdScan::default(), bytes: 0, failed: false };
            overflow.feed(&std::mem::take(&mut self.line), wire);
            overflow.feed(head, wire);
            self.overflow = Some(overflow);
        } else {
            self.line.extend_from_slice(head);
        }
    }
}

impl Overflow {
    fn feed(&mut self, piece: &[u8], wire: &Wire) {
        self.scan.feed(piece);
        self.bytes += piece.len();
        // A line that never ends must not keep its request waiting.
        if !self.failed && self.bytes > 2 * MAX_MESSAGE_BYTES {
            self.failed = self.fail(wire, None);
        }
    }

    fn finish(self, wire: &Wire, log: &ServerLog) {
        if !self.failed && !self.fail(wire, Some(self.bytes as u64)) {
            log.stray(&format!("(a line of {} bytes)", self.bytes));
        }
    }

    fn fail(&self, wire: &Wire, bytes: Option<u64>) -> bool {
        self.scan.response_id().is_some_and(|id| {
            wire.fail(&id, ReplyError::TooLarge { bytes });
            true
        })
    }
}
