//! What a call of a tool is made of, and how it can fail.

use std::{sync::Arc, time::Duration};

use ptc_protocol::names::{ServerName, SessionId};
use serde_json::value::RawValue;

use super::catalog::Tool;

/// One call of one tool.
#[derive(Debug, Clone)]
pub struct ServerCall {
    /// The tool, as the catalog listed it when the program started.
    pub tool: Arc<Tool>,
    /// A JSON object; its text goes over the wire as it is.
    pub arguments: Box<RawValue>,
    /// How long the server may stay silent: each progress notification starts the clock anew, up to a hard limit.
    pub timeout: Duration,
    /// The limit that a [`CallFailure::TooLarge`] names, in bytes.
    pub max_result_bytes: usize,
    /// The session whose program calls; decides the instance of a server of scope `session`.
    pub session: Option<SessionId>,
}

/// The answer of a server.
#[derive(Debug, Clone)]
pub struct CallResult {
    /// The JSON-RPC `result` member as the server wrote it, of any shape.
    pub raw: Box<RawValue>,
}

/// Why a call brought no result. The texts hold no secrets; those of configured values are hidden in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The server cannot take calls now; nothing was sent.
    #[error("server `{server}` is not available: {reason}")]
    Unavailable {
        /// The server.
        server: ServerName,
        /// Its state and last error in words.
        reason: String,
    },
    /// The connection was lost while the call ran; whether it took effect is not known.
    #[error("the connection to server `{server}` was lost during the call: {reason}")]
    ConnectionLost {
        /// The server.
        server: ServerName,
        /// How it was lost.
        reason: String,
    },
    /// The server answered with a JSON-RPC error.
    #[error("{message}")]
    Rpc {
        /// The server's code, or -32603 when it was not an integer.
        code: i64,
        /// The server's text, or what could be found in its place.
        message: String,
    },
    /// No answer in time; the server was told to stop.
    #[error("no answer within {} s", after.as_secs_f64())]
    Timeout {
        /// The limit that was reached.
        after: Duration,
    },
    /// The answer was too large to be read.
    #[error("the answer is too large: {}the limit is {limit} bytes", bytes.map_or_else(String::new, |bytes| format!("{bytes} bytes, ")))]
    TooLarge {
        /// Its size, when the server finished it.
        bytes: Option<u64>,
        /// The limit in bytes.
        limit: u64,
    },
    /// The answer could not be read as JSON-RPC.
    #[error("the answer is malformed: {detail}")]
    Malformed {
        /// What is wrong, and where.
        detail: String,
    },
}
