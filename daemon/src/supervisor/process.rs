//! A server's process group, and its descendants elsewhere: known by the guardian while they live, stopped step by
//! step, and never left behind.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::sync::watch;

use crate::{
    guardian::{GroupEntry, Guardian, MarkEntry},
    mark::Mark,
};

/// What a server gets to end by itself once its stdin is closed.
const AFTER_EOF: Duration = Duration::from_millis(1500);

/// What it gets after SIGTERM.
const AFTER_TERM: Duration = Duration::from_secs(2);

/// What the kernel gets after SIGKILL.
const AFTER_KILL: Duration = Duration::from_millis(500);

/// What the rest of a group gets after its leader has ended, before and after SIGKILL.
const REST_GRACE: Duration = Duration::from_millis(300);

/// How often strays are looked for.
const STRAY_PAUSE: Duration = Duration::from_millis(30);

/// A process group whose leader is our child. Dropping it kills what is left of it.
#[derive(Debug)]
pub(super) struct Process {
    group: Pid,
    exit: watch::Receiver<Option<ExitStatus>>,
    /// What all descendants of the leader have, unless they hide it.
    mark: Mark,
    /// Taken off the guardian's list when all are gone.
    entries: Option<(GroupEntry, MarkEntry)>,
}

impl Process {
    /// A group whose leader was started with this mark, with where the leader's exit will be told.
    pub(super) fn new(group: Pid, mark: Mark, exit: watch::Receiver<Option<ExitStatus>>, guardian: &Guardian) -> Self {
        let entries = (guardian.group(group.as_raw_nonzero().get()), guardian.mark(&mark));
        Self { group, exit, mark, entries: Some(entries) }
    }

    /// The leader's process id.
    pub(super) fn pid(&self) -> u32 {
        self.group.as_raw_nonzero().get().unsigned_abs()
    }

    /// How the leader ended, if it has.
    pub(super) fn exit(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Stops the group; its stdin has been closed. Returns when it is gone, or nothing more can be done: within five
    /// seconds.
    pub(super) async fn stop(&mut self) {
        for (grace, signal) in [(AFTER_EOF, Some(Signal::TERM)), (AFTER_TERM, Some(Signal::KILL)), (AFTER_KILL, None)] {
            let mut exit = self.exit.clone();
            let ended = tokio::time::timeout(grace, exit.wait_for(Option::is_some)).await;
            // A closed channel means that the reaper is gone; then only the signals are left.
            if matches!(ended, Ok(Ok(_))) {
                break;
            }
            if let Some(signal) = signal {
                signal_group(self.group, signal);
            }
        }
        end_rest(self.group).await;
        self.end_strays().await;
        self.entries = None;
    }

    /// Ends descendants that have left the group.
    async fn end_strays(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            let began = Instant::now();
            let mut next = Some(signal);
            loop {
                let (mark, signal) = (self.mark.clone(), next.take());
                let look = tokio::task::spawn_blocking(move || mark.signal(signal));
                if matches!(look.await, Ok(0) | Err(_)) {
                    return;
                }
                if began.elapsed() >= REST_GRACE {
                    break;
                }
                tokio::time::sleep(STRAY_PAUSE).await;
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.entries.is_some() {
            signal_group(self.group, Signal::KILL);
        }
    }
}

/// Ends what a leader that has ended left in its group.
pub(super) async fn end_rest(group: Pid) {
    for signal in [Signal::TERM, Signal::KILL] {
        if !signal_group(group, signal) {
            return;
        }
        let began = Instant::now();
        while began.elapsed() < REST_GRACE {
            if test_kill_process_group(group).is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Whether there was still a group to signal.
fn signal_group(group: Pid, signal: Signal) -> bool {
    kill_process_group(group, signal).is_ok()
}

/// `code 1`, or `signal 9`.
pub(super) fn exit_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
