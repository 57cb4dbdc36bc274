//! What a server's task is busy with, and the next news of it.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    catalog::listing::Listing,
    handshake::{Client, Handshake},
    line::Line,
    link::{Link, StartError},
    server::Command,
    state::Event,
};

/// A piece of work that is polled with the rest of the task.
pub(super) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What the task is busy with; at most one of these at a time.
pub(super) enum Busy {
    No,
    /// Waits for its turn to start.
    Queued(Work<Option<OwnedSemaphorePermit>>),
    /// Connects. The link is with the task, so that it can be closed whatever becomes of the handshake.
    Shaking {
        link: Box<Link>,
        work: Work<Result<Handshake, StartError>>,
        permit: Option<(OwnedSemaphorePermit, Instant)>,
        /// When it is said that the start takes long.
        late_at: Option<Instant>,
    },
    Up(Box<Up>),
    Closing(Work<()>),
}

/// A connection that is up.
pub(super) struct Up {
    pub(super) link: Link,
    pub(super) client: Client,
    pub(super) line: Arc<Line>,
    /// When the tools are to be listed again.
    pub(super) refresh_at: Option<Instant>,
    pub(super) refresh: Option<Work<Result<Listing, String>>>,
    pub(super) refresh_pause: Duration,
    pub(super) refresh_earliest: Instant,
    pub(super) ping: Option<Work<Result<(), String>>>,
    pub(super) ping_at: Instant,
    /// A server of the stateless protocol tells of changes only while it is listened to.
    pub(super) listening: Option<Work<()>>,
}

/// What woke the task.
pub(super) enum News {
    Command(Option<Command>),
    Happened(Event),
    Turn(Option<OwnedSemaphorePermit>),
    ColdStartOver,
    Late,
    Shaken(Box<Result<Handshake, StartError>>),
    Lost(String),
    ListChanged,
    RefreshDue,
    Refreshed(Result<Listing, String>),
    PingDue,
    /// Whether the server is there; if not, why that is thought.
    Pinged(Result<(), String>),
    ListenedOut,
}

impl Busy {
    /// The next thing that happens; only borrowed futures, so it may be dropped at any time.
    pub(super) async fn next(&mut self) -> News {
        match self {
            Self::No => std::future::pending().await,
            Self::Queued(turn) => News::Turn(turn.await),
            Self::Shaking { work, permit, late_at, .. } => {
                let until = permit.as_ref().map(|(_, until)| *until);
                tokio::select! {
                    result = work => News::Shaken(Box::new(result)),
                    () = sleep_until(until) => News::ColdStartOver,
                    () = sleep_until(*late_at) => News::Late,
                }
            }
            Self::Closing(work) => {
                work.await;
                News::Happened(Event::Closed)
            }
            Self::Up(up) => {
                let Up { link, refresh_at, refresh, ping, ping_at, listening, .. } = &mut **up;
                let listing = refresh.is_some();
                let pinging = ping.is_some();
                tokio::select! {
                    biased;
                    reason = link.wire.ended() => News::Lost(reason),
                    result = maybe(refresh) => News::Refreshed(result),
                    answer = maybe(ping) => News::Pinged(answer),
                    () = maybe(listening) => News::ListenedOut,
                    () = sleep_until(*refresh_at), if !listing => News::RefreshDue,
                    () = link.wire.list_changed(), if refresh_at.is_none() => News::ListChanged,
                    () = tokio::time::sleep_until(*ping_at), if link.needs_pings && !pinging => News::PingDue,
                    () = link.wire.suspected(), if link.needs_pings && !pinging => News::PingDue,
                }
            }
        }
    }
}

async fn maybe<T>(work: &mut Option<Work<T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

pub(super) async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
