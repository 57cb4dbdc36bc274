//! Carries out a plan, or says what it would do.

use std::{
    fmt::Write as _,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use ptc_protocol::client::Client;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::plan::Manager;
use crate::ctl::files;

/// Longest run of one command of a service manager.
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// How long a patient command is tried again, and how often.
const PATIENCE: Duration = Duration::from_secs(15);
const PATIENCE_STEP: Duration = Duration::from_millis(250);

/// Longest wait for a daemon to stop: its own limit is 8 seconds.
const STOP_DEADLINE: Duration = Duration::from_secs(12);

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Makes a folder for this user alone, with its parents.
    Folder { path: PathBuf },
    /// Writes a file, readable by this user alone, at once or not at all; nothing when it is the same already.
    Write { path: PathBuf, text: String },
    /// Removes a file; it may be gone already.
    Remove { path: PathBuf },
    /// Runs a command.
    Run(Command),
    /// Stops a daemon that no service manager started: the service's could not have the socket.
    StopLooseDaemon,
}

/// A command of a service manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    argv: Vec<String>,
    on_failure: OnFailure,
}

/// What a failure of a command means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnFailure {
    Stop,
    GoOn,
    TryAgain,
}

impl Command {
    /// A command that must succeed.
    pub(super) fn new<const N: usize>(argv: [&str; N]) -> Self {
        Self { argv: argv.map(str::to_owned).into(), on_failure: OnFailure::Stop }
    }

    /// Its failure is nothing to speak of.
    pub(super) fn may_fail(self) -> Self {
        Self { on_failure: OnFailure::GoOn, ..self }
    }

    /// It is tried again for a while.
    pub(super) fn patient(self) -> Self {
        Self { on_failure: OnFailure::TryAgain, ..self }
    }

    /// As a person would type it.
    fn shown(&self) -> String {
        let word = |word: &String| {
            let plain = |c: char| c.is_alphanumeric() || "-_./:@=+,".contains(c);
            if word.chars().all(plain) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
        };
        self.argv.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    async fn output(&self) -> io::Result<std::process::Output> {
        let mut command = tokio::process::Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(std::process::Stdio::null()).kill_on_drop(true);
        tokio::time::timeout(COMMAND_DEADLINE, command.output())
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no end in 60 s")))
    }

    async fn run(&self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let output = self.output().await;
            match output {
                Ok(output) if output.status.success() => return Ok(()),
                _ if self.on_failure == OnFailure::GoOn => return Ok(()),
                _ if self.on_failure == OnFailure::TryAgain && Instant::now() < until => {
                    tokio::time::sleep(PATIENCE_STEP).await;
                }
                Ok(output) => {
                    let said = String::from_utf8_lossy(&output.stderr);
                    bail!("`{}` failed ({}): {}{}", self.shown(), output.status, said.trim(), advice(&said));
                }
                Err(error) => return Err(error).with_context(|| format!("cannot run `{}`", self.shown())),
            }
        }
    }
}

/// What a person may do where the manager itself cannot be reached.
fn advice(said: &str) -> &'static str {
    if said.contains("bus") || said.contains("Domain does not support") {
        "\nThere is no service manager for this login. Nothing is lost: ptc-shim and ptcctl start ptcd when they need it."
    } else {
        ""
    }
}

/// The plan in words, files with their whole text.
pub(super) fn describe(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        let _written = match step {
            Step::Folder { path } => writeln!(text, "make folder {}", path.display()),
            Step::Write { path, text: content } => {
                let note = if is_done(path, content) { " (unchanged)" } else { "" };
                let indented: String = content.lines().map(|line| format!("    {line}\n")).collect();
                write!(text, "write file {}{note}\n{indented}", path.display())
            }
            Step::Remove { path } => writeln!(text, "remove file {}", path.display()),
            Step::Run(command) if command.on_failure == OnFailure::GoOn => {
                writeln!(text, "run {} (may fail)", command.shown())
            }
            Step::Run(command) => writeln!(text, "run {}", command.shown()),
            Step::StopLooseDaemon => writeln!(text, "stop the ptcd that runs outside the service, if any"),
        };
    }
    text
}

