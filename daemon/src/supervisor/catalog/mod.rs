//! The catalog: the tools of all servers that are ready, under the names that programs use.

pub(super) mod listing;
mod names;

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
    /// Whether it is not ready and will soon be.
    pub comes_back: bool,
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

/// What the catalog takes from one server.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) name: ServerName,
    pub(super) state: ServerState,
    pub(super) comes_back: bool,
    pub(super) error: Option<String>,
    /// The tools of a server that is ready.
    pub(super) tools: Arc<NamedTools>,
}

/// Equal when the very same list is offered, whatever it holds.
impl PartialEq for Offer {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, state, comes_back, error, tools } = self;
        (name, state, comes_back, error) == (&other.name, &other.state, &other.comes_back, &other.error)
            && Arc::ptr_eq(tools, &other.tools)
    }
}

/// A server's tools under their final names.
#[derive(Debug, Default)]
pub(super) struct NamedTools {
    pub(super) tools: Vec<Arc<Tool>>,
    /// What was renamed or hidden, one sentence each.
    pub(super) warnings: Vec<String>,
}

/// Renamed tools that are told one by one.
const RENAMED_TOLD: usize = 10;

impl NamedTools {
    /// Names the tools of `server`; `others` are the namespaces of all other servers.
    pub(super) fn of(server: &ServerName, others: &[String], listing: &listing::Listing) -> Self {
        let (given, mut warnings) = names::give(&server.namespace(), others, listing.tools.keys().map(String::as_str));
        if warnings.len() > RENAMED_TOLD {
            let more = warnings.len() - RENAMED_TOLD;
            warnings.truncate(RENAMED_TOLD);
            warnings.push(format!("{more} more tools have other names in programs"));
        }
        let ident = names::server_ident(server);
        let tools = listing
            .tools
            .iter()
            .filter_map(|(wire_name, definition)| {
                let names = given.get(wire_name.as_str())?;
                Some(Arc::new(Tool {
                    name: names.name.clone(),
                    server: server.clone(),
                    wire_name: wire_name.clone(),
                    ident: ident.clone(),
                    attr: names.attr.clone(),
                    title: definition.title.clone(),
                    description: definition.description.clone(),
                    input_schema: definition.input_schema.clone(),
                    output_schema: definition.output_schema.clone(),
                    annotations: definition.annotations.clone(),
                }))
            })
            .collect();
        Self { tools, warnings }
    }
}

impl Catalog {
    /// Puts the offers of all servers, in config order, together.
    pub(super) fn of(generation: u64, offers: &[Offer]) -> Self {
        let mut tools = BTreeMap::new();
        let mut servers = Vec::with_capacity(offers.len());
        for offer in offers {
            servers.push(ServerEntry {
                name: offer.name.clone(),
                ident: names::server_ident(&offer.name),
                state: offer.state,
                comes_back: offer.comes_back,
                tools: offer.tools.tools.len(),
                error: offer.error.clone(),
            });
            // Names of different servers differ by construction; were they ever the same, the first server keeps it.
            for tool in &offer.tools.tools {
                tools.entry(tool.name.clone()).or_insert_with(|| Arc::clone(tool));
            }
        }
        Self { generation, tools, servers }
    }
}
