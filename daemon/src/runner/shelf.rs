//! What ended programs printed, kept for a while so that what their results left out can still be read.
//!
//! Bounded in every direction: [`PROGRAM_BYTES`] a program, [`SHELF_BYTES`] in all, [`PROGRAMS`] programs, [`AGE`]. The
//! oldest go first.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use ptc_protocol::{
    api::{ProgramOutput, Stream},
    names::ProgramId,
};

/// Bytes kept of one program: the first ones.
pub(super) const PROGRAM_BYTES: usize = 4 << 20;

/// Bytes kept of all programs.
const SHELF_BYTES: usize = 64 << 20;

/// Programs kept.
const PROGRAMS: usize = 50;

/// How long a program's output is kept after its end.
const AGE: Duration = Duration::from_secs(3600);

/// Collects the output of a program that runs. stdout alone is kept a second time only once stderr was written.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    stdout: Vec<u8>,
    both: Option<Vec<u8>>,
}

impl Transcript {
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        match (stream, &mut self.both) {
            (Stream::Stdout, None) => {}
            (_, Some(both)) => append(both, bytes),
            (Stream::Stderr, both @ None) => append(both.insert(self.stdout.clone()), bytes),
        }
        if stream == Stream::Stdout {
            append(&mut self.stdout, bytes);
        }
    }

    /// stdout and stderr in the order in which they came.
    pub(super) fn both(self) -> Vec<u8> {
        self.both.unwrap_or(self.stdout)
    }

    /// stdout alone.
    pub(super) fn stdout(self) -> Vec<u8> {
        self.stdout
    }
}

fn append(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = PROGRAM_BYTES.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
}

/// A program's output as it goes on the shelf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whole {
    text: String,
    total: u64,
}

impl Whole {
    /// `total` is the number of bytes that were printed, `kept` the first of them.
    pub(super) fn new(kept: &[u8], total: u64) -> Self {
        let complete = u64::try_from(kept.len()).is_ok_and(|kept| kept == total);
        let mut text = String::from_utf8_lossy(kept).into_owned();
        let mut end = text.len().min(PROGRAM_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // Bytes that are no text grow when they are replaced, and then count as they are shown.
        let total = if complete { u64::try_from(text.len()).unwrap_or(total) } else { total };
        text.truncate(end);
        Self { text, total }
    }

    /// At most `limit` bytes from `offset` on, both moved back to borders of characters; never less than one character
    /// while there is one.
    fn piece(&self, offset: u64, limit: usize) -> (usize, &str) {
        let mut start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.text.len());
        while !self.text.is_char_boundary(start) {
            start -= 1;
        }
        let rest = self.text.get(start..).unwrap_or_default();
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let mut end = limit.max(first).min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        (start, rest.get(..end).unwrap_or_default())
    }
}

#[derive(Debug)]
struct Entry {
    program: ProgramId,
    ended: Instant,
    whole: Whole,
}

/// The outputs of the programs that ended last; clones share it. Plain data behind a short lock.
#[derive(Debug, Clone, Default)]
pub(super) struct Shelf(Arc<Mutex<VecDeque<Entry>>>);

