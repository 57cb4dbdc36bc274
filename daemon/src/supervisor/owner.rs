//! The supervisor's own task: it owns the tasks of all servers, applies changes of the configuration, and puts their
//! news together.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use ptc_protocol::{
    api::{ReloadReport, ServerStatus},
    names::{ServerName, SessionId},
};
use tokio::{
    sync::{Notify, Semaphore, mpsc, oneshot, watch},
    task::{Id, JoinError, JoinSet},
    time::{Instant, MissedTickBehavior},
};

use super::{
    RestartError,
    catalog::{Catalog, NamedTools, Offer, listing::Listing},
    clocks::Clocks,
    face::Face,
    server::{Command, Server, Surroundings},
};
use crate::{
    config::settings::{Scope, ServerSettings, Settings},
    guardian::Guardian,
};

/// Servers that may start at the same time.
const COLD_STARTS: usize = 4;

/// News is published at most so often.
const PUBLISH_PAUSE: Duration = Duration::from_millis(20);

/// How often the clocks are compared.
const CLOCK_PAUSE: Duration = Duration::from_secs(2);

/// An instance of a session that has not been called for so long is stopped.
const SESSION_IDLE: Duration = Duration::from_secs(900);

/// All servers together get so long to stop.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(6);

/// What the handle asks.
#[derive(Debug)]
pub(super) enum Request {
    Apply { settings: Arc<Settings>, reply: oneshot::Sender<ReloadReport> },
    Restart { server: ServerName, reply: oneshot::Sender<Result<(), RestartError>> },
    Ensure { server: ServerName, session: SessionId, reply: oneshot::Sender<Option<Arc<Face>>> },
    SessionEnded { session: SessionId },
    Shutdown { reply: oneshot::Sender<()> },
}

/// An instance of a server: the shared one, or that of a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    server: ServerName,
    session: Option<SessionId>,
}

/// Where calls find the instances.
#[derive(Debug, Default)]
pub(super) struct Directory(BTreeMap<Key, Arc<Face>>);

impl Directory {
    pub(super) fn face(&self, server: &ServerName, session: Option<&SessionId>) -> Option<Arc<Face>> {
        let key = Key { server: server.clone(), session: session.cloned() };
        self.0.get(&key).map(Arc::clone)
    }
}

/// One instance.
#[derive(Debug)]
struct Entry {
    face: Arc<Face>,
    commands: mpsc::Sender<Command>,
    settings: ServerSettings,
    /// Told to stop for good; it goes when its task has ended.
    leaving: bool,
    named: Option<Named>,
}

/// Names given to a listing, kept while nothing they depend on changes.
#[derive(Debug)]
struct Named {
    listing: Arc<Listing>,
    others: Vec<String>,
    tools: Arc<NamedTools>,
}

/// The task behind a [`super::Supervisor`].
#[derive(Debug)]
pub struct SupervisorTask {
    settings: Arc<Settings>,
    requests: mpsc::Receiver<Request>,
    surroundings: Surroundings,
    entries: BTreeMap<Key, Entry>,
    tasks: JoinSet<()>,
    keys: HashMap<Id, Key>,
    directory: watch::Sender<Arc<Directory>>,
    catalog: watch::Sender<Arc<Catalog>>,
    status: watch::Sender<Arc<Vec<ServerStatus>>>,
    wakes: watch::Sender<u64>,
    /// What the catalog was made of.
    offers: Vec<Offer>,
    /// The tools of a server that offers none.
    nothing: Arc<NamedTools>,
}

/// What woke the task.
enum News {
    Request(Option<Request>),
    Ended(Result<(Id, ()), JoinError>),
    Changed,
    Publish,
    Tick,
}

type Watched = (
    SupervisorTask,
    watch::Receiver<Arc<Directory>>,
    watch::Receiver<Arc<Catalog>>,
    watch::Receiver<Arc<Vec<ServerStatus>>>,
);

impl SupervisorTask {
    pub(super) fn new(
        settings: Settings,
        guardian: Guardian,
        log_dir: PathBuf,
        requests: mpsc::Receiver<Request>,
    ) -> Watched {
        let (directory, directory_seen) = watch::channel(Arc::default());
        let (catalog, catalog_seen) = watch::channel(Arc::default());
        let (status, status_seen) = watch::channel(Arc::default());
        let (wakes, wakes_seen) = watch::channel(0);
        let surroundings = Surroundings {
            guardian,
            log_dir,
            cold_starts: Arc::new(Semaphore::new(COLD_STARTS)),
            changed: Arc::new(Notify::new()),
            wakes: wakes_seen,
            epoch: Instant::now(),
        };
        let task = Self {
            settings: Arc::new(settings),
            requests,
            surroundings,
            entries: BTreeMap::new(),
            tasks: JoinSet::new(),
            keys: HashMap::new(),
            directory,
            catalog,
            status,
            wakes,
            offers: Vec::new(),
            nothing: Arc::default(),
        };
        (task, directory_seen, catalog_seen, status_seen)
    }

