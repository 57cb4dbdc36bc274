//! Which system calls a program gets, checked by argument. Pure.
//!
//! An allowlist for CPython and its standard library. What is refused answers EPERM; calls that the C library or CPython
//! have a fallback for answer ENOSYS, so that the fallback is taken. Native code is to be assumed: every check holds
//! against hand-made calls, not only against Python's.

use super::{
    filter::{Clause, Filter, Rule, Test, Verdict},
    table::Arch,
};

const EPERM: u16 = 1;
const EACCES: u16 = 13;
const EINVAL: u16 = 22;
const ENOSYS: u16 = 38;
const EOPNOTSUPP: u16 = 95;

/// What differs between levels and kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) struct Policy {
    /// The child's own process id as it sees it: the only process it may signal.
    pub own_pid: u32,
    /// How changes of a file's attributes by path are answered.
    pub attributes: Attributes,
    /// Whether `truncate` by path is allowed: something else must bound it.
    pub truncate_by_path: bool,
    /// Whether memory that is writable and executable at once is refused.
    pub write_xor_execute: bool,
}

/// Calls that change mode, times or owner of a file. Landlock does not mediate them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Attributes {
    /// The mount view bounds them.
    Real,
    /// Nothing else bounds them: they do nothing and say that they did, which keeps `shutil.copy2` working.
    Pretended,
}

/// Carried out whatever the arguments.
const FREE: &str = "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 open openat creat close \
    close_range stat lstat fstat newfstatat statx lseek access faccessat faccessat2 dup dup2 dup3 fsync fdatasync \
    ftruncate fallocate fadvise64 getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir \
    unlink unlinkat link linkat symlink symlinkat readlink readlinkat umask statfs fstatfs \
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 \
    pipe pipe2 timerfd_create timerfd_settime timerfd_gettime munmap mremap madvise brk msync futex set_robust_list \
    set_tid_address rseq gettid sched_yield sched_get_priority_max sched_get_priority_min exit exit_group \
    restart_syscall rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack \
    pause alarm setitimer getitimer clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times \
    getrusage getpid getppid getuid geteuid getgid getegid getgroups getresuid getresgid getpgrp uname sysinfo getrlimit \
    setrlimit getcpu getrandom wait4 waitid shutdown getsockname getpeername";
/// Absent as far as a program can tell. `clone3` hides its flags behind a pointer; the C library then uses `clone`.
const ABSENT: &str = "clone3 openat2 memfd_create copy_file_range sendfile splice io_uring_setup userfaultfd pidfd_open \
    futex_waitv mincore mseal map_shadow_stack";
/// Answered as a file system without extended attributes does, the only answer that `shutil.copystat` accepts.
const EXTENDED_ATTRIBUTES: &str = "setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr \
    flistxattr removexattr lremovexattr fremovexattr";
/// Done nothing for, and said to be done: nobody else holds files of the scratch directory, so a lock on one is had as soon
/// as it is asked for; and on the interpreter's files, which others share, a lock would be noticed by them.
const PRETENDED: &str = "flock";
/// See [`Attributes`].
const FILE_ATTRIBUTES: &str = "chmod fchmod fchmodat fchmodat2 utime utimes utimensat futimesat";
const FILE_OWNERS: &str = "chown lchown fchown fchownat";

/// The first filter of a child: every `execve` asks the launcher, which answers once.
pub(in crate::sandbox) fn one_exec(arch: Arch) -> Filter {
    let mut rules = Rules::new(arch);
    rules.plain("execve execveat", Verdict::Notify);
    rules.into_filter(Verdict::Allow)
}

