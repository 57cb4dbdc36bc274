//! The streamable HTTP transport: each message is a POST whose response is the answer, as JSON or as a stream of
//! events; what the server says on its own comes on a stream that a GET opens.
//!
//! Who decides what: [`verdict`] what a response means, [`exchange`] what follows for its request, this module what
//! follows for the session. A session that the server has forgotten ends the connection, so that a new handshake finds
//! out what the server offers now; the supervisor then repeats the calls that were refused.

pub(super) mod events;
pub(super) mod exchange;
mod listen;
pub(super) mod patience;
pub(super) mod remote;
mod routing;
pub(super) mod verdict;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::Response;
use rmcp::model::RequestId;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::{AbortHandle, Id, JoinSet},
    time::Instant,
};
use url::Url;

use self::{
    exchange::Outcome,
    patience::Patience,
    remote::{Outgoing, Remote, SendError},
    verdict::Asked,
};
use super::{
    link::{Link, StartErrorKind},
    log::ServerLog,
    wire::{Frame, ReplyError, Wire},
};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Messages without an answer (notifications, answers to the server) that may be under way at once; more are dropped.
const SMALL_TALK: usize = 64;

/// What one of them may take.
const SMALL_TALK_LIMIT: Duration = Duration::from_secs(30);

/// After the session was found to be over, requests under way get so long to hear it too.
const EXPIRY_GRACE: Duration = Duration::from_secs(1);

/// What the end of a session may take on our side.
const GOODBYE_LIMIT: Duration = Duration::from_secs(1);

/// Messages over this are decoded off the event loop.
const SMALL_MESSAGE_BYTES: usize = 256 * 1024;

/// A conversation with a server, from the handshake on.
#[derive(Debug)]
pub(super) struct Session {
    remote: Remote,
    wire: Arc<Wire>,
    log: ServerLog,
    /// The id the server gave us.
    id: Mutex<Option<HeaderValue>>,
    patience: Patience,
    /// Requests whose response has not begun.
    unanswered: AtomicUsize,
    /// Becomes true when the handshake is complete.
    initialized: watch::Sender<bool>,
}

/// Opens a connection to the server at this address; nothing is sent yet.
pub(super) fn open(remote: Remote, log: &ServerLog) -> Link {
    let (wire, transport, frames) = Wire::new(log.clone(), &[]);
    let session = Arc::new(Session {
        remote,
        wire: Arc::clone(&wire),
        log: log.clone(),
        id: Mutex::default(),
        patience: Patience::default(),
        unanswered: AtomicUsize::new(0),
        initialized: watch::Sender::new(false),
    });
    let mut tasks = JoinSet::new();
    let writer = tasks.spawn(Driver::new(Arc::clone(&session)).run(frames));
    tasks.spawn(listen::listen(Arc::clone(&session)));
    Link { wire, transport: Some(transport), tasks, writer, process: None, session: Some(session), needs_pings: true }
}

impl Session {
    /// Tells the server that the session is over, if there is one. Takes at most a second.
    pub(super) async fn goodbye(&self) {
        if self.id().is_none() {
            return;
        }
        let sent = tokio::time::timeout(GOODBYE_LIMIT, self.send(Method::DELETE, None, HeaderMap::new())).await;
        if !matches!(&sent, Ok(Ok(response)) if response.status().is_success()) {
            tracing::debug!("the server did not confirm the end of the session");
        }
        self.set_id(None);
    }

    /// Sends a request with all that belongs to the session.
    async fn send(
        &self,
        method: Method,
        body: Option<bytes::Bytes>,
        mut headers: HeaderMap,
    ) -> Result<Response, SendError> {
        if let Some(id) = self.id() {
            headers.insert(SESSION_ID, id);
        }
        let version = self.wire.protocol().and_then(|version| HeaderValue::from_str(&version).ok());
        if let Some(version) = version {
            headers.entry(PROTOCOL_VERSION).or_insert(version);
        }
        self.remote.send(Outgoing { method, url: self.remote.url(), headers, body }).await
    }

    fn asked(&self) -> Asked {
        Asked {
            in_session: self.id().is_some(),
            has_credentials: self.remote.has_credentials(),
            sse_address: is_sse_address(self.remote.url()),
        }
    }

    fn id(&self) -> Option<HeaderValue> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_id(&self, id: Option<HeaderValue>) {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }
}

/// Runs the exchanges of a session.
struct Driver {
    session: Arc<Session>,
    exchanges: JoinSet<Outcome>,
    requests: HashMap<RequestId, AbortHandle>,
    ids: HashMap<Id, RequestId>,
    small_talk: Arc<Semaphore>,
}

enum News {
    Frame(Option<Frame>),
    Ended(Result<(Id, Outcome), tokio::task::JoinError>),
    WireEnded,
}

impl Driver {
    fn new(session: Arc<Session>) -> Self {
        Self {
            session,
            exchanges: JoinSet::new(),
            requests: HashMap::new(),
            ids: HashMap::new(),
            small_talk: Arc::new(Semaphore::new(SMALL_TALK)),
        }
    }

