//! Numbers of the system calls that the policy speaks of, as the kernel's headers have them.

/// A processor architecture that programs can be confined on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Arch {
    /// 64-bit Intel and AMD.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The architecture of this build, if it is one of them.
    pub(in crate::sandbox) const fn native() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    /// `AUDIT_ARCH_*` of the kernel's headers, which the filter compares first.
    pub(in crate::sandbox) const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The number of a call; none where the architecture does not have it.
    ///
    /// # Panics
    /// The name is not in the table, which the tests exclude.
    pub(in crate::sandbox) fn number(self, name: &str) -> Option<u32> {
        let row = NUMBERS.binary_search_by_key(&name, |row| row.0).expect("every name of the policy is in the table");
        match self {
            Self::X86_64 => NUMBERS[row].1,
            Self::Aarch64 => NUMBERS[row].2,
        }
    }
}

/// Name, number on `x86_64`, number on aarch64; sorted by name.
#[rustfmt::skip]
const NUMBERS: &[(&str, Option<u32>, Option<u32>)] = &[
    ("access", Some(21), None),
    ("alarm", Some(37), None),
    ("arch_prctl", Some(158), None),
    ("brk", Some(12), Some(214)),
    ("chdir", Some(80), Some(49)),
    ("chmod", Some(90), None),
    ("chown", Some(92), None),
    ("clock_getres", Some(229), Some(114)),
    ("clock_gettime", Some(228), Some(113)),
    ("clock_nanosleep", Some(230), Some(115)),
    ("clone", Some(56), Some(220)),
    ("clone3", Some(435), Some(435)),
    ("close", Some(3), Some(57)),
    ("close_range", Some(436), Some(436)),
    ("copy_file_range", Some(326), Some(285)),
    ("creat", Some(85), None),
    ("dup", Some(32), Some(23)),
    ("dup2", Some(33), None),
    ("dup3", Some(292), Some(24)),
    ("epoll_create", Some(213), None),
    ("epoll_create1", Some(291), Some(20)),
    ("epoll_ctl", Some(233), Some(21)),
    ("epoll_pwait", Some(281), Some(22)),
    ("epoll_pwait2", Some(441), Some(441)),
    ("epoll_wait", Some(232), None),
    ("eventfd", Some(284), None),
    ("eventfd2", Some(290), Some(19)),
    ("execve", Some(59), Some(221)),
    ("execveat", Some(322), Some(281)),
    ("exit", Some(60), Some(93)),
    ("exit_group", Some(231), Some(94)),
    ("faccessat", Some(269), Some(48)),
    ("faccessat2", Some(439), Some(439)),
    ("fadvise64", Some(221), Some(223)),
    ("fallocate", Some(285), Some(47)),
    ("fchdir", Some(81), Some(50)),
    ("fchmod", Some(91), Some(52)),
    ("fchmodat", Some(268), Some(53)),
    ("fchmodat2", Some(452), Some(452)),
    ("fchown", Some(93), Some(55)),
    ("fchownat", Some(260), Some(54)),
    ("fcntl", Some(72), Some(25)),
    ("fdatasync", Some(75), Some(83)),
    ("fgetxattr", Some(193), Some(10)),
    ("flistxattr", Some(196), Some(13)),
    ("flock", Some(73), Some(32)),
    ("fremovexattr", Some(199), Some(16)),
    ("fsetxattr", Some(190), Some(7)),
    ("fstat", Some(5), Some(80)),
    ("fstatfs", Some(138), Some(44)),
    ("fsync", Some(74), Some(82)),
    ("ftruncate", Some(77), Some(46)),
    ("futex", Some(202), Some(98)),
    ("futex_waitv", Some(449), Some(449)),
    ("futimesat", Some(261), None),
    ("get_robust_list", Some(274), Some(100)),
    ("getcpu", Some(309), Some(168)),
    ("getcwd", Some(79), Some(17)),
    ("getdents", Some(78), None),
    ("getdents64", Some(217), Some(61)),
    ("getegid", Some(108), Some(177)),
    ("geteuid", Some(107), Some(175)),
    ("getgid", Some(104), Some(176)),
    ("getgroups", Some(115), Some(158)),
    ("getitimer", Some(36), Some(102)),
    ("getpeername", Some(52), Some(205)),
    ("getpgid", Some(121), Some(155)),
    ("getpgrp", Some(111), None),
    ("getpid", Some(39), Some(172)),
    ("getppid", Some(110), Some(173)),
    ("getpriority", Some(140), Some(141)),
    ("getrandom", Some(318), Some(278)),
    ("getresgid", Some(120), Some(150)),
    ("getresuid", Some(118), Some(148)),
    ("getrlimit", Some(97), Some(163)),
    ("getrusage", Some(98), Some(165)),
    ("getsid", Some(124), Some(156)),
    ("getsockname", Some(51), Some(204)),
    ("getsockopt", Some(55), Some(209)),
    ("gettid", Some(186), Some(178)),
    ("gettimeofday", Some(96), Some(169)),
    ("getuid", Some(102), Some(174)),
    ("getxattr", Some(191), Some(8)),
    ("io_uring_setup", Some(425), Some(425)),
    ("ioctl", Some(16), Some(29)),
    ("kill", Some(62), Some(129)),
    ("lchown", Some(94), None),
    ("lgetxattr", Some(192), Some(9)),
    ("link", Some(86), None),
    ("linkat", Some(265), Some(37)),
    ("listxattr", Some(194), Some(11)),
    ("llistxattr", Some(195), Some(12)),
    ("lremovexattr", Some(198), Some(15)),
    ("lseek", Some(8), Some(62)),
    ("lsetxattr", Some(189), Some(6)),
    ("lstat", Some(6), None),
    ("madvise", Some(28), Some(233)),
    ("map_shadow_stack", Some(453), Some(453)),
    ("memfd_create", Some(319), Some(279)),
    ("mincore", Some(27), Some(232)),
    ("mkdir", Some(83), None),
    ("mkdirat", Some(258), Some(34)),
    ("mmap", Some(9), Some(222)),
    ("mprotect", Some(10), Some(226)),
    ("mremap", Some(25), Some(216)),
    ("mseal", Some(462), Some(462)),
    ("msync", Some(26), Some(227)),
    ("munmap", Some(11), Some(215)),
    ("nanosleep", Some(35), Some(101)),
    ("newfstatat", Some(262), Some(79)),
    ("open", Some(2), None),
    ("openat", Some(257), Some(56)),
    ("openat2", Some(437), Some(437)),
    ("pause", Some(34), None),
    ("pidfd_open", Some(434), Some(434)),
    ("pipe", Some(22), None),
    ("pipe2", Some(293), Some(59)),
    ("poll", Some(7), None),
    ("ppoll", Some(271), Some(73)),
    ("prctl", Some(157), Some(167)),
    ("pread64", Some(17), Some(67)),
    ("preadv", Some(295), Some(69)),
    ("preadv2", Some(327), Some(286)),
    ("prlimit64", Some(302), Some(261)),
    ("pselect6", Some(270), Some(72)),
    ("pwrite64", Some(18), Some(68)),
    ("pwritev", Some(296), Some(70)),
    ("pwritev2", Some(328), Some(287)),
    ("read", Some(0), Some(63)),
    ("readlink", Some(89), None),
    ("readlinkat", Some(267), Some(78)),
    ("readv", Some(19), Some(65)),
    ("recvfrom", Some(45), Some(207)),
    ("removexattr", Some(197), Some(14)),
    ("rename", Some(82), None),
    ("renameat", Some(264), Some(38)),
    ("renameat2", Some(316), Some(276)),
    ("restart_syscall", Some(219), Some(128)),
    ("rmdir", Some(84), None),
    ("rseq", Some(334), Some(293)),
    ("rt_sigaction", Some(13), Some(134)),
    ("rt_sigpending", Some(127), Some(136)),
    ("rt_sigprocmask", Some(14), Some(135)),
    ("rt_sigreturn", Some(15), Some(139)),
    ("rt_sigsuspend", Some(130), Some(133)),
    ("rt_sigtimedwait", Some(128), Some(137)),
    ("sched_get_priority_max", Some(146), Some(125)),
    ("sched_get_priority_min", Some(147), Some(126)),
    ("sched_getaffinity", Some(204), Some(123)),
    ("sched_yield", Some(24), Some(124)),
    ("select", Some(23), None),
    ("sendfile", Some(40), Some(71)),
    ("sendto", Some(44), Some(206)),
    ("set_robust_list", Some(273), Some(99)),
    ("set_tid_address", Some(218), Some(96)),
    ("setitimer", Some(38), Some(103)),
    ("setrlimit", Some(160), Some(164)),
    ("setxattr", Some(188), Some(5)),
    ("shutdown", Some(48), Some(210)),
    ("sigaltstack", Some(131), Some(132)),
    ("socketpair", Some(53), Some(199)),
    ("splice", Some(275), Some(76)),
    ("stat", Some(4), None),
    ("statfs", Some(137), Some(43)),
    ("statx", Some(332), Some(291)),
    ("symlink", Some(88), None),
    ("symlinkat", Some(266), Some(36)),
    ("sysinfo", Some(99), Some(179)),
    ("tgkill", Some(234), Some(131)),
    ("time", Some(201), None),
    ("timerfd_create", Some(283), Some(85)),
    ("timerfd_gettime", Some(287), Some(87)),
    ("timerfd_settime", Some(286), Some(86)),
    ("times", Some(100), Some(153)),
    ("truncate", Some(76), Some(45)),
    ("umask", Some(95), Some(166)),
    ("uname", Some(63), Some(160)),
    ("unlink", Some(87), None),
    ("unlinkat", Some(263), Some(35)),
    ("userfaultfd", Some(323), Some(282)),
    ("utime", Some(132), None),
    ("utimensat", Some(280), Some(88)),
    ("utimes", Some(235), None),
    ("wait4", Some(61), Some(260)),
    ("waitid", Some(247), Some(95)),
    ("write", Some(1), Some(64)),
    ("writev", Some(20), Some(66)),];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_numbers_are_unique() {
        assert!(NUMBERS.is_sorted_by(|a, b| a.0 < b.0));
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let mut numbers: Vec<_> = NUMBERS.iter().filter_map(|row| arch.number(row.0)).collect();
            numbers.sort_unstable();
            assert!(numbers.is_sorted_by(|a, b| a < b), "{arch:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn numbers_are_those_of_the_c_library() {
        let Some(arch) = Arch::native() else { return };
        for (name, number) in [
            ("read", libc::SYS_read),
            ("openat", libc::SYS_openat),
            ("newfstatat", libc::SYS_newfstatat),
            ("clone", libc::SYS_clone),
            ("clone3", libc::SYS_clone3),
            ("execve", libc::SYS_execve),
            ("execveat", libc::SYS_execveat),
            ("mmap", libc::SYS_mmap),
            ("mprotect", libc::SYS_mprotect),
            ("socketpair", libc::SYS_socketpair),
            ("sendto", libc::SYS_sendto),
            ("recvfrom", libc::SYS_recvfrom),
            ("kill", libc::SYS_kill),
            ("tgkill", libc::SYS_tgkill),
            ("prctl", libc::SYS_prctl),
            ("prlimit64", libc::SYS_prlimit64),
            ("ioctl", libc::SYS_ioctl),
            ("fcntl", libc::SYS_fcntl),
            ("fchmodat2", libc::SYS_fchmodat2),
            ("futex_waitv", libc::SYS_futex_waitv),
            ("getrandom", libc::SYS_getrandom),
            ("rseq", libc::SYS_rseq),
            ("statx", libc::SYS_statx),
            ("wait4", libc::SYS_wait4),
        ] {
            assert_eq!(arch.number(name).map(i64::from), Some(number), "{name}");
        }
    }
}
