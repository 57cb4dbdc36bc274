//! The control API, version 1: JSON over HTTP/1.1 on the daemon's Unix socket.
//!
//! | method and path | body | answer |
//! |---|---|---|
//! | `GET /v1/version` | | [`Version`] |
//! | `GET /v1/status` | | [`Status`] |
//! | `GET /v1/tools?query=&server=&glob=` | | [`Tools`] |
//! | `GET /v1/tools/{name}` | | [`ToolDescription`], 404 with [`Problem`] |
//! | `GET /v1/stubs?language=` | | [`Stubs`]; `python` (the default) or `typescript` |
//! | `POST /v1/sessions` | [`SessionRequest`] | NDJSON of [`SessionEvent`]; the session lives as long as the stream |
//! | `POST /v1/programs` | [`RunRequest`] | NDJSON of [`ProgramEvent`]; dropping the stream kills the program |
//! | `GET /v1/programs` | | array of [`ProgramStatus`] |
//! | `DELETE /v1/programs/{id}` | | `{}`, 404 with [`Problem`] |
//! | `GET /v1/programs/{id}/output?offset=&limit=` | | [`ProgramOutput`], 404 with [`Problem`] |
//! | `POST /v1/reload` | | [`ReloadReport`] |
//! | `POST /v1/servers/{name}/restart` | | `{}`, 404 with [`Problem`] |
//! | `GET /v1/logs?server=&lines=&follow=` | | NDJSON of [`LogLine`] |
//!
//! Every failure is a [`Problem`] with a matching HTTP status. Readers ignore fields they do not know; a field that is
//! added later has a default, so that binaries of neighbouring versions understand each other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::names::{ProgramId, ServerName, SessionId, ToolName};

/// The API version this build speaks; the first path segment of every route.
pub const API_VERSION: u32 = 1;

/// Answer of `GET /v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The daemon's package version.
    pub version: String,
    /// Lowest API version it serves.
    pub api_min: u32,
    /// Highest API version it serves.
    pub api_max: u32,
    /// Its process id.
    pub pid: u32,
}

/// Body of every answer that is not 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Stable word for programs: `unknown_tool`, `unknown_program`, `unknown_server`, `unknown_session`, `bad_request`, `too_large`,
    /// `busy`, `bad_config`, `forbidden`, `stopping`.
    pub code: String,
    /// Text for people: what failed, on what, what to do.
    pub message: String,
    /// Names close to the one that was not found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub close_matches: Vec<String>,
}

/// Answer of `GET /v1/tools`: callable tools sorted by name, or ranked when a query was given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tools {
    /// The tools that a program started now could call.
    pub tools: Vec<ToolSummary>,
    /// Servers whose tools are missing from the list, with the reason.
    #[serde(default)]
    pub unavailable: Vec<Unavailable>,
    /// Why the configuration in force is not the one in the file.
    #[serde(default)]
    pub config_error: Option<String>,
}

/// One callable tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSummary {
    /// As programs call it.
    pub name: ToolName,
    /// Its server.
    pub server: ServerName,
    /// The Python call with types, on one line: `mcp__s__t(a: int, b: str = "x") -> dict`.
    pub signature: String,
    /// First line of the description, at most 160 characters.
    #[serde(default)]
    pub summary: String,
}

/// A server that offers no tools at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unavailable {
    /// Its name.
    pub server: ServerName,
    /// Its state.
    pub state: ServerState,
    /// What a person would want to know: last error, next try.
    pub reason: String,
}

/// Answer of `GET /v1/tools/{name}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolDescription {
    /// As programs call it.
    pub name: ToolName,
    /// The server's own description, empty when it gave none.
    pub description: String,
    /// The server's JSON schema of the arguments, verbatim.
    #[serde(rename = "inputSchema")]
    pub input_schema: Box<RawValue>,
    /// The server's JSON schema of the result, verbatim, or null.
    #[serde(rename = "outputSchema")]
    pub output_schema: Option<Box<RawValue>>,
    /// Advice where the schema alone is not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The Python call with types.
    pub signature: String,
}

/// Answer of `GET /v1/stubs`: declarations of the callable tools, for people and clients that browse files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stubs {
    /// `python` or `typescript`.
    pub language: String,
    /// Text by path, `servers/<server>/<tool>.pyi` and the like, with `/`.
    pub files: BTreeMap<String, String>,
    /// Folders of servers whose tools are not known at the moment; what is there from earlier may stay.
    #[serde(default)]
    pub absent: Vec<String>,
}

