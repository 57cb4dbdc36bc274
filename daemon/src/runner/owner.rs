//! The task that owns the queue, the warm children and every running program.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use ptc_protocol::{
    api::{ErrorKind, Outcome, PoolStatus, ProgramError, ProgramEvent, RunRequest, SandboxStatus},
    names::ProgramId,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;

use super::{
    Ask, Card, Cards, MAX_QUEUED, RunRefused, RunnerStatus, StartError, Surroundings,
    program::{self, Run},
    shelf::{Shelf, Whole},
    warm::Warm,
};
use crate::{
    config::settings::{Execution, Settings},
    python,
    sandbox::{ChildLimits, Sandbox, SandboxPlan},
};

/// Children that start at once to refill the pool; each costs a core for a moment.
const STARTING_AT_ONCE: usize = 2;

/// After a child failed to start, how long until the pool tries again.
const RETRY: Duration = Duration::from_secs(5);

/// How long a refusal of the sandbox, or children that do not start, are taken for granted while a program asks for one:
/// what stood in the way may be gone, or the interpreter replaced by another version.
const TRIED_LATELY: Duration = Duration::from_secs(3);
/// The same while nobody asks, so that `status` tells the truth.
const TRIED: Duration = Duration::from_secs(60);

/// How often waiting children are looked at.
const LOOK: Duration = Duration::from_secs(30);

/// Processor seconds a child may use beyond its wall time.
const CPU_SLACK_SECONDS: u64 = 2;

/// Time the client has to take the outcome.
const OUTCOME_DEADLINE: Duration = Duration::from_secs(10);

/// Time running programs have to end when the daemon stops; they are killed at once, this is for their last words.
const STOP_DEADLINE: Duration = Duration::from_secs(2);

/// A program that waits.
#[derive(Debug)]
struct Waiting {
    id: ProgramId,
    request: RunRequest,
    events: mpsc::Sender<ProgramEvent>,
    cancel: CancellationToken,
}

pub(super) struct Owner {
    surroundings: Surroundings,
    cards: Cards,
    shelf: Shelf,
    told: watch::Sender<RunnerStatus>,
    queue: VecDeque<Waiting>,
    warm: Vec<Warm>,
    sandbox: Option<Arc<Sandbox>>,
    /// When the sandbox was last made.
    tried: Instant,
    /// Whether a child of it did not start since.
    doubted: bool,
    warm_again: Instant,
    /// Each tells whether it got a child.
    programs: JoinSet<bool>,
    starting: JoinSet<Result<Warm, StartError>>,
    preparing: JoinSet<Sandbox>,
    stopping: CancellationToken,
}

impl Owner {
    pub(super) fn new(
        surroundings: Surroundings,
        cards: Cards,
        shelf: Shelf,
        told: watch::Sender<RunnerStatus>,
    ) -> Self {
        Self {
            surroundings,
            cards,
            shelf,
            told,
            queue: VecDeque::new(),
            warm: Vec::new(),
            sandbox: None,
            tried: Instant::now(),
            doubted: false,
            warm_again: Instant::now(),
            programs: JoinSet::new(),
            starting: JoinSet::new(),
            preparing: JoinSet::new(),
            stopping: CancellationToken::new(),
        }
    }

