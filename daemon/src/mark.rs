//! A mark in the environment of a process, by which all its descendants are found, whatever group, session or parent
//! they have by now. Linux only: elsewhere the environment of others cannot be read.

use rustix::process::Signal;

/// The variable that holds it.
pub const VARIABLE: &str = "PTC_SERVER_MARK";

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(String);

impl Mark {
    /// A mark that nothing has yet.
    #[must_use]
    pub fn fresh() -> Self {
        Self(format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)))
    }

    /// The mark of this text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // Less would be no mark: whatever has it is killed.
        let whole = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        whole.then(|| Self(text.to_owned()))
    }

    /// The value of [`VARIABLE`].
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Sends a signal, if any, to every process that has the mark; tells how many there are. Takes some milliseconds.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn signal(&self, signal: Option<Signal>) -> usize {
        let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(rustix::process::Pid::from_raw).filter(|pid| self.signal_one(*pid, signal).is_some()).count()
    }

    /// Elsewhere there is nothing to be found.
    #[cfg(not(target_os = "linux"))]
    #[must_use]
    pub fn signal(&self, _signal: Option<Signal>) -> usize {
        0
    }

    #[cfg(target_os = "linux")]
    fn signal_one(&self, pid: rustix::process::Pid, signal: Option<Signal>) -> Option<()> {
        use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
        let environment = || std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok();
        let has = |environment: Vec<u8>| {
            let mut entries = environment.split(|byte| *byte == 0);
            entries.any(|entry| entry == format!("{VARIABLE}={}", self.0).as_bytes()).then_some(())
        };
        has(environment()?)?;
        let Some(signal) = signal else { return Some(()) };
        // Looked at again through a handle, behind which no other process can take the id.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        has(environment()?)?;
        pidfd_send_signal(&process, signal).ok()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn marked_processes_are_found_and_no_others() {
        let (mark, other) = (Mark::fresh(), Mark::fresh());
        let sleep = |mark: &Mark| Command::new("sleep").arg("600").env(VARIABLE, mark.as_str()).spawn().unwrap();
        let (mut one, mut two) = (sleep(&mark), sleep(&other));
        // Until it has become `sleep`, a new process shows what its parent had.
        while mark.signal(Some(Signal::KILL)) == 0 {
            std::thread::yield_now();
        }
        assert!(!one.wait().unwrap().success());
        assert_eq!(mark.signal(Some(Signal::KILL)), 0);
        assert!(two.try_wait().unwrap().is_none());
        two.kill().unwrap();
        two.wait().unwrap();
    }

    #[test]
    fn only_a_whole_mark_is_one() {
        let mark = Mark::fresh();
        assert_eq!(Mark::parse(mark.as_str()), Some(mark));
        for text in ["", "00", "zz345678901234567890123456789012", "012345678901234567890123456789012"] {
            assert_eq!(Mark::parse(text), None);
        }
    }
}
