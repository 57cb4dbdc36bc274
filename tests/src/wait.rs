//! Waiting for states, never for times.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Long enough for anything that works on a busy two-core machine; only a failing test waits it out.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Probes until there is an answer and returns it.
///
/// # Panics
/// With `what` when the deadline passes first.
pub fn until<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = probe() {
            return answer;
        }
        assert!(start.elapsed() < deadline, "waited {deadline:?} in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
