//! The macOS level: the launcher forks, the child becomes `sandbox-exec` and with it the interpreter, and the launcher stays
//! to watch what macOS does not bound: memory, and the scratch directory as a whole.

use std::{
    convert::Infallible,
    io::{self, Read as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use super::{OnStep as _, arrange_descriptors, common_limits, fault, leave_descriptors, quota};
use crate::sandbox::{
    Exit, Limit,
    control::{self, Order, Report},
    error::{Fault, Step},
    seatbelt::SCRATCH,
    sys::macos::{self, Forked, Woken},
};

/// By its full name: `PATH` is not asked.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";
/// How often memory is looked at. The scratch directory is looked at every fifth time.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS_PER_SCRATCH: u32 = 5;

/// Starts the child and watches over it to its end.
pub(super) fn run(control: &UnixStream, order: &Order, channel: OwnedFd) -> Result<ExitCode, Fault> {
    let scratch = order.scratch.as_deref().ok_or_else(|| fault(Step::Order, 0, "no scratch directory"))?;
    let (sync, inner) = UnixStream::pair().on(Step::Fork, "socketpair")?;
    let pid = match macos::fork().on(Step::Fork, "fork")? {
        Forked::Child => {
            drop(sync);
            let Err(fault) = become_interpreter(order, channel, scratch);
            // The monitor may be gone; then nobody asks.
            let _told = control::send(&inner, &Report::Failed(fault));
            return Ok(ExitCode::FAILURE);
        }
        Forked::Parent(pid) => pid,
    };
    let child = Watched { pid, reaped: false };
    drop((inner, channel));
    leave_descriptors()?;
    match control::receive::<Report>(&sync) {
        Ok((Report::Failed(fault), _)) => return Err(fault),
        Ok((other, _)) => return Err(fault(Step::Exec, 0, format!("unexpected report {other:?}"))),
        // The socket closed at execve.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(fault(Step::Exec, error.raw_os_error().unwrap_or(0), "the child died")),
    }
    control::send(control, &Report::Started { pid, missing: Vec::new() }).on(Step::Order, "report")?;
    let exit = child.watch(control, order, scratch)?;
    // The daemon may be gone; then nobody asks.
    let _told = control::send(control, &Report::Exited(exit));
    Ok(ExitCode::SUCCESS)
}

fn become_interpreter(order: &Order, channel: OwnedFd, scratch: &Path) -> Result<Infallible, Fault> {
    let seatbelt = order.seatbelt.as_ref().ok_or_else(|| fault(Step::Order, 0, "no profile"))?;
    rustix::process::chdir(scratch).on(Step::Scratch, "chdir")?;
    arrange_descriptors(channel)?;
    common_limits(&order.limits)?;
    let mut command = Command::new(SANDBOX_EXEC);
    command.arg("-p").arg(&seatbelt.text);
    for (name, value) in &seatbelt.parameters {
        command.arg("-D").arg(format!("{name}={value}"));
    }
    command.arg("-D").arg(format!("{SCRATCH}={}", scratch.display()));
    let error = command.arg(&order.image).args(&order.arguments).env_clear().exec();
    Err(fault(Step::Seatbelt, error.raw_os_error().unwrap_or(0), SANDBOX_EXEC))
}

/// The child as its monitor holds it: killed and reaped with the value, whatever happens.
struct Watched {
    pid: i32,
    reaped: bool,
}

impl Watched {
    fn watch(mut self, control: &UnixStream, order: &Order, scratch: &Path) -> Result<Exit, Fault> {
        let queue = macos::Queue::of(self.pid, control).on(Step::Fork, "kqueue")?;
        let mut killed_for = None;
        let mut looks = 0_u32;
        loop {
            match queue.wait(LOOK).on(Step::Fork, "kevent")? {
                Woken::Ended => break,
                Woken::Control => {
                    // The daemon says nothing on this socket, so whatever comes is its wish for an end, or its own end.
                    let mut byte = [0];
                    let _said = (&mut &*control).read(&mut byte);
                    break;
                }
                Woken::Timer => {
                    looks = looks.wrapping_add(1);
                    if macos::memory(self.pid).is_some_and(|bytes| bytes > order.limits.memory_bytes) {
                        killed_for = Some(Limit::Memory);
                        break;
                    }
                    if looks.is_multiple_of(LOOKS_PER_SCRATCH)
                        && quota::is_exceeded(scratch, order.limits.scratch_bytes)
                    {
                        killed_for = Some(Limit::Scratch);
                        break;
                    }
                }
            }
        }
        // Harmless when it has ended: it is not reaped yet, so the number is still its own.
        macos::kill(self.pid);
        let status = macos::reap(self.pid).on(Step::Fork, "waitpid")?;
        self.reaped = true;
        Ok(killed_for.map_or_else(|| exit(status), Exit::Limit))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.reaped {
            macos::kill(self.pid);
            let _gone = macos::reap(self.pid);
        }
    }
}

fn exit(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        match libc::WTERMSIG(status) {
            libc::SIGXCPU => Exit::Limit(Limit::CpuTime),
            signal => Exit::Signal(signal),
        }
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}
