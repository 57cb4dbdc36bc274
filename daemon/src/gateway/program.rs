//! One program's account: the tools it may call, its budget, its calls that run and that ran.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use ptc_protocol::{api::CallRecord, names::SessionId};
use serde_json::{Value, value::RawValue};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::spawn_blocking,
};

use super::{
    arguments,
    budget::{Budget, Funded},
    callable::{Callable, Entry, reason},
    convert::{Converted, Reading, convert},
    failure::{Code, Failure},
    introspect::Introspection,
    policy::Permit,
    record::Ledger,
};
use crate::{
    config::settings::{Execution, Settings},
    supervisor::{CallFailure, ServerCall, Supervisor},
};

/// JSON up to this size is checked and converted where the call runs; larger on a thread for blocking work.
const INLINE_BYTES: usize = 64 << 10;
/// Schemas up to this size are compiled where the call runs.
const INLINE_SCHEMA_BYTES: usize = 8 << 10;
/// The JSON-RPC code of a server that does not like the arguments.
const INVALID_PARAMS: i64 = -32602;
/// Calls of unknown tools that are told which names are close, which is to be looked for in all of them.
const SUGGESTIONS: u64 = 100;

/// The answer to one call.
#[derive(Debug)]
pub struct Reply {
    /// The record, for a call of a tool.
    pub record: Option<CallRecord>,
    /// The members of a result frame after `"id"`.
    pub frame_body: String,
    /// To be kept as long as the answer is: as many large answers wait for a program that does not read as calls may run.
    pub slot: Option<OwnedSemaphorePermit>,
}

/// One program's account; shared by its concurrent calls.
pub struct ProgramCalls {
    callable: Arc<Callable>,
    supervisor: Supervisor,
    settings: watch::Receiver<Arc<Settings>>,
    execution: Execution,
    session: Option<SessionId>,
    start_members: String,
    budget: Budget,
    slots: Arc<Semaphore>,
    /// For what is looked up in all tools, one at a time and off the async threads: it is not counted, and not cheap.
    lookups: Arc<Semaphore>,
    suggested: AtomicU64,
    ledger: Mutex<Ledger>,
    result_bytes: AtomicU64,
}

impl fmt::Debug for ProgramCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramCalls").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

impl ProgramCalls {
    pub(super) fn new(
        callable: Arc<Callable>,
        supervisor: Supervisor,
        settings: watch::Receiver<Arc<Settings>>,
        session: Option<SessionId>,
        code: &str,
    ) -> Self {
        let execution = settings.borrow().execution.clone();
        Self {
            start_members: callable.start_members(code),
            budget: Budget::new(execution.max_tool_calls),
            slots: Arc::new(Semaphore::new(execution.max_concurrent_calls.clamp(1, Semaphore::MAX_PERMITS))),
            lookups: Arc::new(Semaphore::new(1)),
            suggested: AtomicU64::new(0),
            ledger: Mutex::default(),
            result_bytes: AtomicU64::new(0),
            callable,
            supervisor,
            settings,
            execution,
            session,
        }
    }

    /// The members `"tools":[…],"servers":[…]` of the start message.
    #[must_use]
    pub fn start_members(&self) -> &str {
        &self.start_members
    }

    /// Makes one call, or answers one of the functions about tools. `on_admitted` hears the call's number when policy
    /// and budget have let it pass. Dropping the future cancels the call, also at the server.
    pub async fn call(&self, tool: &str, args: Box<RawValue>, on_admitted: impl FnOnce(u64)) -> Reply {
        if let Some(introspection) = Introspection::named(tool) {
            let status = Arc::clone(&self.supervisor.status().borrow());
            let (slot, answer) = self.look_up(move |callable| introspection.answer(callable, &status, &args)).await;
            let frame_body = match answer.unwrap_or_else(|| Err(Failure::not_answered(introspection.name()))) {
                Ok(value) => format!("\"ok\":true,\"value\":{value}"),
                Err(failure) => failure_body(&failure),
            };
            return Reply { record: None, frame_body, slot };
        }
        let number = self.ledger().arrive(tool, &args);
        let open = OpenCall { calls: self, number, tool, ended: false };
        let funded = match self.admit(tool).await {
            Ok(funded) => funded,
            Err(failure) => return open.refuse(&failure),
        };
        on_admitted(number);
        let (slot, outcome) = self.run(&funded, args).await;
        Reply { slot, ..open.end(outcome) }
    }

