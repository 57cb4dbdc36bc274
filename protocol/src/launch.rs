//! Starting the daemon when a client needs it: through launchd or systemd where it is installed, else as a process of its
//! own group. At most one starter at a time works, under a file lock beside the socket; the others wait for the socket.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _},
    os::unix::{
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    api::Version,
    client::{Client, ClientError},
    paths::{self, Origin},
};

/// Label of the LaunchAgent that `ptcctl install` writes on macOS.
pub const LAUNCHD_LABEL: &str = "dev.ptc.ptcd";
/// Name of the systemd user unit that `ptcctl install` writes on Linux.
pub const SYSTEMD_UNIT: &str = "ptcd.service";
/// How long a start may take until the socket answers.
pub const START_DEADLINE: Duration = Duration::from_secs(15);
/// How long one look at the socket may take.
const PROBE_DEADLINE: Duration = Duration::from_secs(2);
/// Pause between two looks at the socket or the lock.
const PROBE_PAUSE: Duration = Duration::from_millis(10);
/// How long another daemon may take to answer after ours gave way to it.
const YIELD_GRACE: Duration = Duration::from_secs(1);
/// Bytes of the daemon's first words that an error shows.
const LOG_TAIL_BYTES: u64 = 2000;

/// How to reach, and if need be start, the daemon.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The socket, as [`paths::socket_path`] gave it.
    pub socket: PathBuf,
    /// `--socket` was given, so an installed service serves another one.
    pub socket_named: bool,
    /// `--config`, passed on.
    pub config: Option<PathBuf>,
    /// `--state-dir`, passed on.
    pub state_dir: Option<PathBuf>,
    /// The daemon's program; looked for beside this one and in `PATH` when none is named.
    pub ptcd: Option<PathBuf>,
    /// Whether to start it.
    pub autostart: Autostart,
    /// How long a start may take.
    pub deadline: Duration,
}

/// Whether a client may start the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Autostart {
    /// Yes.
    Allowed,
    /// `--no-autostart`.
    Forbidden,
}

/// Why there is no daemon to talk to.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// It does not run, and `--no-autostart` forbids starting it.
    #[error(
        "ptcd is not running (nothing answers at `{}`) and --no-autostart forbids starting it; \
         start it with `ptcd run` or `ptcctl install`",
        socket.display()
    )]
    NotRunning {
        /// The socket.
        socket: PathBuf,
    },
    /// The socket answers, but not as it should.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The folder of the socket or of the lock cannot be used.
    #[error("cannot prepare `{}` for starting ptcd", path.display())]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no `ptcd` beside this program nor in `PATH`.
    #[error("ptcd is not running and no `ptcd` was found beside `{}` or in PATH; install it there", beside.display())]
    NoBinary {
        /// The folder of this program.
        beside: PathBuf,
    },
    /// The program could not be executed.
    #[error("cannot execute `{}`", binary.display())]
    Spawn {
        /// The program.
        binary: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ended before its socket answered.
    #[error("ptcd ended at its start ({status}){}", said(log))]
    Died {
        /// Its exit status.
        status: ExitStatus,
        /// The end of what it wrote to stderr.
        log: String,
    },
    /// Its socket did not answer in time.
    #[error(
        "ptcd was started by {by}, but nothing answered at `{}` within {seconds} s; run `ptcctl doctor`{}",
        socket.display(), said(log)
    )]
    Slow {
        /// Who started it.
        by: &'static str,
        /// The socket.
        socket: PathBuf,
        /// The time allowed.
        seconds: f64,
        /// The end of what it wrote to stderr.
        log: String,
    },
}

impl Launch {
    /// Reads the three common flags.
    ///
    /// # Errors
    /// No usable socket path.
    pub fn new(
        socket: Option<&Path>,
        config: Option<&Path>,
        state_dir: Option<&Path>,
        autostart: Autostart,
    ) -> Result<Self, paths::PathError> {
        let env = &paths::process_environment;
        let (path, origin) = paths::socket_path_in(socket, env)?;
        Ok(Self {
            socket: path,
            socket_named: origin != Origin::Default,
            config: config.map(|config| paths::config_path_in(Some(config), env)).transpose()?.map(|found| found.path),
            state_dir: state_dir.map(|state| paths::state_dir_in(Some(state), env)).transpose()?.map(|(path, _)| path),
            ptcd: None,
            autostart,
            deadline: START_DEADLINE,
        })
    }