    async fn run(mut self, mut frames: mpsc::Receiver<Frame>) {
        let wire = Arc::clone(&self.session.wire);
        loop {
            let news = tokio::select! {
                biased;
                _ = wire.ended() => News::WireEnded,
                Some(ended) = self.exchanges.join_next_with_id(), if !self.exchanges.is_empty() => News::Ended(ended),
                frame = frames.recv() => News::Frame(frame),
            };
            match news {
                News::Frame(Some(frame)) => self.begin(frame).await,
                News::Ended(ended) => {
                    if let Outcome::Expired(reason) = self.ended(ended) {
                        return self.expire(frames, reason).await;
                    }
                }
                News::Frame(None) | News::WireEnded => return,
            }
        }
    }

    async fn begin(&mut self, frame: Frame) {
        let session = Arc::clone(&self.session);
        session.wire.written(frame.text.len());
        if let Some(cancelled) = &frame.cancels {
            // Its response goes with it, which is all that the stateless protocol wants to see.
            if let Some(exchange) = self.requests.remove(cancelled) {
                exchange.abort();
            }
            if session.wire.modern() {
                return;
            }
        }
        if let Some(id) = frame.request.clone() {
            if !session.wire.waits_for(&id) {
                return;
            }
            let exchange = self.exchanges.spawn(exchange::request(session, id.clone(), frame));
            self.ids.insert(exchange.id(), id.clone());
            self.requests.insert(id, exchange);
            return;
        }
        if frame.method.as_deref() == Some("notifications/initialized") {
            // Nothing may overtake it.
            let told = tokio::time::timeout(SMALL_TALK_LIMIT, exchange::tell(Arc::clone(&session), frame)).await;
            match told {
                Ok(Outcome::Done) => drop(session.initialized.send_replace(true)),
                Ok(Outcome::Expired(reason)) => session.wire.end(&reason),
                Err(_) => session.wire.end("does not take the end of the handshake"),
            }
            return;
        }
        let Ok(place) = Arc::clone(&self.small_talk).try_acquire_owned() else {
            session.log.warn_once("is too slow to take notifications; some were dropped");
            return;
        };
        self.exchanges.spawn(async move {
            let told = tokio::time::timeout(SMALL_TALK_LIMIT, exchange::tell(session, frame)).await;
            drop(place);
            told.unwrap_or(Outcome::Done)
        });
    }

    fn ended(&mut self, ended: Result<(Id, Outcome), tokio::task::JoinError>) -> Outcome {
        let (task, outcome) = match ended {
            Ok((task, outcome)) => (task, outcome),
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "exchange panicked");
                    self.session.wire.end("the exchange failed on our side");
                }
                (error.id(), Outcome::Done)
            }
        };
        if let Some(id) = self.ids.remove(&task) {
            self.requests.remove(&id);
        }
        outcome
    }

    /// The session is over: what has not been looked at by the server is told so, then the connection ends.
    async fn expire(mut self, mut frames: mpsc::Receiver<Frame>, reason: String) {
        self.session.set_id(None);
        let wire = Arc::clone(&self.session.wire);
        let until = Instant::now() + EXPIRY_GRACE;
        loop {
            while let Ok(frame) = frames.try_recv() {
                wire.written(frame.text.len());
                if let Some(id) = frame.request {
                    wire.fail(&id, ReplyError::Expired { reason: reason.clone() });
                }
            }
            if self.session.unanswered.load(Ordering::Relaxed) == 0 {
                break;
            }
            tokio::select! {
                Some(ended) = self.exchanges.join_next_with_id(), if !self.exchanges.is_empty() => {
                    drop(self.ended(ended));
                }
                () = tokio::time::sleep_until(until) => break,
            }
        }
        wire.end_as(StartErrorKind::Expired, &reason);
    }
}

/// Hands a message to the wire, off the event loop when that takes long.
pub(super) async fn take_in(wire: &Arc<Wire>, message: Vec<u8>, about: Option<RequestId>) {
    if message.len() <= SMALL_MESSAGE_BYTES {
        wire.incoming(&message, about.as_ref());
        return;
    }
    let wire = Arc::clone(wire);
    let decoded = tokio::task::spawn_blocking(move || wire.incoming(&message, about.as_ref()));
    if let Err(error) = decoded.await {
        tracing::error!(%error, "decoding panicked");
    }
}

/// Reads a body up to a limit.
///
/// # Errors
/// It was longer, with its size if that is known, or it broke off.
pub(super) async fn read_body(response: &mut Response, limit: usize) -> Result<Vec<u8>, BodyError> {
    let declared = response.content_length();
    if let Some(bytes) = declared.filter(|bytes| *bytes > limit as u64) {
        return Err(BodyError::TooLarge(Some(bytes)));
    }
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(body),
            Ok(Some(chunk)) if body.len() + chunk.len() > limit => {
                body.extend_from_slice(&chunk[..limit - body.len()]);
                return Err(BodyError::TooLarge(None));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(error) => return Err(BodyError::Broke(remote::body_error(&error))),
        }
    }
}

/// Why a body could not be read.
#[derive(Debug)]
pub(super) enum BodyError {
    TooLarge(Option<u64>),
    Broke(String),
}

/// Whether the content is of this type, whatever its parameters.
pub(super) fn is_type(response: &Response, wanted: &str) -> bool {
    content_type(response).split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(wanted))
}

/// The type of the content as the server wrote it; empty when it did not.
pub(super) fn content_type(response: &Response) -> &str {
    response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn is_sse_address(url: &Url) -> bool {
    url.path().trim_end_matches('/').ends_with("/sse")
}
