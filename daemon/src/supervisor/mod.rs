//! Owner of the downstream servers: state machine, transports, process groups, catalog.
//!
//! [`Supervisor`] is the handle, [`SupervisorTask`] the one task that owns every server's own task. Calls do not pass
//! through either: they go straight to the connection of their server. News (catalog, status) goes up through `watch`.
//! This module alone knows rmcp's client side; it must never know programs, policies or HTTP routes.
//!
//! Inside, `state` decides and `server` acts; `link` is the boundary to the transports, `wire` the JSON-RPC that all
//! of them share, and `line` a connection that takes calls.

mod busy;
mod call;
mod catalog;
mod clocks;
mod face;
mod framing;
mod handshake;
mod http;
mod line;
mod link;
mod log;
mod mirror;
mod owner;
mod process;
mod redact;
mod rounds;
mod server;
mod sse;
mod state;
mod stdio;
mod wire;

use std::{path::PathBuf, sync::Arc};

use ptc_protocol::{
    api::{ReloadReport, ServerState, ServerStatus},
    names::{ServerName, SessionId},
};
use tokio::sync::{mpsc, oneshot, watch};

pub use self::{
    call::{CallFailure, CallResult, ServerCall},
    catalog::{Catalog, ServerEntry, Tool},
    log::log_path,
    owner::SupervisorTask,
};
use self::{
    face::Face,
    line::{CallEnd, Line},
    owner::{Directory, Request},
};
use crate::{
    config::settings::{Scope, Settings},
    guardian::Guardian,
};

/// A call that is repeated after a reconnect waits for that no longer than this.
const RECONNECT_LIMIT: std::time::Duration = std::time::Duration::from_secs(15);

/// Requests that may wait for the owner; more wait in their callers, all of which may.
const REQUESTS: usize = 32;

/// Handle to the servers; clones share it.
#[derive(Debug, Clone)]
pub struct Supervisor {
    requests: mpsc::Sender<Request>,
    directory: watch::Receiver<Arc<Directory>>,
    catalog: watch::Receiver<Arc<Catalog>>,
    status: watch::Receiver<Arc<Vec<ServerStatus>>>,
}

/// Why a server is not started anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestartError {
    /// No server of this name is configured.
    #[error("no server `{server}` is configured")]
    Unknown {
        /// The name that was asked for.
        server: ServerName,
    },
    /// It shall not run.
    #[error("server `{server}` is disabled in the configuration; set `enabled: true` there")]
    Disabled {
        /// The server.
        server: ServerName,
    },
}

impl Supervisor {
    /// Makes the handle and the task that does the work; nothing starts before [`SupervisorTask::run`] is polled.
    /// What servers write to stderr goes to [`log_path`] in `log_dir`.
    #[must_use]
    pub fn start(settings: &Settings, guardian: Guardian, log_dir: PathBuf) -> (Self, SupervisorTask) {
        // Full: the caller waits. Every request is answered within one turn of the owner's loop.
        let (requests, received) = mpsc::channel(REQUESTS);
        let (task, directory, catalog, status) = SupervisorTask::new(settings.clone(), guardian, log_dir, received);
        (Self { requests, directory, catalog, status }, task)
    }