    /// Until it is told to stop or nobody can ask any more.
    pub(super) async fn run(mut self, mut asked: mpsc::Receiver<Ask>) {
        let mut settings = self.surroundings.settings.clone();
        let mut in_force = Arc::clone(&settings.borrow_and_update());
        self.prepare(&in_force);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut retry = tokio::time::interval(RETRY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let done = loop {
            tokio::select! {
                ask = asked.recv() => match ask {
                    Some(Ask::Run { request, events, accepted }) => self.accept(request, events, accepted),
                    Some(Ask::Stop { done }) => break Some(done),
                    None => break None,
                },
                Some(ended) = self.programs.join_next(), if !self.programs.is_empty() => match ended {
                    Ok(had_a_child) => self.doubted |= !had_a_child,
                    Err(error) => complain(Some(error)),
                },
                Some(child) = self.starting.join_next(), if !self.starting.is_empty() => match child {
                    Ok(child) => self.warmed(child),
                    Err(error) => complain(Some(error)),
                },
                Some(sandbox) = self.preparing.join_next(), if !self.preparing.is_empty() => match sandbox {
                    Ok(sandbox) => self.prepared(sandbox),
                    Err(error) => complain(Some(error)),
                },
                Ok(()) = settings.changed() => {
                    let new = Arc::clone(&settings.borrow_and_update());
                    if confinement(&new.execution) != confinement(&in_force.execution) {
                        self.prepare(&new);
                    }
                    in_force = new;
                }
                _ = look.tick() => {
                    self.warm.retain(Warm::usable);
                    self.shelf.tidy(Instant::now());
                }
                _ = retry.tick() => {}
            }
            self.reconsider(&in_force);
            self.start_waiting(&in_force);
            self.refill(&in_force.execution);
            self.tell();
        };
        self.stop().await;
        if let Some(done) = done {
            let _nobody = done.send(());
        }
    }

    fn accept(
        &mut self,
        request: RunRequest,
        events: mpsc::Sender<ProgramEvent>,
        accepted: oneshot::Sender<Result<ProgramId, RunRefused>>,
    ) {
        if self.queue.len() >= MAX_QUEUED {
            let _gone = accepted.send(Err(RunRefused::Busy));
            return;
        }
        let Ok(id) = ProgramId::parse(format!("p-{:012x}", fastrand::u64(..1 << 48))) else { return };
        let cancel = self.stopping.child_token();
        let card = Card {
            session: request.session.clone(),
            accepted: jiff::Timestamp::now(),
            calls: None,
            pid: None,
            cancel: cancel.clone(),
        };
        self.cards.with(|cards| cards.insert(id.clone(), card));
        let _full = events.try_send(ProgramEvent::Queued { program: id.clone(), ahead: self.queue.len() });
        if accepted.send(Ok(id.clone())).is_ok() {
            self.queue.push_back(Waiting { id, request, events, cancel });
        } else {
            self.cards.with(|cards| cards.remove(&id));
        }
    }

    fn warmed(&mut self, child: Result<Warm, StartError>) {
        match child {
            Ok(child) => self.warm.push(child),
            Err(error) => {
                self.doubted = true;
                self.warm_again = Instant::now() + RETRY;
                tracing::warn!(%error, "child did not start");
            }
        }
    }

    fn prepared(&mut self, sandbox: Sandbox) {
        if let Some(refusal) = sandbox.refusal() {
            tracing::error!(error = %refusal, "programs are refused");
        }
        self.sandbox = Some(Arc::new(sandbox));
        self.tried = Instant::now();
        self.doubted = false;
        self.warm_again = Instant::now();
    }

    /// Makes a sandbox that is of no use anew, at some pace.
    fn reconsider(&mut self, settings: &Settings) {
        let useless = self.doubted || self.sandbox.as_ref().is_some_and(|sandbox| sandbox.refusal().is_some());
        let pace = if self.queue.is_empty() { TRIED } else { TRIED_LATELY };
        if self.sandbox.is_some() && useless && self.tried.elapsed() >= pace {
            self.prepare(settings);
        }
    }

    /// Makes the sandbox anew; children of the old one are not used again.
    fn prepare(&mut self, settings: &Settings) {
        self.sandbox = None;
        self.warm.clear();
        self.starting = JoinSet::new();
        self.preparing = JoinSet::new();
        let execution = &settings.execution;
        let plan = SandboxPlan {
            choice: execution.sandbox,
            python: execution.python.clone(),
            limits: ChildLimits {
                memory_bytes: execution.max_memory_bytes,
                cpu_seconds: execution.timeout.as_secs() + CPU_SLACK_SECONDS,
                ..ChildLimits::default()
            },
            scratch_root: self.surroundings.scratch_root.clone(),
            bootstrap: python::bootstrap(),
            launcher: self.surroundings.launcher.clone(),
        };
        let guardian = self.surroundings.guardian.clone();
        self.preparing.spawn(Sandbox::prepare(plan, guardian));
    }

    /// Starts programs while there are places.
    fn start_waiting(&mut self, settings: &Settings) {
        let Some(sandbox) = self.sandbox.clone() else { return };
        while self.programs.len() < settings.execution.max_programs {
            let Some(waiting) = self.queue.pop_front() else { return };
            if waiting.events.is_closed() || waiting.cancel.is_cancelled() {
                self.dismiss(waiting);
                continue;
            }
            let mut warm = None;
            while let Some(child) = self.warm.pop() {
                if child.usable() {
                    warm = Some(child);
                    break;
                }
            }
            let Waiting { id, request, events, cancel } = waiting;
            let calls = Arc::new(self.surroundings.gateway.open(request.session.clone(), &request.code));
            let asked = request.timeout_seconds.map(Duration::from_secs);
            let run = Run {
                id,
                code: request.code,
                calls: Arc::clone(&calls),
                timeout: asked.map_or(settings.execution.timeout, |asked| asked.min(settings.execution.timeout)),
                execution: settings.execution.clone(),
                stream_output: request.stream_output,
                events,
                cancel,
                sandbox: sandbox.status().level,
            };
            self.cards.with(|cards| {
                if let Some(card) = cards.get_mut(&run.id) {
                    card.calls = Some(calls);
                }
            });
            let (cards, shelf, sandbox) = (self.cards.clone(), self.shelf.clone(), Arc::clone(&sandbox));
            self.programs.spawn(async move {
                let (outcome, whole) = perform(&run, warm, &sandbox, &cards).await;
                let cancelled = outcome.error.as_ref().is_some_and(|error| error.kind == ErrorKind::Cancelled);
                let had_a_child = whole.is_some() || cancelled;
                if let Some(whole) = whole {
                    shelf.put(run.id.clone(), whole, Instant::now());
                }
                cards.with(|cards| cards.remove(&run.id));
                report(&run, outcome).await;
                had_a_child
            });
        }
    }

    /// A program that was cancelled while it waited.
    fn dismiss(&self, waiting: Waiting) {
        self.cards.with(|cards| cards.remove(&waiting.id));
        let message = "CancelledError: the program was cancelled while it waited for a place; nothing ran".to_owned();
        let outcome = nothing_ran(waiting.id, ErrorKind::Cancelled, message);
        let _full = waiting.events.try_send(ProgramEvent::Outcome(Box::new(outcome)));
    }

    fn refill(&mut self, execution: &Execution) {
        let Some(sandbox) = self.sandbox.clone().filter(|sandbox| sandbox.refusal().is_none()) else { return };
        if Instant::now() < self.warm_again {
            return;
        }
        while self.warm.len() + self.starting.len() < execution.warm_children && self.starting.len() < STARTING_AT_ONCE
        {
            let sandbox = Arc::clone(&sandbox);
            self.starting.spawn(async move { Warm::start(&sandbox).await });
        }
        self.warm.truncate(execution.warm_children);
    }

    fn tell(&self) {
        let pool = PoolStatus {
            warm: self.warm.len(),
            starting: self.starting.len(),
            running: self.programs.len(),
            queued: self.queue.len(),
        };
        let preparing = || SandboxStatus { level: SandboxStatus::PREPARING.to_owned(), ..SandboxStatus::default() };
        let sandbox = self.sandbox.as_ref().map_or_else(preparing, |sandbox| sandbox.status());
        self.told.send_replace(RunnerStatus { pool, sandbox });
    }

    async fn stop(&mut self) {
        self.stopping.cancel();
        while let Some(waiting) = self.queue.pop_front() {
            self.dismiss(waiting);
        }
        self.warm.clear();
        self.starting.shutdown().await;
        self.preparing.shutdown().await;
        let ended = async { while self.programs.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_DEADLINE, ended).await.is_err() {
            self.programs.shutdown().await;
        }
    }
}

/// A panic of a task is our own fault: it is told and the owner goes on.
fn complain(error: Option<tokio::task::JoinError>) {
    if let Some(error) = error.filter(tokio::task::JoinError::is_panic) {
        tracing::error!(%error, "a task of the runner panicked");
    }
}

/// The settings a child depends on from its start.
fn confinement(execution: &Execution) -> impl PartialEq + '_ {
    (execution.sandbox, &execution.python, execution.max_memory_bytes, execution.timeout)
}

