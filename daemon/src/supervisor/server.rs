//! One server's task: it alone owns the connection and the process, and does what [`State::step`] decides.

use std::{path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use ptc_protocol::api::ServerState;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::Instant,
};

use super::{
    busy::{Busy, News, Up, Work, sleep_until},
    catalog::listing::Listing,
    face::Face,
    handshake::{self, Handshake, Negotiation, list_tools},
    http,
    link::{StartError, StartErrorKind},
    process::exit_words,
    redact::Redactor,
    sse,
    state::{Action, Event, HEALTHY, Moment, Phase, State},
    stdio,
};
use crate::{
    config::settings::{Protocol, ServerSettings, Transport},
    guardian::Guardian,
};

/// Calls of a server that is removed, changed or restarted get so long to finish.
const CALL_GRACE: Duration = Duration::from_secs(5);

/// A cold start holds up others no longer than this.
const COLD_START: Duration = Duration::from_secs(10);

/// A process gets so many times its time to start before it is started anew: what it has done so far would be lost, which
/// with `npx` may be a long download. That it is late is said in time.
const PATIENCE: u32 = 8;

/// A start over the network that timed out gets twice the time at the next try, up to so many doublings.
const PATIENCE_DOUBLINGS: u32 = 3;

/// Notices of changed tools are gathered for so long.
const GATHER: Duration = Duration::from_millis(100);

/// Least time between two refreshes of the tools; doubles up to [`REFRESH_SLOWEST`] while nothing has changed.
const REFRESH_PAUSE: Duration = Duration::from_secs(1);

/// See [`REFRESH_PAUSE`].
const REFRESH_SLOWEST: Duration = Duration::from_secs(5);

/// One refresh takes no longer.
const REFRESH_LIMIT: Duration = Duration::from_secs(30);

/// How often a counterpart that shows its end only when asked is asked.
const PING_PAUSE: Duration = Duration::from_secs(20);

/// What it gets to answer.
const PING_LIMIT: Duration = Duration::from_secs(10);

/// What the supervisor tells a server's task.
#[derive(Debug)]
pub(super) enum Command {
    /// Run with these settings, from a fresh start.
    Run(Box<ServerSettings>),
    /// Start anew with the present settings.
    Restart,
    /// Stop; the task ends when everything is gone. Running calls are cut off unless `grace`.
    Stop { grace: bool },
    /// Take so many calls at once from now on.
    Tune(usize),
}

/// What all servers share.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) guardian: Guardian,
    pub(super) log_dir: PathBuf,
    /// Cold starts at once.
    pub(super) cold_starts: Arc<Semaphore>,
    /// Told whenever something that `status` or the catalog shows has changed.
    pub(super) changed: Arc<Notify>,
    /// Counts wakes from sleep.
    pub(super) wakes: watch::Receiver<u64>,
    /// Where the clock of all moments begins.
    pub(super) epoch: Instant,
}

/// The task of one server.
pub(super) struct Server {
    settings: ServerSettings,
    surroundings: Surroundings,
    face: Arc<Face>,
    commands: mpsc::Receiver<Command>,
    state: State,
    busy: Busy,
    /// Timeouts of the start in a row.
    timeouts: u32,
    /// How it is initialized, once a start has shown that it takes nothing else.
    taught: Option<Negotiation>,
    drain: bool,
    leaving: bool,
}

impl Server {
    /// The task, what others see of it, and the way to command it.
    pub(super) fn new(
        settings: ServerSettings,
        surroundings: Surroundings,
    ) -> (Self, Arc<Face>, mpsc::Sender<Command>) {
        let face = Arc::new(Face::new(&settings, &surroundings));
        // Commands come from one place that waits when the task is busy for an instant; it never is for longer.
        let (sender, commands) = mpsc::channel(8);
        let server = Self {
            settings,
            surroundings,
            face: Arc::clone(&face),
            commands,
            state: State::new(),
            busy: Busy::No,
            timeouts: 0,
            taught: None,
            drain: false,
            leaving: false,
        };
        (server, face, sender)
    }

    /// Runs until it was told to stop and nothing is left of it.
    pub(super) async fn run(mut self) {
        let first = if self.settings.enabled { Event::Start } else { Event::Disable };
        self.happened(first);
        let mut wakes = self.surroundings.wakes.clone();
        wakes.mark_unchanged();
        while !(self.leaving && self.state.phase == Phase::Stopped) {
            let due = self.state.due().map(|moment| self.surroundings.epoch + moment);
            let news = tokio::select! {
                biased;
                command = self.commands.recv() => News::Command(command),
                news = self.busy.next() => news,
                () = sleep_until(due) => News::Happened(Event::Due),
                Ok(()) = wakes.changed() => News::Happened(Event::Woke),
            };
            self.take(news);
        }
    }

