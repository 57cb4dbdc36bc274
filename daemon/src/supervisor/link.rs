//! The boundary between a connection and what carries it. A transport opens a [`Link`]: tasks that move text between
//! its counterpart and the [`Wire`], and the process behind them, if there is one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rmcp::model::ProtocolVersion;
use tokio::task::{AbortHandle, JoinSet};

use super::{
    http,
    process::Process,
    state::Retry,
    wire::{Wire, WireTransport},
};

/// An open connection, not yet initialized.
#[derive(Debug)]
pub(super) struct Link {
    /// State shared with the calls.
    pub(super) wire: Arc<Wire>,
    /// rmcp's end, until the handshake takes it.
    pub(super) transport: Option<WireTransport>,
    /// The tasks that move text; they end by themselves when the wire has ended, or are stopped by [`Link::close`].
    pub(super) tasks: JoinSet<()>,
    /// The task that writes to the server; stopping it is how the server hears that we are done.
    pub(super) writer: AbortHandle,
    /// The server's process (stdio).
    pub(super) process: Option<Process>,
    /// The server's session, which is told of our end (HTTP).
    pub(super) session: Option<Arc<http::Session>>,
    /// Whether only asking tells that the counterpart is alive.
    pub(super) needs_pings: bool,
}

/// Why a connection could not be opened or initialized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct StartError {
    /// What is tried next.
    pub(super) kind: StartErrorKind,
    /// For people; without secrets.
    pub(super) message: String,
}

/// What a failed start means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartErrorKind {
    /// May work the next time.
    Transient,
    /// May work after so long: the server asked for that.
    Wait(Duration),
    /// Needs a new session, which can be had at once.
    Expired,
    /// Took longer than it was given.
    TooSlow,
    /// Has taken the discovery of the stateless protocol for good, though its answer came too late.
    Modern,
    /// Does not speak the version of the protocol that it was asked for, but this one.
    Version(&'static ProtocolVersion),
    /// Cannot work until a person changes something.
    Broken,
    /// Wants a sign-in.
    SignIn,
}

impl StartErrorKind {
    /// When a server that ended in this way is tried again.
    pub(super) const fn retry(self) -> Retry {
        match self {
            Self::Expired | Self::Version(_) => Retry::Now,
            Self::Transient | Self::TooSlow | Self::Modern => Retry::Soon,
            Self::Wait(asked) => Retry::After(asked),
            Self::Broken => Retry::Slowly,
            Self::SignIn => Retry::AfterSignIn,
        }
    }
}

impl StartError {
    pub(super) fn new(kind: StartErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl Link {
    /// Closes the connection: the server sees the end of its input, then its process group is asked and killed.
    /// Takes at most five seconds.
    pub(super) async fn close(mut self, reason: &str) {
        let began = Instant::now();
        self.writer.abort();
        self.wire.end(reason);
        if let Some(process) = &mut self.process {
            process.stop().await;
        }
        if let Some(session) = &self.session {
            session.goodbye().await;
        }
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(%error, "transport task panicked");
            }
        }
        if began.elapsed() > Duration::from_secs(2) {
            tracing::warn!(elapsed_ms = began.elapsed().as_millis(), "server was slow to stop");
        }
    }
}