/// Gets a child and lets the program live in it; no output when nothing ran.
async fn perform(run: &Run, warm: Option<Warm>, sandbox: &Sandbox, cards: &Cards) -> (Outcome, Option<Whole>) {
    let refused = |kind, message| {
        let outcome = Outcome {
            trace: run.execution.trace,
            sandbox: run.sandbox.clone(),
            ..nothing_ran(run.id.clone(), kind, message)
        };
        (outcome, None)
    };
    let warm = match warm {
        Some(warm) => Ok(warm),
        None => tokio::select! {
            started = Warm::start(sandbox) => started,
            () = run.cancel.cancelled() => return refused(ErrorKind::Cancelled, "CancelledError: the program was cancelled; nothing ran".into()),
        },
    };
    let warm = match warm {
        Ok(warm) => warm,
        Err(error @ StartError::Sandbox(_)) => {
            return refused(ErrorKind::Sandbox, format!("SandboxError: {error}; nothing ran"));
        }
        Err(error @ StartError::NotReady { .. }) => {
            return refused(ErrorKind::Died, format!("ExecutionError: {error}"));
        }
    };
    let pid = u32::try_from(warm.child.pid).ok();
    cards.with(|cards| {
        if let Some(card) = cards.get_mut(&run.id) {
            card.pid = pid;
        }
    });
    let _full = run.events.try_send(ProgramEvent::Started { program: run.id.clone() });
    let (outcome, whole) = program::live(warm, run).await;
    (outcome, Some(whole))
}

/// Gives the outcome to the client, if it is still there.
async fn report(run: &Run, outcome: Outcome) {
    tracing::info!(
        program = %run.id, ok = outcome.ok, calls = outcome.tool_calls.len(), elapsed_ms = outcome.elapsed_ms, "program ended"
    );
    let sent = run.events.send(ProgramEvent::Outcome(Box::new(outcome)));
    if tokio::time::timeout(OUTCOME_DEADLINE, sent).await.is_err() {
        tracing::warn!(program = %run.id, "the client did not take the outcome");
    }
}

fn nothing_ran(program: ProgramId, kind: ErrorKind, message: String) -> Outcome {
    Outcome {
        program,
        ok: false,
        output: String::new(),
        output_dropped_bytes: 0,
        result: None,
        error: Some(ProgramError { kind, message }),
        warnings: Vec::new(),
        tool_calls: Vec::new(),
        elapsed_ms: 0,
        tool_result_bytes: 0,
        trace: ptc_protocol::api::Trace::default(),
        structured_content: ptc_protocol::api::StructuredContent::default(),
        sandbox: String::new(),
    }
}
