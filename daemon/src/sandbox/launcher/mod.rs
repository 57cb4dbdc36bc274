//! `ptcd __sandbox`: the single-threaded process between the daemon and the interpreter.
//!
//! It is told what to do over its stdin, a socket, so that nothing stands in its arguments or environment. It must be
//! entered before any thread exists, since it changes what threads share and forks.

#[cfg(target_os = "linux")]
mod confined;
mod direct;
#[cfg(target_os = "linux")]
mod inside;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod mounts;
mod quota;
#[cfg(target_os = "macos")]
mod seatbelt;

use std::{
    convert::Infallible,
    fs::File,
    io,
    ops::RangeInclusive,
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
};

use rustix::process::{Resource, Rlimit};

use super::{
    ChildLimits, Level,
    control::{self, Order, Report},
    error::{Fault, Step},
    sys::{self, Fate},
};

/// The hidden subcommand of `ptcd` that runs [`launcher_main`].
pub const SUBCOMMAND: &str = "__sandbox";

/// Private descriptors are kept from here on, clear of the numbers that the child gets.
const PRIVATE: RawFd = 10;
/// The child's channel.
const CHANNEL: RawFd = 3;

/// Runs the launcher. Everything it needs comes over stdin. The exit status says nothing: reports do.
#[must_use]
pub fn launcher_main() -> ExitCode {
    let Ok(control) = take_control() else { return ExitCode::FAILURE };
    match run(&control) {
        Ok(code) => code,
        Err(fault) => {
            // Nobody is left to tell when this fails: the daemon is gone.
            let _told = control::send(&control, &Report::Failed(fault));
            ExitCode::FAILURE
        }
    }
}

fn run(control: &UnixStream) -> Result<ExitCode, Fault> {
    let (order, descriptors) = control::receive::<Order>(control).on(Step::Order, "")?;
    let [channel] = <[OwnedFd; 1]>::try_from(descriptors)
        .map_err(|got| fault(Step::Order, 0, format!("{} descriptors instead of 1", got.len())))?;
    rustix::process::setsid().on(Step::Session, "setsid")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    sys::default_signals();
    match order.level {
        Level::None => match direct::run(control, &order, channel)? {},
        #[cfg(target_os = "linux")]
        Level::Linux | Level::Landlock => confined::run(control, &order, channel),
        #[cfg(target_os = "macos")]
        Level::Seatbelt => seatbelt::run(control, &order, channel),
        #[expect(unreachable_patterns, reason = "which levels are left differs between systems")]
        level @ (Level::Linux | Level::Landlock | Level::Seatbelt) => {
            Err(fault(Step::Order, 0, format!("level {level} is unknown here")))
        }
    }
}

/// Closes whatever was inherited beyond stdio and moves the control socket out of the child's numbers.
fn take_control() -> io::Result<UnixStream> {
    sys::close_range(CHANNEL, RawFd::MAX, Fate::Close)?;
    let control = rustix::io::fcntl_dupfd_cloexec(io::stdin(), PRIVATE)?;
    Ok(UnixStream::from(control))
}

/// Puts /dev/null on 0 and the channel on 3; 1 and 2 are the pipes already. Everything else closes at `execve`.
fn arrange_descriptors(channel: OwnedFd) -> Result<(), Fault> {
    let channel = rustix::io::fcntl_dupfd_cloexec(channel, PRIVATE).on(Step::Descriptors, "channel")?;
    place_null(0..=0)?;
    sys::place(channel.as_raw_fd(), CHANNEL).on(Step::Descriptors, "dup2")?;
    sys::close_range(CHANNEL + 1, RawFd::MAX, Fate::CloseOnExec).on(Step::Descriptors, "close_range")
}

/// What a monitor does once its child has them: gives up the pipes, whose end the daemon waits for.
fn leave_descriptors() -> Result<(), Fault> {
    place_null(0..=2)
}

fn place_null(mut targets: RangeInclusive<RawFd>) -> Result<(), Fault> {
    let null = File::open("/dev/null").on(Step::Descriptors, "/dev/null")?;
    let null = rustix::io::fcntl_dupfd_cloexec(null, PRIVATE).on(Step::Descriptors, "/dev/null")?;
    targets.try_for_each(|target| sys::place(null.as_raw_fd(), target)).on(Step::Descriptors, "dup2")
}

/// Sets the limits that every level has.
fn common_limits(limits: &ChildLimits) -> Result<(), Fault> {
    limit(Resource::Core, 0)?;
    if cfg!(target_os = "linux") {
        limit(Resource::Data, limits.memory_bytes)?;
        limit(Resource::As, limits.address_space_bytes())?;
        // The first thread's stack is not counted as data.
        limit(Resource::Stack, ChildLimits::STACK_BYTES)?;
    }
    limit(Resource::Fsize, limits.scratch_bytes)?;
    limit(Resource::Nofile, limits.open_files)?;
    // SIGXCPU, which names the cause, comes a second before SIGKILL, which cannot be ignored.
    limits_between(Resource::Cpu, limits.cpu_seconds, limits.cpu_seconds.saturating_add(1))
}

fn limit(resource: Resource, value: u64) -> Result<(), Fault> {
    limits_between(resource, value, value)
}

/// Sets soft and hard limit; a lower hard limit that is already in force stays.
fn limits_between(resource: Resource, soft: u64, hard: u64) -> Result<(), Fault> {
    let present = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(soft.min(present)), maximum: Some(hard.min(present)) };
    rustix::process::setrlimit(resource, limit).on(Step::Limits, format!("{resource:?}"))
}

fn fault(step: Step, errno: i32, detail: impl Into<String>) -> Fault {
    Fault { step, errno, detail: detail.into() }
}

/// Turns a system error into a report.
trait OnStep<T> {
    fn on(self, step: Step, detail: impl Into<String>) -> Result<T, Fault>;
}

impl<T, E: Into<io::Error>> OnStep<T> for Result<T, E> {
    fn on(self, step: Step, detail: impl Into<String>) -> Result<T, Fault> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            let detail: String = detail.into();
            match error.raw_os_error() {
                Some(errno) => fault(step, errno, detail),
                None if detail.is_empty() => fault(step, 0, error.to_string()),
                None => fault(step, 0, format!("{detail}: {error}")),
            }
        })
    }
}

/// Replaces this process by the interpreter; comes back with the reason only.
fn execute(order: &Order) -> Result<Infallible, Fault> {
    use std::os::unix::process::CommandExt as _;
    let error = std::process::Command::new(&order.image).args(&order.arguments).env_clear().exec();
    Err(fault(Step::Exec, error.raw_os_error().unwrap_or(0), order.image.to_string_lossy()))
}