/// The second filter: the allowlist.
pub(in crate::sandbox) fn allowlist(arch: Arch, policy: Policy) -> Filter {
    let mut rules = Rules::new(arch);
    rules.plain(FREE, Verdict::Allow);
    rules.plain(ABSENT, Verdict::Errno(ENOSYS));
    rules.plain(EXTENDED_ATTRIBUTES, Verdict::Errno(EOPNOTSUPP));
    rules.plain(PRETENDED, Verdict::Errno(0));
    if policy.truncate_by_path {
        rules.plain("truncate", Verdict::Allow);
    }
    match policy.attributes {
        Attributes::Real => rules.plain(FILE_ATTRIBUTES, Verdict::Allow),
        Attributes::Pretended => {
            rules.plain(FILE_ATTRIBUTES, Verdict::Errno(0));
            rules.plain(FILE_OWNERS, Verdict::Errno(0));
        }
    }
    // The first filter has the word here: of two filters the sterner verdict wins.
    rules.plain("execve execveat", Verdict::Allow);
    processes(&mut rules, policy.own_pid);
    memory(&mut rules, policy.write_xor_execute);
    descriptors(&mut rules);
    if arch == Arch::X86_64 {
        // ARCH_SET_GS, SET_FS, GET_FS, GET_GS: thread-local storage.
        rules.checked("arch_prctl", (0x1001..=0x1004).map(|code| vec![(0, Test::Is32(code))]), Verdict::Errno(EINVAL));
    }
    rules.into_filter(Verdict::Errno(EPERM))
}

fn processes(rules: &mut Rules, own: u32) {
    // CLONE_VM | FS | FILES | SIGHAND | THREAD: a thread. Looked at together with every flag that would make more of
    // it: PIDFD, PTRACE, VFORK, PARENT, all new namespaces (NEWTIME shares its bit with the exit signal), IO.
    const THREAD: u32 = 0x0001_0f00;
    const MORE: u32 = 0x0000_1000 | 0x0000_2000 | 0x0000_4000 | 0x0000_8000 | 0x0002_0000 | 0xfe00_0000 | 0x0000_00ff;
    rules.checked("clone", [vec![(0, Test::Masked32 { mask: THREAD | MORE, value: THREAD })]], Verdict::Errno(EPERM));
    let own_first = || [vec![(0, Test::Is32(own))]];
    // The program may be the first process of its namespace, which the kernel shields from its own SIGKILL.
    let deadly = Clause { when: vec![(0, Test::Is32(own)), (1, Test::Is32(9))], then: Verdict::Kill };
    let harmless = Clause { when: vec![(0, Test::Is32(own))], then: Verdict::Allow };
    rules.clauses("kill", vec![deadly, harmless], Verdict::Errno(EPERM));
    rules.checked("tgkill", own_first(), Verdict::Errno(EPERM));
    for name in ["prlimit64", "sched_getaffinity", "getpgid", "getsid", "get_robust_list"] {
        let zero_or_own = [vec![(0, Test::Is32(0))], vec![(0, Test::Is32(own))]];
        rules.checked(name, zero_or_own, Verdict::Errno(EPERM));
    }
    // PRIO_PROCESS of oneself.
    let priority = |who| vec![(0, Test::Is32(0)), (1, Test::Is32(who))];
    rules.checked("getpriority", [priority(0), priority(own)], Verdict::Errno(EPERM));
    // GET_DUMPABLE, SET_NAME, GET_NAME, GET_SECCOMP, GET_NO_NEW_PRIVS, SET_VMA (the C library names its arenas).
    let harmless = [3, 15, 16, 21, 39, 0x5356_4d41].map(|option| vec![(0, Test::Is32(option))]);
    rules.checked("prctl", harmless, Verdict::Errno(EPERM));
}

fn memory(rules: &mut Rules, write_xor_execute: bool) {
    const WRITE_EXECUTE: Test = Test::Masked32 { mask: 6, value: 6 };
    const WRITE: Test = Test::Masked32 { mask: 2, value: 2 };
    const EXECUTE: Test = Test::Masked32 { mask: 4, value: 4 };
    // Memory that RLIMIT_DATA does not count: MAP_SHARED | MAP_ANONYMOUS; MAP_GROWSDOWN, which passes for a stack.
    const SHARED_ANONYMOUS: Test = Test::Masked32 { mask: 0x21, value: 0x21 };
    const GROWS_DOWN: Test = Test::Masked32 { mask: 0x100, value: 0x100 };
    let refused = |when| Clause { when, then: Verdict::Errno(EPERM) };
    let mut mapping = vec![refused(vec![(3, SHARED_ANONYMOUS)]), refused(vec![(3, GROWS_DOWN)])];
    let mut protection = Vec::new();
    if write_xor_execute {
        mapping.push(refused(vec![(2, WRITE_EXECUTE)]));
        protection.push(refused(vec![(2, WRITE_EXECUTE)]));
    }
    rules.clauses("mmap", mapping, Verdict::Allow);
    // Written memory that is made unwritable is no longer counted, and is as large as before. What loaders and allocators
    // take writing away from works as well when it stays; to make code of it is refused, as PR_SET_MDWE does.
    protection.push(Clause { when: vec![(2, WRITE)], then: Verdict::Allow });
    protection.push(Clause { when: vec![(2, EXECUTE)], then: Verdict::Errno(EACCES) });
    rules.clauses("mprotect", protection, Verdict::Errno(0));
}