    /// A client of the socket.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect_lazy(&self.socket)
    }
}

/// Makes sure that a daemon answers at the socket, starting one where that is allowed, and tells what it is.
///
/// # Errors
/// Any [`LaunchError`]; nothing is left running by an error other than [`LaunchError::Slow`].
pub async fn ensure_running(launch: &Launch) -> Result<Version, LaunchError> {
    let client = launch.client().with_deadline(PROBE_DEADLINE);
    match client.version().await {
        Ok(version) => return Ok(version),
        Err(error) if !error.is_unreachable() => return Err(error.into()),
        Err(_) if launch.autostart == Autostart::Forbidden => {
            return Err(LaunchError::NotRunning { socket: launch.socket.clone() });
        }
        Err(_) => {}
    }
    let until = Instant::now() + launch.deadline;
    let lock = open_lock(&launch.socket)?;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => {
                return Err(LaunchError::Folder { path: lock_path(&launch.socket), source });
            }
        }
        if let Some(version) = probe(&client).await? {
            return Ok(version);
        }
        if Instant::now() >= until {
            return Err(slow("another client", launch, String::new()));
        }
        tokio::time::sleep(PROBE_PAUSE).await;
    }
    // Whoever held the lock may just have finished the work.
    if let Some(version) = probe(&client).await? {
        return Ok(version);
    }
    let result = start(launch, &client, until).await;
    drop(lock);
    result
}

/// The daemon's program: beside our own, else in `PATH`.
///
/// # Errors
/// [`LaunchError::NoBinary`].
pub fn find_ptcd() -> Result<PathBuf, LaunchError> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).unwrap_or_default();
    let beside = own.parent().unwrap_or(Path::new("/")).to_owned();
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(beside.clone())
        .chain(std::env::split_paths(&search).filter(|folder| folder.is_absolute()))
        .map(|folder| folder.join("ptcd"))
        .find(|candidate| is_executable(candidate))
        .ok_or(LaunchError::NoBinary { beside })
}

async fn start(launch: &Launch, client: &Client, until: Instant) -> Result<Version, LaunchError> {
    if let Some(mut service) = installed_service(launch) {
        let asked = service.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(reaped);
        if let Ok(ended) = asked {
            let patience = tokio::time::timeout_at(until.into(), ended).await;
            if matches!(patience, Ok(Ok(status)) if status.success()) {
                return wait(launch, client, until, "the service manager", None).await;
            }
        }
        // A service manager that refuses (no session bus, say) must not keep the person from working.
    }
    let binary = launch.ptcd.clone().map_or_else(find_ptcd, Ok)?;
    let log = LogFile::create(launch);
    let mut command = Command::new(&binary);
    command.arg("run").arg("--socket").arg(&launch.socket);
    if let Some(config) = &launch.config {
        command.arg("--config").arg(config);
    }
    if let Some(state_dir) = &launch.state_dir {
        command.arg("--state-dir").arg(state_dir);
    }
    let stderr = log.as_ref().and_then(|log| log.file.try_clone().ok()).map_or_else(Stdio::null, Stdio::from);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).process_group(0);
    command.current_dir(paths::home(&paths::process_environment).filter(|home| home.is_dir()).unwrap_or("/".into()));
    let child = command.spawn().map_err(|source| LaunchError::Spawn { binary, source })?;
    wait(launch, client, until, "this program", Some((reaped(child), log))).await
}

/// Waits for the socket; gives up early when our child is gone and no other daemon has taken its place.
async fn wait(
    launch: &Launch,
    client: &Client,
    until: Instant,
    by: &'static str,
    child: Option<(oneshot::Receiver<ExitStatus>, Option<LogFile>)>,
) -> Result<Version, LaunchError> {
    let (mut ended, log) = child.map_or((None, None), |(ended, log)| (Some(ended), log));
    let mut until = until;
    let mut died = None;
    loop {
        if let Some(version) = probe(client).await? {
            return Ok(version);
        }
        if let Some(status) = ended.as_mut().and_then(|ended| ended.try_recv().ok()) {
            died = Some(status);
            ended = None;
            until = until.min(Instant::now() + YIELD_GRACE);
        }
        if Instant::now() >= until {
            let log = log.map(LogFile::tail).unwrap_or_default();
            return Err(died.map_or_else(
                || slow(by, launch, log.clone()),
                |status| LaunchError::Died { status, log: log.clone() },
            ));
        }
        tokio::time::sleep(PROBE_PAUSE).await;
    }
}

