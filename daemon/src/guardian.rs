//! A tiny second process that cleans up when the daemon dies without a word (SIGKILL, out of memory).
//!
//! The daemon writes the process groups, marks of processes and scratch directories it owns to the guardian's stdin, one
//! line each; when that pipe closes, the guardian kills and removes whatever is still listed. It knows nothing of servers
//! or programs.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, Write as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ptc_protocol::exit;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::mark::Mark;

/// The hidden subcommand of `ptcd` that runs [`main`].
pub const SUBCOMMAND: &str = "__guardian";

/// Times a guardian that died is replaced before the daemon goes on without one.
const RESPAWNS: u32 = 5;

/// How often processes with a mark are looked for, until there are none.
const LOOKS: usize = 20;

/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Group(i32),
    Mark(Mark),
    Directory(PathBuf),
}

impl Entry {
    /// The line that adds (`+`) or removes (`-`) the entry. Directories are hex, so that any byte may stand in a path.
    fn line(&self, sign: char) -> String {
        match self {
            Self::Group(pgid) => format!("{sign}g {pgid}\n"),
            Self::Mark(mark) => format!("{sign}m {}\n", mark.as_str()),
            Self::Directory(path) => {
                let hex: String = path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{sign}d {hex}\n")
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, value) = text.split_once(' ')?;
        match kind {
            // 0 and 1 would reach our own group or everything.
            "g" => value.parse().ok().filter(|pgid| *pgid > 1).map(Self::Group),
            "m" => Mark::parse(value).map(Self::Mark),
            "d" => {
                let bytes: Option<Vec<u8>> = (0..value.len() / 2)
                    .map(|at| value.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
                    .collect();
                Some(PathBuf::from(std::ffi::OsString::from_vec(bytes?)))
                    .filter(|path| path.is_absolute())
                    .map(Self::Directory)
            }
            _ => None,
        }
    }
}

/// Handle to the guardian process; clones share it.
#[derive(Debug, Clone)]
pub struct Guardian {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    executable: PathBuf,
    entries: BTreeSet<Entry>,
    process: Option<(Child, ChildStdin)>,
    respawns: u32,
}

impl Guardian {
    /// Starts the guardian by running `executable __guardian` in a process group of its own.
    ///
    /// # Errors
    /// The process could not be started.
    pub fn start(executable: &Path) -> io::Result<Self> {
        let process = spawn(executable)?;
        let shared =
            Shared { executable: executable.to_owned(), entries: BTreeSet::new(), process: Some(process), respawns: 0 };
        Ok(Self { shared: Arc::new(Mutex::new(shared)) })
    }

    /// A guardian without a process, for tests and tools whose children end with them anyway.
    #[must_use]
    pub fn absent() -> Self {
        let shared = Shared { executable: PathBuf::new(), entries: BTreeSet::new(), process: None, respawns: RESPAWNS };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Lists a process group to be killed if the daemon dies; dropping the entry takes it off the list.
    #[must_use]
    pub fn group(&self, pgid: i32) -> GroupEntry {
        GroupEntry(self.add(Entry::Group(pgid)))
    }

    /// Lists a mark whose processes are to be killed if the daemon dies; dropping the entry takes it off the list.
    #[must_use]
    pub fn mark(&self, mark: &Mark) -> MarkEntry {
        MarkEntry(self.add(Entry::Mark(mark.clone())))
    }

    /// Lists a directory to be removed if the daemon dies; dropping the entry takes it off the list.
    #[must_use]
    pub fn directory(&self, path: &Path) -> DirectoryEntry {
        DirectoryEntry(self.add(Entry::Directory(path.to_owned())))
    }

    /// Process id of the guardian, while there is one.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.process.as_ref().map(|(child, _)| child.id())
    }

    fn add(&self, entry: Entry) -> Listed {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.entries.insert(entry.clone());
        shared.tell(&entry.line('+'));
        Listed { guardian: self.clone(), entry }
    }

    fn remove(&self, entry: &Entry) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.entries.remove(entry) {
            shared.tell(&entry.line('-'));
        }
    }
}

impl Shared {
    /// Writes one line; a guardian that died or no longer reads is replaced and told everything again.
    fn tell(&mut self, line: &str) {
        let Some((_, pipe)) = &mut self.process else { return };
        if pipe.write_all(line.as_bytes()).is_ok() {
            return;
        }
        if let Some((mut child, pipe)) = self.process.take() {
            // Killed before its pipe closes, since the closing pipe is its signal to clean up.
            let killed = child.kill().and_then(|()| child.wait());
            drop(pipe);
            tracing::warn!(pid = child.id(), error = ?killed.err(), "guardian lost");
        }
        if self.respawns >= RESPAWNS {
            return;
        }
        self.respawns += 1;
        match spawn(&self.executable) {
            Ok((child, mut pipe)) => {
                let all: String = self.entries.iter().map(|entry| entry.line('+')).collect();
                if pipe.write_all(all.as_bytes()).is_ok() {
                    self.process = Some((child, pipe));
                }
            }
            Err(error) => tracing::error!(%error, "guardian could not be started again"),
        }
    }
}

fn spawn(executable: &Path) -> io::Result<(Child, ChildStdin)> {
    let mut child = Command::new(executable)
        .arg(SUBCOMMAND)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let pipe = child.stdin.take().ok_or_else(|| io::Error::other("the guardian has no stdin"))?;
    // A guardian that was stopped must not stop the daemon with it.
    rustix::io::ioctl_fionbio(&pipe, true)?;
    Ok((child, pipe))
}

#[derive(Debug)]
struct Listed {
    guardian: Guardian,
    entry: Entry,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.guardian.remove(&self.entry);
    }
}

