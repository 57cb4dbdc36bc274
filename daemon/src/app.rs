//! `ptcd` itself: its command line, and how the modules are put together and taken apart.

use std::{
    ffi::OsString,
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use ptc_protocol::{exit, paths};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config, demo,
    front::{self, Behind, Socket},
    gateway::Gateway,
    guardian::{self, Guardian},
    logging, reload,
    runner::{Runner, Surroundings},
    sandbox, stubs,
    supervisor::Supervisor,
};

/// From the first signal to the end, whatever a server does.
const STOP_DEADLINE: Duration = Duration::from_secs(8);

/// Keeps your MCP servers connected and runs programs that call their tools.
#[derive(Debug, Parser)]
#[command(name = "ptcd", version)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    places: Places,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve in the foreground (the default)
    Run,
    /// Check the configuration and print every error with its line and column
    Check,
}

#[derive(Debug, Args)]
struct Places {
    /// Configuration file [default: $PTC_CONFIG, $PTC_MCP_CONFIG, ~/.config/ptc/config.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Control socket [default: $PTC_SOCKET, $XDG_RUNTIME_DIR/ptc/ptcd.sock, ~/.local/state/ptc/ptcd.sock]
    #[arg(long, global = true, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Directory of logs and scratch files [default: $PTC_STATE_DIR, ~/.local/state/ptc]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// The whole of the `ptcd` binary.
///
/// The hidden subcommands come first, before a thread or a runtime exists: they are other processes that share the
/// executable.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match arguments.get(1).and_then(|first| first.to_str()) {
        Some(sandbox::SUBCOMMAND) => return sandbox::launcher_main(),
        Some(guardian::SUBCOMMAND) => return guardian::main(),
        Some(demo::SUBCOMMAND) => return demo::main(),
        Some(_) | None => {}
    }
    let Cli { verb, places } = Cli::parse();
    match verb.unwrap_or(Verb::Run) {
        Verb::Check => check(&places),
        Verb::Run => match run(&places) {
            Ok(()) => ExitCode::from(exit::OK),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "ptcd stopped");
                complain(&error);
                ExitCode::from(exit::FAILED)
            }
        },
    }
}

#[expect(clippy::print_stdout, reason = "the answer of `ptcd check`")]
fn check(places: &Places) -> ExitCode {
    let checked = config::check(places.config.as_deref(), &|name| std::env::var(name).ok());
    print!("{}", checked.text);
    ExitCode::from(checked.code)
}

#[expect(clippy::print_stderr, reason = "the last word of a daemon that could not serve")]
fn complain(error: &anyhow::Error) {
    eprintln!("ptcd: {error:#}");
}

fn run(places: &Places) -> anyhow::Result<()> {
    // Sockets, logs and scratch files are the user's alone, whatever the shell's umask.
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
    let socket_path = paths::socket_path(places.socket.as_deref())?;
    let state_dir = paths::state_dir(places.state_dir.as_deref())?;
    let log_dir = paths::log_dir(places.state_dir.as_deref())?;
    for folder in [&state_dir, &log_dir] {
        private_folder(folder)?;
    }
    let _log = logging::start(&log_dir).with_context(|| format!("cannot write logs in `{}`", log_dir.display()))?;
    // On Linux this name stays ours even while an upgrade replaces the file.
    let executable = if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().context("cannot tell where the ptcd executable is")?
    };
    let guardian = Guardian::start(&executable).context("cannot start the guardian process")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let daemon = Daemon {
        config: places.config.clone(),
        socket_path,
        scratch_root: state_dir.join("scratch"),
        log_dir,
        executable,
        guardian,
    };
    let served = runtime.block_on(daemon.serve());
    runtime.shutdown_timeout(Duration::from_millis(200));
    served
}

fn private_folder(folder: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot make the directory `{}`", folder.display()))
}

struct Daemon {
    config: Option<PathBuf>,
    socket_path: PathBuf,
    scratch_root: PathBuf,
    log_dir: PathBuf,
    executable: PathBuf,
    guardian: Guardian,
}

impl Daemon {
    /// Serves until a signal, then stops in order: no new requests, programs, servers, socket.
    async fn serve(self) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        // Owns the socket file until the end of this function.
        let (_socket, listener) = Socket::open(&self.socket_path)?;
        let mut tasks = JoinSet::new();
        let (reloader, reload_task, settings) = reload::start(self.config);
        let (supervisor, supervisor_task) =
            Supervisor::start(&settings.borrow(), self.guardian.clone(), self.log_dir.clone());
        tasks.spawn(supervisor_task.run());
        let (gateway, gateway_task) = Gateway::new(supervisor.clone(), settings.clone());
        tasks.spawn(gateway_task);
        let (stubs_trouble, stubs_told) = tokio::sync::watch::channel(None);
        tasks.spawn(stubs::keep(gateway.clone(), settings.clone(), stubs_trouble));
        let surroundings = Surroundings {
            settings,
            gateway: gateway.clone(),
            guardian: self.guardian.clone(),
            scratch_root: self.scratch_root,
            launcher: self.executable,
        };
        let (runner, runner_task) = Runner::new(surroundings);
        tasks.spawn(runner_task);
        // Full: a SIGHUP that comes while eight wait says nothing new.
        let (hangups, hung_up) = mpsc::channel(8);
        tasks.spawn(reload_task.run(supervisor.clone(), hung_up));
        let stopping = CancellationToken::new();
        let behind = Behind {
            runner: runner.clone(),
            gateway,
            supervisor: supervisor.clone(),
            reloader,
            stubs_trouble: stubs_told,
            socket: self.socket_path,
            log_dir: self.log_dir,
            stopping: stopping.clone(),
        };
        tasks.spawn(front::serve(listener, behind));
        ready();
        tracing::info!(pid = std::process::id(), version = env!("CARGO_PKG_VERSION"), "ptcd ready");

        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    Asked::Reload => { let _waiting = hangups.try_send(()); }
                    Asked::Stop => break,
                },
                Some(ended) = tasks.join_next() => {
                    // Each of them runs as long as the daemon; one that ends early is our own fault.
                    let error = ended.err().map_or_else(|| "it returned".to_owned(), |error| error.to_string());
                    tracing::error!(error, "a task of the daemon ended");
                    anyhow::bail!("a part of ptcd ended unexpectedly: {error}");
                }
            }
        }
        tracing::info!("stopping");
        stopping.cancel();
        let stop = async {
            runner.stop().await;
            supervisor.shutdown().await;
        };
        tokio::select! {
            () = stop => {}
            () = tokio::time::sleep(STOP_DEADLINE) => tracing::warn!("not everything stopped in time"),
            () = signals.stop() => tracing::warn!("second signal, stopping at once"),
        }
        tasks.shutdown().await;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Tells a service manager that we serve; see sd_notify(3).
fn ready() {
    #[cfg(target_os = "linux")]
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "service manager not told");
    }
}

enum Asked {
    Reload,
    Stop,
}

struct Signals {
    hangup: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.hangup.recv() => Asked::Reload,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.terminate.recv() => Asked::Stop,
        }
    }

    /// The next signal that asks to stop.
    async fn stop(&mut self) {
        while !matches!(self.next().await, Asked::Stop) {}
    }
}
