//! The system calls that rustix and std do not offer in a safe form.

#[cfg(target_os = "linux")]
pub(super) mod linux;
#[cfg(target_os = "macos")]
pub(super) mod macos;

use std::{io, os::fd::RawFd};

/// Gives every signal its default action and unblocks all, so that the interpreter starts as from a shell: Rust's
/// runtime ignores SIGPIPE, and dispositions survive `execve`.
#[expect(unsafe_code, reason = "signal dispositions have no safe interface")]
pub(super) fn default_signals() {
    for signal in 1..=31 {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: SIG_DFL is a valid disposition for every signal, and the launcher has no handlers that it needs.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set it is given, which outlives both calls.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set was initialised just above; a null old set is allowed.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) };
}

/// What happens to a range of descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Closed now.
    Close,
    /// Closed by `execve`.
    CloseOnExec,
}

/// Closes the descriptors from `first` to `last`, or marks them so.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "close_range has no safe interface")]
pub(super) fn close_range(first: RawFd, last: RawFd, fate: Fate) -> io::Result<()> {
    let flags: libc::c_uint = match fate {
        Fate::Close => 0,
        Fate::CloseOnExec => libc::CLOSE_RANGE_CLOEXEC,
    };
    let first = libc::c_uint::try_from(first).map_err(io::Error::other)?;
    let last = libc::c_uint::try_from(last).map_err(io::Error::other)?;
    // SAFETY: takes integers only. With `Fate::Close` it is called before this process owns any descriptor in the
    // range, so no owner is left with a closed one.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes the descriptors from `first` to `last`, or marks them so.
#[cfg(not(target_os = "linux"))]
#[expect(unsafe_code, reason = "closing inherited descriptors has no safe interface")]
pub(super) fn close_range(first: RawFd, last: RawFd, fate: Fate) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let open = unsafe { libc::getdtablesize() };
    for descriptor in first..=last.min(open.min(65_536) - 1) {
        // A number that is not open answers EBADF, which is fine.
        match fate {
            // SAFETY: takes integers only; nothing in this range has an owner in this process.
            Fate::Close => unsafe { libc::close(descriptor) },
            // SAFETY: takes integers only.
            Fate::CloseOnExec => unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) },
        };
    }
    Ok(())
}

/// Makes `target` a copy of `source` that `execve` keeps.
#[expect(unsafe_code, reason = "dup2 onto a fixed number has no safe interface")]
pub(super) fn place(source: RawFd, target: RawFd) -> io::Result<()> {
    debug_assert_ne!(source, target, "dup2 onto itself would keep close-on-exec");
    // SAFETY: takes integers only. The targets 0 to 3 belong to nobody in the launcher: they are what the child gets.
    if unsafe { libc::dup2(source, target) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
