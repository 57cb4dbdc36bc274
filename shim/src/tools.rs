//! What a client reads of us before it calls anything: the tools and the server's instructions. Pure.
//!
//! Claude Code cuts each description and the instructions at about 2,048 characters, so each stays below
//! [`MAX_TEXT_CHARS`], whatever the number of servers.

use std::{fmt, sync::Arc};

use ptc_protocol::api::CatalogSummary;
use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// Most characters of one description, and of the instructions.
pub(crate) const MAX_TEXT_CHARS: usize = 2000;
/// Largest text a client may show of one result; covers any sensible `max_output_bytes` and is the most Claude Code takes.
const MAX_RESULT_CHARS: u64 = 500_000;

/// The tools that clients call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolKind {
    /// `execute_program`
    ExecuteProgram,
    /// `inspect_tool`
    InspectTool,
    /// `list_callable_tools`
    ListCallableTools,
    /// `read_output`, where the configuration has it.
    ReadOutput,
}

const EXECUTE: &str = "\
Run one Python program that calls MCP tools as async functions. Only what it prints or passes to emit() comes back: \
tool results stay out of the conversation.

Use it for several calls, loops, calls at the same time, or results that are large or need filtering, joining or \
arithmetic. For one call with a small result, a direct call is simpler.

Each tool is `await mcp__<server>__<tool>(arg=value)`, or `from servers import <server>` and `await \
<server>.<tool>(arg=value)`; arguments by name. Results are plain Python values (dict, list, str, numbers). At the same \
time: `await asyncio.gather(...)`. Top-level await works. A failed call raises ToolError (.tool, .code, .message); other \
calls go on. Also there: emit(value), list_callable_tools(), inspect_tool(tool_name=...), server_status() (await all but \
emit).

Python standard library only; no network, files or environment: tools are the only way out. Each run starts afresh. \
Print little: totals, the rows that matter. Find tools with list_callable_tools and look up argument names with \
inspect_tool first.";

const INSPECT: &str = "\
Describe tools that execute_program can call: description, JSON schemas of arguments and result, and the Python call as \
a program writes it. Takes one name or an array of names.";

const LIST: &str = "\
List the tools that execute_program can call, as a JSON array of names. With `query`, the best matches only, best first; \
`server` narrows to one server; `detail: \"signatures\"` gives one line per tool, the Python call with types, which is \
often all a program needs.";

const READ_OUTPUT: &str = "\
Read output of an earlier program that its result left out. The result's truncation notice has the program's id and the \
offset. Kept for an hour. Running the program again with less to print is often better.";

const INSTRUCTIONS: &str = "\
ptc runs Python programs that call MCP tools. When a task needs several tool calls, a loop, calls at the same time, or \
would bring back much data, write one program with execute_program: intermediate results stay out of the conversation \
and only what the program prints or emits comes back. For a single call with a small result, call the tool directly \
where that is possible. Find tools with list_callable_tools (query, detail: \"signatures\"), then \
`await mcp__<server>__<tool>(arg=value)` in the program.";

impl ToolKind {
    /// Those that are offered, in the order of `tools/list`.
    pub(crate) fn offered(catalog: Option<&CatalogSummary>) -> impl Iterator<Item = Self> {
        let optional = catalog.is_some_and(|catalog| catalog.read_output).then_some(Self::ReadOutput);
        [Self::ExecuteProgram, Self::InspectTool, Self::ListCallableTools].into_iter().chain(optional)
    }

    /// The name clients call it by.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ExecuteProgram => "execute_program",
            Self::InspectTool => "inspect_tool",
            Self::ListCallableTools => "list_callable_tools",
            Self::ReadOutput => "read_output",
        }
    }

    /// The tool of that name, if it is offered.
    pub(crate) fn find(name: &str, catalog: Option<&CatalogSummary>) -> Option<Self> {
        Self::offered(catalog).find(|tool| tool.name() == name)
    }

    /// Its definition, with the map of servers where it has one.
    pub(crate) fn definition(self, catalog: Option<&CatalogSummary>) -> Tool {
        let (text, properties, required) = match self {
            Self::ExecuteProgram => (
                with_map(EXECUTE, catalog),
                json!({
                    "code": {"type": "string", "description": "Python source of the whole program"},
                    "timeout_seconds": {
                        "type": "integer", "minimum": 1,
                        "description": "Stop the program after so many seconds; lowers the configured limit only",
                    },
                }),
                Some("code"),
            ),
            Self::InspectTool => (
                INSPECT.to_owned(),
                json!({
                    "tool_name": {
                        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
                        "description": "mcp__<server>__<tool>, or an array of such names",
                    },
                }),
                Some("tool_name"),
            ),
            Self::ListCallableTools => (
                LIST.to_owned(),
                json!({
                    "query": {"type": "string", "description": "Words to rank by"},
                    "server": {"type": "string", "description": "One server's tools only"},
                    "detail": {"type": "string", "enum": ["names", "signatures"], "description": "Default: names"},
                }),
                None,
            ),
            Self::ReadOutput => (
                READ_OUTPUT.to_owned(),
                json!({
                    "program_id": {"type": "string", "description": "p-…"},
                    "offset": {"type": "integer", "minimum": 0, "description": "First byte; default 0"},
                    "limit": {"type": "integer", "minimum": 1, "description": "Bytes; default 16384, at most 262144"},
                }),
                Some("program_id"),
            ),
        };
        let mut schema = JsonObject::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties);
        if let Some(required) = required {
            schema.insert("required".into(), json!([required]));
        }
        schema.insert("additionalProperties".into(), false.into());
        let mut tool = Tool::new(self.name(), text, Arc::new(schema));
        match self {
            Self::ExecuteProgram => {
                let mut meta = JsonObject::new();
                meta.insert("anthropic/maxResultSizeChars".into(), Value::from(MAX_RESULT_CHARS));
                tool.meta = Some(MetaObject(meta));
            }
            Self::InspectTool | Self::ListCallableTools | Self::ReadOutput => {
                tool.annotations = Some(ToolAnnotations::new().read_only(true));
            }
        }
        tool
    }
}

