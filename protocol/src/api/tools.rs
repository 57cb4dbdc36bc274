//! Tools as the API lists and describes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::ServerState;
use crate::names::{ServerName, ToolName};

/// Longest words to search for and longest name to look up, in bytes; more are refused. Each word is weighed against each
/// tool, and they go into the address of a request.
pub const MAX_QUERY_BYTES: usize = 1000;

/// Tools that are described in one go.
pub const MAX_INSPECTED: usize = 50;

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
