//! The PATH of the service: that of the person's login shell, where `npx`, `uvx` and their like are, since a service
//! manager gives its services almost none.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

/// Longest wait for the shell and all that its start files do.
const SHELL_DEADLINE: Duration = Duration::from_secs(10);

/// Most text read from the shell.
const SHELL_OUTPUT_MAX: u64 = 1 << 20;

/// Stands before and after the value, because start files print banners.
const MARK: &str = "__ptc_path__";

/// Where tools usually are, relative to the home folder.
const HOME_FOLDERS: &[&str] = &[
    ".local/bin",
    ".cargo/bin",
    ".volta/bin",
    ".bun/bin",
    ".deno/bin",
    ".asdf/shims",
    ".local/share/mise/shims",
    "bin",
];

/// Where tools usually are.
const FOLDERS: &[&str] = &[
    "/opt/homebrew/bin",
    "/opt/homebrew/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
];

/// The PATH for the service: the login shell's (else `own`, this process's), then the usual folders that exist and are
/// not in it. Relative and empty entries are left out: they would mean the service's working directory.
pub(super) fn service_path(shell: Option<&Path>, home: Option<&Path>, own: Option<&str>) -> String {
    let asked = shell.and_then(|shell| from_shell(shell, SHELL_DEADLINE));
    let base = asked.as_deref().or(own).unwrap_or_default();
    let home_folders = home.into_iter().flat_map(|home| HOME_FOLDERS.iter().map(|folder| home.join(folder)));
    let usual = home_folders.chain(FOLDERS.iter().map(PathBuf::from)).filter(|folder| folder.is_dir());
    merged(base, usual)
}

fn merged(base: &str, usual: impl Iterator<Item = PathBuf>) -> String {
    let mut entries: Vec<String> = Vec::new();
    let more = usual.filter_map(|path| path.to_str().map(str::to_owned)).filter(|path| !path.contains(':'));
    for entry in base.split(':').map(str::to_owned).chain(more) {
        if entry.starts_with('/') && !entry.chars().any(char::is_control) && !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries.join(":")
}

/// PATH as the shell has it after its login and interactive start files; none when it does not answer in time.
fn from_shell(shell: &Path, deadline: Duration) -> Option<String> {
    use std::os::unix::process::CommandExt as _;

    // Both -l and -i: installers write PATH into either kind of start file. `env` makes the shells alike: fish keeps
    // PATH as a list, and its own syntax would print blanks.
    let script = format!("printf '%s' {MARK}; env printenv PATH; printf '%s' {MARK}");
    let mut child = Command::new(shell)
        .args(["-l", "-i", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()?;
    let mut stdout = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = stdout.by_ref().take(SHELL_OUTPUT_MAX).read_to_end(&mut text);
        read.map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let end = Instant::now() + deadline;
    while !reader.is_finished() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Whatever the start files left running goes too; it holds the pipe that the reader waits on.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _gone_already = kill_process_group(group, Signal::KILL);
    }
    let _status = child.wait();
    between_marks(&reader.join().ok()?.ok()?)
}

fn between_marks(text: &str) -> Option<String> {
    let (_, after) = text.split_once(MARK)?;
    let (value, _) = after.split_once(MARK)?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(home: &Path, body: &str) -> PathBuf {
        let path = home.join("shell");
        crate::ctl::tests::script(&path, body);
        path
    }

    #[test]
    fn banners_around_the_value_are_no_part_of_it() {
        let home = tempfile::tempdir().unwrap();
        let noisy = shell(
            home.path(),
            "echo Welcome; export PATH=/x/bin:$PATH; [ \"$1$2\" = -l-i ] && shift 3; eval \"$1\"; echo bye",
        );
        let path = from_shell(&noisy, SHELL_DEADLINE).unwrap();
        assert!(path.starts_with("/x/bin:") && !path.contains("bye"), "{path}");
    }

    #[test]
    fn a_real_shell_answers() {
        let path = from_shell(Path::new("/bin/sh"), SHELL_DEADLINE).unwrap();
        assert!(path.split(':').any(|entry| entry == "/usr/bin" || entry == "/bin"), "{path}");
    }

    #[test]
    fn a_shell_that_hangs_is_given_up_with_its_children() {
        let home = tempfile::tempdir().unwrap();
        let pid_file = home.path().join("pid");
        let hanging = shell(home.path(), &format!("sleep 600 & echo $! > {}; wait", pid_file.display()));
        assert_eq!(from_shell(&hanging, Duration::from_secs(2)), None);
        let pid: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let end = Instant::now() + Duration::from_secs(5);
        while rustix::process::test_kill_process(Pid::from_raw(pid).unwrap()).is_ok() && !stat().contains(") Z ") {
            assert!(Instant::now() < end, "the shell's child {pid} still runs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn entries_are_absolute_and_stand_once() {
        let usual = ["/usr/bin", "/opt/x"].map(PathBuf::from).into_iter();
        assert_eq!(merged("/a::.:rel/bin:/usr/bin:/a:/b\n", usual), "/a:/usr/bin:/opt/x");
    }

    #[test]
    fn without_an_answer_the_own_path_is_used() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".local/bin")).unwrap();
        let path = service_path(Some(Path::new("/nonexistent/shell")), Some(home.path()), Some("/mine"));
        assert!(path.starts_with(&format!("/mine:{}/.local/bin", home.path().display())), "{path}");
    }
}