/// A listed process group.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its Drop")]
pub struct GroupEntry(Listed);

/// A listed mark.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its Drop")]
pub struct MarkEntry(Listed);

/// A listed directory.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its Drop")]
pub struct DirectoryEntry(Listed);

/// The guardian process: reads its list from stdin until the daemon is gone, then cleans up.
#[must_use]
pub fn main() -> ExitCode {
    for entry in listed(io::stdin().lock()) {
        clean(&entry);
    }
    ExitCode::from(exit::OK)
}

/// What is still listed when the input ends.
fn listed(input: impl BufRead) -> BTreeSet<Entry> {
    let mut entries = BTreeSet::new();
    for line in input.split(b'\n') {
        let Ok(line) = line else { break };
        let Ok(line) = String::from_utf8(line) else { continue };
        if let Some(entry) = line.strip_prefix('+').and_then(Entry::parse) {
            entries.insert(entry);
        } else if let Some(entry) = line.strip_prefix('-').and_then(Entry::parse) {
            entries.remove(&entry);
        }
    }
    entries
}

/// Best effort: nobody is left to be told of a failure.
fn clean(entry: &Entry) {
    match entry {
        Entry::Group(pgid) => {
            if let Some(pid) = Pid::from_raw(*pgid) {
                let _gone = kill_process_group(pid, Signal::KILL);
            }
        }
        Entry::Mark(mark) => {
            // Each look may miss what is being forked meanwhile.
            for _ in 0..LOOKS {
                if mark.signal(Some(Signal::KILL)) == 0 {
                    break;
                }
                std::thread::sleep(LOOK_PAUSE);
            }
        }
        Entry::Directory(path) => {
            // A program may have made it deeper than the usual ways of removal bear.
            let _gone = crate::removal::remove_tree(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_what_is_still_listed_is_cleaned_up() {
        let odd = Entry::Directory(PathBuf::from("/tmp/a b\nc"));
        let mut text = String::from("+g 41\n+g 42\nnoise\n-g 41\n+g 1\n+g -1\n");
        text.push_str(&odd.line('+'));
        assert_eq!(listed(text.as_bytes()), BTreeSet::from([Entry::Group(42), odd]));
    }

    #[test]
    fn a_listed_group_and_directory_are_gone_after_clean() {
        let scratch = tempfile::tempdir().unwrap();
        let inner = scratch.path().join("run");
        fs::create_dir(&inner).unwrap();
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        clean(&Entry::Group(i32::try_from(child.id()).unwrap()));
        clean(&Entry::Directory(inner.clone()));
        assert!(!child.wait().unwrap().success());
        assert!(!inner.exists());
    }

    #[test]
    fn dropping_an_entry_takes_it_off_the_list() {
        let guardian = Guardian::absent();
        let entry = guardian.group(77);
        assert_eq!(guardian.shared.lock().unwrap().entries.len(), 1);
        drop(entry);
        assert!(guardian.shared.lock().unwrap().entries.is_empty());
    }
}
