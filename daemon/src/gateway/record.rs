//! What a program's calls did: arguments as one short text, and the list of records in the order the calls ended.
//! Plain data; knows neither tools nor servers.

use std::{collections::BTreeMap, time::Instant};

use ptc_protocol::api::{CallRecord, CallState};
use serde_json::value::RawValue;

use super::failure::{Failure, cut};

/// Longest argument text that is kept whole, in characters.
const ARGS_CHARS: usize = 200;
/// Characters of an error in a record, which goes into the conversation; the program is told all of it.
const ERROR_CHARS: usize = 500;
/// Characters kept of a tool's name; no real one is longer.
const TOOL_CHARS: usize = 300;
/// Characters kept of a longer one, before `...`.
const ARGS_CUT: usize = 197;
/// Levels of nesting whose keys are sorted; what lies deeper stands as the program wrote it.
const SORTED_LEVELS: usize = 8;
/// Records of refused calls kept beyond the budget, so that a program in a loop cannot fill the memory.
const REFUSED_KEPT: usize = 200;

/// The calls of one program.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    numbered: u64,
    running: BTreeMap<u64, Running>,
    ended: Vec<CallRecord>,
    refused: usize,
}

#[derive(Debug)]
struct Running {
    tool: String,
    args: String,
    since: Instant,
}

impl Ledger {
    /// A call has arrived; gives its number, from 1.
    pub(super) fn arrive(&mut self, tool: &str, args: &RawValue) -> u64 {
        self.numbered += 1;
        let entry =
            Running { tool: cut(tool.to_owned(), TOOL_CHARS), args: arguments_text(args), since: Instant::now() };
        self.running.insert(self.numbered, entry);
        self.numbered
    }

    /// A call has ended; gives its record, unless the program's account was closed before.
    pub(super) fn end(&mut self, call: u64, failure: Option<&Failure>) -> Option<CallRecord> {
        let running = self.running.remove(&call)?;
        let state = if failure.is_none() { CallState::Ok } else { CallState::Failed };
        let record = running.record(call, state, failure.map(|failure| failure.message.clone()));
        self.ended.push(record.clone());
        Some(record)
    }

    /// A call was refused before it was admitted; its record is kept while there is room.
    pub(super) fn refuse(&mut self, call: u64, failure: &Failure) -> Option<CallRecord> {
        if self.refused < REFUSED_KEPT {
            self.refused += 1;
            return self.end(call, Some(failure));
        }
        let running = self.running.remove(&call)?;
        Some(running.record(call, CallState::Failed, Some(failure.message.clone())))
    }

    /// The program is over: what still runs is unfinished, in the order of arrival.
    pub(super) fn finish(&mut self) {
        for (call, running) in std::mem::take(&mut self.running) {
            self.ended.push(running.record(call, CallState::Unfinished, None));
        }
    }

    /// The tool of the call that has been running longest.
    #[must_use]
    pub(super) fn running(&self) -> Option<&str> {
        self.running.values().next().map(|running| running.tool.as_str())
    }

    /// Ended calls in the order they ended.
    #[must_use]
    pub(super) fn records(&self) -> &[CallRecord] {
        &self.ended
    }
}

impl Running {
    fn record(self, call: u64, state: CallState, error: Option<String>) -> CallRecord {
        let ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let error = error.map(|error| cut(error, ERROR_CHARS));
        CallRecord { call, tool: self.tool, args: self.args, state, ms, error }
    }
}

/// Arguments as one line of JSON: sorted keys, `", "` and `": "` between, ASCII only, digits as written, at most 200
/// characters.
#[must_use]
pub(super) fn arguments_text(args: &RawValue) -> String {
    let mut text = Bounded(String::new());
    // An overflow of the bound is the one way to fail, and means that enough is written.
    let _enough: Result<(), Full> = write_sorted(&mut text, args, 0);
    let mut text = text.0;
    if text.len() > ARGS_CHARS {
        text.truncate(ARGS_CUT);
        text.push_str("...");
    }
    text
}

/// More than [`ARGS_CHARS`] characters have been written.
struct Full;

/// ASCII text that refuses to grow much past what is needed.
struct Bounded(String);