/// Body of `POST /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRequest {
    /// `clientInfo.name` and version of the MCP client, or the name of the tool that asks.
    pub client: String,
    /// Process id of the shim.
    pub pid: u32,
    /// Package version of the shim.
    pub version: String,
}

/// What a session hears, externally tagged: `{"catalog": {...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEvent {
    /// First event: the session's id.
    Welcome {
        /// To be sent with every [`RunRequest`].
        session: SessionId,
        /// What the daemon is.
        daemon: Version,
    },
    /// The catalog, sent once at the start and at each change of the set of callable tools.
    Catalog(CatalogSummary),
}

/// The catalog in a few words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogSummary {
    /// Grows with every change.
    pub generation: u64,
    /// Servers in config order with the number of their callable tools.
    pub servers: Vec<ServerToolCount>,
    /// Whether clients are offered the tool `read_output` (`execution.read_output`).
    #[serde(default)]
    pub read_output: bool,
}

/// One server in a [`CatalogSummary`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerToolCount {
    /// The server.
    pub server: ServerName,
    /// Its callable tools; 0 while it is down.
    pub tools: usize,
}

/// Body of `POST /v1/programs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// Python source.
    pub code: String,
    /// The session that asks; none for `ptcctl`.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// Lowers the configured deadline, in seconds; never raises it.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// Whether `output` events are wanted; without them the outcome alone carries what was printed.
    #[serde(default)]
    pub stream_output: bool,
    /// The client's own id of this request, for the records.
    #[serde(default)]
    pub client_request: Option<String>,
}

/// What a running program does, externally tagged: `{"output": {...}}`. The last event is always `outcome`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramEvent {
    /// Accepted; waits for a free place.
    Queued {
        /// The run's id.
        program: ProgramId,
        /// Programs before it.
        ahead: usize,
    },
    /// Handed to its child.
    Started {
        /// The run's id.
        program: ProgramId,
    },
    /// A piece of output as it came, cut at a character border.
    Output {
        /// Which of the two.
        stream: Stream,
        /// The text.
        text: String,
    },
    /// A call was admitted.
    CallStarted {
        /// Number of the call in its program, from 1.
        call: u64,
        /// The tool.
        tool: String,
    },
    /// A call ended.
    CallFinished(CallRecord),
    /// At most once a second while the program runs.
    Progress {
        /// Milliseconds since `started`.
        elapsed_ms: u64,
        /// Calls admitted so far.
        calls: u64,
        /// One tool that runs now.
        running: Option<String>,
    },
    /// The end.
    Outcome(Box<Outcome>),
}

/// A program's output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// The daemon's own record of a finished program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The run's id.
    pub program: ProgramId,
    /// Whether it ended as its author meant: end of code or `exit(0)`.
    pub ok: bool,
    /// What it printed, at most `max_output_bytes` of UTF-8 plus a notice when more was dropped.
    pub output: String,
    /// Bytes of output that were dropped.
    #[serde(default)]
    pub output_dropped_bytes: u64,
    /// The emitted value as JSON text, digits as the program wrote them. An emitted `null` is a value too.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub result: Option<Box<RawValue>>,
    /// Why it is not ok.
    #[serde(default)]
    pub error: Option<ProgramError>,
    /// Things the author should know of a program that ended well, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Calls in the order they ended; unfinished ones last.
    #[serde(default)]
    pub tool_calls: Vec<CallRecord>,
    /// Wall time from hand-over to the end, milliseconds.
    pub elapsed_ms: u64,
    /// Bytes of tool results that the program received.
    #[serde(default)]
    pub tool_result_bytes: u64,
    /// Whether the trace line is wanted (`execution.trace`).
    #[serde(default)]
    pub trace: Trace,
    /// When a client gets the structured form (`execution.structured_content`).
    #[serde(default)]
    pub structured_content: StructuredContent,
    /// How the program was confined.
    #[serde(default)]
    pub sandbox: String,
}

/// Bytes of a [`ProgramOutput`] when nobody says how many.
pub const OUTPUT_PIECE: usize = 64 << 10;

/// Most bytes of a [`ProgramOutput`].
pub const MAX_OUTPUT_PIECE: usize = 1 << 20;

