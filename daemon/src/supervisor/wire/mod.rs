//! One connection's JSON-RPC state, shared by its transport and the calls on it.
//!
//! A transport (stdio, HTTP, SSE) only moves text: it takes [`Frame`]s from the queue that [`Wire::new`] returns, and
//! hands whatever comes in to [`Wire::incoming`]. All tolerance for odd servers, all answers to servers' own requests,
//! and the way of raw results around rmcp's typed decoding are here. It knows no process, socket or HTTP.

mod decode;
mod opening;
mod raw;
mod scan;
mod transport;

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rmcp::{
    RoleClient,
    model::{
        EmptyResult, ErrorCode, ErrorData, GetExtensions as _, GetMeta as _, JsonRpcMessage, NumberOrString,
        ProtocolVersion, RequestId, ServerResult,
    },
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
};
use serde_json::{Value, value::RawValue};
use tokio::sync::{Notify, mpsc};

use self::{
    decode::Message,
    opening::{discover_result, initialize_result},
    raw::Reply,
};
pub(super) use self::{
    raw::{Frame, RawRequest, ReplyError},
    scan::IdScan,
    transport::WireTransport,
};
use super::{link::StartErrorKind, log::ServerLog};

/// Longest message kept, in bytes; over it the request fails and the rest of the message is discarded.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Messages that may wait for a server that does not read; over it requests fail and notifications are dropped.
const QUEUED_FRAMES: usize = 256;

/// Bytes that may wait for a server that does not read; same rule.
const QUEUED_BYTES: usize = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Wire {
    inner: Mutex<Inner>,
    queue: mpsc::Sender<Frame>,
    queued_bytes: AtomicUsize,
    /// Wakes rmcp's side when its inbox or the end changes.
    inbox_ready: Notify,
    ended: Notify,
    list_changed: Notify,
    suspected: Notify,
    /// The answer to `roots/list`.
    roots: String,
    log: ServerLog,
}

#[derive(Debug, Default)]
struct Inner {
    pending: HashMap<RequestId, Pending>,
    /// Grows with every request; tells the oldest.
    sent: u64,
    /// Answers for rmcp: at most one for each of its requests.
    inbox: VecDeque<RxJsonRpcMessage<RoleClient>>,
    end: Option<(StartErrorKind, String)>,
    protocol: Option<String>,
    /// The versions that the server named in place of the one it was asked for.
    supported: Vec<String>,
    /// Whether the handshake was the `server/discover` of 2026-07-28.
    modern: bool,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    token: Option<NumberOrString>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Raw(RawRequest),
    Initialize,
    Discover,
    Other,
}

impl Wire {
    /// State of a new connection, rmcp's end of it, and the queue that its transport has to send.
    ///
    /// `roots` are the URIs that the server hears when it asks for roots.
    pub(super) fn new(log: ServerLog, roots: &[String]) -> (Arc<Self>, WireTransport, mpsc::Receiver<Frame>) {
        let (queue, frames) = mpsc::channel(QUEUED_FRAMES);
        let roots: Vec<Value> = roots.iter().map(|uri| serde_json::json!({ "uri": uri })).collect();
        let wire = Arc::new(Self {
            inner: Mutex::default(),
            queue,
            queued_bytes: AtomicUsize::new(0),
            inbox_ready: Notify::new(),
            ended: Notify::new(),
            list_changed: Notify::new(),
            suspected: Notify::new(),
            roots: serde_json::json!({ "roots": roots }).to_string(),
            log,
        });
        let transport = WireTransport::new(Arc::clone(&wire));
        (wire, transport, frames)
    }

