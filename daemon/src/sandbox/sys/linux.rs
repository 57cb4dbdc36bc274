//! Linux system calls without a safe form elsewhere.

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    ptr,
};

use crate::sandbox::seccomp::Instruction;

/// Which of the two processes this is after a fork.
#[derive(Debug)]
pub(in crate::sandbox) enum Forked {
    /// The new one.
    Child,
    /// The old one.
    Parent {
        /// The new process as seen from here.
        pid: i32,
        /// A descriptor of the new process, safe against reuse of its number.
        pidfd: OwnedFd,
    },
}

/// Forks this single-threaded process into the namespaces of `flags` (`CLONE_NEW*`, or 0 for none).
#[expect(unsafe_code, reason = "clone into namespaces has no safe interface")]
pub(in crate::sandbox) fn fork(flags: libc::c_int) -> io::Result<Forked> {
    let mut pidfd: libc::c_int = -1;
    let flags = libc::c_long::from(flags | libc::CLONE_PIDFD | libc::SIGCHLD);
    // SAFETY: without CLONE_VM this is fork: the new process has a copy of the memory and goes on from here on its copy
    // of the stack. There is one thread, so no lock is held by a thread that is missing there. The third argument points
    // to an int that outlives the call; on both architectures it is where CLONE_PIDFD puts the descriptor.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, &raw mut pidfd, 0_usize, 0_usize) };
    match pid {
        0 => Ok(Forked::Child),
        1.. => {
            // SAFETY: the call succeeded, so the kernel has put a fresh descriptor there, owned by nobody else.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Parent { pid: i32::try_from(pid).map_err(io::Error::other)?, pidfd })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets attributes (`MOUNT_ATTR_*`) of a mount, and of those below it when `deep`, and makes it private.
#[expect(unsafe_code, reason = "mount_setattr has no safe interface")]
pub(in crate::sandbox) fn set_mount_attributes(mount: BorrowedFd<'_>, set: u64, deep: bool) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        userns: u64,
    }
    let attributes = Attributes { set, clear: 0, propagation: libc::MS_PRIVATE, userns: 0 };
    let flags = libc::AT_EMPTY_PATH | if deep { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a static C string, the structure has the kernel's layout and the size that is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes every capability out of the bounding set.
#[expect(unsafe_code, reason = "capabilities newer than a crate's list have no safe interface")]
pub(in crate::sandbox) fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..64_u64 {
        // SAFETY: takes integers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            let error = io::Error::last_os_error();
            // The first number that the kernel does not know ends the list.
            return if error.raw_os_error() == Some(libc::EINVAL) && capability > 30 { Ok(()) } else { Err(error) };
        }
    }
    Ok(())
}

/// Refuses memory that is writable and executable, and turning memory executable, for this process and what it executes.
#[expect(unsafe_code, reason = "PR_SET_MDWE has no safe interface")]
pub(in crate::sandbox) fn deny_write_execute() -> io::Result<()> {
    const REFUSE_EXEC_GAIN: u64 = 1;
    // SAFETY: takes integers only.
    if unsafe { libc::prctl(libc::PR_SET_MDWE, REFUSE_EXEC_GAIN, 0_u64, 0_u64, 0_u64) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether a filter gets a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Listener {
    /// `Verdict::Notify` asks the descriptor that comes back.
    Wanted,
    /// It has no `Verdict::Notify`.
    None,
}

/// Installs a system call filter on this thread.
#[expect(unsafe_code, reason = "seccomp has no safe interface")]
pub(in crate::sandbox) fn install_filter(program: &[Instruction], listener: Listener) -> io::Result<Option<OwnedFd>> {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    let flags = match listener {
        Listener::Wanted => libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
        Listener::None => 0,
    };
    // SAFETY: `Instruction` has the layout of `sock_filter`; pointer and length describe a slice that outlives the call,
    // and the kernel only reads it.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    match listener {
        Listener::None => Ok(None),
        Listener::Wanted => {
            let descriptor = i32::try_from(result).map_err(io::Error::other)?;
            // SAFETY: with this flag the result is a fresh descriptor, owned by nobody else.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) }))
        }
    }
}

/// Takes one notification and lets its call go on.
#[expect(unsafe_code, reason = "seccomp notifications have no safe interface")]
pub(in crate::sandbox) fn let_one_call_pass(listener: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all-zero is a valid value of this plain structure, and the kernel demands it.
    let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the structure is of the size that the request number carries.
    let received = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notification) };
    if received != 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).map_err(io::Error::other)?;
    let answer = libc::seccomp_notif_resp { id: notification.id, val: 0, error: 0, flags };
    // SAFETY: as above; the kernel reads the structure.
    let sent = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Executes a file with an empty environment; comes back with the reason only. Makes no other system call.
#[expect(unsafe_code, reason = "std's exec makes calls that the filter refuses")]
pub(in crate::sandbox) fn execute(image: &CString, arguments: &[CString]) -> io::Error {
    let mut argv: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    argv.push(ptr::null());
    let environment = [ptr::null()];
    // SAFETY: path, vectors and strings are null-terminated and outlive the call.
    unsafe { libc::execve(image.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// A reaped process.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) struct Reaped {
    /// As from `wait`.
    pub status: i32,
    /// CPU time of the process, whole seconds.
    pub cpu_seconds: u64,
}

/// Waits for a child of this process.
#[expect(unsafe_code, reason = "wait4 has no safe interface")]
pub(in crate::sandbox) fn reap(pid: i32) -> io::Result<Reaped> {
    let mut status = 0;
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to values that outlive the call.
        let reaped = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        if reaped == pid {
            let microseconds = usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
            let seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + microseconds / 1_000_000;
            return Ok(Reaped { status, cpu_seconds: u64::try_from(seconds).unwrap_or(0) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The Landlock ABI of the kernel, 0 when there is none.
#[expect(unsafe_code, reason = "asking for Landlock's version has no safe interface")]
pub(in crate::sandbox) fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no structure and only answers a number.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}