    /// The catalog: its present value, and news of every change.
    #[must_use]
    pub fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.clone()
    }

    /// The status of every server, in config order.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Arc<Vec<ServerStatus>>> {
        self.status.clone()
    }

    /// Calls a tool. Dropping the future tells the server to stop working on it.
    ///
    /// # Errors
    /// Everything but an answer with a result; see [`CallFailure`]. A server that is down fails at once; one
    /// that is on its way, as after a restart or a first crash, is waited for a little.
    pub async fn call(&self, call: ServerCall) -> Result<CallResult, CallFailure> {
        let face = self.face(&call).await?;
        let line = face.line.borrow().clone();
        let line = match line {
            Some(line) => line,
            None if face.comes_back() => next_line(&face, None, &call).await.ok_or_else(|| unavailable(&face))?,
            None => return Err(unavailable(&face)),
        };
        let tally = Tally { face: &face, ok: None };
        let result = match line.call(&call).await {
            Err(CallEnd::Expired { reason }) => repeat(&face, &line, &call, reason).await,
            Err(CallEnd::Failed(failure)) => Err(failure),
            Ok(result) => Ok(result),
        };
        tally.end(result.is_ok());
        result.map_err(|failure| match failure {
            CallFailure::Rpc { code, message } => CallFailure::Rpc { code, message: face.clean(&message) },
            CallFailure::Unavailable { server, reason } => {
                CallFailure::Unavailable { server, reason: face.clean(&reason) }
            }
            CallFailure::ConnectionLost { server, reason } => {
                CallFailure::ConnectionLost { server, reason: face.clean(&reason) }
            }
            other @ (CallFailure::Timeout { .. } | CallFailure::TooLarge { .. } | CallFailure::Malformed { .. }) => {
                other
            }
        })
    }

    /// Makes these settings the ones in force: what changed is started, restarted or stopped, and nothing else is
    /// touched. Returns when that has begun.
    pub async fn apply(&self, settings: Arc<Settings>) -> ReloadReport {
        self.ask(|reply| Request::Apply { settings, reply }).await.unwrap_or_default()
    }

    /// Starts a server anew, at once: what may hang must not hold up whoever wants to end it.
    ///
    /// # Errors
    /// No such server is configured, or it is disabled.
    pub async fn restart(&self, server: &ServerName) -> Result<(), RestartError> {
        let done = self.ask(|reply| Request::Restart { server: server.clone(), reply }).await;
        done.unwrap_or_else(|| Err(RestartError::Unknown { server: server.clone() }))
    }

    /// Stops the instances that belong to a session.
    pub async fn session_ended(&self, session: &SessionId) {
        drop(self.requests.send(Request::SessionEnded { session: session.clone() }).await);
    }

    /// Stops all servers at the same time and ends the task; takes at most six seconds.
    pub async fn shutdown(&self) {
        self.ask(|reply| Request::Shutdown { reply }).await.unwrap_or_default();
    }

    /// None when the owner is gone, as after a shutdown.
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.ok()?;
        answer.await.ok()
    }

    /// The instance that takes the call, started if it is the first call of its session.
    async fn face(&self, call: &ServerCall) -> Result<Arc<Face>, CallFailure> {
        let server = &call.tool.server;
        let unknown = || CallFailure::Unavailable {
            server: server.clone(),
            reason: "it is no longer in the configuration".into(),
        };
        let shared = self.directory.borrow().face(server, None).ok_or_else(unknown)?;
        let Some(session) = call.session.as_ref().filter(|_| shared.scope() == Scope::Session) else {
            return Ok(shared);
        };
        let known = self.directory.borrow().face(server, Some(session));
        let own = match known {
            Some(face) => face,
            None => self
                .ask(|reply| Request::Ensure { server: server.clone(), session: session.clone(), reply })
                .await
                .flatten()
                .ok_or_else(unknown)?,
        };
        let mut line = own.line.subscribe();
        // A first start may take its time; the caller's own deadline stands over it.
        let ready = async {
            loop {
                if line.borrow_and_update().is_some() || own.is_down() {
                    return;
                }
                let turn = tokio::time::timeout(std::time::Duration::from_millis(100), line.changed()).await;
                if matches!(turn, Ok(Err(_))) {
                    return;
                }
            }
        };
        drop(tokio::time::timeout(call.timeout, ready).await);
        Ok(own)
    }
}

/// Repeats a call in the session that follows the one that is over, once: no session may be asked for over and over.
async fn repeat(face: &Face, old: &Arc<Line>, call: &ServerCall, reason: String) -> Result<CallResult, CallFailure> {
    let unavailable = |reason| CallFailure::Unavailable { server: face.name.clone(), reason };
    let Some(next) = next_line(face, Some(old), call).await else {
        let gone = face.trouble().filter(|_| face.gave_up());
        return Err(unavailable(gone.unwrap_or_else(|| format!("{reason}; it is reconnecting"))));
    };
    next.call(call).await.map_err(|end| match end {
        CallEnd::Failed(failure) => failure,
        CallEnd::Expired { reason } => {
            unavailable(format!("{reason}, also right after a reconnect; it is reconnecting"))
        }
    })
}

/// The connection that follows, unless that takes too long or the server is given up.
async fn next_line(face: &Face, old: Option<&Arc<Line>>, call: &ServerCall) -> Option<Arc<Line>> {
    let mut line = face.line.subscribe();
    let renewed = async {
        loop {
            let next = line.borrow_and_update().clone();
            let next = next.filter(|next| old.is_none_or(|old| !Arc::ptr_eq(next, old)));
            if next.is_some() || face.gave_up() {
                return next;
            }
            let turn = tokio::time::timeout(std::time::Duration::from_millis(100), line.changed()).await;
            if matches!(turn, Ok(Err(_))) {
                return None;
            }
        }
    };
    tokio::time::timeout(call.timeout.min(RECONNECT_LIMIT), renewed).await.ok().flatten()
}

fn unavailable(face: &Face) -> CallFailure {
    let reason = face.trouble().unwrap_or_else(|| "it has just gone".into());
    CallFailure::Unavailable { server: face.name.clone(), reason }
}

/// Counts a call once, also when its future is dropped.
struct Tally<'a> {
    face: &'a Face,
    /// None for a call that was given up.
    ok: Option<bool>,
}

impl Tally<'_> {
    fn end(mut self, ok: bool) {
        self.ok = Some(ok);
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.face.called(self.ok);
    }
}

/// Whether a server in this state will not be ready without a new try.
const fn is_down(state: ServerState) -> bool {
    match state {
        ServerState::Starting | ServerState::Ready => false,
        ServerState::Stopping
        | ServerState::Backoff
        | ServerState::Failed
        | ServerState::Stopped
        | ServerState::Disabled
        | ServerState::NeedsSignIn => true,
    }
}

#[cfg(test)]
mod tests;