    fn take(&mut self, news: News) {
        match news {
            News::Command(Some(Command::Run(settings))) => {
                self.leaving = false;
                self.drain = true;
                let event = if settings.enabled { Event::Start } else { Event::Disable };
                self.settings = *settings;
                self.taught = None;
                {
                    let mut report = self.face.report();
                    report.transport = self.settings.transport.kind();
                    report.scope = self.settings.scope;
                }
                self.happened(event);
            }
            News::Command(Some(Command::Restart)) => {
                if self.settings.enabled && !self.leaving {
                    self.happened(Event::Start);
                }
            }
            News::Command(Some(Command::Stop { grace })) => {
                self.drain = grace;
                self.leaving = true;
                self.happened(Event::Stop);
            }
            News::Command(Some(Command::Tune(max_calls))) => {
                self.settings.max_concurrent_calls = max_calls;
                if let Busy::Up(up) = &mut self.busy {
                    up.line = Arc::new(up.line.with_max_calls(max_calls));
                    self.face.line.send_replace(Some(Arc::clone(&up.line)));
                }
            }
            News::Command(None) => {
                self.drain = false;
                self.leaving = true;
                self.happened(Event::Stop);
            }
            News::Happened(event) => {
                if event == Event::Closed {
                    self.busy = Busy::No;
                } else if let (Event::Woke, Busy::Up(up)) = (event, &self.busy) {
                    // A connection does not notice that its counterpart went away meanwhile.
                    up.link.wire.suspect();
                }
                self.happened(event);
            }
            News::Turn(permit) => self.open(permit),
            News::ColdStartOver => {
                if let Busy::Shaking { permit, .. } = &mut self.busy {
                    *permit = None;
                }
            }
            News::Late => self.late(),
            News::Shaken(result) => match *result {
                Ok(handshake) => self.connected(handshake),
                Err(error) => self.start_failed(&error),
            },
            News::Lost(reason) => self.lost(&reason),
            News::ListChanged => {
                if let Busy::Up(up) = &mut self.busy {
                    up.refresh_at = Some(up.refresh_earliest.max(Instant::now() + GATHER));
                }
            }
            News::RefreshDue => self.begin_refresh(),
            News::Refreshed(result) => self.refreshed(result),
            News::PingDue => {
                if let Busy::Up(up) = &mut self.busy {
                    let line = Arc::clone(&up.line);
                    up.ping = Some(Box::pin(async move { line.alive(PING_LIMIT).await.map_err(|e| e.to_string()) }));
                }
            }
            News::ListenedOut => {
                if let Busy::Up(up) = &mut self.busy {
                    up.listening = None;
                }
            }
            News::Pinged(answer) => {
                if let Busy::Up(up) = &mut self.busy {
                    up.ping = None;
                    up.ping_at = Instant::now() + PING_PAUSE;
                    match answer {
                        Ok(()) => self.face.report().last_ok = Some(Timestamp::now()),
                        Err(reason) => up.link.wire.end(&reason),
                    }
                }
            }
        }
    }

    fn happened(&mut self, event: Event) {
        let before = self.state;
        let (state, action) = self.state.step(event, self.now(), fastrand::f64());
        self.state = state;
        if before.phase != self.state.phase {
            self.show();
        }
        // A connection on its way out takes no calls. Whoever finds it gone finds the reason in the report.
        if !matches!(state.phase, Phase::Ready { .. }) {
            self.face.line.send_if_modified(|line| line.take().is_some());
        }
        match action {
            Action::Nothing => {}
            Action::Open => self.queue(),
            Action::Close => self.close(),
        }
    }

    fn now(&self) -> Moment {
        self.surroundings.epoch.elapsed()
    }

    /// Publishes the state.
    fn show(&mut self) {
        let next_retry = self.state.due().map(|due| Timestamp::now() + due.saturating_sub(self.now()));
        let state = self.state.shown();
        {
            let mut report = self.face.report();
            if report.state != state {
                report.state = state;
                report.since = Timestamp::now();
            }
            report.next_retry = next_retry;
            report.offers_tools = self.state.offers_tools();
            report.comes_back = self.state.comes_back(self.now());
        }
        let server = self.settings.name.as_str();
        match state {
            ServerState::Backoff | ServerState::Failed | ServerState::NeedsSignIn => {
                let error = self.face.report().last_error.clone();
                tracing::warn!(server, ?state, error, "server is down");
            }
            _ => tracing::info!(server, ?state, "server changed state"),
        }
        self.surroundings.changed.notify_one();
    }

