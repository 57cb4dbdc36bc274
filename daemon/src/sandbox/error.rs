//! Why a program's child could not be had, in words for people: what failed, on what, what to do.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

/// How a child is confined; the parsed form of `execution.sandbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Linux namespaces, an exact file view, seccomp, limits and Landlock.
    Linux,
    /// Linux without namespaces: Landlock, seccomp and limits.
    Landlock,
    /// macOS Seatbelt.
    Seatbelt,
    /// No OS sandbox.
    None,
}

impl Level {
    /// The word in the config and in `status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Landlock => "landlock",
            Self::Seatbelt => "seatbelt",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One step of the launcher, named in every refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Reading the order and the descriptors.
    Order,
    /// A session and process group of its own.
    Session,
    /// Descriptors 0 to 3.
    Descriptors,
    /// Resource limits.
    Limits,
    /// Entering the scratch directory.
    Scratch,
    /// Creating the namespaces.
    Namespaces,
    /// Mapping the user into the user namespace.
    UserMap,
    /// Building the file view.
    View,
    /// Giving up user ids and groups.
    Identity,
    /// Giving up capabilities.
    Capabilities,
    /// `no_new_privs`.
    NoNewPrivileges,
    /// Landlock rules.
    Landlock,
    /// System call filter.
    Seccomp,
    /// macOS profile.
    Seatbelt,
    /// Starting the interpreter's process.
    Fork,
    /// Executing the interpreter.
    Exec,
}

impl Step {
    const fn words(self) -> &'static str {
        match self {
            Self::Order => "reading the launch order",
            Self::Session => "starting a session",
            Self::Descriptors => "arranging descriptors",
            Self::Limits => "setting resource limits",
            Self::Scratch => "entering the scratch directory",
            Self::Namespaces => "creating namespaces",
            Self::UserMap => "mapping the user into its namespace",
            Self::View => "building the file view",
            Self::Identity => "giving up user ids",
            Self::Capabilities => "dropping capabilities",
            Self::NoNewPrivileges => "setting no_new_privs",
            Self::Landlock => "applying Landlock rules",
            Self::Seccomp => "installing the system call filter",
            Self::Seatbelt => "applying the Seatbelt profile",
            Self::Fork => "starting a process",
            Self::Exec => "executing the interpreter",
        }
    }

    /// What a person can do about a failure of this step.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Namespaces | Self::UserMap => {
                "allow unprivileged user namespaces (Ubuntu: an AppArmor profile with `userns,` for ptcd, or \
                 `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; elsewhere `sysctl user.max_user_namespaces`), \
                 or choose the weaker `execution.sandbox: landlock`"
            }
            Self::View => {
                "mounting inside a user namespace is refused here (AppArmor, a container's seccomp profile or systemd's \
                 RestrictNamespaces=); allow it for ptcd, or choose the weaker `execution.sandbox: landlock`"
            }
            Self::Landlock => "boot a kernel of 5.19 or newer with `landlock` in its `lsm=` list",
            Self::Seccomp => "run a kernel with seccomp filters, outside a seccomp profile that forbids adding one",
            Self::Seatbelt => {
                "start ptcd from launchd or a plain terminal, since macOS refuses a sandbox inside another one"
            }
            Self::Limits => "raise the hard limits (`ulimit -H`) that ptcd itself runs under",
            Self::Fork => "raise the limit on processes (`ulimit -u`, `sysctl kernel.pid_max`)",
            Self::Exec => {
                "check that `execution.python` names a working interpreter; programs of a ptcd that root runs are \
                 `nobody`, who must be able to reach it"
            }
            Self::Scratch => "check that the state directory is writable and its disk not full",
            Self::Order
            | Self::Session
            | Self::Descriptors
            | Self::Identity
            | Self::Capabilities
            | Self::NoNewPrivileges => "run `ptcctl doctor` and report what it prints",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// A failed step as the launcher reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The step.
    pub step: Step,
    /// The system's error number, 0 when there is none.
    pub errno: i32,
    /// On what: a path, a limit, a system call.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed", self.step)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        if self.errno != 0 {
            write!(f, ": {}", std::io::Error::from_raw_os_error(self.errno))?;
        }
        write!(f, "; {}", self.remedy())
    }
}

impl Fault {
    fn remedy(&self) -> &'static str {
        match (self.step, self.errno) {
            (Step::View | Step::Exec, libc::ENOENT) => {
                "the interpreter was replaced or removed while ptcd ran; it is looked for anew, so run the program again"
            }
            (step, _) => step.remedy(),
        }
    }
}

/// Why there is no child. Cloned into every refused program, so it holds text rather than `io::Error`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SandboxError {
    /// No interpreter was found.
    #[error(
        "no usable Python 3.11 or newer was found ({tried}); install one, or set `execution.python` to the path of one"
    )]
    NoInterpreter {
        /// Each candidate with what was wrong.
        tried: String,
    },
    /// The configured interpreter cannot be used.
    #[error(
        "`execution.python` is `{path}`, which cannot run programs: {reason}; set it to the path of Python 3.11 or newer, \
         or take it out to have one searched for"
    )]
    Interpreter {
        /// As configured.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The configured level belongs to another system.
    #[error("sandbox `{level}` does not exist on this system; set `execution.sandbox: auto`")]
    OtherSystem {
        /// The configured level.
        level: Level,
    },
    /// A step of the launcher failed; nothing ran.
    #[error("sandbox `{level}` is not available: {fault}")]
    Step {
        /// The configured level.
        level: Level,
        /// The failed step.
        fault: Fault,
    },
    /// The launcher could not be started or ended without a word.
    #[error("the sandbox launcher `{launcher}` failed: {reason}; check that ptcd's own binary can be executed")]
    Launcher {
        /// Its path.
        launcher: PathBuf,
        /// What happened.
        reason: String,
    },
    /// A scratch directory could not be made.
    #[error("scratch directory `{path}` cannot be used: {reason}; check the state directory's owner and free space")]
    Scratch {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// The child is not confined as configured; it was not given the program.
    #[error("child {pid} is not confined as configured: {mismatch}; nothing was run, report this")]
    Attestation {
        /// The child.
        pid: i32,
        /// What `/proc` says against what was expected.
        mismatch: String,
    },
    /// The self-test at the start found a hole, so programs are refused.
    #[error("the self-test of sandbox `{level}` failed: {failed}; nothing is run, report this")]
    SelfTest {
        /// The configured level.
        level: Level,
        /// What went through, or what stopped working.
        failed: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_step_errno_and_remedy() {
        let fault = Fault { step: Step::Namespaces, errno: libc::ENOSPC, detail: "clone".into() };
        let text = SandboxError::Step { level: Level::Linux, fault }.to_string();
        assert!(text.starts_with(
            "sandbox `linux` is not available: creating namespaces failed (clone): No space left on device"
        ));
        assert!(text.contains("user.max_user_namespaces"), "{text}");
        let gone = Fault { step: Step::View, errno: libc::ENOENT, detail: "/usr/bin/python3.13".into() }.to_string();
        assert!(gone.contains("/usr/bin/python3.13") && gone.ends_with("run the program again"), "{gone}");
    }
}
