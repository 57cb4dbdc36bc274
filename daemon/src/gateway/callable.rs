//! The tools that programs may call at one moment, each with what is made of its schemas once and kept.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, OnceLock},
};

use ptc_protocol::{
    api::{ServerState, ServerToolCount, ToolDescription, ToolSummary, Unavailable},
    names::ToolName,
};
use serde_json::{Map, Value, json};

use super::{
    arguments::close_names,
    failure::cut,
    repair::Role,
    search::Document,
    signature::{Signature, one_line},
    validate::Schema,
};
use crate::{
    config::settings::ToolFilter,
    supervisor::{Catalog, ServerEntry, Tool},
};

/// Up to so many tools a program gets every signature at its start; beyond, only those of tools that its code names.
const DETAILED: usize = 100;
/// Words in a program that may look at signatures of tools it does not name.
const LOOKING: [&str; 7] = ["help", "signature", "inspect", "getattr", "globals", "__doc__", "__signature__"];
/// Characters of a description in `help()`, and of its first line in lists.
const DOC_CHARS: usize = 4_000;
const SUMMARY_CHARS: usize = 160;
/// What is said of a tool whose result has no declared shape.
const NO_OUTPUT_SCHEMA: &str = "No output schema defined by the upstream server. Inspect the return value in your script \
                                (e.g., print(type(result), result[:1])) to determine the structure.";

/// One tool and what is known of it.
#[derive(Debug)]
pub struct Entry {
    tool: Arc<Tool>,
    signature: OnceLock<Signature>,
    line: OnceLock<String>,
    document: OnceLock<Document>,
    spec: OnceLock<String>,
    input: OnceLock<Schema>,
    output: OnceLock<Schema>,
}

impl Entry {
    /// Nothing is made of the schemas before it is asked for.
    #[must_use]
    pub const fn new(tool: Arc<Tool>) -> Self {
        Self {
            tool,
            signature: OnceLock::new(),
            line: OnceLock::new(),
            document: OnceLock::new(),
            spec: OnceLock::new(),
            input: OnceLock::new(),
            output: OnceLock::new(),
        }
    }

    /// The tool of the catalog.
    #[must_use]
    pub const fn tool(&self) -> &Arc<Tool> {
        &self.tool
    }

    /// Parameters and result.
    pub fn signature(&self) -> &Signature {
        self.signature.get_or_init(|| {
            let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
            let output = self.tool.output_schema.as_ref().map(|schema| parsed(schema.get()));
            Signature::new(&parsed(self.tool.input_schema.get()), output.as_ref())
        })
    }

    /// `(a: int) -> str`.
    pub fn line(&self) -> &str {
        self.line.get_or_init(|| self.signature().line())
    }

    /// The compiled schema of the arguments. The first call compiles it, which takes a while for a large one.
    pub fn input(&self) -> &Schema {
        self.input.get_or_init(|| self.compiled("inputSchema", self.tool.input_schema.as_ref(), Role::Arguments))
    }

    /// The compiled schema of the result, where the tool declares one.
    pub fn output(&self) -> Option<&Schema> {
        let schema = self.tool.output_schema.as_ref()?;
        Some(self.output.get_or_init(|| self.compiled("outputSchema", schema, Role::Result)))
    }

    /// Whether compiling what is not compiled yet may take longer than a task should hold its thread.
    pub fn is_slow(&self, bytes: usize) -> bool {
        let large = |schema: &str| schema.len() > bytes;
        (self.input.get().is_none() && large(self.tool.input_schema.get()))
            || (self.output.get().is_none()
                && self.tool.output_schema.as_ref().is_some_and(|schema| large(schema.get())))
    }

    fn compiled(&self, which: &'static str, schema: &serde_json::value::RawValue, role: Role) -> Schema {
        let schema = Schema::new(schema, role);
        for note in schema.notes() {
            tracing::warn!(server = %self.tool.server, tool = %self.tool.name, schema = which, error = %note, "schema used in part");
        }
        schema
    }

