//! One message to the server and what comes back for it. Each ends with its request settled: answered or failed.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use reqwest::Response;
use rmcp::model::{ErrorCode, RequestId};

use super::{
    BodyError, LAST_EVENT_ID, SESSION_ID, Session, content_type,
    events::{Events, Item},
    is_type,
    patience::Manner,
    read_body,
    remote::{SendError, body_error},
    routing::routing,
    take_in,
    verdict::{Refusal, Verdict, expired_in},
};
use crate::supervisor::{
    link::StartErrorKind,
    wire::{Frame, MAX_MESSAGE_BYTES, ReplyError},
};

/// How often in a row a stream is taken up again that brings nothing new.
const RESUMES: usize = 3;

/// A server may ask for so long a pause before its stream is taken up again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is read of the body of a refusal, in bytes.
const REFUSAL_BYTES: usize = 64 * 1024;

/// What reading it may take.
const REFUSAL_LIMIT: Duration = Duration::from_secs(5);

/// After its answer, a stream gets so long to end by itself, so that its connection can be used again.
const TAIL_LIMIT: Duration = Duration::from_millis(500);

/// What an exchange means for the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The session is over, with the reason.
    Expired(String),
}

/// What a request is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// `server/discover`: a refusal means an older server.
    Discover,
    /// `initialize`: a refusal is the end of the start.
    Initialize,
    /// A tool call: it fails alone.
    Call,
    /// A question whether the server is there, to which asking for patience is an answer.
    Ping,
    /// All else that we ask ourselves.
    Ask,
}

/// Counts a request while its response has not begun.
struct Unanswered<'a>(&'a Session);

impl<'a> Unanswered<'a> {
    fn new(session: &'a Session) -> Self {
        session.unanswered.fetch_add(1, Ordering::Relaxed);
        Self(session)
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.unanswered.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends a request and takes in its answer.
pub(super) async fn request(session: Arc<Session>, id: RequestId, frame: Frame) -> Outcome {
    let role = match frame.method.as_deref() {
        Some("server/discover") => Role::Discover,
        Some("initialize") => Role::Initialize,
        Some("tools/call") => Role::Call,
        Some("ping") => Role::Ping,
        _ => Role::Ask,
    };
    let exchange = Exchange { session: &session, id, role, in_session: false };
    exchange.run(frame).await
}

/// Sends a message that has no answer.
pub(super) async fn tell(session: Arc<Session>, frame: Frame) -> Outcome {
    let asked = session.asked();
    let headers = headers(&session, &frame);
    let body = bytes::Bytes::from(frame.text);
    let mut tries = session.patience.tries(Manner::Patient);
    let (verdict, refusal) = loop {
        if let Err(error) = tries.turn().await {
            session.log.warn_once(&format!("did not get a notification: {error}"));
            return Outcome::Done;
        }
        let mut response = match session.send(Method::POST, Some(body.clone()), headers.clone()).await {
            Ok(response) => response,
            Err(error) => {
                session.log.note(&format!("a notification could not be sent: {error}"));
                session.wire.suspect();
                return Outcome::Done;
            }
        };
        if response.status().is_success() {
            return Outcome::Done;
        }
        let refusal = refusal(&mut response).await;
        let verdict = refusal.judge(asked);
        if !tries.again(&verdict) {
            break (verdict, refusal);
        }
    };
    match verdict {
        Verdict::Expired(reason) => return Outcome::Expired(reason),
        Verdict::SignIn(reason) => session.wire.end_as(StartErrorKind::SignIn, &reason),
        verdict => {
            tracing::debug!(?verdict, "a notification was refused");
            session.log.warn_once(&format!("refused a notification with {}", refusal.status));
        }
    }
    Outcome::Done
}

fn headers(session: &Session, frame: &Frame) -> HeaderMap {
    let mut headers = match frame.method.as_deref() {
        Some(method) if session.wire.modern() || method == "server/discover" => {
            routing(method, tool_name(method, &frame.text).as_deref(), &frame.mirrored)
        }
        _ => HeaderMap::new(),
    };
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}

fn tool_name(method: &str, text: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Message {
        params: Params,
    }
    #[derive(serde::Deserialize)]
    struct Params {
        name: String,
    }
    (method == "tools/call").then(|| serde_json::from_str::<Message>(text).ok())?.map(|message| message.params.name)
}

/// Reads a response that does not say success.
pub(in crate::supervisor) async fn refusal(response: &mut Response) -> Refusal {
    let status = response.status();
    let headers = response.headers().clone();
    let body = tokio::time::timeout(REFUSAL_LIMIT, read_body(response, REFUSAL_BYTES)).await;
    let body = body.ok().and_then(Result::ok).unwrap_or_default();
    Refusal::new(status, &headers, body, Timestamp::now())
}

struct Exchange<'a> {
    session: &'a Session,
    id: RequestId,
    role: Role,
    /// Whether the request named a session when it was sent.
    in_session: bool,
}

impl Exchange<'_> {
    async fn run(mut self, frame: Frame) -> Outcome {
        let session = self.session;
        let headers = headers(session, &frame);
        let body = bytes::Bytes::from(frame.text);
        let mut tries = session.patience.tries(match self.role {
            Role::Initialize | Role::Ping => Manner::Once,
            Role::Discover | Role::Call | Role::Ask => Manner::Patient,
        });
        loop {
            if let Err(error) = tries.turn().await {
                return self.fail(ReplyError::Busy { reason: error.to_string() });
            }
            let asked = session.asked();
            self.in_session = asked.in_session;
            let unanswered = Unanswered::new(session);
            let mut response = match session.send(Method::POST, Some(body.clone()), headers.clone()).await {
                Ok(response) => response,
                Err(error) => return self.unsent(&error),
            };
            if response.status().is_success() {
                drop(unanswered);
                return self.answered(response).await;
            }
            let refusal = refusal(&mut response).await;
            let verdict = refusal.judge(asked);
            if !tries.again(&verdict) {
                return self.refused(verdict, refusal.body).await;
            }
        }
    }

