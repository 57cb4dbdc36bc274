//! A connection that is up: requests on it, each with its own clock. Any number run at once; none passes through a
//! queue that another could block.

use std::{sync::Arc, time::Duration};

use ptc_protocol::names::ServerName;
use rmcp::{
    RoleClient,
    model::{ClientRequest, ErrorCode, RequestId},
    service::{Peer, PeerRequestOptions, RequestHandle},
};
use serde_json::value::RawValue;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    call::{CallFailure, CallResult, ServerCall},
    handshake::list_tools,
    mirror::mirrored,
    rounds::{self, MAX_ROUNDS, Next},
    wire::{MAX_MESSAGE_BYTES, RawRequest, ReplyError, Wire},
};

/// Progress may stretch a call to so many times its timeout.
const PROGRESS_STRETCH: u32 = 10;

/// First pause before changes are listened for again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Longest time in which changes are listened for in one request: for ever, in practice.
const LISTENING: Duration = Duration::from_secs(365 * 86_400);

/// Code of a server that finds other arguments mirrored than its tool asks for; it did nothing.
const HEADER_MISMATCH: i64 = -32020;

/// How a request ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    #[error(transparent)]
    Reply(#[from] ReplyError),
    #[error("no answer within {} s", .after.as_secs_f64())]
    Timeout { after: Duration },
}

/// How a call ended without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The server did not look at it, since its session is over: it may be repeated in a new one.
    Expired { reason: String },
    /// It failed.
    Failed(CallFailure),
}