impl Bounded {
    fn push(&mut self, piece: &str) -> Result<(), Full> {
        for c in piece.chars() {
            self.push_char(c)?;
        }
        Ok(())
    }

    fn push_char(&mut self, c: char) -> Result<(), Full> {
        if c.is_ascii() {
            self.0.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                self.0.push_str(&format!("\\u{unit:04x}"));
            }
        }
        if self.0.len() > ARGS_CHARS { Err(Full) } else { Ok(()) }
    }
}

fn write_sorted(out: &mut Bounded, value: &RawValue, level: usize) -> Result<(), Full> {
    let text = value.get().trim();
    if level < SORTED_LEVELS {
        if text.starts_with('{')
            && let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text)
        {
            out.push_char('{')?;
            for (at, (key, member)) in members.iter().enumerate() {
                out.push(if at == 0 { "" } else { ", " })?;
                out.push(&serde_json::to_string(key).unwrap_or_default())?;
                out.push(": ")?;
                write_sorted(out, member, level + 1)?;
            }
            return out.push_char('}');
        }
        if text.starts_with('[')
            && let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text)
        {
            out.push_char('[')?;
            for (at, item) in items.iter().enumerate() {
                out.push(if at == 0 { "" } else { ", " })?;
                write_sorted(out, item, level + 1)?;
            }
            return out.push_char(']');
        }
    }
    out.push(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn args(text: &str) -> String {
        arguments_text(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn keys_are_sorted_at_every_level_and_digits_stay() {
        assert_eq!(
            args(r#"{"b":[{"z":1,"y":2.50}],"a":123456789012345678901234567890,"é":"😀"}"#),
            r#"{"a": 123456789012345678901234567890, "b": [{"y": 2.50, "z": 1}], "\u00e9": "\ud83d\ude00"}"#
        );
    }

    #[test]
    fn two_hundred_characters_stay_whole_and_one_more_is_cut() {
        let whole = |n: usize| args(&format!(r#"{{"a":"{}"}}"#, "x".repeat(n)));
        assert_eq!(whole(191).len(), 200);
        assert!(whole(191).ends_with("x\"}"));
        assert_eq!(whole(192).len(), 200);
        assert!(whole(192).ends_with("xxx..."));
    }

    #[test]
    fn records_stand_in_the_order_the_calls_ended_and_unfinished_ones_last() {
        let mut ledger = Ledger::default();
        let raw = RawValue::from_string("{}".into()).unwrap();
        let first = ledger.arrive("a", &raw);
        let second = ledger.arrive("b", &raw);
        let third = ledger.arrive("c", &raw);
        assert_eq!(ledger.running(), Some("a"));
        ledger.end(third, None);
        ledger.end(first, Some(&Failure::rpc("a", "no")));
        ledger.finish();
        assert_eq!(ledger.end(second, None), None, "an account that is closed takes no more");
        let seen: Vec<_> = ledger.records().iter().map(|r| (r.call, r.state)).collect();
        assert_eq!(seen, [(3, CallState::Ok), (1, CallState::Failed), (2, CallState::Unfinished)]);
    }

    #[test]
    fn a_record_holds_the_beginning_of_a_long_error() {
        let mut ledger = Ledger::default();
        let call = ledger.arrive("a", &RawValue::from_string("{}".into()).unwrap());
        let record = ledger.end(call, Some(&Failure::rpc("a", &"x".repeat(20_000)))).unwrap();
        let error = record.error.unwrap();
        assert!(error.chars().count() <= ERROR_CHARS + 1, "{}", error.len());
    }

    #[test]
    fn a_loop_of_refused_calls_fills_no_memory() {
        let mut ledger = Ledger::default();
        let raw = RawValue::from_string("{}".into()).unwrap();
        for _ in 0..REFUSED_KEPT + 10 {
            let call = ledger.arrive("a", &raw);
            assert!(ledger.refuse(call, &Failure::budget_exhausted(1)).is_some());
        }
        assert_eq!(ledger.records().len(), REFUSED_KEPT);
    }

    proptest! {
        #[test]
        fn any_arguments_become_short_ascii(value in crate::gateway::testing::json()) {
            let text = args(&value.to_string());
            prop_assert!(text.len() <= ARGS_CHARS);
            prop_assert!(text.is_ascii());
        }
    }
}