    /// Says that a frame of so many bytes has left the queue.
    pub(super) fn written(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes in one line or event. `about` is the request in whose exchange it came, where the transport knows.
    pub(super) fn incoming(&self, bytes: &[u8], about: Option<&RequestId>) {
        let text = String::from_utf8_lossy(bytes);
        if let std::borrow::Cow::Owned(_) = text {
            self.log.warn_once("wrote invalid UTF-8; it was replaced by U+FFFD");
        }
        for message in decode::decode(&text) {
            match message {
                Message::Response { id, result } => {
                    if let Err(error) = &result
                        && !error.supported.is_empty()
                    {
                        self.lock().supported.clone_from(&error.supported);
                    }
                    let reply = result
                        .map(ToOwned::to_owned)
                        .map_err(|error| ReplyError::Rpc { code: error.code, message: error.message });
                    match id.or_else(|| about.cloned()) {
                        Some(id) => self.answer(&id, reply),
                        // Only an error can be meant for whoever waits: a result without an id is nobody's.
                        None if reply.is_err() => self.answer_oldest(reply),
                        None => self.log.stray(&text),
                    }
                }
                Message::Broken { id, detail } => self.answer(&id, Err(ReplyError::Malformed { detail })),
                Message::Request { id, method } => self.serve(id, &method),
                Message::Notification { method, params } => self.notified(&method, params),
                Message::Noise(text) => self.log.stray(text),
            }
        }
    }

    /// Fails a request from the transport's side: its exchange broke, or could not begin.
    pub(super) fn fail(&self, id: &RequestId, error: ReplyError) {
        self.answer(id, Err(error));
    }

    /// Ends the connection: every waiting request fails with this reason. The first reason stays.
    pub(super) fn end(&self, reason: &str) {
        self.end_as(StartErrorKind::Transient, reason);
    }

    /// Ends the connection, saying what that means for a start that was under way.
    pub(super) fn end_as(&self, kind: StartErrorKind, reason: &str) {
        let failed: Vec<Pending> = {
            let mut inner = self.lock();
            if inner.end.is_some() {
                return;
            }
            inner.end = Some((kind, reason.to_owned()));
            inner.pending.drain().map(|(_, pending)| pending).collect()
        };
        for pending in failed {
            if let Kind::Raw(raw) = pending.kind {
                raw.settle(Err(ReplyError::Lost { reason: reason.to_owned() }));
            }
        }
        self.inbox_ready.notify_one();
        self.ended.notify_waiters();
    }

    /// Resolves with the reason when the connection has ended.
    pub(super) async fn ended(&self) -> String {
        loop {
            let notified = self.ended.notified();
            if let Some((_, reason)) = self.lock().end.clone() {
                return reason;
            }
            notified.await;
        }
    }

    /// Why the connection ended, if it has.
    pub(super) fn end_reason(&self) -> Option<String> {
        self.lock().end.as_ref().map(|(_, reason)| reason.clone())
    }

    /// What the end means for a start that was under way.
    pub(super) fn end_kind(&self) -> StartErrorKind {
        self.lock().end.as_ref().map_or(StartErrorKind::Transient, |(kind, _)| *kind)
    }

    /// How a request fails that comes after the end.
    pub(super) fn too_late(&self) -> ReplyError {
        too_late(self.lock().end.as_ref())
    }

    /// Says that the tools seem to be others than those that are known.
    pub(super) fn distrust_list(&self) {
        self.list_changed.notify_one();
    }

    /// Resolves when the server has said that its tools changed; many such notices in a row count once.
    pub(super) async fn list_changed(&self) {
        self.list_changed.notified().await;
    }

    /// Says that something went wrong which may mean that the server is gone.
    pub(super) fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// Resolves when the server should be asked whether it is there; many reasons in a row count once.
    pub(super) async fn suspected(&self) {
        self.suspected.notified().await;
    }

    /// Whether somebody waits for the answer to this request.
    pub(super) fn waits_for(&self, id: &RequestId) -> bool {
        self.lock().pending.contains_key(id)
    }

    /// The protocol version the server named when it was initialized.
    pub(super) fn protocol(&self) -> Option<String> {
        self.lock().protocol.clone()
    }

    /// The versions that the server named when it refused the one it was asked for.
    pub(super) fn supported(&self) -> Vec<String> {
        self.lock().supported.clone()
    }

    /// What the server hears when it asks for roots.
    pub(super) fn roots(&self) -> &str {
        &self.roots
    }

    /// Whether the server speaks the stateless protocol: notices only to listeners, results of several types.
    pub(super) fn modern(&self) -> bool {
        self.lock().modern
    }

    /// Gives up a raw request: its reply is no longer wanted, and the server is told so.
    pub(super) fn abandon(&self, id: &RequestId, raw: &RawRequest, reason: &str) {
        raw.0.abandoned.store(true, Ordering::Relaxed);
        let mut inner = self.lock();
        if inner.pending.remove(id).is_none() {
            return;
        }
        inner.forget(id, "cancelled");
        drop(inner);
        self.inbox_ready.notify_one();
        let text = serde_json::json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id, "reason": reason },
        });
        // A full queue means that the server does not read: it would not hear of the cancellation anyway.
        drop(self.push(Frame {
            text: text.to_string(),
            request: None,
            method: Some("notifications/cancelled".into()),
            cancels: Some(id.clone()),
            mirrored: Vec::new(),
        }));
    }

    /// Turns a message of rmcp's into a frame, in the queue when this returns.
    fn outgoing(&self, message: TxJsonRpcMessage<RoleClient>) -> Result<(), ReplyError> {
        let unsent = |error: serde_json::Error| ReplyError::Unsent { reason: error.to_string() };
        let JsonRpcMessage::Request(envelope) = message else {
            #[derive(serde::Deserialize)]
            struct Named {
                method: String,
            }
            let text = serde_json::to_string(&message).map_err(unsent)?;
            let method = serde_json::from_str::<Named>(&text).ok().map(|named| named.method);
            return self.push(Frame { text, request: None, method, cancels: None, mirrored: Vec::new() });
        };
        let id = envelope.id.clone();
        let token = envelope.request.get_meta().get_progress_token().map(|token| token.0);
        let method = envelope.request.method().to_owned();
        let raw = envelope.request.extensions().get::<RawRequest>().cloned();
        let mirrored = raw.as_ref().map(|raw| raw.0.mirrored.clone()).unwrap_or_default();
        let (request, text) = match raw {
            Some(raw) => {
                let meta = serde_json::to_string(envelope.request.get_meta()).map_err(unsent)?;
                let params = &raw.0.params;
                let comma = if params.is_empty() { "" } else { "," };
                let number = serde_json::to_string(&id).map_err(unsent)?;
                let name = serde_json::to_string(&method).map_err(unsent)?;
                let text = format!(
                    r#"{{"jsonrpc":"2.0","id":{number},"method":{name},"params":{{"_meta":{meta}{comma}{params}}}}}"#
                );
                (Kind::Raw(raw), text)
            }
            None => {
                let kind = match method.as_str() {
                    "initialize" => Kind::Initialize,
                    "server/discover" => Kind::Discover,
                    _ => Kind::Other,
                };
                (kind, serde_json::to_string(&JsonRpcMessage::<_, (), ()>::Request(envelope)).map_err(unsent)?)
            }
        };
        {
            let mut inner = self.lock();
            if let Some(end) = &inner.end {
                let error = too_late(Some(end));
                if let Kind::Raw(raw) = &request {
                    raw.settle(Err(error.clone()));
                }
                return Err(error);
            }
            if let Kind::Raw(raw) = &request
                && raw.0.abandoned.load(Ordering::Relaxed)
            {
                return Err(ReplyError::Unsent { reason: "cancelled".into() });
            }
            if let Kind::Initialize = request {
                // Sent after a discovery that took too long: its answer, should it still come, is nobody's.
                inner.pending.retain(|_, pending| !matches!(pending.kind, Kind::Discover));
                inner.inbox.clear();
            }
            inner.sent += 1;
            let number = inner.sent;
            inner.pending.insert(id.clone(), Pending { number, token, kind: request });
        }
        let frame = Frame { text, request: Some(id.clone()), method: Some(method), cancels: None, mirrored };
        self.push(frame).inspect_err(|error| {
            if let Some(Pending { kind: Kind::Raw(raw), .. }) = self.lock().pending.remove(&id) {
                raw.settle(Err(error.clone()));
            }
        })
    }

    fn push(&self, frame: Frame) -> Result<(), ReplyError> {
        let bytes = frame.text.len();
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        // One frame of any size may always wait, so that the byte limit never forbids a request for good.
        let full = queued > 0 && queued + bytes > QUEUED_BYTES;
        if full || self.queue.try_send(frame).is_err() {
            self.written(bytes);
            return Err(ReplyError::Unsent { reason: "the server does not read its input".into() });
        }
        Ok(())
    }

    fn answer(&self, id: &RequestId, reply: Reply) {
        let mut inner = self.lock();
        // An answer to nobody is a late or second one and harms nobody.
        let Some(pending) = inner.pending.remove(id) else { return };
        inner.resolve(id.clone(), pending, reply);
        drop(inner);
        self.inbox_ready.notify_one();
    }

    /// An error that names no request is taken for the answer to the one that has waited longest.
    fn answer_oldest(&self, reply: Reply) {
        let oldest = {
            let inner = self.lock();
            inner.pending.iter().min_by_key(|(_, pending)| pending.number).map(|(id, _)| id.clone())
        };
        if let Some(id) = oldest {
            self.answer(&id, reply);
        }
    }

    /// Answers a request of the server at once: nothing it can ask for needs a person.
    fn serve(&self, id: &RawValue, method: &str) {
        let outcome = match method {
            "ping" => r#""result":{}"#.to_owned(),
            "roots/list" => format!(r#""result":{}"#, self.roots),
            "elicitation/create" => r#""result":{"action":"decline"}"#.to_owned(),
            _ => {
                let error = serde_json::json!({ "code": -32601, "message": format!("{method} is not supported") });
                format!(r#""error":{error}"#)
            }
        };
        let text = format!(r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#, id.get());
        if self.push(Frame { text, request: None, method: None, cancels: None, mirrored: Vec::new() }).is_err() {
            self.log.warn_once("does not read the answers to its own requests");
        }
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/tools/list_changed" => self.list_changed.notify_one(),
            "notifications/progress" => {
                #[derive(serde::Deserialize)]
                struct Progress {
                    #[serde(rename = "progressToken")]
                    token: NumberOrString,
                }
                let Some(Ok(Progress { token })) = params.map(|params| serde_json::from_str(params.get())) else {
                    return;
                };
                let inner = self.lock();
                let mut waiting = inner.pending.values();
                if let Some(Pending { kind: Kind::Raw(raw), .. }) =
                    waiting.find(|pending| pending.token.as_ref().is_some_and(|ours| same(ours, &token)))
                {
                    raw.0.progress.notify_one();
                }
            }
            // Log messages, resource and prompt changes, and whatever else: nothing here depends on them.
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Settles a request, and gives rmcp an answer of the type it expects.
    fn resolve(&mut self, id: RequestId, pending: Pending, reply: Reply) {
        let for_rmcp = match (pending.kind, reply) {
            (Kind::Raw(raw), reply) => {
                raw.settle(reply);
                Ok(ServerResult::EmptyResult(EmptyResult {}))
            }
            (_, Err(error)) => Err(error_data(&error)),
            (Kind::Initialize, Ok(raw)) => initialize_result(&raw).map(|(result, version)| {
                self.protocol = Some(version);
                ServerResult::InitializeResult(result)
            }),
            (Kind::Discover, Ok(raw)) => discover_result(&raw).map(|result| {
                self.protocol = Some(ProtocolVersion::LATEST.to_string());
                self.modern = true;
                ServerResult::DiscoverResult(result)
            }),
            (Kind::Other, Ok(_)) => Ok(ServerResult::EmptyResult(EmptyResult {})),
        };
        self.inbox.push_back(match for_rmcp {
            Ok(result) => JsonRpcMessage::response(result, id),
            Err(error) => JsonRpcMessage::error(error, Some(id)),
        });
    }

    /// Lets rmcp forget a request that nobody waits for.
    fn forget(&mut self, id: &RequestId, why: &'static str) {
        let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None);
        self.inbox.push_back(JsonRpcMessage::error(error, Some(id.clone())));
    }
}

/// Whether a token is ours, also when a server has made text of the number.
fn same(ours: &NumberOrString, theirs: &NumberOrString) -> bool {
    ours == theirs || ours.to_string() == theirs.to_string()
}

/// How a request fails that was not sent since the connection has ended: the server never looked at it.
fn too_late(end: Option<&(StartErrorKind, String)>) -> ReplyError {
    match end {
        Some((_, reason)) => ReplyError::Expired { reason: reason.clone() },
        None => ReplyError::Unsent { reason: "the connection is closed".to_owned() },
    }
}

fn error_data(error: &ReplyError) -> ErrorData {
    match error {
        ReplyError::Rpc { code, message } => {
            ErrorData::new(ErrorCode(i32::try_from(*code).unwrap_or(-32603)), message.clone(), None)
        }
        other => ErrorData::new(ErrorCode::INTERNAL_ERROR, other.to_string(), None),
    }
}