impl Shelf {
    fn with<T>(&self, action: impl FnOnce(&mut VecDeque<Entry>) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a program's output on the shelf; what no longer fits falls off.
    pub(super) fn put(&self, program: ProgramId, whole: Whole, now: Instant) {
        self.with(|entries| entries.push_back(Entry { program, ended: now, whole }));
        self.tidy(now);
    }

    /// Takes off what is too old or too much.
    pub(super) fn tidy(&self, now: Instant) {
        self.with(|entries| {
            let mut bytes: usize = entries.iter().map(|entry| entry.whole.text.len()).sum();
            while let Some(oldest) = entries.front() {
                let old = now.saturating_duration_since(oldest.ended) > AGE;
                if !old && entries.len() <= PROGRAMS && bytes <= SHELF_BYTES {
                    break;
                }
                bytes -= oldest.whole.text.len();
                entries.pop_front();
            }
        });
    }

    /// A piece of a program's output; none when it is not on the shelf.
    pub(super) fn read(&self, program: &ProgramId, offset: u64, limit: usize, now: Instant) -> Option<ProgramOutput> {
        self.tidy(now);
        self.with(|entries| {
            let whole = &entries.iter().find(|entry| entry.program == *program)?.whole;
            let (start, text) = whole.piece(offset, limit);
            let end = start + text.len();
            let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
            Some(ProgramOutput {
                program: program.clone(),
                offset: number(start),
                text: text.to_owned(),
                next: (end < whole.text.len()).then(|| number(end)),
                kept: number(whole.text.len()),
                total: whole.total,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(n: usize) -> ProgramId {
        ProgramId::parse(format!("p-{n}")).unwrap()
    }

    fn whole(text: &str) -> Whole {
        Whole::new(text.as_bytes(), text.len() as u64)
    }

    #[test]
    fn streams_are_kept_in_order_and_stdout_apart() {
        let mut transcript = Transcript::default();
        for (stream, text) in [(Stream::Stdout, "a"), (Stream::Stderr, "E"), (Stream::Stdout, "b")] {
            transcript.push(stream, text.as_bytes());
        }
        let again = Transcript { stdout: transcript.stdout.clone(), both: transcript.both.clone() };
        assert_eq!((transcript.both(), again.stdout()), (b"aEb".to_vec(), b"ab".to_vec()));
    }

    #[test]
    fn one_program_keeps_its_first_bytes_only_and_tells_how_many_there_were() {
        let mut transcript = Transcript::default();
        for _ in 0..5 {
            transcript.push(Stream::Stdout, &vec![b'x'; 1 << 20]);
        }
        let shelf = Shelf::default();
        let now = Instant::now();
        shelf.put(id(1), Whole::new(&transcript.both(), 5 << 20), now);
        let read = shelf.read(&id(1), (4 << 20) - 2, 100, now).unwrap();
        assert_eq!((read.text.as_str(), read.next, read.kept, read.total), ("xx", None, 4 << 20, 5 << 20));
    }

    #[test]
    fn the_oldest_fall_off_when_there_are_too_many_too_large_or_too_old() {
        let now = Instant::now();
        let many = Shelf::default();
        (0..=PROGRAMS).for_each(|n| many.put(id(n), whole("x"), now));
        assert!(many.read(&id(0), 0, 9, now).is_none() && many.read(&id(1), 0, 9, now).is_some());

        let large = Shelf::default();
        let text = "x".repeat(PROGRAM_BYTES);
        (0..17).for_each(|n| large.put(id(n), whole(&text), now));
        assert!(large.read(&id(0), 0, 9, now).is_none() && large.read(&id(1), 0, 9, now).is_some());

        let later = now + AGE + Duration::from_secs(1);
        assert!(many.read(&id(9), 0, 9, later).is_none());
        assert_eq!(many.with(|entries| entries.len()), 0);
    }

    #[test]
    fn bytes_that_are_no_text_count_as_they_are_shown() {
        let shelf = Shelf::default();
        let now = Instant::now();
        shelf.put(id(1), Whole::new(b"a\xffb", 3), now);
        let read = shelf.read(&id(1), 0, 100, now).unwrap();
        assert_eq!((read.text.as_str(), read.kept, read.total), ("a\u{fffd}b", 5, 5));
    }

    proptest! {
        #[test]
        fn pieces_one_after_the_other_give_the_whole(text in "\\PC{0,40}", limit in 0_usize..9) {
            let shelf = Shelf::default();
            let now = Instant::now();
            shelf.put(id(1), whole(&text), now);
            let (mut read, mut offset) = (String::new(), Some(0));
            while let Some(at) = offset {
                let piece = shelf.read(&id(1), at, limit, now).unwrap();
                prop_assert!(piece.text.len() <= limit.max(4));
                read.push_str(&piece.text);
                offset = piece.next;
            }
            prop_assert_eq!(read, text);
        }

        #[test]
        fn any_offset_is_answered_at_a_border(text in "\\PC{0,20}", offset in 0_u64..100) {
            let whole = whole(&text);
            let (start, piece) = whole.piece(offset, 7);
            prop_assert!(text[start..].starts_with(piece));
        }
    }
}