    /// The tool in words, for search.
    pub fn document(&self) -> &Document {
        self.document.get_or_init(|| {
            let text = format!("{} {}", self.tool.title, self.tool.description);
            let params = self.signature().params.iter().map(|param| param.name.as_str());
            // The server's own spelling has the humps that the callable name may have lost.
            Document::new(&format!("{} {}", self.tool.server, self.tool.wire_name), &text, params)
        })
    }

    /// First line of the description.
    #[must_use]
    pub fn summary(&self) -> String {
        let text = if self.tool.description.trim().is_empty() { &self.tool.title } else { &self.tool.description };
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        cut(one_line(line), SUMMARY_CHARS - 1)
    }

    /// One entry of a list.
    #[must_use]
    pub fn listed(&self) -> ToolSummary {
        ToolSummary {
            name: self.tool.name.clone(),
            server: self.tool.server.clone(),
            signature: format!("{}{}", self.tool.name, self.line()),
            summary: self.summary(),
        }
    }

    /// All that is told of one tool.
    #[must_use]
    pub fn described(&self) -> ToolDescription {
        ToolDescription {
            name: self.tool.name.clone(),
            description: self.tool.description.clone(),
            input_schema: self.tool.input_schema.clone(),
            output_schema: self.tool.output_schema.clone(),
            note: self.tool.output_schema.is_none().then(|| NO_OUTPUT_SCHEMA.to_owned()),
            signature: format!("{}{}", self.tool.name, self.line()),
        }
    }

    /// The tool in a start message, with its signature.
    fn spec(&self) -> &str {
        self.spec.get_or_init(|| {
            let mut spec = self.names();
            let signature = self.signature();
            spec.insert("signature".into(), json!(self.line()));
            spec.insert("params".into(), signature.params_json());
            let text = if self.tool.description.trim().is_empty() { &self.tool.title } else { &self.tool.description };
            spec.insert("doc".into(), json!(signature.doc(text, DOC_CHARS)));
            Value::Object(spec).to_string()
        })
    }

    fn names(&self) -> Map<String, Value> {
        let names = [
            ("name", self.tool.name.as_str()),
            ("server", self.tool.ident.as_str()),
            ("attr", self.tool.attr.as_str()),
        ];
        names.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
    }
}

/// A snapshot of the callable tools.
#[derive(Debug, Default)]
pub struct Callable {
    generation: u64,
    entries: BTreeMap<ToolName, Arc<Entry>>,
    servers: Vec<ServerEntry>,
}

impl Callable {
    /// What the filter leaves of the catalog. Entries of tools that have not changed are taken over.
    #[must_use]
    pub fn new(catalog: &Catalog, filter: &ToolFilter, before: &Self) -> Self {
        let entry = |tool: &Arc<Tool>| match before.entries.get(&tool.name) {
            Some(known) if same(known.tool(), tool) => Arc::clone(known),
            _ => Arc::new(Entry::new(Arc::clone(tool))),
        };
        Self {
            generation: catalog.generation,
            entries: catalog
                .tools
                .iter()
                .filter(|(name, _)| filter.admits(name.as_str()))
                .map(|(name, tool)| (name.clone(), entry(tool)))
                .collect(),
            servers: catalog.servers.clone(),
        }
    }

