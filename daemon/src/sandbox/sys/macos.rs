//! macOS system calls without a safe form elsewhere.

use std::{
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    ptr,
    time::Duration,
};

/// Which of the two processes this is after a fork.
#[derive(Debug)]
pub(in crate::sandbox) enum Forked {
    /// The new one.
    Child,
    /// The old one, with the new one's process id.
    Parent(i32),
}

/// Forks this single-threaded process.
#[expect(unsafe_code, reason = "fork has no safe interface")]
pub(in crate::sandbox) fn fork() -> io::Result<Forked> {
    // SAFETY: there is one thread, so no lock is held by a thread that is missing in the new process.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid @ 1.. => Ok(Forked::Parent(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Kills a child that has not been reaped.
#[expect(unsafe_code, reason = "kill by number")]
pub(in crate::sandbox) fn kill(pid: i32) {
    // SAFETY: takes integers only.
    let _ended = unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Waits for a child; its status as from `wait`.
#[expect(unsafe_code, reason = "waitpid with the raw status")]
pub(in crate::sandbox) fn reap(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to a value that outlives the call.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            return Ok(status);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Memory of a process as macOS counts it against limits of its own; none when it cannot be told.
#[expect(unsafe_code, reason = "proc_pid_rusage has no safe interface")]
pub(in crate::sandbox) fn memory(pid: i32) -> Option<u64> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut usage: libc::rusage_info_v2 = unsafe { std::mem::zeroed() };
    // SAFETY: the flavour names the structure that the pointer leads to, which outlives the call.
    let result = unsafe { libc::proc_pid_rusage(pid, libc::RUSAGE_INFO_V2, (&raw mut usage).cast()) };
    (result == 0).then_some(usage.ri_phys_footprint)
}

/// Whether a process is under a Seatbelt profile, asked from outside; none when it cannot be told.
#[expect(unsafe_code, reason = "sandbox_check has no safe interface")]
pub(in crate::sandbox) fn is_sandboxed(pid: i32) -> bool {
    unsafe extern "C" {
        fn sandbox_check(pid: libc::pid_t, operation: *const libc::c_char, kind: libc::c_int, ...) -> libc::c_int;
    }
    // SAFETY: without an operation the call takes no further arguments and only looks at the process.
    let answer = unsafe { sandbox_check(pid, ptr::null(), 0) };
    answer == 1
}

/// What a [`Queue`] woke for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Woken {
    /// The child has ended.
    Ended,
    /// Something came, or the end, on the control socket.
    Control,
    /// Nothing within the time given.
    Timer,
}

/// Waits for a child's end and a socket at once.
#[derive(Debug)]
pub(in crate::sandbox) struct Queue(OwnedFd);

impl Queue {
    /// Watches this child and this socket.
    #[expect(unsafe_code, reason = "kqueue has no safe interface")]
    pub(in crate::sandbox) fn of(pid: i32, socket: &UnixStream) -> io::Result<Self> {
        // SAFETY: takes no arguments.
        let descriptor = unsafe { libc::kqueue() };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so this is a fresh descriptor, owned by nobody else.
        let queue = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let ident = |number: i32| usize::try_from(number).map_err(io::Error::other);
        let changes = [
            event(ident(pid)?, libc::EVFILT_PROC, libc::NOTE_EXIT),
            event(ident(socket.as_raw_fd())?, libc::EVFILT_READ, 0),
        ];
        // SAFETY: the pointer and the count describe an array that outlives the call; no events are asked for.
        let result = unsafe { libc::kevent(queue.as_raw_fd(), changes.as_ptr(), 2, ptr::null_mut(), 0, ptr::null()) };
        if result < 0 {
            let error = io::Error::last_os_error();
            // The child may have ended before it could be watched; the first wait then says so.
            if error.raw_os_error() != Some(libc::ESRCH) {
                return Err(error);
            }
        }
        Ok(Self(queue))
    }

    /// Waits for one of them, at most this long.
    #[expect(unsafe_code, reason = "kevent has no safe interface")]
    pub(in crate::sandbox) fn wait(&self, at_most: Duration) -> io::Result<Woken> {
        let limit = libc::timespec {
            tv_sec: i64::try_from(at_most.as_secs()).map_err(io::Error::other)?,
            tv_nsec: i64::from(at_most.subsec_nanos()),
        };
        let mut woken = event(0, 0, 0);
        // SAFETY: one event is asked for and there is room for one; the time outlives the call.
        let count = unsafe { libc::kevent(self.0.as_raw_fd(), ptr::null(), 0, &raw mut woken, 1, &raw const limit) };
        match count {
            0 => Ok(Woken::Timer),
            1.. if woken.filter == libc::EVFILT_PROC => Ok(Woken::Ended),
            1.. => Ok(Woken::Control),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted { Ok(Woken::Timer) } else { Err(error) }
            }
        }
    }
}

const fn event(ident: usize, filter: i16, fflags: u32) -> libc::kevent {
    libc::kevent { ident, filter, flags: libc::EV_ADD, fflags, data: 0, udata: ptr::null_mut() }
}