/// Answer of `GET /v1/programs/{id}/output`: a piece of what an ended program printed, as its outcome's `output` has it.
/// The first 4 MiB of each of the last 50 programs are kept for an hour, 64 MiB in all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramOutput {
    /// The run's id.
    pub program: ProgramId,
    /// Where the text begins, in bytes of UTF-8; moved back to the border of a character.
    pub offset: u64,
    /// The text; empty behind the end.
    pub text: String,
    /// Where to go on reading; none at the end of what is kept.
    #[serde(default)]
    pub next: Option<u64>,
    /// Bytes that are kept, from the beginning.
    pub kept: u64,
    /// Bytes that were printed.
    pub total: u64,
}

/// Why a program failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramError {
    /// What kind of end it was.
    pub kind: ErrorKind,
    /// Text for the model: a traceback, or one sentence that says what to do.
    pub message: String,
}

/// Kinds of failed programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The program raised, or did not compile, or exited with a code other than 0.
    Program,
    /// It ran past its deadline and was killed.
    Timeout,
    /// It was cancelled by its client, by a person, or because its client went away.
    Cancelled,
    /// Its process ended without a final report.
    Died,
    /// It broke the protocol of its channel and was killed.
    Protocol,
    /// It went over a limit (memory, output) and was killed.
    Limit,
    /// The sandbox could not be had; nothing ran.
    Sandbox,
    /// The daemon was too busy or is stopping; nothing ran.
    Refused,
    /// The daemon itself failed.
    Internal,
}

/// One call of a tool by a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Number of the call in its program, from 1.
    pub call: u64,
    /// The tool as the program named it.
    pub tool: String,
    /// The arguments as JSON with sorted keys, cut to 197 characters and `...` when over 200.
    pub args: String,
    /// How it ended.
    pub state: CallState,
    /// Milliseconds from the arrival of the request to the answer, waiting for a slot included.
    pub ms: u64,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// With a value.
    Ok,
    /// With a `ToolError`.
    Failed,
    /// Still running when the program ended; whether it took effect is not known.
    Unfinished,
}

/// `execution.trace`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trace {
    /// One line with the number of calls and the time, and the first failures.
    #[default]
    Summary,
    /// Nothing.
    Off,
}

/// `execution.structured_content`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StructuredContent {
    /// Left out for clients that show it in place of the text.
    #[default]
    Auto,
    /// Always sent.
    Always,
    /// Never sent.
    Never,
}

/// Answer of `GET /v1/status`, and of `ptcctl status --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's own process.
    pub daemon: DaemonStatus,
    /// The config file and its last load.
    pub config: ConfigStatus,
    /// How programs are confined.
    pub sandbox: SandboxStatus,
    /// Children and queue.
    pub pool: PoolStatus,
    /// Servers in config order.
    pub servers: Vec<ServerStatus>,
    /// Open client sessions.
    pub sessions: Vec<SessionStatus>,
    /// Programs that wait or run.
    pub programs: Vec<ProgramStatus>,
}

/// The daemon's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Package version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Resident memory in bytes; 0 where the system does not tell.
    pub rss_bytes: u64,
    /// The socket it serves.
    #[serde(default)]
    pub socket: String,
}

/// The configuration in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// The file, or none when there is no file.
    pub path: Option<String>,
    /// When the configuration in force was loaded, RFC 3339.
    pub loaded_at: Option<String>,
    /// Why the file's present text is not in force.
    pub error: Option<String>,
    /// Oddities in a file that is in force.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// How programs are confined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// `linux`, `landlock`, `seatbelt` or `none`, or [`SandboxStatus::PREPARING`] while the level is being tried.
    pub level: String,
    /// Its layers.
    pub layers: Vec<SandboxLayer>,
    /// Why programs are refused, with the remedy.
    #[serde(default)]
    pub error: Option<String>,
    /// The interpreter in use.
    #[serde(default)]
    pub python: Option<String>,
}

impl SandboxStatus {
    /// The level right after the daemon's start and after a change of its settings; programs wait.
    pub const PREPARING: &'static str = "preparing";
}

/// One layer of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLayer {
    /// Its name.
    pub name: String,
    /// Whether it holds.
    pub state: LayerState,
    /// A version, an errno, a remedy.
    #[serde(default)]
    pub detail: String,
}

