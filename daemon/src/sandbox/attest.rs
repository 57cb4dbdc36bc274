//! Looks at a child from outside, in `/proc`, and believes nothing that came out of it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{ChildLimits, Level};

/// What a child must look like.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// How it is confined.
    pub level: Level,
    /// What it executes.
    pub image: PathBuf,
    /// Its limits.
    pub limits: ChildLimits,
    /// Files and folders it may have open.
    pub granted: Vec<PathBuf>,
}

/// Major 1, minor 3.
const NULL_DEVICE: u64 = 0x103;
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

impl Expected {
    /// The first difference between the process and what is expected; none is the good answer.
    pub(super) fn mismatch(&self, pid: i32) -> Option<String> {
        match self.level {
            Level::Linux | Level::Landlock => self.check(pid).err(),
            #[cfg(target_os = "macos")]
            Level::Seatbelt if !super::sys::macos::is_sandboxed(pid) => Some("it is under no profile".to_owned()),
            // There is nothing more to look at.
            Level::None | Level::Seatbelt => None,
        }
    }

    fn check(&self, pid: i32) -> Result<(), String> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let ours = Path::new("/proc/self");
        let status = Status::read(&process)?;
        status.confined(self.level, &Status::read(ours)?)?;
        if self.level == Level::Linux {
            for name in NAMESPACES {
                let namespace = |process: &Path| {
                    let path = process.join("ns").join(name);
                    fs::read_link(&path).map_err(|error| format!("{name} namespace: {error}"))
                };
                if namespace(&process)? == namespace(ours)? {
                    return Err(format!("it shares the {name} namespace of ptcd"));
                }
            }
        }
        let limits = fs::read_to_string(process.join("limits")).map_err(|error| format!("limits: {error}"))?;
        self.limited(&limits)?;
        let image = fs::metadata(process.join("exe")).map_err(|error| format!("image: {error}"))?;
        let wanted = fs::metadata(&self.image).map_err(|error| format!("image: {error}"))?;
        if (image.dev(), image.ino()) != (wanted.dev(), wanted.ino()) {
            return Err("it runs another image than the interpreter".to_owned());
        }
        self.descriptors(&process)
    }

    /// Four descriptors as handed over; what the interpreter opened since is nameless or a file that it is granted.
    fn descriptors(&self, process: &Path) -> Result<(), String> {
        let entries = fs::read_dir(process.join("fd")).map_err(|error| format!("descriptors: {error}"))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("descriptors: {error}"))?;
            // Closed since the folder was read.
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let is = |kind: &str| target.as_os_str().as_encoded_bytes().starts_with(kind.as_bytes());
            let fine = match entry.file_name().to_str() {
                Some("0") => fs::metadata(entry.path()).is_ok_and(|file| file.rdev() == NULL_DEVICE),
                Some("1" | "2") => is("pipe:"),
                Some("3") => is("socket:"),
                _ => {
                    is("pipe:")
                        || is("socket:")
                        || is("anon_inode:")
                        || self.granted.iter().any(|path| target.starts_with(path))
                }
            };
            if !fine {
                return Err(format!("descriptor {} is {}", entry.file_name().display(), target.display()));
            }
        }
        Ok(())
    }

    /// The hard limits in the text of `/proc/PID/limits`.
    fn limited(&self, text: &str) -> Result<(), String> {
        let hard: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| {
                let (name, values) = (line.get(..26)?, line.get(26..)?);
                Some((name.trim_end(), values.split_whitespace().nth(1)?))
            })
            .collect();
        let mut wanted = vec![
            ("Max core file size", 0),
            ("Max data size", self.limits.memory_bytes),
            ("Max stack size", ChildLimits::STACK_BYTES),
            ("Max address space", self.limits.address_space_bytes()),
            ("Max locked memory", 0),
            ("Max file size", self.limits.scratch_bytes),
            ("Max open files", self.limits.open_files),
            ("Max cpu time", self.limits.cpu_seconds + 1),
        ];
        if self.level == Level::Linux {
            wanted.push(("Max processes", self.limits.threads));
        }
        for (name, bound) in wanted {
            let value = hard.get(name).copied().unwrap_or("absent");
            // A lower limit of the daemon's own stays in force.
            if value.parse::<u64>().is_ok_and(|value| value <= bound) {
                continue;
            }
            return Err(format!("{name} is {value} instead of {bound}"));
        }
        Ok(())
    }
}