    fn failed(&self, reason: &str) {
        let reason = self.face.log.clean(reason);
        self.face.log.note(&reason);
        self.face.report().last_error = Some(reason);
    }

    /// Waits for its turn. Only processes take turns: what is reached over the network starts nothing here.
    fn queue(&mut self) {
        let turn: Work<_> = match self.settings.transport {
            Transport::Stdio { .. } => {
                let cold_starts = Arc::clone(&self.surroundings.cold_starts);
                Box::pin(async move { cold_starts.acquire_owned().await.ok() })
            }
            Transport::Http { .. } | Transport::Sse { .. } => Box::pin(std::future::ready(None)),
        };
        self.busy = Busy::Queued(turn);
    }

    fn open(&mut self, permit: Option<OwnedSemaphorePermit>) {
        let log = &self.face.log;
        log.restart(Redactor::of(&self.settings));
        let opened = match &self.settings.transport {
            Transport::Stdio { command, args, env, cwd } => {
                let program = stdio::Program { command, args, env, cwd: cwd.as_deref() };
                stdio::open(&program, &self.surroundings.guardian, log)
            }
            Transport::Http { url, headers } => Ok(http::open(http::remote::Remote::new(url, headers.iter()), log)),
            Transport::Sse { url, headers } => Ok(sse::open(http::remote::Remote::new(url, headers.iter()), log)),
        };
        self.face.report().starts += 1;
        match opened {
            Ok(mut link) => {
                let pid = link.process.as_ref().map(super::process::Process::pid);
                log.note(&pid.map_or_else(|| "connecting".into(), |pid| format!("started, process {pid}")));
                self.face.report().pid = pid;
                let limit = self.startup_limit();
                let negotiation = self.taught.unwrap_or(match self.settings.protocol {
                    Protocol::Initialize => Negotiation::INITIALIZE,
                    Protocol::Auto => Negotiation::Auto,
                });
                let work: Work<_> = match link.transport.take() {
                    Some(transport) => Box::pin(handshake::shake(
                        self.settings.clone(),
                        negotiation,
                        transport,
                        Arc::clone(&link.wire),
                        limit,
                    )),
                    None => Box::pin(std::future::ready(Err(StartError::new(
                        StartErrorKind::Transient,
                        "the transport is in use",
                    )))),
                };
                let permit = permit.map(|permit| (permit, Instant::now() + COLD_START));
                let late_at = pid.map(|_| Instant::now() + self.settings.startup_timeout);
                self.busy = Busy::Shaking { link: Box::new(link), work, permit, late_at };
                self.surroundings.changed.notify_one();
            }
            Err(error) => self.start_failed(&error),
        }
    }

    fn startup_limit(&self) -> Duration {
        let times = match self.settings.transport {
            Transport::Stdio { .. } => PATIENCE,
            Transport::Http { .. } | Transport::Sse { .. } => 1 << self.timeouts.min(PATIENCE_DOUBLINGS),
        };
        self.settings.startup_timeout.saturating_mul(times)
    }

    /// Says that a start takes long, and goes on waiting.
    fn late(&mut self) {
        let Busy::Shaking { link, late_at, .. } = &mut self.busy else { return };
        *late_at = None;
        let what = if link.wire.protocol().is_none() { "answered initialize" } else { "listed its tools" };
        let (so_far, limit) = (self.settings.startup_timeout, self.startup_limit());
        self.failed(&format!("has not {what} within {so_far:?}; it gets {limit:?} before it is started anew"));
        self.surroundings.changed.notify_one();
    }

    fn start_failed(&mut self, error: &StartError) {
        let exit = match &self.busy {
            Busy::Shaking { link, .. } => link.process.as_ref().and_then(super::process::Process::exit),
            _ => None,
        };
        self.timeouts = if error.kind == StartErrorKind::TooSlow { self.timeouts.saturating_add(1) } else { 0 };
        self.taught = Negotiation::taught(error.kind, self.taught);
        match exit {
            Some(status) => self.failed(&format!("exits before it is ready, {}", exit_words(status))),
            None => self.failed(&error.message),
        }
        self.happened(Event::StartFailed(error.kind.retry()));
    }