fn descriptors(rules: &mut Rules) {
    // AF_UNIX, SOCK_STREAM with or without NONBLOCK and CLOEXEC, protocol 0. A datagram pair could be aimed elsewhere.
    let stream = Test::Masked32 { mask: !0x8_0800, value: 1 };
    let pair = [vec![(0, Test::Is32(1)), (1, stream), (2, Test::Is32(0))]];
    rules.checked("socketpair", pair, Verdict::Errno(EPERM));
    // Only to where the socket is connected: no address. Never MSG_OOB, a corner of the kernel that sandboxed programs have
    // got out by.
    const IN_BAND: Test = Test::Masked32 { mask: 1, value: 0 };
    rules.checked("sendto", [vec![(3, IN_BAND), (4, Test::Is64(0))]], Verdict::Errno(EPERM));
    rules.checked("recvfrom", [vec![(3, IN_BAND)]], Verdict::Errno(EPERM));
    // SOL_SOCKET with TYPE, ERROR, SNDBUF, RCVBUF, PROTOCOL, DOMAIN; never PEERCRED or PEERPIDFD.
    let options = [3, 4, 7, 8, 38, 39].map(|name| vec![(1, Test::Is32(1)), (2, Test::Is32(name))]);
    rules.checked("getsockopt", options, Verdict::Errno(EPERM));
    // TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
    let requests = [0x5401, 0x5413, 0x541b, 0x5421, 0x5450, 0x5451].map(|request| vec![(1, Test::Is32(request))]);
    rules.checked("ioctl", requests, Verdict::Errno(EPERM));
    // DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, DUPFD_CLOEXEC, GETPIPE_SZ. Not SETOWN, SETSIG, NOTIFY, SETLEASE,
    // SETPIPE_SZ, seals.
    let mut commands: Vec<_> = [0, 1, 2, 3, 4, 5, 1030, 1032]
        .map(|command| Clause { when: vec![(1, Test::Is32(command))], then: Verdict::Allow })
        .into();
    // SETLK, SETLKW: a process never stands in its own way, so to say yes is the right answer. The kernel keeps each
    // locked range, and no limit counts them.
    commands.extend([6, 7].map(|command| Clause { when: vec![(1, Test::Is32(command))], then: Verdict::Errno(0) }));
    // The same for open file descriptions, of which one may stand in another's way, as on kernels that have none.
    commands.extend(
        [36, 37, 38].map(|command| Clause { when: vec![(1, Test::Is32(command))], then: Verdict::Errno(EINVAL) }),
    );
    rules.clauses("fcntl", commands, Verdict::Errno(EPERM));
}

/// Collects rules by name.
struct Rules {
    arch: Arch,
    rules: Vec<Rule>,
}

impl Rules {
    const fn new(arch: Arch) -> Self {
        Self { arch, rules: Vec::new() }
    }

    fn plain(&mut self, names: &str, verdict: Verdict) {
        for name in names.split_whitespace() {
            self.clauses(name, Vec::new(), verdict);
        }
    }

    /// Allowed when one of the sets of tests holds.
    fn checked(&mut self, name: &str, allowed: impl IntoIterator<Item = Vec<(u8, Test)>>, otherwise: Verdict) {
        let clauses = allowed.into_iter().map(|when| Clause { when, then: Verdict::Allow }).collect();
        self.clauses(name, clauses, otherwise);
    }

    fn clauses(&mut self, name: &str, clauses: Vec<Clause>, otherwise: Verdict) {
        if let Some(number) = self.arch.number(name) {
            self.rules.push(Rule { number, clauses, otherwise });
        }
    }

