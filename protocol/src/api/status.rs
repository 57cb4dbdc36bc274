//! What the daemon tells of itself, its servers, sessions and programs; reloads and logs.

use serde::{Deserialize, Serialize};

use crate::names::{ProgramId, ServerName, SessionId};

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
