//! The control API: socket, peer uid, routes. The only module that knows HTTP; `ptc_protocol::api` has the types and
//! the table of routes.

mod logs;
mod problem;
mod routes;
mod sessions;
mod socket;
mod streams;

use std::{path::PathBuf, sync::Arc, time::Instant};

use ptc_protocol::api::DaemonStatus;
pub use socket::{Socket, SocketError};
use tokio::{net::UnixListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{gateway::Gateway, reload::Reloader, runner::Runner, supervisor::Supervisor};

/// What the routes ask.
#[derive(Debug, Clone)]
pub struct Front {
    runner: Runner,
    gateway: Gateway,
    supervisor: Supervisor,
    reloader: Reloader,
    stubs_trouble: watch::Receiver<Option<String>>,
    sessions: sessions::Sessions,
    socket: Arc<PathBuf>,
    log_dir: Arc<PathBuf>,
    started: Instant,
    stopping: CancellationToken,
    session_ends: tokio::sync::mpsc::Sender<ptc_protocol::names::SessionId>,
}

/// The modules a [`Front`] stands before.
#[derive(Debug)]
pub struct Behind {
    /// Programs.
    pub runner: Runner,
    /// Tools.
    pub gateway: Gateway,
    /// Servers.
    pub supervisor: Supervisor,
    /// The configuration.
    pub reloader: Reloader,
    /// Why the declarations in `stubs_dir` are not what they should be.
    pub stubs_trouble: watch::Receiver<Option<String>>,
    /// Path of the control socket, for the status.
    pub socket: PathBuf,
    /// Where the logs are.
    pub log_dir: PathBuf,
    /// Ends open streams when the daemon stops.
    pub stopping: CancellationToken,
}

/// Serves the control API until `stopping`; open streams end then.
pub async fn serve(listener: UnixListener, behind: Behind) {
    let Behind { runner, gateway, supervisor, reloader, stubs_trouble, socket, log_dir, stopping } = behind;
    // Full: the session's stream waits for the supervisor before it is struck out.
    let (session_ends, mut ended) = tokio::sync::mpsc::channel(64);
    let front = Front {
        runner,
        gateway,
        supervisor: supervisor.clone(),
        reloader,
        stubs_trouble,
        sessions: sessions::Sessions::default(),
        socket: Arc::new(socket),
        log_dir: Arc::new(log_dir),
        started: Instant::now(),
        stopping: stopping.clone(),
        session_ends,
    };
    let server = axum::serve(listener, routes::router(front).into_make_service_with_connect_info::<socket::Peer>());
    tokio::select! {
        // An accept loop never ends by itself; what it returns is the error type's formality.
        served = std::future::IntoFuture::into_future(server) => if let Err(error) = served {
            tracing::error!(%error, "control socket failed");
        },
        () = async { while let Some(session) = ended.recv().await { supervisor.session_ended(&session).await } } => {}
        () = stopping.cancelled() => {}
    }
}

impl Front {
    fn daemon_status(&self) -> DaemonStatus {
        DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            rss_bytes: resident_bytes(),
            socket: self.socket.display().to_string(),
        }
    }
}

/// Resident memory of this process, proc(5) `statm`; 0 where there is no such file.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.map_or(0, |pages| pages * u64::try_from(rustix::param::page_size()).unwrap_or(4096))
}
