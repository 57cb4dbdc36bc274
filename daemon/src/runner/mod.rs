//! Programs: queue, pool of warm children, one program's life, output limits.
//!
//! One owner task holds the queue and the pool; programs and starting children are tasks in its `JoinSet`. This is the
//! only module that knows the channel. It asks the gateway for every call and never sees a server.

mod channel;
mod output;
mod owner;
mod program;
mod shelf;
mod warm;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

pub use channel::{ChannelError, Done, FromChild, decode};
use ptc_protocol::{
    api::{PoolStatus, ProgramEvent, ProgramOutput, ProgramStatus, RunRequest, SandboxStatus},
    names::{ProgramId, SessionId},
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
pub use warm::StartError;

use crate::{
    config::settings::Settings,
    gateway::{Gateway, ProgramCalls},
    guardian::Guardian,
};

/// Programs that may wait for a place.
pub const MAX_QUEUED: usize = 256;

/// Handle to the owner task; clones share it.
#[derive(Debug, Clone)]
pub struct Runner {
    asks: mpsc::Sender<Ask>,
    cards: Cards,
    shelf: shelf::Shelf,
    status: watch::Receiver<RunnerStatus>,
}

/// What the runner tells of itself.
#[derive(Debug, Clone, Default)]
pub struct RunnerStatus {
    /// Children and queue.
    pub pool: PoolStatus,
    /// How programs are confined.
    pub sandbox: SandboxStatus,
}

/// Why a program was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RunRefused {
    /// The queue is full.
    #[error("{MAX_QUEUED} programs wait already; try again when some have ended")]
    Busy,
    /// The daemon stops.
    #[error("ptcd is stopping; try again in a moment")]
    Stopping,
}

/// Why there is no output to read.
#[derive(Debug, thiserror::Error)]
pub enum NoOutput {
    /// It has not ended.
    #[error("program `{0}` has not ended yet; its output can be read then")]
    Running(ProgramId),
    /// It is not known, or no longer.
    #[error("no output of a program `{0}` is kept: it never ran, or it ended more than an hour or 50 programs ago")]
    Unknown(ProgramId),
}

/// What the owner task is asked.
#[derive(Debug)]
enum Ask {
    Run {
        request: RunRequest,
        events: mpsc::Sender<ProgramEvent>,
        accepted: oneshot::Sender<Result<ProgramId, RunRefused>>,
    },
    Stop {
        done: oneshot::Sender<()>,
    },
}

/// What is known of a program that waits or runs.
#[derive(Debug)]
struct Card {
    session: Option<SessionId>,
    accepted: jiff::Timestamp,
    calls: Option<Arc<ProgramCalls>>,
    pid: Option<u32>,
    cancel: CancellationToken,
}

/// The cards of all programs, plain data behind a short lock.
#[derive(Debug, Clone, Default)]
struct Cards(Arc<Mutex<BTreeMap<ProgramId, Card>>>);

impl Cards {
    fn with<T>(&self, action: impl FnOnce(&mut BTreeMap<ProgramId, Card>) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the owner task needs from outside.
#[derive(Debug)]
pub struct Surroundings {
    /// The settings in force.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// Where calls go.
    pub gateway: Gateway,
    /// Told of child processes and scratch directories.
    pub guardian: Guardian,
    /// Below it each child gets a scratch directory.
    pub scratch_root: PathBuf,
    /// The executable that is started again as the sandbox's launcher.
    pub launcher: PathBuf,
}

impl Runner {
    /// A handle, and the owner task's future for the caller to run.
    pub fn new(surroundings: Surroundings) -> (Self, impl Future<Output = ()> + Send + 'static) {
        // Full: those who ask wait.
        let (asks, asked) = mpsc::channel(64);
        let cards = Cards::default();
        let (told, status) = watch::channel(RunnerStatus::default());
        let shelf = shelf::Shelf::default();
        let owner = owner::Owner::new(surroundings, cards.clone(), shelf.clone(), told);
        (Self { asks, cards, shelf, status }, owner.run(asked))
    }

    /// Hands a program in. Its events arrive on the receiver, the outcome last; dropping the receiver kills it.
    ///
    /// # Errors
    /// The queue is full or the daemon stops.
    pub async fn run(&self, request: RunRequest) -> Result<(ProgramId, mpsc::Receiver<ProgramEvent>), RunRefused> {
        let (events, heard) = mpsc::channel(64);
        let (accepted, answer) = oneshot::channel();
        self.asks.send(Ask::Run { request, events, accepted }).await.map_err(|_| RunRefused::Stopping)?;
        let id = answer.await.map_err(|_| RunRefused::Stopping)??;
        Ok((id, heard))
    }

    /// Kills a program that waits or runs; false when there is none of that id.
    #[must_use]
    pub fn cancel(&self, id: &ProgramId) -> bool {
        self.cards.with(|cards| cards.get(id).map(|card| card.cancel.cancel()).is_some())
    }

    /// Programs that wait or run, in the order of their ids.
    #[must_use]
    pub fn programs(&self) -> Vec<ProgramStatus> {
        self.cards.with(|cards| {
            cards
                .iter()
                .map(|(id, card)| ProgramStatus {
                    id: id.clone(),
                    session: card.session.clone(),
                    started: card.accepted.to_string(),
                    calls: card.calls.as_ref().map_or(0, |calls| calls.admitted()),
                    current: card.calls.as_ref().and_then(|calls| calls.running()),
                    queued: card.calls.is_none(),
                    pid: card.pid,
                })
                .collect()
        })
    }

    /// At most `limit` bytes of an ended program's output from `offset` on, cut at borders of characters.
    ///
    /// # Errors
    /// [`NoOutput`].
    pub fn output(&self, id: &ProgramId, offset: u64, limit: usize) -> Result<ProgramOutput, NoOutput> {
        if self.cards.with(|cards| cards.contains_key(id)) {
            return Err(NoOutput::Running(id.clone()));
        }
        self.shelf.read(id, offset, limit, Instant::now()).ok_or_else(|| NoOutput::Unknown(id.clone()))
    }

    /// What the runner tells of itself.
    #[must_use]
    pub fn status(&self) -> RunnerStatus {
        self.status.borrow().clone()
    }

    /// Ends all programs and children; returns when they are gone.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.asks.send(Ask::Stop { done }).await.is_ok() {
            let _ended = stopped.await;
        }
    }
}
