//! `ptc-shim`: the stdio MCP server that each client session starts. It owns the conversation with its client and forwards
//! the work to `ptcd`; it holds no state of its own, outlives any number of daemon restarts and ends with its client.
//!
//! stdout carries MCP and nothing else. Logs go to stderr.

mod answer;
mod arguments;
mod catalog;
mod decode;
mod discovery;
mod link;
mod progress;
mod run;
mod server;
mod tools;
mod wire;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser as _;
use ptc_protocol::{
    exit,
    launch::{Autostart, Launch},
    paths::PathError,
};
use rmcp::ServiceExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::{link::Link, server::Shim};

/// How long answers that are on their way may take after the client has closed its end.
const LAST_ANSWERS: Duration = Duration::from_millis(60);

/// MCP server on stdio that runs programs through ptcd. A client starts it; it needs no arguments.
#[derive(Debug, clap::Parser)]
#[command(name = "ptc-shim", version, about)]
struct Arguments {
    /// The daemon's socket [default: $PTC_SOCKET, else the usual place]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// The config file for a daemon that is started here
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The state folder for a daemon that is started here
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Report a daemon that is not running instead of starting it
    #[arg(long)]
    no_autostart: bool,
}

/// The whole program: arguments, logging, and the conversation on stdin and stdout.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(usage) => {
            let code = if usage.use_stderr() { exit::USAGE } else { exit::OK };
            // A closed terminal is no reason for another exit code.
            drop(usage.print());
            return ExitCode::from(code);
        }
    };
    start_logging();
    let autostart = if arguments.no_autostart { Autostart::Forbidden } else { Autostart::Allowed };
    let launch = Launch::new(
        arguments.socket.as_deref(),
        arguments.config.as_deref(),
        arguments.state_dir.as_deref(),
        autostart,
    );
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::from(exit::FAILED);
        }
    };
    runtime.block_on(async {
        let (reader, writer) = rmcp::transport::stdio_pipes();
        Box::pin(serve(reader, writer, launch)).await;
    });
    // A read of stdin that blocks on a thread must not hold the process.
    runtime.shutdown_background();
    ExitCode::from(exit::OK)
}

/// Serves one client until it closes its end. A launch that cannot be had is told in answer to each call.
pub async fn serve<R, W>(reader: R, writer: W, launch: Result<Launch, PathError>)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let gone = CancellationToken::new();
    let (wire, writer) = wire::wire(reader, writer, &gone);
    let link = Link::new(launch);
    let shim = Shim::new(link.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(link.clone().run());
    tasks.spawn(catalog::announce(link, shim.peer()));
    let mut written = JoinSet::new();
    written.spawn(writer.run());

    let conversation = async {
        match shim.serve(wire).await {
            Ok(running) => {
                if let Err(error) = running.waiting().await {
                    tracing::error!(%error, "conversation broke off");
                }
            }
            Err(error) => tracing::debug!(%error, "no conversation"),
        }
    };
    let patience = async {
        gone.cancelled().await;
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        () = async { conversation.await; while written.join_next().await.is_some() {} } => {}
        () = patience => {}
        Some(ended) = tasks.join_next() => tracing::error!(?ended, "a task ended early"),
    }
}

fn start_logging() {
    // rmcp writes whole messages at lower levels, and those hold programs and results.
    let wanted = std::env::var("PTC_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let levels = wanted.unwrap_or_else(|| Targets::new().with_default(tracing::Level::WARN));
    let levels = levels.with_target("rmcp", tracing::Level::ERROR);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(levels).with(lines).init();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panic");
    }));
}