impl From<CallFailure> for CallEnd {
    fn from(failure: CallFailure) -> Self {
        Self::Failed(failure)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Line {
    server: ServerName,
    peer: Peer<RoleClient>,
    wire: Arc<Wire>,
    /// Calls in flight at once.
    slots: Arc<Semaphore>,
    max_calls: usize,
    /// Whether messages go over streamable HTTP.
    over_http: bool,
}

impl Line {
    pub(super) fn new(
        server: ServerName,
        peer: Peer<RoleClient>,
        wire: Arc<Wire>,
        max_calls: usize,
        over_http: bool,
    ) -> Self {
        let max_calls = max_calls.clamp(1, Semaphore::MAX_PERMITS);
        Self { server, peer, wire, slots: Arc::new(Semaphore::new(max_calls)), max_calls, over_http }
    }

    /// The same connection with another limit, for new calls.
    pub(super) fn with_max_calls(&self, max_calls: usize) -> Self {
        Self::new(self.server.clone(), self.peer.clone(), Arc::clone(&self.wire), max_calls, self.over_http)
    }

    /// Whether tools may ask that arguments are mirrored beside the message.
    pub(super) fn mirrors(&self) -> bool {
        self.over_http && self.wire.modern()
    }

    /// Calls a tool. Dropping the future, like a timeout, tells the server to stop.
    ///
    /// # Errors
    /// See [`CallEnd`].
    pub(super) async fn call(&self, call: &ServerCall) -> Result<CallResult, CallEnd> {
        // The clock of the call starts with its slot; the wait for one has the same limit.
        let slot = tokio::time::timeout(call.timeout, self.slots.acquire()).await;
        let Ok(Ok(_slot)) = slot else { return Err(CallFailure::Timeout { after: call.timeout }.into()) };
        let name = serde_json::Value::from(call.tool.wire_name.as_str());
        let params = format!(r#""name":{name},"arguments":{}"#, call.arguments.get());
        match self.send_rounds(call, params).await {
            Ok(raw) => Ok(CallResult { raw }),
            Err(RequestError::Reply(ReplyError::Expired { reason })) => Err(CallEnd::Expired { reason }),
            Err(error) => Err(self.failure(error, call).into()),
        }
    }

    /// Sends a call until its answer is a result.
    async fn send_rounds(&self, call: &ServerCall, params: String) -> Result<Box<RawValue>, RequestError> {
        let failed = |message: String| ReplyError::Rpc { code: i64::from(ErrorCode::INTERNAL_ERROR.0), message };
        let mut more = String::new();
        for _ in 0..MAX_ROUNDS {
            let raw = self.send_call(call, format!("{params}{more}")).await?;
            if !self.wire.modern() {
                return Ok(raw);
            }
            match rounds::next(&raw, self.wire.roots()) {
                Next::Result => return Ok(raw),
                Next::Again(members) => more = format!(",{members}"),
                Next::Unsupported(what) => {
                    let text = format!("the tool answered with `{what}` in place of a result, which is not supported");
                    return Err(failed(text).into());
                }
            }
        }
        Err(failed(format!("the tool asks for input again and again; given up after {MAX_ROUNDS} times")).into())
    }

    /// Sends a call. Where the server has changed what is to be mirrored, it is sent again as the server wants it now.
    async fn send_call(&self, call: &ServerCall, params: String) -> Result<Box<RawValue>, RequestError> {
        let limit = call.timeout.saturating_mul(PROGRESS_STRETCH);
        if !self.mirrors() {
            return self.request("tools/call", params, call.timeout, limit).await;
        }
        let beside = mirrored(&call.tool.input_schema, &call.arguments);
        let sent = self.send("tools/call", params.clone(), beside.clone(), call.timeout, limit).await;
        let Err(RequestError::Reply(ReplyError::Rpc { code: HEADER_MISMATCH, .. })) = &sent else { return sent };
        self.wire.distrust_list();
        let Ok(listing) = list_tools(self, call.timeout).await else { return sent };
        let now = listing.tools.get(&call.tool.wire_name).map(|tool| mirrored(&tool.input_schema, &call.arguments));
        match now.filter(|now| *now != beside) {
            Some(now) => self.send("tools/call", params, now, call.timeout, limit).await,
            None => sent,
        }
    }

    /// Sends a request with these members of `params`. `idle` starts anew with each progress notification; `limit`
    /// does not.
    pub(super) async fn request(
        &self,
        method: &str,
        params: String,
        idle: Duration,
        limit: Duration,
    ) -> Result<Box<RawValue>, RequestError> {
        self.send(method, params, Vec::new(), idle, limit).await
    }

    async fn send(
        &self,
        method: &str,
        params: String,
        mirrored: Vec<(String, String)>,
        idle: Duration,
        limit: Duration,
    ) -> Result<Box<RawValue>, RequestError> {
        let (raw, mut reply) = RawRequest::new(params, mirrored);
        let request = ClientRequest::CustomRequest(raw.custom(method));
        let lost = || {
            let reason = self.wire.end_reason().unwrap_or_else(|| "the connection is closed".into());
            RequestError::Reply(ReplyError::Lost { reason })
        };
        let started = Instant::now();
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let RequestHandle { id, rx: mut answered, .. } = sent.map_err(|_| self.wire.too_late())?;
        let mut guard = Guard { wire: &self.wire, id: &id, raw: &raw, reason: Some("cancelled") };
        let mut rmcp_open = true;
        let mut silent_since = started;
        loop {
            let end = (silent_since + idle).min(started + limit);
            tokio::select! {
                biased;
                reply = &mut reply => {
                    guard.reason = None;
                    // A dropped sender means that rmcp dropped the request with its loop.
                    return reply.map_err(|_| lost())?.map_err(RequestError::Reply);
                }
                outcome = &mut answered, if rmcp_open => {
                    rmcp_open = false;
                    // An answer also settles the reply; an error without one means that nothing was sent.
                    if !matches!(outcome, Ok(Ok(_))) {
                        guard.reason = None;
                        return match reply.try_recv() {
                            Ok(reply) => reply.map_err(RequestError::Reply),
                            Err(_) => Err(lost()),
                        };
                    }
                }
                () = raw.progress() => silent_since = Instant::now(),
                () = tokio::time::sleep_until(end) => {
                    guard.reason = Some("timed out");
                    return Err(RequestError::Timeout { after: if end == started + limit { limit } else { idle } });
                }
            }
        }
    }

    /// Keeps a request open in which the server tells of changed tools; resolves when the server does not want that.
    /// Over HTTP such a request breaks now and then, and is made again.
    pub(super) async fn listen(&self) {
        let params = r#""notifications":{"toolsListChanged":true}"#;
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            match self.request("subscriptions/listen", params.to_owned(), LISTENING, LISTENING).await {
                Err(RequestError::Reply(
                    error @ (ReplyError::Rpc { .. } | ReplyError::TooLarge { .. } | ReplyError::Malformed { .. }),
                )) => {
                    tracing::debug!(server = self.server.as_str(), %error, "no longer listening");
                    return;
                }
                Ok(_) | Err(RequestError::Timeout { .. } | RequestError::Reply(_)) => {}
            }
            if began.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Asks whether the server is there. Any answer says yes, an error too.
    ///
    /// # Errors
    /// Why it seems to be gone. One that is silent while it works on calls may just be busy with them; their own
    /// clocks will tell.
    pub(super) async fn alive(&self, limit: Duration) -> Result<(), RequestError> {
        match self.request("ping", String::new(), limit, limit).await {
            Ok(_) => Ok(()),
            Err(RequestError::Timeout { .. }) if self.slots.available_permits() < self.max_calls => Ok(()),
            Err(
                error @ (RequestError::Timeout { .. }
                | RequestError::Reply(
                    ReplyError::Lost { .. } | ReplyError::Unsent { .. } | ReplyError::Expired { .. },
                )),
            ) => Err(error),
            Err(RequestError::Reply(
                ReplyError::Rpc { .. }
                | ReplyError::TooLarge { .. }
                | ReplyError::Malformed { .. }
                | ReplyError::Busy { .. },
            )) => Ok(()),
        }
    }

    /// Resolves when no call runs, for a connection that takes no new ones.
    pub(super) async fn drained(&self) {
        let all = u32::try_from(self.max_calls).unwrap_or(u32::MAX);
        drop(self.slots.acquire_many(all).await);
    }

    fn failure(&self, error: RequestError, call: &ServerCall) -> CallFailure {
        match error {
            RequestError::Timeout { after } => CallFailure::Timeout { after },
            RequestError::Reply(ReplyError::Rpc { code, message }) => CallFailure::Rpc { code, message },
            RequestError::Reply(ReplyError::TooLarge { bytes }) => {
                CallFailure::TooLarge { bytes, limit: call.max_result_bytes.min(MAX_MESSAGE_BYTES) as u64 }
            }
            RequestError::Reply(ReplyError::Malformed { detail }) => CallFailure::Malformed { detail },
            RequestError::Reply(
                ReplyError::Unsent { reason } | ReplyError::Expired { reason } | ReplyError::Busy { reason },
            ) => CallFailure::Unavailable { server: self.server.clone(), reason },
            RequestError::Reply(ReplyError::Lost { reason }) => {
                CallFailure::ConnectionLost { server: self.server.clone(), reason }
            }
        }
    }
}

/// Gives the request up when it goes out of scope without an answer.
struct Guard<'a> {
    wire: &'a Wire,
    id: &'a RequestId,
    raw: &'a RawRequest,
    /// Why, or none when nothing is to be given up.
    reason: Option<&'static str>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(reason) = self.reason {
            self.wire.abandon(self.id, self.raw, reason);
        }
    }
}