    /// Resolve, policy, budget: what must have passed before anything is done for a call.
    async fn admit(&self, tool: &str) -> Result<Funded, Failure> {
        let Some(entry) = self.callable.get(tool) else { return Err(self.unknown(tool).await) };
        let permit = Permit::ask(entry, &self.settings.borrow().tools)?;
        self.budget.fund(permit)
    }

    async fn unknown(&self, tool: &str) -> Failure {
        if let Some(server) = self.callable.server_down(tool) {
            return Failure::unavailable(tool, server.name.as_str(), &reason(server));
        }
        let known = self.supervisor.catalog().borrow().tools.contains_key(tool);
        if known && !self.settings.borrow().tools.admits(tool) {
            return Failure::not_allowed(tool);
        }
        if self.suggested.fetch_add(1, Ordering::Relaxed) >= SUGGESTIONS {
            return Failure::unknown_tool(tool, &[]);
        }
        let name = tool.to_owned();
        let (_slot, close) = self.look_up(move |callable| callable.close_to(&name)).await;
        Failure::unknown_tool(tool, &close.unwrap_or_default())
    }

    /// Looks something up in all tools; nothing when that breaks.
    async fn look_up<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Callable) -> T + Send + 'static,
    ) -> (Option<OwnedSemaphorePermit>, Option<T>) {
        // The semaphore is never closed.
        let slot = Arc::clone(&self.lookups).acquire_owned().await.ok();
        let callable = Arc::clone(&self.callable);
        // The slot goes along: work that nobody waits for any longer still is work.
        match spawn_blocking(move || (slot, look(&callable))).await {
            Ok((slot, found)) => (slot, Some(found)),
            Err(_) => (None, None),
        }
    }

    /// The admitted call: argument check, slot, dispatch, result.
    async fn run(
        &self,
        funded: &Funded,
        args: Box<RawValue>,
    ) -> (Option<OwnedSemaphorePermit>, Result<Converted, Failure>) {
        if let Err(failure) = check_arguments(funded.entry(), &args).await {
            return (None, Err(failure));
        }
        // The semaphore is never closed; without a permit the call would merely not be slowed down.
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
        (slot, self.dispatch(funded, args).await)
    }

    /// Sends a funded call and takes its result. The supervisor ends it at its deadline.
    async fn dispatch(&self, funded: &Funded, args: Box<RawValue>) -> Result<Converted, Failure> {
        let entry = funded.entry();
        let limit = self.execution.max_tool_result_bytes;
        let call = ServerCall {
            tool: Arc::clone(entry.tool()),
            arguments: args.clone(),
            timeout: self.execution.tool_call_timeout,
            max_result_bytes: limit,
            session: self.session.clone(),
        };
        let name = entry.tool().name.as_str();
        let params = &entry.signature().params;
        match self.supervisor.call(call).await {
            Ok(result) => read_result(entry, result.raw, limit).await.map_err(|mut failure| {
                if failure.code == Code::ToolError {
                    failure.message.push_str(&arguments::hint(params, &args, false));
                }
                failure
            }),
            Err(CallFailure::Rpc { code, message }) => {
                let hint = arguments::hint(params, &args, code == INVALID_PARAMS);
                Err(Failure::rpc(name, &format!("{message}{hint}")))
            }
            Err(CallFailure::Unavailable { server, reason }) => {
                Err(Failure::unavailable(name, server.as_str(), &reason))
            }
            Err(CallFailure::ConnectionLost { server, reason }) => {
                Err(Failure::connection_lost(name, server.as_str(), &reason))
            }
            Err(CallFailure::Timeout { after }) => Err(Failure::timeout(name, after)),
            Err(CallFailure::TooLarge { bytes, limit }) => Err(Failure::too_large(name, bytes, limit)),
            Err(CallFailure::Malformed { detail }) => Err(Failure::new(
                Code::InvalidResult,
                format!("'{name}' failed: the server's answer is malformed: {detail}"),
            )),
        }
    }

    /// The program is over: calls that still run are recorded as unfinished. To be called before their futures are
    /// dropped.
    pub fn finish(&self) {
        self.ledger().finish();
    }

    /// Records of calls that have ended, in this order; after [`ProgramCalls::finish`] also of those that have not.
    #[must_use]
    pub fn records(&self) -> Vec<CallRecord> {
        self.ledger().records().to_vec()
    }

    /// Calls counted against the budget.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.budget.spent()
    }

    /// The tool of the call that has been running longest.
    #[must_use]
    pub fn running(&self) -> Option<String> {
        self.ledger().running().map(ToOwned::to_owned)
    }

    /// Bytes of tool results that the program was given.
    #[must_use]
    pub fn result_bytes(&self) -> u64 {
        self.result_bytes.load(Ordering::Relaxed)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that has arrived. Dropped without an end, it was cancelled.
struct OpenCall<'a> {
    calls: &'a ProgramCalls,
    number: u64,
    tool: &'a str,
    ended: bool,
}