    fn into_filter(mut self, default: Verdict) -> Filter {
        self.rules.sort_by_key(|rule| rule.number);
        Filter { arch: self.arch, rules: self.rules, default }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::filter::{Call, interpret},
        *,
    };

    const OWN: u32 = 7;
    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;
    const REFUSE: u32 = 0x0005_0001;
    const MISSING: u32 = 0x0005_0026;
    const PRETEND: u32 = 0x0005_0000;

    const fn policy(attributes: Attributes) -> Policy {
        Policy { own_pid: OWN, attributes, truncate_by_path: false, write_xor_execute: true }
    }

    fn answers(arch: Arch, attributes: Attributes, cases: &[(&str, &[u64], u32)]) {
        let program = allowlist(arch, policy(attributes)).assemble();
        for (name, given, expected) in cases {
            let Some(number) = arch.number(name) else { continue };
            let mut arguments = [0; 6];
            arguments[..given.len()].copy_from_slice(given);
            let got = interpret(&program, &Call { arch: arch.audit(), number, arguments });
            assert_eq!(got, *expected, "{arch:?} {name}{given:x?}: {got:#x}");
        }
    }

    #[test]
    fn arguments_are_checked_as_the_kernel_reads_them() {
        const HIGH: u64 = 1 << 32;
        let cases: &[(&str, &[u64], u32)] = &[
            // A thread of glibc and one of musl; then fork, vfork, a process that shares memory, namespaces, pidfd.
            ("clone", &[0x003d_0f00], ALLOW),
            ("clone", &[0x007d_0f00], ALLOW),
            ("clone", &[17], REFUSE),
            ("clone", &[0x4100 | 17], REFUSE),
            ("clone", &[0x0001_0d00], REFUSE),
            ("clone", &[HIGH | 0x0001_0d00], REFUSE),
            ("clone", &[0x003d_0f00 | 0x1000_0000], REFUSE),
            ("clone", &[0x003d_0f00 | 0x1000], REFUSE),
            ("clone", &[0x003d_0f00 | 17], REFUSE),
            ("clone3", &[], MISSING),
            ("kill", &[7, 15], ALLOW),
            ("kill", &[HIGH | 7, 15], ALLOW),
            ("kill", &[7, 9], KILL),
            ("kill", &[HIGH | 7, HIGH | 9], KILL),
            ("kill", &[0, 9], REFUSE),
            ("kill", &[u64::MAX, 9], REFUSE),
            ("kill", &[8, 0], REFUSE),
            ("tgkill", &[7, 9, 6], ALLOW),
            ("tgkill", &[1, 1, 0], REFUSE),
            ("prlimit64", &[0, 7], ALLOW),
            ("prlimit64", &[9, 7], REFUSE),
            ("getpriority", &[0, 0], ALLOW),
            ("getpriority", &[1, 0], REFUSE),
            ("getsid", &[3], REFUSE),
            ("prctl", &[15], ALLOW),
            ("prctl", &[1], REFUSE),
            ("prctl", &[4, 1], REFUSE),
            ("prctl", &[22, 2], REFUSE),
            ("prctl", &[0x5961_6d61], REFUSE),
            ("mmap", &[0, 4096, 3, 0x22], ALLOW),
            ("mmap", &[0, 4096, 5, 0x02], ALLOW),
            ("mmap", &[0, 4096, 3, 0x21], REFUSE),
            ("mmap", &[0, 4096, 3, 0x23], REFUSE),
            ("mmap", &[0, 4096, 3, 0x122], REFUSE),
            ("mmap", &[0, 4096, 3, 0x2_0022], ALLOW),
            ("mmap", &[0, 4096, 7, 0x22], REFUSE),
            ("mprotect", &[0, 4096, 7], REFUSE),
            ("mprotect", &[0, 4096, 3], ALLOW),
            ("mprotect", &[0, 4096, HIGH | 2], ALLOW),
            ("mprotect", &[0, 4096, 1], PRETEND),
            ("mprotect", &[0, 4096, 0], PRETEND),
            ("mprotect", &[0, 4096, HIGH | 0x0100_0001], PRETEND),
            ("mprotect", &[0, 4096, 5], 0x0005_000d),
            ("socketpair", &[1, 1 | 0x8_0800, 0], ALLOW),
            ("socketpair", &[1, 2, 0], REFUSE),
            ("socketpair", &[1, 5, 0], REFUSE),
            ("socketpair", &[2, 1, 0], REFUSE),
            ("sendto", &[5, 0, 1, 0, 0, 0], ALLOW),
            ("sendto", &[5, 0, 1, 0, HIGH, 0], REFUSE),
            ("sendto", &[5, 0, 1, 0x4001, 0, 0], REFUSE),
            ("sendto", &[5, 0, 1, HIGH | 1, 0, 0], REFUSE),
            ("recvfrom", &[5, 0, 1, 0x42], ALLOW),
            ("recvfrom", &[5, 0, 1, 0x41], REFUSE),
            ("sendto", &[5, 0, 1, 0, 0x7fff_0000_1000, 16], REFUSE),
            ("getsockopt", &[3, 1, 3], ALLOW),
            ("getsockopt", &[3, 1, 17], REFUSE),
            ("getsockopt", &[3, 1, 77], REFUSE),
            ("ioctl", &[0, 0x5421], ALLOW),
            ("ioctl", &[0, 0x5412], REFUSE),
            ("ioctl", &[0, HIGH | 0x5412], REFUSE),
            ("ioctl", &[0, 0x541c], REFUSE),
            ("fcntl", &[0, 1030, 0], ALLOW),
            ("fcntl", &[0, 8, 1], REFUSE),
            ("fcntl", &[0, 5, 1], ALLOW),
            ("fcntl", &[0, 6, 1], PRETEND),
            ("fcntl", &[0, HIGH | 7, 1], PRETEND),
            ("fcntl", &[0, 37, 1], 0x0005_0016),
            ("flock", &[0, 2], PRETEND),
            ("fcntl", &[0, 1031, 1 << 20], REFUSE),
            ("fcntl", &[0, HIGH | 1031, 1 << 20], REFUSE),
            ("chmod", &[], ALLOW),
            ("utimensat", &[], ALLOW),
            ("chown", &[], REFUSE),
            ("truncate", &[], REFUSE),
            ("ftruncate", &[], ALLOW),
            ("getxattr", &[], 0x0005_005f),
            ("memfd_create", &[], MISSING),
            ("arch_prctl", &[0x1002], ALLOW),
            ("arch_prctl", &[0x5001], 0x0005_0016),
        ];
        for arch in [Arch::X86_64, Arch::Aarch64] {
            answers(arch, Attributes::Real, cases);
        }
    }

