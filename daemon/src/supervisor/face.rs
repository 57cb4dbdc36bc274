//! What others see of a server: its state, its counters, and the connection that takes calls.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use ptc_protocol::{
    api::{ServerState, ServerStatus},
    names::{ServerName, SessionId},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{catalog::listing::Listing, line::Line, log::ServerLog, redact::Redactor, server::Surroundings};
use crate::config::settings::{Scope, ServerSettings};

/// What others see of a server.
#[derive(Debug)]
pub(super) struct Face {
    pub(super) name: ServerName,
    /// The connection that calls go to, while the server is ready.
    pub(super) line: watch::Sender<Option<Arc<Line>>>,
    pub(super) calls: AtomicU64,
    pub(super) failed_calls: AtomicU64,
    report: Mutex<Report>,
    pub(super) log: ServerLog,
    changed: Arc<Notify>,
}

/// What changes, always as a whole.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) transport: &'static str,
    pub(super) scope: Scope,
    pub(super) state: ServerState,
    /// Whether its tools stand in the catalog, also while it is not ready.
    pub(super) offers_tools: bool,
    /// Whether it will soon be ready.
    pub(super) comes_back: bool,
    pub(super) since: Timestamp,
    pub(super) pid: Option<u32>,
    pub(super) last_ok: Option<Timestamp>,
    pub(super) last_error: Option<String>,
    pub(super) next_retry: Option<Timestamp>,
    pub(super) starts: u64,
    pub(super) protocol: Option<String>,
    pub(super) listing: Option<Arc<Listing>>,
    pub(super) last_call: Instant,
}

impl Face {
    /// A server that has not been started.
    pub(super) fn new(settings: &ServerSettings, surroundings: &Surroundings) -> Self {
        Self {
            name: settings.name.clone(),
            line: watch::Sender::new(None),
            calls: AtomicU64::new(0),
            failed_calls: AtomicU64::new(0),
            report: Mutex::new(Report {
                transport: settings.transport.kind(),
                scope: settings.scope,
                state: if settings.enabled { ServerState::Starting } else { ServerState::Disabled },
                offers_tools: false,
                comes_back: settings.enabled,
                since: Timestamp::now(),
                pid: None,
                last_ok: None,
                last_error: None,
                next_retry: None,
                starts: 0,
                protocol: None,
                listing: None,
                last_call: Instant::now(),
            }),
            log: ServerLog::new(&surroundings.log_dir, &settings.name, Redactor::of(settings)),
            changed: Arc::clone(&surroundings.changed),
        }
    }

    /// Records the end of a call; none means that it was given up.
    pub(super) fn called(&self, ok: Option<bool>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if ok == Some(false) {
            self.failed_calls.fetch_add(1, Ordering::Relaxed);
        }
        {
            let mut report = self.report();
            report.last_call = Instant::now();
            if ok == Some(true) {
                report.last_ok = Some(Timestamp::now());
            }
        }
        self.changed.notify_one();
    }

    /// Whether sessions share the server.
    pub(super) fn scope(&self) -> Scope {
        self.report().scope
    }

    /// Time since the last call, or since it was made.
    pub(super) fn idle_for(&self) -> Duration {
        self.report().last_call.elapsed()
    }

    /// Whether it will not be ready without a new try.
    pub(super) fn is_down(&self) -> bool {
        super::is_down(self.report().state)
    }

    /// The text without the server's secrets.
    pub(super) fn clean(&self, text: &str) -> String {
        self.log.clean(text)
    }

    /// Whether it is not ready and will soon be: worth a wait.
    pub(super) fn comes_back(&self) -> bool {
        self.report().comes_back
    }

    /// Whether a wait for it is in vain.
    pub(super) fn gave_up(&self) -> bool {
        let report = self.report();
        report.state != ServerState::Ready && !report.comes_back
    }

    /// The state, and the tools that programs may see.
    pub(super) fn offer(&self) -> (ServerState, Option<Arc<Listing>>) {
        let report = self.report();
        (report.state, report.listing.clone().filter(|_| report.offers_tools))
    }

    /// Why the server cannot be called, for people; none when it can.
    pub(super) fn trouble(&self) -> Option<String> {
        let report = self.report();
        let cause = report.last_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
        let next = report.next_retry.map(|time| format!("; next try at {time:.0}")).unwrap_or_default();
        Some(match report.state {
            ServerState::Ready => return None,
            ServerState::Starting => format!("it is starting{cause}"),
            ServerState::Stopping if report.comes_back => format!("it is being restarted{cause}"),
            ServerState::Stopping => format!("it is being stopped{cause}"),
            ServerState::Backoff => format!("it is down{cause}{next}"),
            ServerState::Failed => format!("it cannot work as configured{cause}{next}"),
            ServerState::Stopped => "it is stopped".into(),
            ServerState::Disabled => "it is disabled in the configuration".into(),
            ServerState::NeedsSignIn => format!("it needs a sign-in{cause}"),
        })
    }

    /// The status; `tools` and `warnings` of the catalog are the caller's.
    pub(super) fn status(
        &self,
        tools: usize,
        catalog_warnings: &[String],
        session: Option<&SessionId>,
    ) -> ServerStatus {
        let mut warnings = self.log.warnings();
        let report = self.report();
        warnings.extend(report.listing.iter().flat_map(|listing| listing.warnings.iter().cloned()));
        warnings.extend(catalog_warnings.iter().cloned());
        ServerStatus {
            name: self.name.clone(),
            transport: report.transport.into(),
            state: report.state,
            pid: report.pid,
            since: report.since.to_string(),
            tools,
            calls: self.calls.load(Ordering::Relaxed),
            failed_calls: self.failed_calls.load(Ordering::Relaxed),
            last_ok: report.last_ok.map(|time| time.to_string()),
            last_error: report.last_error.clone(),
            last_stderr: self.log.tail(),
            next_retry: report.next_retry.map(|time| time.to_string()),
            starts: report.starts,
            warnings,
            scope: match report.scope {
                Scope::Shared => "shared".into(),
                Scope::Session => "session".into(),
            },
            session: session.cloned(),
            protocol: report.protocol.clone(),
        }
    }

    /// For a few lines of plain reads and writes.
    pub(super) fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what belonged to a connection that is closed.
    pub(super) fn gone(&self) {
        let mut report = self.report();
        report.pid = None;
        report.protocol = None;
        if !report.offers_tools {
            report.listing = None;
        }
    }
}
