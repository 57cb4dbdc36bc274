//! What a waiting client hears of its program, and when. Pure.

use std::time::{Duration, Instant};

use ptc_protocol::api::ProgramEvent;

/// Least time between two notifications.
pub(crate) const PACE: Duration = Duration::from_secs(1);

/// A program as its client sees it.
#[derive(Debug)]
pub(crate) struct Watch {
    began: Instant,
    last_told: Option<Instant>,
    ahead: Option<usize>,
    calls: u64,
    running: Vec<(u64, String)>,
}

impl Watch {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, last_told: None, ahead: None, calls: 0, running: Vec::new() }
    }

    /// Takes an event in.
    pub(crate) fn see(&mut self, event: &ProgramEvent) {
        match event {
            ProgramEvent::Queued { ahead, .. } => self.ahead = Some(*ahead),
            ProgramEvent::Started { .. } => self.ahead = None,
            ProgramEvent::CallStarted { call, tool } => {
                self.calls = self.calls.max(*call);
                self.running.push((*call, tool.clone()));
            }
            ProgramEvent::CallFinished(record) => self.running.retain(|(call, _)| *call != record.call),
            ProgramEvent::Progress { calls, .. } => self.calls = self.calls.max(*calls),
            ProgramEvent::Output { .. } | ProgramEvent::Outcome(_) => {}
        }
    }

    /// Calls that the program has made so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// The call that has run longest.
    pub(crate) fn running(&self) -> Option<&str> {
        self.running.first().map(|(_, tool)| tool.as_str())
    }

    /// A notification, when one is due: seconds so far, which always grow, and a sentence.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(f64, String)> {
        // A program that has not called anything within the first second is probably over before it matters.
        let quiet = self.last_told.unwrap_or(self.began);
        let first_call = self.last_told.is_none() && self.calls > 0;
        if now.duration_since(quiet) < PACE && !first_call {
            return None;
        }
        self.last_told = Some(now);
        let elapsed = now.duration_since(self.began).as_secs_f64();
        Some((elapsed, self.sentence(elapsed)))
    }

    fn sentence(&self, elapsed: f64) -> String {
        if let Some(ahead) = self.ahead {
            return format!("{elapsed:.1} s, waiting for a free place, {ahead} programs before this one");
        }
        let calls = match self.calls {
            1 => "1 tool call".to_owned(),
            calls => format!("{calls} tool calls"),
        };
        match self.running.as_slice() {
            [] => format!("{elapsed:.1} s, {calls}"),
            [(_, tool)] => format!("{elapsed:.1} s, {calls}, running {tool}"),
            [(_, tool), others @ ..] => format!("{elapsed:.1} s, {calls}, running {tool} and {} more", others.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ptc_protocol::api::{CallRecord, CallState};

    use super::*;

    fn started(call: u64) -> ProgramEvent {
        ProgramEvent::CallStarted { call, tool: format!("mcp__s__t{call}") }
    }

    fn finished(call: u64) -> ProgramEvent {
        let tool = format!("mcp__s__t{call}");
        ProgramEvent::CallFinished(CallRecord {
            call,
            tool,
            args: "{}".into(),
            state: CallState::Ok,
            ms: 1,
            error: None,
        })
    }

    #[test]
    fn at_most_one_a_second_and_always_growing() {
        let began = Instant::now();
        let mut watch = Watch::new(began);
        let mut told = Vec::new();
        for tenth in 0..100 {
            watch.see(&started(tenth + 1));
            told.extend(watch.due(began + Duration::from_millis(100 * tenth)).map(|(seconds, _)| seconds));
        }
        assert_eq!(told.len(), 10);
        assert!(told.windows(2).all(|pair| pair[1] - pair[0] >= 0.99), "{told:?}");
    }

    #[test]
    fn a_silent_program_is_told_after_a_second() {
        let began = Instant::now();
        let mut watch = Watch::new(began);
        assert_eq!(watch.due(began + Duration::from_millis(900)), None);
        let (_, text) = watch.due(began + PACE).unwrap();
        assert_eq!(text, "1.0 s, 0 tool calls");
    }

    #[test]
    fn the_sentence_counts_calls_and_names_the_oldest_that_runs() {
        let began = Instant::now();
        let mut watch = Watch::new(began);
        for event in [started(1), started(2), started(3), finished(1)] {
            watch.see(&event);
        }
        let (_, text) = watch.due(began + Duration::from_millis(1500)).unwrap();
        assert_eq!(text, "1.5 s, 3 tool calls, running mcp__s__t2 and 1 more");
    }

    #[test]
    fn a_waiting_program_says_so() {
        let began = Instant::now();
        let mut watch = Watch::new(began);
        let program = ptc_protocol::names::ProgramId::parse("p-1").unwrap();
        watch.see(&ProgramEvent::Queued { program, ahead: 2 });
        assert!(watch.due(began + PACE).unwrap().1.contains("2 programs before"), "queue is named");
    }
}