    /// The catalog's generation it was made of.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// All tools by name.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    /// The tool of exactly this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// The tool that a person or a model means: also `server.tool`, `servers.server.tool`, and `-` for `_`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Entry>> {
        let name = name.trim();
        if let Some(entry) = self.get(name) {
            return Some(entry);
        }
        let dashed = name.replace('-', "_");
        if let Some(entry) = self.get(&dashed) {
            return Some(entry);
        }
        let (server, attr) = dashed.strip_prefix("servers.").unwrap_or(&dashed).split_once('.')?;
        self.entries().find(|entry| entry.tool.ident == server && entry.tool.attr == attr)
    }

    /// Names close to one that does not exist.
    #[must_use]
    pub fn close_to(&self, name: &str) -> Vec<String> {
        let name: String = name.chars().take(200).collect();
        let name = name.as_str();
        let tool = name.rsplit_once("__").or_else(|| name.rsplit_once('.')).map_or(name, |(_, tool)| tool);
        // The wrong part may be the server's, the tool's, or the `mcp__` that all names share.
        let mut close: Vec<String> = Vec::new();
        for entry in
            self.entries().filter(|entry| !close_names(tool, [entry.tool.attr.as_str()].into_iter(), 1).is_empty())
        {
            close.push(entry.tool.name.to_string());
        }
        close.sort_by_cached_key(|known| strsim::damerau_levenshtein(name, known));
        close.truncate(3);
        close
    }

    /// The server that is named so, in either spelling.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&ServerEntry> {
        self.servers.iter().find(|server| server.name.as_str() == name || server.ident == name)
    }

    /// All servers in config order.
    #[must_use]
    pub fn servers(&self) -> &[ServerEntry] {
        &self.servers
    }

    /// The server, not ready, whose tool this name would be.
    #[must_use]
    pub fn server_down(&self, tool: &str) -> Option<&ServerEntry> {
        let rest = tool.strip_prefix("mcp__")?;
        self.servers.iter().filter(|server| server.state != ServerState::Ready).find(|server| {
            [&server.name.namespace(), &server.ident]
                .iter()
                .any(|name| rest.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with("__")))
        })
    }

    /// Servers whose tools are missing, sorted by name. Those that are switched off are not missed.
    #[must_use]
    pub fn unavailable(&self) -> Vec<Unavailable> {
        let mut missing: Vec<Unavailable> = self
            .servers
            .iter()
            .filter(|server| !matches!(server.state, ServerState::Ready | ServerState::Disabled))
            .map(|server| Unavailable { server: server.name.clone(), state: server.state, reason: reason(server) })
            .collect();
        missing.sort_by(|a, b| a.server.cmp(&b.server));
        missing
    }

    /// Number of callable tools by server, in config order.
    #[must_use]
    pub fn counts(&self) -> Vec<ServerToolCount> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in self.entries() {
            *counts.entry(entry.tool.server.as_str()).or_default() += 1;
        }
        self.servers
            .iter()
            .map(|server| ServerToolCount {
                server: server.name.clone(),
                tools: counts.get(server.name.as_str()).copied().unwrap_or_default(),
            })
            .collect()
    }

    /// The members `"tools":[…],"servers":[…]` of the start message for this program.
    #[must_use]
    pub fn start_members(&self, code: &str) -> String {
        let words: HashSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let all = self.entries.len() <= DETAILED || LOOKING.iter().any(|word| words.contains(word));
        let mut text = String::with_capacity(self.entries.len() * 128);
        text.push_str("\"tools\":[");
        for (at, entry) in self.entries().enumerate() {
            text.push_str(if at == 0 { "" } else { "," });
            if all || words.contains(entry.tool.name.as_str()) || words.contains(entry.tool.attr.as_str()) {
                text.push_str(entry.spec());
            } else {
                text.push_str(&format!("{}", Value::Object(entry.names())));
            }
        }
        let servers: Vec<Value> = self
            .servers
            .iter()
            .map(|server| {
                let error = (server.state != ServerState::Ready).then(|| reason(server));
                json!({"name": server.name, "ident": server.ident, "state": server.state, "error": error})
            })
            .collect();
        text.push_str(&format!("],\"servers\":{}", Value::Array(servers)));
        text
    }
}

/// Why a server is not ready, in words.
#[must_use]
pub(super) fn reason(server: &ServerEntry) -> String {
    let plain = match server.state {
        ServerState::Starting => "still starting",
        ServerState::Ready => "ready",
        ServerState::Stopping => "stopping",
        ServerState::Backoff => "lost; waiting for the next try",
        ServerState::Failed => "failed",
        ServerState::Stopped => "stopped",
        ServerState::Disabled => "disabled in the configuration",
        ServerState::NeedsSignIn => "needs a sign-in",
    };
    server.error.clone().unwrap_or_else(|| plain.to_owned())
}

