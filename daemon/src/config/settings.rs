//! The parsed configuration. Every value here has been checked and expanded; nothing below this module reads YAML or
//! the environment for it.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use globset::GlobMatcher;
use ptc_protocol::{
    api::{StructuredContent, Trace},
    names::ServerName,
};
use url::Url;

/// Everything the file says.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Servers in file order.
    pub servers: Vec<ServerSettings>,
    /// Which tools programs may call.
    pub tools: ToolFilter,
    /// How programs run.
    pub execution: Execution,
    /// Where the daemon keeps `.pyi` stubs up to date.
    pub stubs_dir: Option<PathBuf>,
}

/// One downstream server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Unique, also after `-` → `_`.
    pub name: ServerName,
    /// How to reach it.
    pub transport: Transport,
    /// Whether it is started at all.
    pub enabled: bool,
    /// From start to the end of the first `tools/list`.
    pub startup_timeout: Duration,
    /// Calls in flight at once, over all programs.
    pub max_concurrent_calls: usize,
    /// Whether sessions share one instance.
    pub scope: Scope,
    /// Which protocol negotiation is tried.
    pub protocol: Protocol,
}

/// How to reach a server. `Debug` shows no argument, value or address beyond the host: each may hold a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A child process that speaks on stdin and stdout.
    Stdio {
        /// A name for PATH or a path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Added to the small base environment.
        env: BTreeMap<String, Secret>,
        /// Its working directory.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// The endpoint, as written.
        url: Url,
        /// Sent with every request.
        headers: BTreeMap<String, Secret>,
    },
    /// HTTP with server-sent events, the transport of MCP 2024-11-05.
    Sse {
        /// The event stream.
        url: Url,
        /// Sent with every request.
        headers: BTreeMap<String, Secret>,
    },
}

impl Transport {
    /// `stdio`, `http` or `sse`, as in the file.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
            Self::Sse { .. } => "sse",
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", env)
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers } => {
                f.debug_struct("Http").field("host", &url.host_str()).field("headers", headers).finish()
            }
            Self::Sse { url, headers } => {
                f.debug_struct("Sse").field("host", &url.host_str()).field("headers", headers).finish()
            }
        }
    }
}

/// Whether sessions share one instance of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// One instance for all.
    #[default]
    Shared,
    /// One instance a client session, started on first use.
    Session,
}

/// Which protocol negotiation is tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// `initialize`, up to 2025-11-25.
    #[default]
    Initialize,
    /// `server/discover` of 2026-07-28 first, then `initialize`.
    Auto,
}

/// A value that must never be shown: `Debug` and `Display` hide it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Secret(String);

impl Secret {
    /// Wraps the value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that hands it over.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// `tools:` of the file; patterns are case-sensitive fnmatch globs over `mcp__server__tool`.
#[derive(Debug, Clone, Default)]
pub enum ToolFilter {
    /// Every tool.
    #[default]
    All,
    /// Only tools that one of the patterns matches.
    Allow(Vec<GlobMatcher>),
    /// All but those that one of the patterns matches.
    Block(Vec<GlobMatcher>),
}

impl ToolFilter {
    /// Whether programs may call the tool of this final name.
    #[must_use]
    pub fn admits(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Allow(globs) => globs.iter().any(|glob| glob.is_match(name)),
            Self::Block(globs) => !globs.iter().any(|glob| glob.is_match(name)),
        }
    }
}

/// `execution:` of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// Wall time of one program.
    pub timeout: Duration,
    /// Bytes of output kept, UTF-8.
    pub max_output_bytes: usize,
    /// Which sandbox.
    pub sandbox: SandboxChoice,
    /// Calls admitted per program.
    pub max_tool_calls: u64,
    /// Calls in flight per program.
    pub max_concurrent_calls: usize,
    /// Deadline of one call.
    pub tool_call_timeout: Duration,
    /// Whether results carry a trace line.
    pub trace: Trace,
    /// Bytes of one tool result.
    pub max_tool_result_bytes: usize,
    /// When results carry the structured form.
    pub structured_content: StructuredContent,
    /// The interpreter; none means to look for one.
    pub python: Option<PathBuf>,
    /// Children kept warm.
    pub warm_children: usize,
    /// Programs that run at once.
    pub max_programs: usize,
    /// Memory of one program, bytes.
    pub max_memory_bytes: u64,
    /// Whether the shim offers `read_output`.
    pub read_output: bool,
}

impl Default for Execution {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(120),
            max_output_bytes: 65_536,
            sandbox: SandboxChoice::Auto,
            max_tool_calls: 100,
            max_concurrent_calls: 8,
            tool_call_timeout: Duration::from_secs(60),
            trace: Trace::Summary,
            max_tool_result_bytes: 16 << 20,
            structured_content: StructuredContent::Auto,
            python: None,
            warm_children: 2,
            max_programs: 32,
            max_memory_bytes: 1 << 30,
            read_output: false,
        }
    }
}

/// `execution.sandbox` of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxChoice {
    /// The platform's own: `linux` or `seatbelt`, never `none`.
    Auto,
    /// Namespaces, Landlock and seccomp.
    Linux,
    /// The reduced level without namespaces.
    Landlock,
    /// macOS Seatbelt.
    Seatbelt,
    /// No OS sandbox, an explicit opt-in.
    None,
}