    fn fail(&self, error: ReplyError) -> Outcome {
        self.session.wire.fail(&self.id, error);
        Outcome::Done
    }

    /// An error that JSON-RPC would have had the server write itself.
    fn fail_rpc(&self, message: String) -> Outcome {
        let code = if self.role == Role::Discover { ErrorCode::METHOD_NOT_FOUND } else { ErrorCode::INTERNAL_ERROR };
        self.fail(ReplyError::Rpc { code: i64::from(code.0), message })
    }

    fn is_opening(&self) -> bool {
        matches!(self.role, Role::Discover | Role::Initialize)
    }

    /// Ends the connection; for requests whose failure says enough about the server.
    fn end(&self, kind: StartErrorKind, reason: &str) -> Outcome {
        self.session.wire.end_as(kind, reason);
        Outcome::Done
    }

    fn unsent(&self, error: &SendError) -> Outcome {
        let reason = error.to_string();
        if self.is_opening() {
            let kind = match error {
                SendError::Redirected(_) => StartErrorKind::Broken,
                SendError::Connect { .. }
                | SendError::Broke { .. }
                | SendError::Silent { .. }
                | SendError::Setup(_) => StartErrorKind::Transient,
            };
            return self.end(kind, &reason);
        }
        self.session.wire.suspect();
        self.fail(match error {
            SendError::Broke { .. } | SendError::Silent { .. } => ReplyError::Lost { reason },
            SendError::Connect { .. } | SendError::Redirected(_) | SendError::Setup(_) => ReplyError::Unsent { reason },
        })
    }

