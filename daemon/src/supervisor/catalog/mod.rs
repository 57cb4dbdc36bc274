//! The catalog: the tools of all servers that are ready, under the names that programs use.

use std::{collections::BTreeMap, sync::Arc};

use ptc_protocol::{
    api::ServerState,
    names::{ServerName, ToolName},
};
use serde_json::value::RawValue;

/// A snapshot of what can be called; replaced as a whole at every change.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// Grows with every change.
    pub generation: u64,
    /// Tools of servers that are ready, before any policy.
    pub tools: BTreeMap<ToolName, Arc<Tool>>,
    /// All servers in config order.
    pub servers: Vec<ServerEntry>,
}

/// One server in a [`Catalog`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    /// Its name.
    pub name: ServerName,
    /// Its name in `servers.<ident>`, a Python identifier.
    pub ident: String,
    /// Its state.
    pub state: ServerState,
    /// Tools in the catalog.
    pub tools: usize,
    /// Why it is not ready, with the next try, for people.
    pub error: Option<String>,
}

/// One tool. Schemas and annotations are the server's own JSON text.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Unique over all servers.
    pub name: ToolName,
    /// Its server.
    pub server: ServerName,
    /// The server's own spelling, which goes over the wire.
    pub wire_name: String,
    /// The server in `servers.<ident>`.
    pub ident: String,
    /// The tool in `servers.<ident>.<attr>`.
    pub attr: String,
    /// The server's title, empty when it gave none.
    pub title: String,
    /// The server's description, empty when it gave none.
    pub description: String,
    /// JSON schema of the arguments, a JSON object.
    pub input_schema: Box<RawValue>,
    /// JSON schema of the result, a JSON object.
    pub output_schema: Option<Box<RawValue>>,
    /// The server's hints, a JSON object.
    pub annotations: Option<Box<RawValue>>,
}