impl fmt::Display for ToolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The server's instructions, with the map of servers when it is known.
pub(crate) fn instructions(catalog: Option<&CatalogSummary>) -> String {
    with_map(INSTRUCTIONS, catalog)
}

/// Adds a line that names the servers and the number of their tools, as many as fit.
fn with_map(text: &str, catalog: Option<&CatalogSummary>) -> String {
    let Some(catalog) = catalog else { return text.to_owned() };
    if catalog.servers.is_empty() {
        return format!("{text}\n\nNo servers are configured yet: programs have no tools to call.");
    }
    let mut out = format!("{text}\n\nServers (number of tools):");
    let mut room = MAX_TEXT_CHARS.saturating_sub(out.chars().count() + "; and 99999 more.".len());
    for (at, server) in catalog.servers.iter().enumerate() {
        let separator = if at == 0 { "" } else { "," };
        let entry = format!("{separator} {} {}", server.server.namespace(), server.tools);
        if entry.len() > room {
            return format!("{out}; and {} more.", catalog.servers.len() - at);
        }
        room -= entry.len();
        out.push_str(&entry);
    }
    out.push('.');
    out
}

#[cfg(test)]
mod tests {
    use ptc_protocol::{api::ServerToolCount, names::ServerName};

    use super::*;

    fn catalog(servers: usize) -> CatalogSummary {
        let servers = (0..servers).map(|at| ServerToolCount {
            server: ServerName::parse(format!("server-number-{at}")).unwrap(),
            tools: if at == 1 { 0 } else { 15 },
        });
        CatalogSummary { generation: 1, servers: servers.collect(), read_output: true }
    }

    #[test]
    fn no_text_is_cut_by_a_client_whatever_the_number_of_servers() {
        for servers in [0, 1, 30, 500] {
            let catalog = catalog(servers);
            for tool in ToolKind::offered(Some(&catalog)) {
                let text = tool.definition(Some(&catalog)).description.unwrap_or_default();
                assert!(text.chars().count() <= MAX_TEXT_CHARS, "{tool} with {servers}: {}", text.chars().count());
            }
            assert!(instructions(Some(&catalog)).chars().count() <= MAX_TEXT_CHARS);
        }
        assert!(instructions(Some(&catalog(500))).ends_with(" more."));
    }

    #[test]
    fn the_fixed_cost_with_thirty_servers_stays_under_1500_tokens() {
        let catalog = catalog(30);
        let definitions: Vec<_> =
            ToolKind::offered(Some(&catalog)).map(|tool| tool.definition(Some(&catalog))).collect();
        assert_eq!(definitions.len(), 4);
        let bytes = serde_json::to_string(&definitions).unwrap().len() + instructions(Some(&catalog)).len();
        // Four characters a token is the usual estimate for English and JSON.
        assert!(bytes / 4 < 1500, "{bytes} bytes");
    }

    #[test]
    fn the_map_names_servers_as_programs_do() {
        assert_eq!(
            with_map("x", Some(&catalog(3))),
            "x\n\nServers (number of tools): server_number_0 15, server_number_1 0, server_number_2 15."
        );
        assert_eq!(with_map("x", None), "x");
    }

    #[test]
    fn schemas_are_plain_objects() {
        for tool in ToolKind::offered(Some(&catalog(1))) {
            let schema = Value::Object(tool.definition(None).input_schema.as_ref().clone());
            assert_eq!(schema["type"], "object");
            for key in ["oneOf", "anyOf", "allOf"] {
                assert!(schema.get(key).is_none(), "{tool}");
            }
        }
    }

    #[test]
    fn big_results_are_declared() {
        let tool = serde_json::to_value(ToolKind::ExecuteProgram.definition(None)).unwrap();
        assert_eq!(tool["_meta"]["anthropic/maxResultSizeChars"], 500_000);
    }
}