    fn connected(&mut self, handshake: Handshake) {
        let Busy::Shaking { link, late_at, .. } = std::mem::replace(&mut self.busy, Busy::No) else { return };
        // That it was late, or asked for another version, is no error any more.
        let is_past = link.process.is_some() && late_at.is_none() || self.taught.is_some();
        self.timeouts = 0;
        let line = handshake.line;
        let now = Instant::now();
        {
            let mut report = self.face.report();
            report.last_ok = Some(Timestamp::now());
            report.last_error.take_if(|_| is_past);
            report.protocol = link.wire.protocol();
            report.listing = Some(Arc::new(handshake.listing));
        }
        let listening = link.wire.modern().then(|| {
            let line = Arc::clone(&line);
            Box::pin(async move { line.listen().await }) as Work<()>
        });
        self.busy = Busy::Up(Box::new(Up {
            link: *link,
            client: handshake.client,
            line: Arc::clone(&line),
            refresh_at: handshake.list_again.then(|| now + REFRESH_LIMIT),
            refresh: None,
            refresh_pause: REFRESH_PAUSE,
            refresh_earliest: now + REFRESH_PAUSE,
            ping: None,
            ping_at: now + PING_PAUSE,
            listening,
        }));
        self.face.line.send_replace(Some(line));
        self.happened(Event::Connected);
    }

    fn lost(&mut self, reason: &str) {
        let exit = match &self.busy {
            Busy::Up(up) => up.link.process.as_ref().and_then(super::process::Process::exit),
            _ => None,
        };
        let young = match self.state.phase {
            Phase::Ready { since } => self.now().saturating_sub(since) < HEALTHY,
            _ => false,
        };
        match exit {
            Some(status) if young => self.failed(&format!("exits after start, {}", exit_words(status))),
            _ => self.failed(reason),
        }
        let kind = match &self.busy {
            Busy::Up(up) => up.link.wire.end_kind(),
            _ => StartErrorKind::Transient,
        };
        self.happened(Event::Lost(kind.retry()));
    }

    fn begin_refresh(&mut self) {
        if let Busy::Up(up) = &mut self.busy {
            up.refresh_at = None;
            let line = Arc::clone(&up.line);
            up.refresh = Some(Box::pin(async move {
                match tokio::time::timeout(REFRESH_LIMIT, list_tools(&line, REFRESH_LIMIT)).await {
                    Ok(listed) => listed.map_err(|error| error.to_string()),
                    Err(_) => Err("tools/list took too long".into()),
                }
            }));
        }
    }

    fn refreshed(&mut self, result: Result<Listing, String>) {
        let Busy::Up(up) = &mut self.busy else { return };
        up.refresh = None;
        let same = match result {
            Ok(listing) => {
                let mut report = self.face.report();
                let same = report.listing.as_ref().is_some_and(|known| known.same(&listing));
                if !same {
                    report.listing = Some(Arc::new(listing));
                }
                same
            }
            // The old list stays: it is better than none.
            Err(error) => {
                self.face.log.warn_once(&format!("could not list its tools again: {error}"));
                true
            }
        };
        up.refresh_pause = if same { (up.refresh_pause * 2).min(REFRESH_SLOWEST) } else { REFRESH_PAUSE };
        up.refresh_earliest = Instant::now() + up.refresh_pause;
        up.refresh_at = up.refresh_at.map(|at| at.max(up.refresh_earliest));
        self.surroundings.changed.notify_one();
    }

    /// Begins to close whatever there is.
    fn close(&mut self) {
        let drain = std::mem::take(&mut self.drain);
        let face = Arc::clone(&self.face);
        let work: Work<()> = match std::mem::replace(&mut self.busy, Busy::No) {
            Busy::No | Busy::Queued(_) => Box::pin(std::future::ready(())),
            Busy::Closing(work) => work,
            Busy::Shaking { link, work, permit, .. } => {
                drop((work, permit));
                Box::pin(async move {
                    link.close("stopped").await;
                    face.gone();
                })
            }
            Busy::Up(up) => Box::pin(async move {
                let Up { link, client, line, .. } = *up;
                if drain && link.wire.end_reason().is_none() {
                    drop(tokio::time::timeout(CALL_GRACE, line.drained()).await);
                }
                link.close("the server was stopped").await;
                client.end().await;
                face.gone();
            }),
        };
        self.busy = Busy::Closing(work);
    }
}
