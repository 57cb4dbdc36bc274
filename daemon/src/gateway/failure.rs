//! How a call fails, as the program is told: a stable word and a sentence. Knows no transport and no process.

use std::{fmt, time::Duration};

/// Stable words of `ToolError.code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The tool ran and said it failed (`isError`).
    ToolError,
    /// The server answered with a JSON-RPC error.
    RpcError,
    /// No answer before the deadline.
    Timeout,
    /// The server is not connected; nothing was sent.
    Unavailable,
    /// The connection broke while the call ran; whether it took effect is not known.
    ConnectionLost,
    /// The program used up its calls; nothing was sent.
    BudgetExhausted,
    /// The result is over the limit.
    TooLarge,
    /// The arguments do not fit the tool's schema; nothing was sent.
    InvalidArguments,
    /// The result does not fit the schema that the tool declares.
    InvalidResult,
    /// No such tool; nothing was sent.
    UnknownTool,
    /// The configuration keeps programs from this tool; nothing was sent.
    NotAllowed,
    /// The program gave the call up.
    Cancelled,
}

impl Code {
    /// The word as the program sees it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolError => "tool_error",
            Self::RpcError => "rpc_error",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::ConnectionLost => "connection_lost",
            Self::BudgetExhausted => "budget_exhausted",
            Self::TooLarge => "too_large",
            Self::InvalidArguments => "invalid_arguments",
            Self::InvalidResult => "invalid_result",
            Self::UnknownTool => "unknown_tool",
            Self::NotAllowed => "not_allowed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed call as the program is told: becomes a `ToolError`. The text never holds paths or secrets of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The stable word.
    pub code: Code,
    /// The sentence.
    pub message: String,
}

/// Characters of a server's own words that a message repeats.
const QUOTED_CHARS: usize = 20_000;

impl Failure {
    /// A function about tools broke.
    #[must_use]
    pub fn not_answered(function: &str) -> Self {
        Self::new(Code::InvalidResult, format!("{function}() has no answer; this is a fault of ptcd"))
    }

    /// Puts the two together, cutting what a server said at a bound.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: cut(message.into(), QUOTED_CHARS) }
    }

    /// The tool itself said that it failed.
    #[must_use]
    pub fn tool_error(tool: &str, detail: &str) -> Self {
        let detail = if detail.is_empty() { "no details" } else { detail };
        Self::new(Code::ToolError, format!("'{tool}' returned an error: {detail}"))
    }

    /// The server refused the request.
    #[must_use]
    pub fn rpc(tool: &str, message: &str) -> Self {
        let message = if message.trim().is_empty() { "no details" } else { message };
        Self::new(Code::RpcError, format!("'{tool}' failed: {message}"))
    }

    /// The deadline of the call passed.
    #[must_use]
    pub fn timeout(tool: &str, after: Duration) -> Self {
        Self::new(Code::Timeout, format!("'{tool}' timed out after {}s", after.as_secs_f64()))
    }

    /// The server is not there.
    #[must_use]
    pub fn unavailable(tool: &str, server: &str, reason: &str) -> Self {
        Self::new(Code::Unavailable, format!("'{tool}' unavailable: server '{server}' is not connected ({reason})"))
    }

    /// The server went away with the call running.
    #[must_use]
    pub fn connection_lost(tool: &str, server: &str, reason: &str) -> Self {
        Self::new(
            Code::ConnectionLost,
            format!("'{tool}' failed: connection to '{server}' lost ({reason}); reconnecting — retry shortly"),
        )
    }

    /// The program has made all the calls it may.
    #[must_use]
    pub fn budget_exhausted(max_tool_calls: u64) -> Self {
        Self::new(Code::BudgetExhausted, format!("tool-call budget exhausted (max_tool_calls={max_tool_calls})"))
    }

    /// The result is over the limit; the size is not always known.
    #[must_use]
    pub fn too_large(tool: &str, bytes: Option<u64>, limit: u64) -> Self {
        let size = bytes.map_or_else(|| "larger than allowed".to_owned(), |bytes| format!("{bytes} bytes"));
        Self::new(
            Code::TooLarge,
            format!(
                "'{tool}' result is {size}, over the {limit}-byte limit; request less data (narrower dates, a limit, \
                 or a filter)"
            ),
        )
    }

    /// The result does not fit the declared schema.
    #[must_use]
    pub fn invalid_result(tool: &str, detail: &str) -> Self {
        Self::new(
            Code::InvalidResult,
            format!("'{tool}' returned data that does not match its declared output schema: {detail}"),
        )
    }

    /// Nothing callable has that name.
    #[must_use]
    pub fn unknown_tool(tool: &str, close: &[String]) -> Self {
        let mut message = format!("unknown tool '{}'", cut(tool.to_owned(), 200));
        if !close.is_empty() {
            message.push_str("; did you mean ");
            message.push_str(&close.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", "));
            message.push('?');
        }
        Self::new(Code::UnknownTool, message)
    }

    /// The configuration keeps programs from the tool.
    #[must_use]
    pub fn not_allowed(tool: &str) -> Self {
        Self::new(Code::NotAllowed, format!("'{tool}' is not allowed: the configuration's tool filter excludes it"))
    }

    /// The program stopped waiting.
    #[must_use]
    pub fn cancelled(tool: &str) -> Self {
        Self::new(Code::Cancelled, format!("'{tool}' was cancelled by the program"))
    }
}

/// The text itself, or its first `chars` characters and an ellipsis.
#[must_use]
pub(super) fn cut(mut text: String, chars: usize) -> String {
    if text.len() > chars
        && let Some((at, _)) = text.char_indices().nth(chars)
    {
        text.truncate(at);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_original_server() {
        let tool = "mcp__s__t";
        let said = |failure: Failure| failure.message;
        assert_eq!(said(Failure::tool_error(tool, "")), "'mcp__s__t' returned an error: no details");
        assert_eq!(said(Failure::rpc(tool, "no")), "'mcp__s__t' failed: no");
        assert_eq!(said(Failure::timeout(tool, Duration::from_secs(60))), "'mcp__s__t' timed out after 60s");
        assert_eq!(said(Failure::timeout(tool, Duration::from_millis(500))), "'mcp__s__t' timed out after 0.5s");
        assert_eq!(
            said(Failure::unavailable(tool, "s", "gone")),
            "'mcp__s__t' unavailable: server 's' is not connected (gone)"
        );
        assert_eq!(said(Failure::budget_exhausted(3)), "tool-call budget exhausted (max_tool_calls=3)");
        assert_eq!(
            said(Failure::too_large(tool, Some(17), 16)),
            "'mcp__s__t' result is 17 bytes, over the 16-byte limit; request less data (narrower dates, a limit, or a \
             filter)"
        );
    }

    #[test]
    fn what_a_server_says_is_repeated_up_to_a_bound() {
        let long = Failure::tool_error("t", &"é".repeat(50_000));
        assert_eq!(long.message.chars().count(), QUOTED_CHARS + 1);
    }
}
