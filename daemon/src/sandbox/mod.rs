//! Confines the child that runs a program; one backend a file.
//!
//! The daemon re-executes its own binary as a small single-threaded launcher ([`launcher_main`]), which closes doors and
//! then executes the interpreter. This module owns the child's confinement, its scratch directory and its end; it must
//! never know what is said on the child's channel. Unsafe code lives here and nowhere else in the project.

mod attest;
mod child;
mod control;
mod error;
mod interpreter;
mod launcher;
mod prepare;
mod scratch;
mod seatbelt;
#[cfg(target_os = "linux")]
mod seccomp;
mod sys;
mod view;

use std::{fmt, path::PathBuf, sync::Arc};

use ptc_protocol::api::SandboxStatus;
use serde::{Deserialize, Serialize};

use self::prepare::Ready;
pub use self::{
    child::{Child, Streams},
    error::{Fault, Level, SandboxError, Step},
    launcher::{SUBCOMMAND, launcher_main},
};
use crate::{config::settings::SandboxChoice, guardian::Guardian};

/// What to prepare for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPlan {
    /// `execution.sandbox`.
    pub choice: SandboxChoice,
    /// `execution.python`; none means to look for one.
    pub python: Option<PathBuf>,
    /// Limits of each child.
    pub limits: ChildLimits,
    /// Where scratch directories may be made; created with mode 0700 when it is missing.
    pub scratch_root: PathBuf,
    /// The Python text that the interpreter runs; it must be shorter than 128 KiB, since Linux bounds one argument.
    pub bootstrap: &'static str,
    /// A binary that answers to [`SUBCOMMAND`] with [`launcher_main`]: the daemon's own.
    pub launcher: PathBuf,
}

/// Limits of one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildLimits {
    /// Private writable memory, bytes.
    pub memory_bytes: u64,
    /// CPU time, seconds.
    pub cpu_seconds: u64,
    /// Files in the scratch directory, bytes together.
    pub scratch_bytes: u64,
    /// Open descriptors.
    pub open_files: u64,
    /// Threads, where the system can bound them for one child.
    pub threads: u64,
}

impl ChildLimits {
    /// Stack of the first thread, bytes; the usual default of Linux.
    const STACK_BYTES: u64 = 8 << 20;

    /// Bounds runaway mappings only: address space is reserved generously, 64 MiB and more a thread.
    fn address_space_bytes(&self) -> u64 {
        self.memory_bytes.saturating_mul(4).max(4 << 30)
    }
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self { memory_bytes: 1 << 30, cpu_seconds: 300, scratch_bytes: 64 << 20, open_files: 128, threads: 64 }
    }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Killed for going over a limit that ends a process.
    Limit(Limit),
    /// Its end was not seen: the launcher was killed with it.
    Lost,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(number) => match rustix::process::Signal::from_named_raw(*number).map(signal_name) {
                Some(name) => write!(f, "killed by {name}"),
                None => write!(f, "killed by signal {number}"),
            },
            Self::Limit(Limit::Memory) => f.write_str("killed: over its memory limit"),
            Self::Limit(Limit::CpuTime) => f.write_str("killed: over its CPU time limit"),
            Self::Limit(Limit::Scratch) => f.write_str("killed: over its scratch space limit"),
            Self::Limit(Limit::Threads) => f.write_str("killed: over its limit of threads"),
            Self::Lost => f.write_str("gone, its exit status was lost"),
        }
    }
}

/// Name of a signal, as in signal(7).
fn signal_name(signal: rustix::process::Signal) -> String {
    let debug = format!("{signal:?}");
    format!("SIG{}", debug.trim_matches('"').trim_start_matches("Signal::"))
}

/// Limits that end a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Memory.
    Memory,
    /// CPU time.
    CpuTime,
    /// Space in the scratch directory.
    Scratch,
    /// Threads, where the system counts them with those of the user's other processes.
    Threads,
}

/// The prepared sandbox, or the reason there is none. Clones share it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    prepared: Arc<Prepared>,
}

#[derive(Debug)]
struct Prepared {
    level: Level,
    status: SandboxStatus,
    ready: Result<Ready, SandboxError>,
}

impl Sandbox {
    /// Finds the interpreter, sets up the level and tries it. Never fails: a sandbox that cannot be had is a
    /// [`refusal`](Self::refusal), and every [`spawn`](Self::spawn) answers with it.
    pub async fn prepare(plan: SandboxPlan, guardian: Guardian) -> Self {
        let level = level(plan.choice);
        let (ready, layers) = prepare::prepare(plan, level, guardian).await;
        let status = SandboxStatus {
            level: level.to_string(),
            layers,
            error: ready.as_ref().err().map(ToString::to_string),
            python: ready
                .as_ref()
                .ok()
                .map(|ready| format!("{} ({})", ready.interpreter.image.display(), ready.interpreter.version())),
        };
        Self { prepared: Arc::new(Prepared { level, status, ready }) }
    }

    /// For `status`: level, layers, why programs are refused, the interpreter.
    #[must_use]
    pub fn status(&self) -> SandboxStatus {
        self.prepared.status.clone()
    }

    /// The level in force, or wanted.
    #[must_use]
    pub fn level(&self) -> Level {
        self.prepared.level
    }

    /// Why programs are refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&SandboxError> {
        self.prepared.ready.as_ref().err()
    }

    /// Starts one child: confined, its runtime booting, without a program. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// The [`refusal`](Self::refusal), or what failed this time.
    pub async fn spawn(&self) -> Result<Child, SandboxError> {
        let ready = self.prepared.ready.as_ref().map_err(Clone::clone)?;
        Child::start(ready, ready.plan.bootstrap).await
    }
}

/// The level that a choice means on this system; `auto` never means `none`.
const fn level(choice: SandboxChoice) -> Level {
    match choice {
        SandboxChoice::Auto if cfg!(target_os = "macos") => Level::Seatbelt,
        SandboxChoice::Auto | SandboxChoice::Linux => Level::Linux,
        SandboxChoice::Landlock => Level::Landlock,
        SandboxChoice::Seatbelt => Level::Seatbelt,
        SandboxChoice::None => Level::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_the_systems_own_and_never_none() {
        let own = if cfg!(target_os = "macos") { Level::Seatbelt } else { Level::Linux };
        assert_eq!(level(SandboxChoice::Auto), own);
        assert_eq!(level(SandboxChoice::None), Level::None);
    }
}