    async fn refused(&self, verdict: Verdict, body: Vec<u8>) -> Outcome {
        match verdict {
            Verdict::Answer => {
                take_in(&self.session.wire, body, Some(self.id.clone())).await;
                self.close_off("the server's error names another request")
            }
            Verdict::Expired(reason) => {
                self.fail(ReplyError::Expired { reason: reason.clone() });
                Outcome::Expired(reason)
            }
            Verdict::SignIn(reason) if self.role == Role::Call => {
                self.session.wire.suspect();
                self.fail(ReplyError::Unsent { reason })
            }
            Verdict::SignIn(reason) => self.end(StartErrorKind::SignIn, &reason),
            Verdict::Forbidden(reason) if self.is_opening() => self.end(StartErrorKind::Broken, &reason),
            Verdict::Forbidden(reason) => self.fail_rpc(reason),
            Verdict::Busy { after, reason } if self.is_opening() => {
                self.end(after.map_or(StartErrorKind::Transient, StartErrorKind::Wait), &reason)
            }
            Verdict::Busy { reason, .. } => self.fail(ReplyError::Busy { reason }),
            Verdict::Missing(reason) if self.role == Role::Initialize => self.end(StartErrorKind::Broken, &reason),
            Verdict::Gone(reason) if self.is_opening() => self.end(StartErrorKind::Transient, &reason),
            Verdict::Failed(reason) if self.role == Role::Initialize => self.end(StartErrorKind::Transient, &reason),
            Verdict::Gone(reason) => {
                self.session.wire.suspect();
                self.fail(ReplyError::Lost { reason })
            }
            Verdict::Missing(reason) | Verdict::Failed(reason) => self.fail_rpc(reason),
        }
    }

    async fn answered(&self, mut response: Response) -> Outcome {
        let wire = &self.session.wire;
        if self.role == Role::Initialize {
            self.session.set_id(response.headers().get(SESSION_ID).cloned());
        }
        if is_type(&response, "text/event-stream") {
            return self.stream(response).await;
        }
        let body = match read_body(&mut response, MAX_MESSAGE_BYTES).await {
            Ok(body) => body,
            Err(BodyError::TooLarge(bytes)) => return self.fail(ReplyError::TooLarge { bytes }),
            Err(BodyError::Broke(cause)) => {
                wire.suspect();
                return self.fail(ReplyError::Lost { reason: format!("the answer broke off: {cause}") });
            }
        };
        if let Some(outcome) = self.expired(&body) {
            return outcome;
        }
        let start = body.iter().find(|byte| !byte.is_ascii_whitespace() && !b"\xef\xbb\xbf".contains(byte));
        if !matches!(start, Some(b'{' | b'[')) {
            let kind = content_type(&response);
            return self.close_off(&match (response.status(), start) {
                (status, None) => format!("the server answered {status} without a message"),
                (_, Some(_)) if kind.is_empty() => "the server answered with something that is not JSON".into(),
                (_, Some(_)) => format!("the server answered with {kind} in place of JSON"),
            });
        }
        take_in(wire, body, Some(self.id.clone())).await;
        self.close_off("the server's response holds no answer to the request")
    }

    /// A response that has been read whole is all that will come.
    fn close_off(&self, detail: &str) -> Outcome {
        if !self.session.wire.waits_for(&self.id) {
            return Outcome::Done;
        }
        match self.role {
            Role::Discover => self.fail_rpc(detail.to_owned()),
            Role::Initialize => self.end(StartErrorKind::Broken, detail),
            Role::Call | Role::Ping | Role::Ask => self.fail(ReplyError::Malformed { detail: detail.to_owned() }),
        }
    }

    /// The end of the session, if that is what the message says.
    fn expired(&self, message: &[u8]) -> Option<Outcome> {
        let reason = expired_in(message).filter(|_| self.in_session && !self.is_opening())?;
        self.fail(ReplyError::Expired { reason: reason.clone() });
        Some(Outcome::Expired(reason))
    }