impl OpenCall<'_> {
    fn refuse(mut self, failure: &Failure) -> Reply {
        self.ended = true;
        let record = self.calls.ledger().refuse(self.number, failure);
        Reply { record, frame_body: failure_body(failure), slot: None }
    }

    fn end(mut self, outcome: Result<Converted, Failure>) -> Reply {
        self.ended = true;
        let record = self.calls.ledger().end(self.number, outcome.as_ref().err());
        match outcome {
            Ok(converted) => {
                self.calls.result_bytes.fetch_add(converted.bytes, Ordering::Relaxed);
                Reply { record, frame_body: converted.body, slot: None }
            }
            Err(failure) => {
                tracing::debug!(tool = self.tool, code = %failure.code, "call failed");
                Reply { record, frame_body: failure_body(&failure), slot: None }
            }
        }
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.calls.ledger().end(self.number, Some(&Failure::cancelled(self.tool)));
        }
    }
}

async fn check_arguments(entry: &Arc<Entry>, args: &RawValue) -> Result<(), Failure> {
    if !args.get().trim_start().starts_with('{') {
        let message = format!("{}: arguments must be a JSON object", entry.tool().name);
        return Err(Failure::new(Code::InvalidArguments, message));
    }
    let check = |entry: &Entry, args: &RawValue| {
        arguments::check(entry.tool().name.as_str(), entry.input(), &entry.signature().params, args)
    };
    if args.get().len() <= INLINE_BYTES && !entry.is_slow(INLINE_SCHEMA_BYTES) {
        return check(entry, args);
    }
    let (entry, args) = (Arc::clone(entry), args.to_owned());
    // A check that breaks leaves the decision to the server.
    spawn_blocking(move || check(&entry, &args)).await.unwrap_or(Ok(()))
}

async fn read_result(entry: &Arc<Entry>, raw: Box<RawValue>, limit: usize) -> Result<Converted, Failure> {
    let read = move |entry: &Entry, raw: &RawValue| {
        let reading = Reading {
            tool: entry.tool().name.as_str(),
            schema: entry.output(),
            keeps_text: entry.signature().keeps_text,
            limit,
        };
        convert(raw, reading)
    };
    if raw.get().len() <= INLINE_BYTES && !entry.is_slow(INLINE_SCHEMA_BYTES) {
        return read(entry, &raw);
    }
    let name = entry.tool().name.clone();
    let entry = Arc::clone(entry);
    spawn_blocking(move || read(&entry, &raw)).await.unwrap_or_else(|_| {
        Err(Failure::new(Code::InvalidResult, format!("'{name}' failed: its result cannot be read")))
    })
}

fn failure_body(failure: &Failure) -> String {
    let message = Value::String(failure.message.clone());
    format!("\"ok\":false,\"code\":\"{}\",\"message\":{message}", failure.code)
}