    /// Runs the servers until [`super::Supervisor::shutdown`], or until every handle is gone.
    pub async fn run(mut self) {
        if let Err(error) = std::fs::create_dir_all(&self.surroundings.log_dir) {
            tracing::warn!(%error, "server logs cannot be written");
        }
        let settings = Arc::clone(&self.settings);
        for server in &settings.servers {
            self.spawn(Key { server: server.name.clone(), session: None }, server.clone());
        }
        self.publish();
        let changed = Arc::clone(&self.surroundings.changed);
        let mut ticks = tokio::time::interval(CLOCK_PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut clocks = Clocks::now();
        let mut published = Instant::now();
        let mut dirty = false;
        let done = loop {
            let news = tokio::select! {
                biased;
                request = self.requests.recv() => News::Request(request),
                Some(ended) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => News::Ended(ended),
                () = tokio::time::sleep_until(published + PUBLISH_PAUSE), if dirty => News::Publish,
                () = changed.notified(), if !dirty => News::Changed,
                _ = ticks.tick() => News::Tick,
            };
            match news {
                News::Request(Some(Request::Shutdown { reply })) => break Some(reply),
                News::Request(None) => break None,
                News::Request(Some(request)) => {
                    self.answer(request).await;
                    dirty = true;
                }
                News::Ended(ended) => {
                    self.ended(ended);
                    dirty = true;
                }
                News::Changed => dirty = true,
                News::Publish => {
                    self.publish();
                    published = Instant::now();
                    dirty = false;
                }
                News::Tick => {
                    self.compare_clocks(&mut clocks);
                    self.stop_idle_sessions().await;
                }
            }
        };
        self.stop_all().await;
        self.publish();
        if let Some(reply) = done {
            tell(reply, ());
        }
    }

    async fn answer(&mut self, request: Request) {
        match request {
            Request::Apply { settings, reply } => tell(reply, self.apply(settings).await),
            Request::Restart { server, reply } => {
                let shared = self.entries.get(&Key { server: server.clone(), session: None });
                let answer = match shared.map(|entry| entry.settings.enabled) {
                    Some(true) => Ok(()),
                    Some(false) => Err(RestartError::Disabled { server: server.clone() }),
                    None => Err(RestartError::Unknown { server: server.clone() }),
                };
                let of_server = self.entries.iter().filter(|(key, entry)| key.server == server && !entry.leaving);
                let commands: Vec<_> = of_server.map(|(_, entry)| entry.commands.clone()).collect();
                for command in commands {
                    drop(command.send(Command::Restart).await);
                }
                tell(reply, answer);
            }
            Request::Ensure { server, session, reply } => tell(reply, self.ensure(server, session)),
            Request::SessionEnded { session } => self.stop_where(|key, _| key.session.as_ref() == Some(&session)).await,
            Request::Shutdown { .. } => {}
        }
    }

    async fn apply(&mut self, settings: Arc<Settings>) -> ReloadReport {
        let old = std::mem::replace(&mut self.settings, Arc::clone(&settings));
        let diff = crate::config::diff(&old, &settings);
        for server in &settings.servers {
            let before = old.servers.iter().find(|known| known.name == server.name);
            if before == Some(server) {
                continue;
            }
            let key = Key { server: server.name.clone(), session: None };
            if diff.unchanged.contains(&server.name) {
                self.command(&key, server, Command::Tune(server.max_concurrent_calls)).await;
            } else {
                // Instances of sessions are started again by their next call.
                self.stop_where(|key, _| key.server == server.name && key.session.is_some()).await;
                self.command(&key, server, Command::Run(Box::new(server.clone()))).await;
            }
        }
        self.stop_where(|key, _| !settings.servers.iter().any(|server| server.name == key.server)).await;
        ReloadReport {
            started: diff.started,
            restarted: diff.restarted,
            stopped: diff.stopped,
            unchanged: diff.unchanged,
            settings: diff.settings,
            errors: Vec::new(),
        }
    }

    /// Commands an instance, which is started if there is none.
    async fn command(&mut self, key: &Key, settings: &ServerSettings, command: Command) {
        match self.entries.get_mut(key) {
            Some(entry) => {
                entry.settings = settings.clone();
                entry.leaving = false;
                // A task that has just ended is started again when its end is read.
                drop(entry.commands.send(command).await);
            }
            None => self.spawn(key.clone(), settings.clone()),
        }
    }

    fn spawn(&mut self, key: Key, settings: ServerSettings) {
        let (server, face, commands) = Server::new(settings.clone(), self.surroundings.clone());
        let task = self.tasks.spawn(server.run());
        self.keys.insert(task.id(), key.clone());
        self.entries.insert(key, Entry { face, commands, settings, leaving: false, named: None });
        self.list();
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let Some(key) = self.keys.remove(&id) else { return };
        if let Err(error) = &ended {
            tracing::error!(server = key.server.as_str(), %error, "server task failed");
        }
        // A task that is wanted again, or that failed, gets a successor.
        if let Some(entry) = self.entries.remove(&key).filter(|entry| !entry.leaving) {
            self.spawn(key, entry.settings);
        }
        self.list();
    }

    fn ensure(&mut self, server: ServerName, session: SessionId) -> Option<Arc<Face>> {
        let settings = self.settings.servers.iter().find(|known| known.name == server)?;
        if !settings.enabled || settings.scope != Scope::Session {
            return None;
        }
        let settings = settings.clone();
        let key = Key { server, session: Some(session) };
        if self.entries.get(&key).is_none_or(|entry| entry.leaving) {
            self.spawn(key.clone(), settings);
        }
        self.entries.get(&key).map(|entry| Arc::clone(&entry.face))
    }

    async fn stop_where(&mut self, which: impl Fn(&Key, &Entry) -> bool) {
        for (key, entry) in &mut self.entries {
            if !entry.leaving && which(key, entry) {
                entry.leaving = true;
                drop(entry.commands.send(Command::Stop { grace: true }).await);
            }
        }
        self.list();
    }

    async fn stop_idle_sessions(&mut self) {
        self.stop_where(|key, entry| key.session.is_some() && entry.face.idle_for() > SESSION_IDLE).await;
    }

    async fn stop_all(&mut self) {
        for entry in self.entries.values_mut() {
            entry.leaving = true;
            drop(entry.commands.send(Command::Stop { grace: false }).await);
        }
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "server task failed");
                }
            }
        };
        if tokio::time::timeout(SHUTDOWN_LIMIT, all).await.is_err() {
            // What is left is killed as it is dropped.
            tracing::error!("some servers did not stop in time");
            self.tasks.shutdown().await;
        }
        self.entries.clear();
        self.list();
    }

    fn compare_clocks(&self, clocks: &mut Clocks) {
        let now = Clocks::now();
        if now.slept_since(clocks) {
            tracing::info!(
                "the clock jumped; waiting servers are tried again, connected ones asked whether they are there"
            );
            self.wakes.send_modify(|wakes| *wakes += 1);
        }
        *clocks = now;
    }

    /// Publishes where calls find the instances.
    fn list(&self) {
        let of = |(key, entry): (&Key, &Entry)| (key.clone(), Arc::clone(&entry.face));
        let staying = self.entries.iter().filter(|(_, entry)| !entry.leaving);
        self.directory.send_replace(Arc::new(Directory(staying.map(of).collect())));
        self.surroundings.changed.notify_one();
    }

    /// Publishes status and, if it changed, the catalog.
    fn publish(&mut self) {
        let namespaces: Vec<(ServerName, String)> =
            self.settings.servers.iter().map(|server| (server.name.clone(), server.name.namespace())).collect();
        let mut offers = Vec::new();
        let mut statuses = Vec::new();
        for server in &self.settings.servers {
            let key = Key { server: server.name.clone(), session: None };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let (state, listing) = entry.face.offer();
            let tools = listing.map(|listing| {
                let others: Vec<String> =
                    namespaces.iter().filter(|(name, _)| *name != server.name).map(|(_, text)| text.clone()).collect();
                entry.named(listing, others)
            });
            let tools = tools.unwrap_or_else(|| Arc::clone(&self.nothing));
            let status = entry.face.status(tools.tools.len(), &tools.warnings, None);
            // The state that goes with these tools; a later one is news of its own.
            statuses.push(ServerStatus { state, ..status });
            let comes_back = entry.face.comes_back();
            offers.push(Offer { name: server.name.clone(), state, comes_back, error: entry.face.trouble(), tools });
        }
        // Then what no longer stands in the configuration, until it is gone, and the instances of sessions.
        let shown = |key: &Key| key.session.is_none() && namespaces.iter().any(|(name, _)| *name == key.server);
        let rest = self.entries.iter().filter(|(key, _)| !shown(key));
        statuses.extend(rest.map(|(key, entry)| entry.face.status(0, &[], key.session.as_ref())));
        if self.offers != offers {
            let generation = self.catalog.borrow().generation + 1;
            self.catalog.send_replace(Arc::new(Catalog::of(generation, &offers)));
            self.offers = offers;
        }
        let statuses = Arc::new(statuses);
        self.status.send_if_modified(|present| {
            let changed = *present != statuses;
            *present = statuses;
            changed
        });
    }
}

fn tell<T>(reply: oneshot::Sender<T>, answer: T) {
    if reply.send(answer).is_err() {
        tracing::debug!("whoever asked has gone");
    }
}

impl Entry {
    fn named(&mut self, listing: Arc<Listing>, others: Vec<String>) -> Arc<NamedTools> {
        match &self.named {
            Some(named) if Arc::ptr_eq(&named.listing, &listing) && named.others == others => Arc::clone(&named.tools),
            _ => {
                let tools = Arc::new(NamedTools::of(&self.face.name, &others, &listing));
                self.named = Some(Named { listing, others, tools: Arc::clone(&tools) });
                tools
            }
        }
    }
}