/// The fields of `/proc/PID/status`.
struct Status(BTreeMap<String, String>);

impl Status {
    fn read(process: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(process.join("status")).map_err(|error| format!("status: {error}"))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    fn field(&self, name: &str) -> Result<&str, String> {
        self.0.get(name).map(String::as_str).ok_or_else(|| format!("{name} is absent"))
    }

    fn number(&self, name: &str) -> u64 {
        self.0.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    fn confined(&self, level: Level, daemon: &Self) -> Result<(), String> {
        let is = |name: &str, wanted: &str| {
            let value = self.field(name)?;
            if value == wanted { Ok(()) } else { Err(format!("{name} is {value} instead of {wanted}")) }
        };
        is("NoNewPrivs", "1")?;
        is("Seccomp", "2")?;
        let filters = daemon.number("Seccomp_filters") + 2;
        if self.field("Seccomp_filters").is_ok() {
            is("Seccomp_filters", &filters.to_string())?;
        }
        for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            is(name, "0000000000000000")?;
        }
        for name in ["Uid", "Gid"] {
            if self.field(name)?.split_whitespace().any(|id| id == "0") {
                return Err(format!("{name} holds 0"));
            }
        }
        if level == Level::Linux {
            is("CapBnd", "0000000000000000")?;
            let ours = daemon.field("NSpid")?.split_whitespace().count();
            let theirs: Vec<_> = self.field("NSpid")?.split_whitespace().collect();
            if theirs.len() != ours + 1 || theirs.last() != Some(&"1") {
                return Err(format!("NSpid is {}", theirs.join(" ")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFINED: &str = "Uid:\t1001\t1001\t1001\t1001\nGid:\t1001\t1001\t1001\t1001\nNSpid:\t4711\t1\nCapInh:\t0000000000000000\n\
        CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n\
        NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";
    const DAEMON: &str = "NSpid:\t99\nSeccomp_filters:\t0\n";

    #[test]
    fn every_missing_door_is_noticed() {
        let check = |text: &str| Status::parse(text).confined(Level::Linux, &Status::parse(DAEMON));
        assert_eq!(check(CONFINED), Ok(()));
        for (was, is) in [
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Seccomp_filters:\t2", "Seccomp_filters:\t1"),
            ("CapEff:\t0000000000000000", "CapEff:\t0000000000000400"),
            ("CapBnd:\t0000000000000000", "CapBnd:\t000001ffffffffff"),
            ("CapAmb:\t0000000000000000\n", ""),
            ("Uid:\t1001\t1001", "Uid:\t0\t1001"),
            ("NSpid:\t4711\t1", "NSpid:\t4711"),
            ("NSpid:\t4711\t1", "NSpid:\t4711\t2"),
        ] {
            assert!(check(&CONFINED.replace(was, is)).is_err(), "{was} -> {is}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_like_any_other_is_never_taken_for_a_confined_one() {
        let mut process = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(process.id()).unwrap();
        for level in [Level::Linux, Level::Landlock] {
            let expected =
                Expected { level, image: "/bin/sleep".into(), limits: ChildLimits::default(), granted: vec![] };
            assert!(expected.mismatch(pid).is_some(), "{level}");
        }
        process.kill().unwrap();
        process.wait().unwrap();
    }

    #[test]
    fn limits_are_read_from_the_kernels_table() {
        let expected =
            Expected { level: Level::Linux, image: "/x".into(), limits: ChildLimits::default(), granted: vec![] };
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max cpu time              300                  301                  seconds   \n\
            Max file size             67108864             67108864             bytes     \n\
            Max data size             1073741824           1073741824           bytes     \n\
            Max stack size            8388608              8388608              bytes     \n\
            Max core file size        0                    0                    bytes     \n\
            Max locked memory         0                    0                    bytes     \n\
            Max address space         4294967296           4294967296           bytes     \n\
            Max processes             64                   64                   processes \n\
            Max open files            128                  128                  files     \n";
        assert_eq!(expected.limited(text), Ok(()));
        let unlimited = text.replace("1073741824           bytes", "unlimited            bytes");
        assert!(expected.limited(&unlimited).is_err());
        assert!(expected.limited("").is_err());
    }
}