/// Whether nothing that is kept of the tool has changed.
fn same(known: &Arc<Tool>, tool: &Arc<Tool>) -> bool {
    let text =
        |schema: &Option<Box<serde_json::value::RawValue>>| schema.as_ref().map(|schema| schema.get().to_owned());
    Arc::ptr_eq(known, tool)
        || (known.server == tool.server
            && known.wire_name == tool.wire_name
            && known.ident == tool.ident
            && known.attr == tool.attr
            && known.title == tool.title
            && known.description == tool.description
            && known.input_schema.get() == tool.input_schema.get()
            && text(&known.output_schema) == text(&tool.output_schema)
            && text(&known.annotations) == text(&tool.annotations))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::{catalog, server, tool};

    fn names(members: &str) -> Vec<(String, bool)> {
        let start: Value = serde_json::from_str(&format!("{{{members}}}")).unwrap();
        let tools = start["tools"].as_array().unwrap();
        tools.iter().map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool.get("signature").is_some())).collect()
    }

    #[test]
    fn a_small_catalog_is_told_in_full_and_a_large_one_where_the_code_looks() {
        let few = catalog(vec![tool("a", "x", "{}", None), tool("a", "y", "{}", None)], vec![]);
        let callable = Callable::new(&few, &ToolFilter::All, &Callable::default());
        assert!(names(&callable.start_members("print(1)")).iter().all(|(_, told)| *told));

        let many = (0..150).map(|n| tool("a", &format!("t{n}"), "{}", None)).collect();
        let callable = Callable::new(&catalog(many, vec![]), &ToolFilter::All, &Callable::default());
        let told = |code: &str| {
            let told = names(&callable.start_members(code));
            assert_eq!(told.len(), 150);
            told.into_iter().filter(|(_, told)| *told).map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(told("await mcp__a__t7(x=1); from servers import a; await a.t9()"), ["mcp__a__t7", "mcp__a__t9"]);
        assert_eq!(told("help(f)").len(), 150);
        assert_eq!(told("mcp__a__t77777"), Vec::<String>::new());
    }

    #[test]
    fn the_filter_hides_tools_and_counts_follow() {
        let all = catalog(
            vec![tool("a", "x", "{}", None), tool("b-c", "y", "{}", None)],
            vec![server("b-c", ServerState::Ready), server("a", ServerState::Ready), server("d", ServerState::Backoff)],
        );
        let glob = globset::Glob::new("mcp__a__*").unwrap().compile_matcher();
        let callable = Callable::new(&all, &ToolFilter::Block(vec![glob]), &Callable::default());
        let counts: Vec<_> = callable.counts().into_iter().map(|c| (c.server.to_string(), c.tools)).collect();
        assert_eq!(counts, [("b-c".into(), 1), ("a".into(), 0), ("d".into(), 0)]);
        assert!(callable.get("mcp__a__x").is_none());
        assert_eq!(callable.unavailable().len(), 1);
        assert_eq!(callable.server_down("mcp__d__anything").map(|s| s.name.as_str()), Some("d"));
        assert!(callable.server_down("mcp__a__nope").is_none());
    }

    #[test]
    fn a_tool_is_found_under_the_names_people_write() {
        let all = catalog(vec![tool("b-c", "get_it", "{}", None)], vec![]);
        let callable = Callable::new(&all, &ToolFilter::All, &Callable::default());
        for name in ["mcp__b_c__get_it", "mcp__b-c__get-it", "b-c.get_it", "servers.b_c.get_it", " b_c.get_it "] {
            assert!(callable.find(name).is_some(), "{name}");
        }
        assert!(callable.find("get_it").is_none());
        assert_eq!(callable.close_to("mcp__b_c__getit"), ["mcp__b_c__get_it"]);
    }

    #[test]
    fn unchanged_tools_keep_what_was_made_of_them() {
        let one =
            Callable::new(&catalog(vec![tool("a", "x", "{}", None)], vec![]), &ToolFilter::All, &Callable::default());
        let again = Callable::new(&catalog(vec![tool("a", "x", "{}", None)], vec![]), &ToolFilter::All, &one);
        assert!(Arc::ptr_eq(one.get("mcp__a__x").unwrap(), again.get("mcp__a__x").unwrap()));
        let other =
            Callable::new(&catalog(vec![tool("a", "x", r#"{"type":"object"}"#, None)], vec![]), &ToolFilter::All, &one);
        assert!(!Arc::ptr_eq(one.get("mcp__a__x").unwrap(), other.get("mcp__a__x").unwrap()));
    }
}