/// What answers at the socket; none when nobody does.
async fn probe(client: &Client) -> Result<Option<Version>, LaunchError> {
    match client.version().await {
        Ok(version) => Ok(Some(version)),
        // A daemon on its way up or down may break off an answer.
        Err(ClientError::Unreachable { .. } | ClientError::Lost { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn slow(by: &'static str, launch: &Launch, log: String) -> LaunchError {
    LaunchError::Slow { by, socket: launch.socket.clone(), seconds: launch.deadline.as_secs_f64(), log }
}

fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; it said: {log}") }
}

/// The command that starts the installed service, when there is one that serves this socket with this config.
fn installed_service(launch: &Launch) -> Option<Command> {
    if launch.socket_named || launch.config.is_some() || launch.state_dir.is_some() {
        return None;
    }
    let home = paths::home(&paths::process_environment)?;
    if cfg!(target_os = "macos") {
        let plist = home.join("Library/LaunchAgents").join(format!("{LAUNCHD_LABEL}.plist"));
        return plist.is_file().then(|| {
            let mut command = Command::new("/bin/launchctl");
            command.arg("kickstart").arg(format!("gui/{}/{LAUNCHD_LABEL}", rustix::process::getuid().as_raw()));
            command
        });
    }
    let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let unit = folder.unwrap_or_else(|| home.join(".config")).join("systemd/user").join(SYSTEMD_UNIT);
    unit.is_file().then(|| {
        let mut command = Command::new("systemctl");
        command.args(["--user", "--no-block", "start", SYSTEMD_UNIT]);
        command
    })
}

/// Waits for the child on a thread of its own, so that it never stays a zombie while this process lives.
fn reaped(mut child: std::process::Child) -> oneshot::Receiver<ExitStatus> {
    let (tell, ended) = oneshot::channel();
    let reaper = std::thread::Builder::new().name("reaper".into()).stack_size(64 << 10);
    let waiter = reaper.spawn(move || {
        if let Ok(status) = child.wait()
            && tell.send(status).is_err()
        {
            // The starter no longer waits, because the socket has answered.
        }
    });
    // Without a thread the child is merely reaped later, by init.
    drop(waiter);
    ended
}

fn lock_path(socket: &Path) -> PathBuf {
    socket.with_extension("start-lock")
}

fn open_lock(socket: &Path) -> Result<File, LaunchError> {
    let path = lock_path(socket);
    if let Some(folder) = socket.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| LaunchError::Folder { path: folder.to_owned(), source })?;
    }
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    opened.map_err(|source| LaunchError::Folder { path, source })
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// What a started daemon writes to stderr before its own log is open.
#[derive(Debug)]
struct LogFile {
    file: File,
}

impl LogFile {
    /// Each start begins the file anew, so it stays small. Where the folder of logs cannot be written, which is likely what
    /// the daemon will say, a nameless file beside the socket takes its place. None: then stderr goes nowhere.
    fn create(launch: &Launch) -> Option<Self> {
        Self::named(launch).or_else(|| Self::nameless(&launch.socket))
    }

    fn nameless(socket: &Path) -> Option<Self> {
        let path = socket.with_extension("start-log");
        // Left behind by a start that was killed in the middle; whoever starts the daemon holds a lock.
        drop(std::fs::remove_file(&path));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path).ok()?;
        drop(std::fs::remove_file(&path));
        Some(Self { file })
    }

    fn named(launch: &Launch) -> Option<Self> {
        let folder = paths::log_dir(launch.state_dir.as_deref()).ok()?;
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        options.open(folder.join("ptcd-start.log")).ok().map(|file| Self { file })
    }

    fn tail(mut self) -> String {
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        let mut tail = Vec::new();
        let read = self
            .file
            .seek(io::SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))
            .and_then(|_| self.file.take(LOG_TAIL_BYTES).read_to_end(&mut tail));
        if read.is_err() {
            return String::new();
        }
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

#[cfg(test)]
mod tests;
