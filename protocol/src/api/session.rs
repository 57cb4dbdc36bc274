//! Client sessions and what they hear.

use serde::{Deserialize, Serialize};

use super::Version;
use crate::names::{ServerName, SessionId};

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
        /// To be sent with every [`RunRequest`](super::RunRequest).
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