    #[test]
    fn without_a_mount_view_attributes_are_only_pretended() {
        let pretended: Vec<(&str, &[u64], u32)> = FILE_ATTRIBUTES
            .split_whitespace()
            .chain(FILE_OWNERS.split_whitespace())
            .map(|name| (name, &[][..], 0x0005_0000))
            .collect();
        for arch in [Arch::X86_64, Arch::Aarch64] {
            answers(arch, Attributes::Pretended, &pretended);
        }
    }

    #[test]
    fn every_number_without_a_rule_is_refused_and_a_foreign_architecture_kills() {
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let filter = allowlist(arch, policy(Attributes::Real));
            let program = filter.assemble();
            assert!(filter.rules.is_sorted_by(|a, b| a.number < b.number), "each call has one rule");
            for number in (0..1000).chain([0x4000_0000, 0x4000_0001, 0x4000_003b, 0xffff_ffff]) {
                let call = Call { arch: arch.audit(), number, arguments: [0; 6] };
                if !filter.rules.iter().any(|rule| rule.number == number) {
                    assert_eq!(interpret(&program, &call), REFUSE, "{arch:?} {number}");
                }
                let foreign = Call { arch: 0x4000_0003, ..call };
                assert_eq!(interpret(&program, &foreign), 0x8000_0000);
            }
        }
    }

    #[test]
    fn only_execve_asks() {
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let program = one_exec(arch).assemble();
            for number in 0..1000 {
                let asks = [arch.number("execve"), arch.number("execveat")].contains(&Some(number));
                let expected = if asks { 0x7fc0_0000 } else { ALLOW };
                let call = Call { arch: arch.audit(), number, arguments: [0; 6] };
                assert_eq!(interpret(&program, &call), expected, "{arch:?} {number}");
            }
        }
    }
}