    /// Reads a stream until the answer is there. A stream that ends before is taken up again where the server gave
    /// its events ids, and fails the request otherwise.
    async fn stream(&self, mut response: Response) -> Outcome {
        let wire = &self.session.wire;
        let mut events = Events::default();
        let mut fruitless = 0;
        loop {
            let (news, cause) = match self.read_stream(&mut response, &mut events).await {
                StreamEnd::Settled(outcome) => return outcome,
                StreamEnd::Ended { news, cause } => (news, cause),
            };
            fruitless = if news { 0 } else { fruitless + 1 };
            let lost = |cause: &str| {
                wire.suspect();
                let reason = format!("the server's stream ended before the answer: {cause}");
                match self.role {
                    Role::Initialize => self.end(StartErrorKind::Transient, &reason),
                    Role::Discover | Role::Call | Role::Ping | Role::Ask => self.fail(ReplyError::Lost { reason }),
                }
            };
            let Some(last) = events.last_id().and_then(|id| HeaderValue::from_str(id).ok()) else {
                return lost(&cause);
            };
            if wire.modern() || fruitless > RESUMES {
                return lost(&cause);
            }
            tokio::time::sleep(events.retry().unwrap_or_default().min(LONGEST_PAUSE)).await;
            response = match self.take_up(last).await {
                Ok(response) => response,
                Err(more) => return lost(&format!("{cause}; {more}")),
            };
        }
    }

    /// Asks for what comes behind this event.
    async fn take_up(&self, last: HeaderValue) -> Result<Response, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(LAST_EVENT_ID, last);
        let mut tries = self.session.patience.tries(Manner::Patient);
        loop {
            tries.turn().await.map_err(|error| error.to_string())?;
            let sent = self.session.send(Method::GET, None, headers.clone()).await;
            let mut response = sent.map_err(|error| error.to_string())?;
            if response.status() == StatusCode::OK && is_type(&response, "text/event-stream") {
                return Ok(response);
            }
            let status = response.status();
            if status.is_success() || !tries.again(&refusal(&mut response).await.judge(self.session.asked())) {
                return Err(format!("it cannot be taken up again ({status})"));
            }
        }
    }

    async fn read_stream(&self, response: &mut Response, events: &mut Events) -> StreamEnd {
        let wire = &self.session.wire;
        let mut news = false;
        let cause = loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break "it was closed".to_owned(),
                Err(error) => break body_error(&error),
            };
            for item in events.feed(&chunk) {
                news = true;
                if let Some(outcome) = self.take(item).await {
                    return StreamEnd::Settled(outcome);
                }
            }
            if !wire.waits_for(&self.id) {
                self.drain(response, events).await;
                return StreamEnd::Settled(Outcome::Done);
            }
        };
        if let Some(item) = events.finish()
            && let Some(outcome) = self.take(item).await
        {
            return StreamEnd::Settled(outcome);
        }
        if wire.waits_for(&self.id) { StreamEnd::Ended { news, cause } } else { StreamEnd::Settled(Outcome::Done) }
    }

    /// Takes in what the stream held; tells when that was the end of the session.
    async fn take(&self, item: Item) -> Option<Outcome> {
        match item {
            Item::Event { data, .. } => {
                if let Some(outcome) = self.expired(&data) {
                    return Some(outcome);
                }
                take_in(&self.session.wire, data, Some(self.id.clone())).await;
            }
            Item::Oversized { id, bytes } => {
                let id = id.unwrap_or_else(|| self.id.clone());
                self.session.wire.fail(&id, ReplyError::TooLarge { bytes: Some(bytes) });
            }
        }
        None
    }

    /// Reads what follows the answer.
    async fn drain(&self, response: &mut Response, events: &mut Events) {
        let rest = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                for item in events.feed(&chunk) {
                    if let Item::Event { data, .. } = item {
                        take_in(&self.session.wire, data, None).await;
                    }
                }
            }
        };
        drop(tokio::time::timeout(TAIL_LIMIT, rest).await);
    }
}

enum StreamEnd {
    Settled(Outcome),
    /// Without the answer; whether it brought anything, and why it ended.
    Ended {
        news: bool,
        cause: String,
    },
}