/// State of a sandbox layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerState {
    /// In force.
    Ok,
    /// Missing, and programs are refused for it.
    MissingMandatory,
    /// Missing; other layers carry the promise.
    MissingDepth,
}

/// Children and queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Children that wait for a program.
    pub warm: usize,
    /// Children on their way to warm.
    pub starting: usize,
    /// Programs that run.
    pub running: usize,
    /// Programs that wait.
    pub queued: usize,
}

/// States of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Process or connection on its way.
    Starting,
    /// Tools can be called.
    Ready,
    /// Being stopped.
    Stopping,
    /// Lost; the next try has a time.
    Backoff,
    /// Cannot work as configured; tried again slowly.
    Failed,
    /// Stopped on purpose.
    Stopped,
    /// `enabled: false`.
    Disabled,
    /// The server wants a sign-in.
    NeedsSignIn,
}

/// One downstream server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its name.
    pub name: ServerName,
    /// `stdio`, `http` or `sse`.
    pub transport: String,
    /// Its state.
    pub state: ServerState,
    /// The process (stdio), while there is one.
    pub pid: Option<u32>,
    /// When the state was entered, RFC 3339.
    pub since: String,
    /// Tools in the catalog.
    pub tools: usize,
    /// Calls dispatched since the daemon started.
    pub calls: u64,
    /// Those that failed.
    pub failed_calls: u64,
    /// When a call or a health check last succeeded, RFC 3339.
    pub last_ok: Option<String>,
    /// The last failure of the server itself.
    pub last_error: Option<String>,
    /// The last lines it wrote to stderr.
    #[serde(default)]
    pub last_stderr: Vec<String>,
    /// When the next try is due, RFC 3339.
    pub next_retry: Option<String>,
    /// Times it was started since the daemon started.
    #[serde(default)]
    pub starts: u64,
    /// Hidden tools, renamed tools, noise on stdout: one sentence each, bounded.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// `shared` or `session`.
    #[serde(default)]
    pub scope: String,
    /// The session whose own instance this is; none for the instance that all share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Negotiated MCP version.
    #[serde(default)]
    pub protocol: Option<String>,
}

/// One client session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Its id.
    pub id: SessionId,
    /// The client's name and version.
    pub client: String,
    /// Process id of its shim.
    pub pid: u32,
    /// When it began, RFC 3339.
    pub since: String,
}

/// One program that waits or runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// The run's id.
    pub id: ProgramId,
    /// The session that started it.
    pub session: Option<SessionId>,
    /// When it was accepted, RFC 3339.
    pub started: String,
    /// Calls admitted so far.
    pub calls: u64,
    /// One tool that runs now.
    pub current: Option<String>,
    /// Whether it still waits for a place.
    #[serde(default)]
    pub queued: bool,
    /// Process id of its child.
    #[serde(default)]
    pub pid: Option<u32>,
}

/// Answer of `POST /v1/reload`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// Servers that are new.
    pub started: Vec<ServerName>,
    /// Servers whose definition changed.
    pub restarted: Vec<ServerName>,
    /// Servers that are gone or disabled.
    pub stopped: Vec<ServerName>,
    /// Servers that were not touched.
    pub unchanged: Vec<ServerName>,
    /// Settings that changed and bind from the next program or call on, by key.
    #[serde(default)]
    pub settings: Vec<String>,
    /// Why nothing was changed; empty on success. One line each with file, line and column.
    #[serde(default)]
    pub errors: Vec<String>,
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The server it came from; none for the daemon's own.
    pub server: Option<ServerName>,
    /// The line without its end.
    pub line: String,
}

/// A field that is there has a value, `null` included.
fn present<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(input).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emitted_null_and_long_digits_survive_the_wire() {
        let event =
            |result: &str| format!(r#"{{"outcome":{{"program":"p-1","ok":true,"output":"",{result}"elapsed_ms":1}}}}"#);
        for (sent, read) in [("", None), (r#""result":null,"#, Some("null")), (r#""result":1e400,"#, Some("1e400"))] {
            let ProgramEvent::Outcome(outcome) = serde_json::from_str(&event(sent)).unwrap() else {
                panic!("no outcome")
            };
            assert_eq!(outcome.result.as_ref().map(|raw| raw.get()), read);
            assert_eq!(serde_json::to_string(&outcome).unwrap().contains(r#""result":"#), read.is_some());
        }
    }
}
