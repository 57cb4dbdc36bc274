//! Processes that never outlive their test, and a look at the processes of others.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::until;

/// A child that leads a process group of its own; the whole group is killed when this is dropped.
#[derive(Debug)]
pub struct Group {
    child: Child,
    what: String,
}

impl Group {
    /// Starts the command as the leader of a new group.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        match command.process_group(0).spawn() {
            Ok(child) => Self { child, what },
            Err(error) => panic!("cannot start {what}: {error}"),
        }
    }

    /// The leader.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The leader's process id, which is the group's too.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the leader alone.
    pub fn signal(&self, signal: Signal) {
        // The leader may have ended by itself; whether it did is what the test asks next.
        kill_process(self.rustix_pid(), signal).ok();
    }

    /// Waits until the leader has ended.
    ///
    /// # Panics
    /// When the deadline passes first.
    pub fn exit(&mut self, deadline: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.what);
        until(&what, deadline, || self.child.try_wait().expect("our own child can be waited for"))
    }

    /// Whether the leader still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("our own child can be waited for").is_none()
    }

    fn rustix_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Failing means that nobody is left.
        kill_process_group(self.rustix_pid(), Signal::KILL).ok();
        drop(self.child.wait());
    }
}

/// A process that cannot be mistaken for a later one with the same id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Witness {
    /// Its id.
    pub pid: u32,
    /// When it started, in ticks of the system.
    started: u64,
    /// The first words of its command line, for messages.
    pub command: String,
}

impl Witness {
    /// The process with this id, if there is one.
    pub fn of(pid: u32) -> Option<Self> {
        Stat::read(pid).filter(|stat| !stat.zombie).map(|stat| Self {
            pid,
            started: stat.started,
            command: command_line(pid),
        })
    }

    /// Whether it still runs.
    pub fn runs(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started && !stat.zombie)
    }
}

/// All descendants of a process, as the system lists them now.
pub fn descendants(root: u32) -> BTreeSet<Witness> {
    let all: Vec<(u32, Stat)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, Stat::read(pid)?)))
        .collect();
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        found.extend(
            all.iter().filter(|(_, stat)| found.contains(&stat.parent)).map(|(pid, _)| *pid).collect::<Vec<_>>(),
        );
        if found.len() == before {
            break;
        }
    }
    found.remove(&root);
    found.into_iter().filter_map(Witness::of).collect()
}

/// Kills every process whose environment has this entry: the last net for those that were started by others.
pub fn kill_by_environment(entry: &str) {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|found| found.file_name().to_str()?.parse::<i32>().ok()) {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes()) {
            Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
        }
    }
}

/// Waits until none of these processes runs any more.
///
/// # Panics
/// With the survivors when the deadline passes first.
pub fn all_gone(witnesses: &BTreeSet<Witness>, deadline: Duration) {
    let mut left = Vec::new();
    let start = std::time::Instant::now();
    loop {
        left.clear();
        left.extend(witnesses.iter().filter(|witness| witness.runs()));
        if left.is_empty() {
            return;
        }
        assert!(start.elapsed() < deadline, "still running after {deadline:?}: {left:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Stat {
    parent: u32,
    started: u64,
    zombie: bool,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses, which may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            zombie: matches!(*fields.first()?, "Z" | "X"),
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

fn command_line(pid: u32) -> String {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&raw).replace('\0', " ").chars().take(120).collect()
}
