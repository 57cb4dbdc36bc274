//! A world of its own for each test: home, socket, config, state directory, daemon.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use ptc_protocol::api::{ServerState, ServerStatus, Status};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    client::Session,
    fixtures::{bare_command, binary},
    process::{Group, kill_by_environment},
    until,
    wait::PATIENCE,
};

/// The time within which the daemon promises to stop.
pub const STOP: Duration = Duration::from_secs(10);

/// Everything that one test's processes share. What still runs is killed when it is dropped, and when the test
/// panics the logs are printed.
#[derive(Debug)]
pub struct World {
    dir: TempDir,
    daemon: Option<Group>,
    logs: AtomicUsize,
}

/// A command that ran to its end.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl World {
    /// An empty world: no config, no daemon.
    ///
    /// # Panics
    /// When the temporary directory cannot be made.
    pub fn empty() -> Self {
        // The path of a socket must stay under about a hundred bytes, so the directory is not nested in another.
        let dir = tempfile::Builder::new().prefix("ptc-t-").tempdir_in("/tmp").expect("a temporary directory");
        fs::create_dir_all(dir.path().join("home")).expect("a writable temporary directory");
        Self { dir, daemon: None, logs: AtomicUsize::new(0) }
    }

    /// A world whose daemon runs with this configuration; all its enabled servers are ready.
    pub fn ready(config: &Value) -> Self {
        let world = Self::started(config);
        world.wait_servers("all servers ready", |servers| {
            servers.iter().all(|server| matches!(server.state, ServerState::Ready | ServerState::Disabled))
        });
        world
    }

    /// A world whose daemon runs with this configuration and answers; its servers may still be on their way.
    pub fn started(config: &Value) -> Self {
        let mut world = Self::empty();
        world.write_config(&serde_json::to_string_pretty(config).expect("a value can be written"));
        world.start_daemon();
        world
    }

    /// The world's own directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in the world.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The config file.
    pub fn config_path(&self) -> PathBuf {
        self.path("config.yaml")
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.path("d.sock")
    }

    /// Writes the config file in one step, as a careful editor does.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_config(&self, text: &str) {
        let draft = self.path("config.yaml~");
        fs::write(&draft, text).expect("a writable temporary directory");
        fs::rename(&draft, self.config_path()).expect("a writable temporary directory");
    }

    /// A command of ours in this world's environment: `ptcd`, `ptc-shim` or `ptcctl`.
    pub fn command(&self, name: &str) -> Command {
        let mut command = bare_command(&binary(name), &self.path("home"));
        command
            .env("PTC_CONFIG", self.config_path())
            .env("PTC_SOCKET", self.socket())
            .env("PTC_STATE_DIR", self.path("state"))
            .env("RUST_BACKTRACE", "1")
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stderr(self.log(name));
        command
    }

    /// Starts the daemon and waits until it answers.
    pub fn start_daemon(&mut self) {
        let mut command = self.command("ptcd");
        self.daemon = Some(Group::spawn(command.arg("run").stdout(self.log("ptcd-stdout"))));
        let daemon = self.daemon.as_mut().expect("set above");
        let socket = self.dir.path().join("d.sock");
        until("the daemon's socket", PATIENCE, || {
            assert!(daemon.runs(), "the daemon ended at once");
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
    }

    /// The daemon that [`World::start_daemon`] started.
    ///
    /// # Panics
    /// When there is none.
    pub fn daemon(&mut self) -> &mut Group {
        self.daemon.as_mut().expect("this world's daemon was started")
    }

    /// Asks the daemon to stop and waits until it has ended.
    pub fn stop_daemon(&mut self) -> ExitStatus {
        self.daemon().signal(Signal::TERM);
        let status = self.daemon().exit(STOP);
        self.daemon = None;
        status
    }

    /// Ends the daemon without a chance to clean up. Its process group is left alone.
    pub fn kill_daemon(&mut self) {
        self.daemon().signal(Signal::KILL);
        self.daemon().exit(STOP);
    }

    /// Starts a shim that may not start a daemon. The handshake is the caller's.
    pub fn shim(&self) -> Session {
        Session::spawn(self.command("ptc-shim").arg("--no-autostart"))
    }

    /// A shim after the handshake.
    pub fn session(&self) -> Session {
        let mut session = self.shim();
        session.initialize();
        session
    }

    /// Runs `ptcctl` to its end; it may not start a daemon.
    pub fn ctl(&self, args: &[&str]) -> Ran {
        Ran::of(self.command("ptcctl").arg("--no-autostart").args(args))
    }

    /// What `ptcctl status --json` says.
    ///
    /// # Panics
    /// When it fails.
    pub fn status(&self) -> Status {
        let ran = self.ctl(&["status", "--json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("not a status ({error}): {}", ran.stdout))
    }

    /// Waits until the status is as wanted and returns it.
    pub fn wait_status(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let mut last = None;
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, PATIENCE, || {
                let status = self.status();
                let found = wanted(&status);
                last = Some(status.clone());
                found.then_some(status)
            })
        }));
        found.unwrap_or_else(|panic| {
            report(&format!("last status: {last:#?}"));
            std::panic::resume_unwind(panic)
        })
    }

    /// Waits until the servers are as wanted.
    pub fn wait_servers(&self, what: &str, wanted: impl Fn(&[ServerStatus]) -> bool) -> Vec<ServerStatus> {
        self.wait_status(what, |status| wanted(&status.servers)).servers
    }

    /// Everything the daemon has written to its log files and its stderr so far.
    pub fn daemon_log(&self) -> String {
        logs(self.dir.path()).into_iter().map(|(_, text)| text).collect()
    }

    fn log(&self, name: &str) -> File {
        let number = self.logs.fetch_add(1, Ordering::Relaxed);
        File::create(self.path(&format!("{number:02}-{name}.log"))).expect("a writable temporary directory")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (path, text) in logs(self.dir.path()) {
                report(&format!("---- {}\n{text}", path.display()));
            }
        }
        // An orderly end where possible, so that servers in groups of their own end too.
        if let Some(daemon) = &mut self.daemon {
            daemon.signal(Signal::TERM);
            let start = std::time::Instant::now();
            while daemon.runs() && start.elapsed() < STOP {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.daemon = None;
        kill_by_environment(&format!("PTC_SOCKET={}", self.socket().display()));
    }
}

impl Ran {
    /// Runs a command to its end.
    ///
    /// # Panics
    /// When it cannot be started or does not end in time.
    pub fn of(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        let mut stdout = tempfile::tempfile().expect("a temporary file");
        let mut stderr = tempfile::tempfile().expect("a temporary file");
        let mut group = Group::spawn(
            command.stdout(stdout.try_clone().expect("a file")).stderr(stderr.try_clone().expect("a file")),
        );
        let status = group.exit(PATIENCE * 2);
        drop(group);
        let ran = Self { code: status.code(), stdout: read_back(&mut stdout), stderr: read_back(&mut stderr) };
        if ran.code != Some(0) {
            report(&format!("{what} ended with {status}\n{}{}", ran.stdout, ran.stderr));
        }
        ran
    }
}

/// Shows a failing test's material. The test runner keeps it back unless the test fails.
fn report(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

fn read_back(file: &mut File) -> String {
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("our own file");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The log files in the world with their last part.
fn logs(dir: &Path) -> Vec<(PathBuf, String)> {
    const SHOWN: usize = 20_000;
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "log" || extension == "jsonl") {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
                let skipped = text.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
                if !text.is_empty() {
                    found.push((path, text[skipped..].to_owned()));
                }
            }
        }
    }
    found.sort();
    found
}
