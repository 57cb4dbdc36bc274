//! The shim's standing connection to the daemon: one session, opened again whenever it ends.
//!
//! One task owns the stream and publishes what it hears; everybody else reads the snapshot or asks for a try now.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ptc_protocol::{
    api::{CatalogSummary, SessionEvent, SessionRequest},
    client::{Client, ClientError, EventStream},
    launch::{Launch, LaunchError, ensure_running},
    names::SessionId,
    paths::PathError,
    version,
};
use tokio::sync::{Notify, watch};

/// Pauses between two tries to open a session.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a client must have stayed before the daemon is started for it: health checks are gone by then.
const SETTLED: Duration = Duration::from_millis(500);
/// How long a call waits for its session; a program runs without one too.
const SESSION_PATIENCE: Duration = Duration::from_millis(500);

/// What is known of the daemon.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Where the connection stands.
    pub(crate) state: State,
    /// The catalog as last heard; kept while the daemon is away.
    pub(crate) catalog: Option<Arc<CatalogSummary>>,
}

/// Where the connection stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Not yet tried.
    #[default]
    New,
    /// Open.
    Session(SessionId),
    /// The last try failed, or the session ended.
    Away,
}

/// Why the daemon cannot be asked.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NoDaemon {
    /// There is no usable socket path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It does not run and cannot be started, or speaks another API.
    #[error("{0}")]
    Launch(String),
}

/// A handle on the link; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    launch: Result<(Launch, Client), PathError>,
    snapshot: watch::Sender<Snapshot>,
    client_name: watch::Sender<Option<String>>,
    try_now: Notify,
}

impl Link {
    pub(crate) fn new(launch: Result<Launch, PathError>) -> Self {
        let launch = launch.map(|launch| {
            let client = launch.client();
            (launch, client)
        });
        let (snapshot, client_name) = (watch::Sender::default(), watch::Sender::default());
        Self { shared: Arc::new(Shared { launch, snapshot, client_name, try_now: Notify::new() }) }
    }

    /// Names the MCP client, which opens the session. Later names are ignored.
    pub(crate) fn introduce(&self, client: impl FnOnce() -> String) {
        self.shared.client_name.send_if_modified(|name| {
            let first = name.is_none();
            if first {
                *name = Some(client());
            }
            first
        });
    }

    /// What is known now, and its changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Snapshot> {
        self.shared.snapshot.subscribe()
    }

    /// The catalog, waiting for a first one at most so long; at once when the daemon is away.
    pub(crate) async fn catalog_within(&self, patience: Duration) -> Option<Arc<CatalogSummary>> {
        let mut news = self.watch();
        let settled = news.wait_for(|known| known.catalog.is_some() || known.state == State::Away);
        // On a timeout what is known now is as good as it gets.
        drop(tokio::time::timeout(patience, settled).await);
        self.shared.snapshot.borrow().catalog.clone()
    }

    /// A client of a daemon that runs, started if need be, and our session with it.
    ///
    /// # Errors
    /// [`NoDaemon`].
    pub(crate) async fn daemon(&self, trust: Trust) -> Result<(Client, Option<SessionId>), NoDaemon> {
        let (launch, client) = self.shared.launch.as_ref().map_err(Clone::clone)?;
        if let (Trust::Snapshot, State::Session(session)) = (&trust, &self.shared.snapshot.borrow().state) {
            return Ok((client.clone(), Some(session.clone())));
        }
        let stale = match trust {
            Trust::Snapshot => None,
            Trust::Doubted(session) => session,
        };
        ensure_running(launch).await.map_err(|error| NoDaemon::Launch(chain(&error)))?;
        self.shared.try_now.notify_one();
        let mut news = self.watch();
        let open = news.wait_for(|known| matches!(&known.state, State::Session(id) if Some(id) != stale.as_ref()));
        let session = match tokio::time::timeout(SESSION_PATIENCE, open).await {
            Ok(Ok(known)) => match &known.state {
                State::Session(session) => Some(session.clone()),
                State::New | State::Away => None,
            },
            _ => None,
        };
        Ok((client.clone(), session))
    }

    /// The owner of the session: opens it, listens, opens it again. Never ends.
    pub(crate) async fn run(self) {
        let mut names = self.shared.client_name.subscribe();
        let Ok(name) = names.wait_for(Option::is_some).await.map(|name| name.clone().unwrap_or_default()) else {
            return;
        };
        let Ok((launch, client)) = &self.shared.launch else {
            self.publish(|known| known.state = State::Away);
            return std::future::pending().await;
        };
        let request = SessionRequest { client: name, pid: std::process::id(), version: version::PACKAGE.into() };
        let opened = Instant::now();
        let mut may_start = true;
        let mut pause = FIRST_PAUSE;
        loop {
            match client.session(&request).await {
                Ok(events) => {
                    pause = FIRST_PAUSE;
                    // Only a client that found no daemon at its beginning has it started in the background. One that
                    // goes away later may have been stopped on purpose; the next call brings it back.
                    may_start = false;
                    if let Err(error) = self.listen(events).await {
                        tracing::debug!(error = %chain(&error), "session ended");
                    }
                }
                Err(error) => tracing::debug!(error = %chain(&error), "no session"),
            }
            self.publish(|known| known.state = State::Away);
            if may_start && opened.elapsed() >= SETTLED {
                may_start = false;
                match ensure_running(launch).await {
                    Ok(_) => continue,
                    Err(LaunchError::NotRunning { .. }) => {}
                    Err(error) => tracing::warn!(error = %chain(&error), "cannot start ptcd"),
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = self.shared.try_now.notified() => pause = FIRST_PAUSE,
            }
        }
    }

    async fn listen(&self, mut events: EventStream<SessionEvent>) -> Result<(), ClientError> {
        while let Some(event) = events.next().await? {
            match event {
                SessionEvent::Welcome { session, daemon } => {
                    daemon.check()?;
                    tracing::debug!(session = %session, "session open");
                    self.publish(|known| known.state = State::Session(session));
                }
                SessionEvent::Catalog(catalog) => self.publish(|known| known.catalog = Some(Arc::new(catalog))),
            }
        }
        Ok(())
    }

    fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        self.shared.snapshot.send_modify(change);
    }
}

/// How sure a caller must be that the daemon is there.
#[derive(Debug)]
pub(crate) enum Trust {
    /// An open session will do.
    Snapshot,
    /// The last request, sent under this session, found nobody: look again.
    Doubted(Option<SessionId>),
}

/// An error with its sources, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