/// Whether the file has this text already.
pub(super) fn is_done(path: &Path, text: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|present| present == text)
}

/// Whether the manager runs the service now; false where there is no manager.
pub(super) fn is_running(manager: Manager, uid: u32) -> bool {
    let probe = manager.probe(uid);
    let output = std::process::Command::new(&probe.argv[0]).args(&probe.argv[1..]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Does the steps in order; stops at the first that fails.
pub(super) async fn carry_out(steps: &[Step], socket: &Path) -> anyhow::Result<()> {
    for step in steps {
        match step {
            Step::Folder { path } => folder(path)?,
            Step::Write { path, text } => write(path, text)?,
            Step::Remove { path } => match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove `{}`", path.display()));
                }
                Ok(()) | Err(_) => {}
            },
            Step::Run(command) => command.run().await?,
            Step::StopLooseDaemon => stop_loose_daemon(socket).await?,
        }
    }
    Ok(())
}

fn folder(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot make the folder `{}`", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if is_done(path, text) && fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 == 0) {
        return Ok(());
    }
    let parent = path.parent().context("a service definition has a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make the folder `{}`", parent.display()))?;
    files::replace(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

async fn stop_loose_daemon(socket: &Path) -> anyhow::Result<()> {
    let Ok(version) = Client::connect_lazy(socket).version().await else {
        return Ok(());
    };
    let pid = i32::try_from(version.pid).ok().and_then(Pid::from_raw).context("the daemon gave no process id")?;
    let until = Instant::now() + STOP_DEADLINE;
    let asked = kill_process(pid, Signal::TERM);
    while asked.is_ok() && test_kill_process(pid).is_ok() {
        if Instant::now() > until {
            bail!("the running ptcd (pid {}) does not stop; end it and try again", version.pid);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_typed() {
        let command = Command::new(["launchctl", "bootstrap", "gui/501", "/a b/it's.plist"]);
        assert_eq!(command.shown(), r"launchctl bootstrap gui/501 '/a b/it'\''s.plist'");
    }

    #[test]
    fn a_definition_is_written_once_and_for_its_owner() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b/unit");
        write(&path, "one").unwrap();
        let first = fs::metadata(&path).unwrap();
        assert_eq!(first.permissions().mode() & 0o777, 0o600);
        write(&path, "one").unwrap();
        let again = fs::metadata(&path).unwrap();
        assert_eq!(
            std::os::unix::fs::MetadataExt::ino(&first),
            std::os::unix::fs::MetadataExt::ino(&again),
            "an unchanged file is not replaced"
        );
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[tokio::test]
    async fn a_failed_command_ends_the_plan_with_its_words() {
        let home = tempfile::tempdir().unwrap();
        let after = home.path().join("after");
        let steps = [
            Step::Run(Command::new(["false"]).may_fail()),
            Step::Run(Command::new(["sh", "-c", "echo no bus >&2; exit 3"])),
            Step::Write { path: after.clone(), text: "x".into() },
        ];
        let error = format!("{:#}", carry_out(&steps, &home.path().join("s")).await.unwrap_err());
        assert!(error.contains("no bus") && error.contains("start ptcd when they need it"), "{error}");
        assert!(!after.exists());
    }

    #[tokio::test]
    async fn a_patient_command_is_tried_again() {
        let home = tempfile::tempdir().unwrap();
        let flag = home.path().join("flag");
        let script = format!("test -e {0} || {{ touch {0}; exit 1; }}", flag.display());
        carry_out(&[Step::Run(Command::new(["sh", "-c", &script]).patient())], home.path()).await.unwrap();
    }

    #[tokio::test]
    async fn removing_twice_is_fine() {
        let home = tempfile::tempdir().unwrap();
        let steps = [Step::Remove { path: home.path().join("nothing") }];
        carry_out(&steps, home.path()).await.unwrap();
    }
}
