//! The Linux levels from outside: the launcher stays as the monitor of one confined child.
//!
//! It forks the child into its namespaces, maps the user, lets exactly one `execve` pass, and then waits for whichever
//! ends first: the child, which it reaps and reports, or the daemon, whose end it answers by killing the child. The
//! child's death signal is tied to this process, which has one thread, so that killing the monitor kills the child too.

use std::{
    fs,
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};

use super::{OnStep as _, fault, inside, leave_descriptors, quota};
use crate::sandbox::{
    Exit, Level, Limit,
    control::{self, Order, Report},
    error::{Fault, Step},
    sys::linux::{self, Forked, Reaped},
};

const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;
/// How often a child is looked at that has no namespaces, and what it has in a scratch directory on the host's disk.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Who a program is when the daemon is root: nobody.
pub(super) const NOBODY: u32 = 65_534;
/// Who a program believes to be inside its user namespace; not 0, whose powers some code assumes.
pub(super) const INNER_ID: u32 = 1000;

/// Starts the confined child and watches over it to its end.
pub(super) fn run(control: &UnixStream, order: &Order, channel: OwnedFd) -> Result<ExitCode, Fault> {
    let root = rustix::process::geteuid().is_root();
    if root {
        leave_groups().on(Step::Identity, "setgroups")?;
    }
    let namespaces = if order.level == Level::Linux { NAMESPACES } else { 0 };
    let (sync, inner) = UnixStream::pair().on(Step::Fork, "socketpair")?;
    let step = if namespaces == 0 { Step::Fork } else { Step::Namespaces };
    let child = match linux::fork(namespaces).on(step, "clone")? {
        Forked::Child => {
            drop(sync);
            let Err(fault) = inside::run(order, channel, &inner, root);
            // The monitor may be gone; then nobody asks.
            let _told = control::send(&inner, &Report::Failed(fault));
            return Ok(ExitCode::FAILURE);
        }
        Forked::Parent { pid, pidfd } => Watched { pid, pidfd, reaped: false },
    };
    drop((inner, channel));
    leave_descriptors()?;
    if namespaces != 0 {
        map_user(child.pid, root)?;
    }
    let missing = admit(&child, &sync)?;
    control::send(control, &Report::Started { pid: child.pid, missing }).on(Step::Order, "report")?;
    let exit = child.watch(control, order)?;
    // The daemon may be gone; then nobody asks.
    let _told = control::send(control, &Report::Exited(exit));
    Ok(ExitCode::SUCCESS)
}

/// Gives up root's groups. Where the namespace that the daemon itself runs in forbids that for good, they stay.
fn leave_groups() -> io::Result<()> {
    match rustix::thread::set_thread_groups(&[]) {
        Err(rustix::io::Errno::PERM) if fs::read_to_string("/proc/self/setgroups")?.trim() == "deny" => Ok(()),
        other => Ok(other?),
    }
}

/// Maps one user and one group: the daemon's own, or nobody's when it is root.
fn map_user(pid: i32, root: bool) -> Result<(), Fault> {
    let (uid, gid) = if root {
        (NOBODY, NOBODY)
    } else {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    };
    for (name, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{INNER_ID} {uid} 1")),
        ("gid_map", format!("{INNER_ID} {gid} 1")),
    ] {
        fs::write(format!("/proc/{pid}/{name}"), text).on(Step::UserMap, name)?;
    }
    Ok(())
}

/// Lets the child set itself up and execute once; returns the depth layers it lacks.
fn admit(child: &Watched, sync: &UnixStream) -> Result<Vec<(String, String)>, Fault> {
    (&mut &*sync).write_all(&[1]).on(Step::Fork, "go")?;
    let died = |step| move |error: io::Error| fault(step, error.raw_os_error().unwrap_or(0), "the child died");
    let (report, descriptors) = control::receive::<Report>(sync).map_err(died(Step::Fork))?;
    let missing = match report {
        Report::Prepared { missing } => missing,
        Report::Failed(fault) => return Err(fault),
        other => return Err(fault(Step::Fork, 0, format!("unexpected report {other:?}"))),
    };
    let [listener] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| fault(Step::Seccomp, 0, "no listener"))?;
    // Either the execve arrives, or the child is gone and there is nothing to wait for.
    let mut ready = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&child.pidfd, PollFlags::IN)];
    wait(&mut ready, None).on(Step::Seccomp, "poll")?;
    if ready[0].revents().contains(PollFlags::IN) {
        linux::let_one_call_pass(listener.as_fd()).on(Step::Exec, "notification")?;
    }
    // Without a listener, every later execve answers ENOSYS.
    drop(listener);
    match control::receive::<Report>(sync) {
        Ok((Report::Failed(fault), _)) => Err(fault),
        Ok((other, _)) => Err(fault(Step::Exec, 0, format!("unexpected report {other:?}"))),
        // The socket closed at execve.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(missing),
        Err(error) => Err(died(Step::Exec)(error)),
    }
}

fn wait(descriptors: &mut [PollFd<'_>], at_most: Option<&Timespec>) -> io::Result<usize> {
    loop {
        match poll(descriptors, at_most) {
            Ok(woken) => return Ok(woken),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The child as its monitor holds it: killed and reaped with the value, whatever happens.
struct Watched {
    pid: i32,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Watched {
    fn watch(mut self, control: &UnixStream, order: &Order) -> Result<Exit, Fault> {
        let mut over = None;
        loop {
            let mut ready = [PollFd::new(&self.pidfd, PollFlags::IN), PollFd::new(control, PollFlags::IN)];
            let woken = wait(&mut ready, order.scratch.is_some().then_some(&LOOK)).on(Step::Fork, "poll")?;
            if !ready[0].revents().is_empty() {
                break;
            }
            if woken == 0 {
                over = self.exceeded(order);
                if over.is_none() {
                    continue;
                }
            }
            // The daemon says nothing on this socket, so whatever comes is its wish for an end, or its own end.
            self.kill();
            break;
        }
        let Reaped { status, cpu_seconds: used } = linux::reap(self.pid).on(Step::Fork, "wait4")?;
        self.reaped = true;
        Ok(over.map_or_else(|| exit(status, used >= order.limits.cpu_seconds), Exit::Limit))
    }

    /// The limit that a child without namespaces is over.
    fn exceeded(&self, order: &Order) -> Option<Limit> {
        let limits = &order.limits;
        // A child that cannot be looked at has just ended.
        let threads =
            fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok().and_then(|stat| quota::threads(&stat));
        if threads.is_some_and(|threads| threads > limits.threads) {
            return Some(Limit::Threads);
        }
        let scratch = order.scratch.as_deref()?;
        quota::is_exceeded(scratch, limits.scratch_bytes).then_some(Limit::Scratch)
    }

    fn kill(&self) {
        // ESRCH is the aim.
        let _gone = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _gone = linux::reap(self.pid);
        }
    }
}

fn exit(status: i32, spent: bool) -> Exit {
    if libc::WIFSIGNALED(status) {
        match libc::WTERMSIG(status) {
            libc::SIGXCPU => Exit::Limit(Limit::CpuTime),
            libc::SIGKILL if spent => Exit::Limit(Limit::CpuTime),
            signal => Exit::Signal(signal),
        }
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}
