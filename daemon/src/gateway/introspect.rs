//! The functions that tell a program about tools and servers. They are no tools: not counted and not recorded.

use ptc_protocol::api::{MAX_INSPECTED, MAX_QUERY_BYTES, ServerState, ServerStatus};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    callable::{Callable, Entry, reason},
    failure::{Code, Failure, cut},
    search::rank,
};

/// One of the functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Introspection {
    /// `list_callable_tools(query=None, server=None, detail="names")`
    List,
    /// `inspect_tool(tool_name)`
    Inspect,
    /// `server_status()`
    Status,
}

impl Introspection {
    /// The function of that name.
    #[must_use]
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "list_callable_tools" => Some(Self::List),
            "inspect_tool" => Some(Self::Inspect),
            "server_status" => Some(Self::Status),
            _ => None,
        }
    }

    /// As a program calls it.
    pub(super) const fn name(self) -> &'static str {
        self.parameters().0
    }

    const fn parameters(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::List => ("list_callable_tools", &["query", "server", "detail"]),
            Self::Inspect => ("inspect_tool", &["tool_name"]),
            Self::Status => ("server_status", &[]),
        }
    }

    /// The value as JSON text.
    ///
    /// # Errors
    /// `invalid_arguments`.
    pub(super) fn answer(
        self,
        callable: &Callable,
        status: &[ServerStatus],
        args: &RawValue,
    ) -> Result<String, Failure> {
        let args = self.arguments(args)?;
        match self {
            Self::List => list(callable, &args),
            Self::Inspect => inspect(callable, &args),
            Self::Status => Ok(servers(callable, status).to_string()),
        }
    }

    /// The given arguments; null means not given.
    fn arguments(self, args: &RawValue) -> Result<Map<String, Value>, Failure> {
        let (name, known) = self.parameters();
        let Ok(Value::Object(mut args)) = serde_json::from_str::<Value>(args.get()) else {
            return Err(invalid(format!("{name}() takes keyword arguments")));
        };
        args.retain(|_, value| !value.is_null());
        match args.keys().find(|key| !known.contains(&key.as_str())) {
            Some(wrong) => {
                let valid =
                    if known.is_empty() { "it takes none".into() } else { format!("valid: {}", known.join(", ")) };
                Err(invalid(format!("{name}() got an unknown argument '{}'; {valid}", cut(wrong.clone(), 100))))
            }
            None => Ok(args),
        }
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(Code::InvalidArguments, message)
}

fn text<'a>(args: &'a Map<String, Value>, function: &str, name: &str) -> Result<Option<&'a str>, Failure> {
    match args.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(format!("{function}() argument '{name}' must be a string"))),
    }
}

fn list(callable: &Callable, args: &Map<String, Value>) -> Result<String, Failure> {
    let function = "list_callable_tools";
    let signatures = match text(args, function, "detail")? {
        None | Some("names") => false,
        Some("signatures") => true,
        Some(other) => {
            let other = cut(other.to_owned(), 100);
            return Err(invalid(format!(
                "{function}() argument 'detail' must be 'names' or 'signatures', not '{other}'"
            )));
        }
    };
    let found = select(callable, text(args, function, "query")?, text(args, function, "server")?)
        .map_err(|BadSearch { message, .. }| invalid(message))?;
    let told: Vec<String> = found
        .into_iter()
        .map(|entry| if signatures { with_signature(entry) } else { entry.tool().name.to_string() })
        .collect();
    Ok(json!(told).to_string())
}

/// `mcp__s__t(a: int) -> str  # what it does`
fn with_signature(entry: &Entry) -> String {
    let summary = entry.summary();
    let comment = if summary.is_empty() { String::new() } else { format!("  # {summary}") };
    format!("{}{}{comment}", entry.tool().name, entry.line())
}

/// Why a search was refused.
#[derive(Debug)]
pub(super) struct BadSearch {
    /// The code of the problem in the control API.
    pub code: &'static str,
    /// What is wrong and what is valid.
    pub message: String,
}

/// Tools of one server or of all: by name, or best first when there is a query.
///
/// # Errors
/// There is no such server, or the query is too long.
pub(super) fn select<'a>(
    callable: &'a Callable,
    query: Option<&str>,
    server: Option<&str>,
) -> Result<Vec<&'a Entry>, BadSearch> {
    if let Some(query) = query
        && query.len() > MAX_QUERY_BYTES
    {
        let message = format!("the query has {} bytes, more than {MAX_QUERY_BYTES}; a few words do", query.len());
        return Err(BadSearch { code: "bad_request", message });
    }
    let server = match server {
        None => None,
        Some(name) => Some(callable.server(name).map(|server| &server.name).ok_or_else(|| BadSearch {
            code: "unknown_server",
            message: format!(
                "there is no server '{}'; configured: {}",
                cut(name.to_owned(), 100),
                callable.servers().iter().map(|server| server.name.as_str()).collect::<Vec<_>>().join(", ")
            ),
        })?),
    };
    let entries: Vec<&Entry> = callable
        .entries()
        .map(AsRef::as_ref)
        .filter(|entry| server.is_none_or(|name| entry.tool().server == *name))
        .collect();
    let Some(query) = query.filter(|query| !query.trim().is_empty()) else { return Ok(entries) };
    let documents: Vec<_> = entries.iter().map(|entry| entry.document()).collect();
    Ok(rank(&documents, query).into_iter().map(|at| entries[at]).collect())
}

fn inspect(callable: &Callable, args: &Map<String, Value>) -> Result<String, Failure> {
    match args.get("tool_name") {
        Some(Value::String(name)) => Ok(inspected(callable, name)),
        Some(Value::Array(names))
            if !names.is_empty() && names.len() <= MAX_INSPECTED && names.iter().all(Value::is_string) =>
        {
            let told: Vec<String> =
                names.iter().filter_map(Value::as_str).map(|name| inspected(callable, name)).collect();
            Ok(format!("[{}]", told.join(",")))
        }
        Some(_) => Err(invalid(format!(
            "inspect_tool() argument 'tool_name' must be a string, or a list of 1 to {MAX_INSPECTED} strings"
        ))),
        None => Err(invalid("inspect_tool() needs the argument 'tool_name'".into())),
    }
}

/// The description as JSON, or the sentence that there is none: asking for a tool that is not there is no failure.
fn inspected(callable: &Callable, name: &str) -> String {
    match callable.find(name) {
        Some(entry) => serde_json::to_string(&entry.described()).unwrap_or_else(|_| "null".into()),
        None => Value::String(not_found(callable, name)).to_string(),
    }
}

/// Says that there is no such tool, and what there is.
#[must_use]
pub(super) fn not_found(callable: &Callable, name: &str) -> String {
    let mut message = format!("[Tool not found] '{}' is not available in execute_program", cut(name.to_owned(), 200));
    if let Some(server) = callable.server_down(name) {
        message.push_str(&format!(": server '{}' is not connected ({})", server.name, reason(server)));
        return message;
    }
    let close = callable.close_to(name);
    if !close.is_empty() {
        message.push_str(&format!("; did you mean {}?", close.join(", ")));
    }
    message
}

/// `{server: {"connected", "tools", "error", "state", "warnings"}}` in config order.
fn servers(callable: &Callable, status: &[ServerStatus]) -> Value {
    let told = status.iter().map(|server| {
        let connected = server.state == ServerState::Ready;
        let count = callable.entries().filter(|entry| entry.tool().server == server.name).count();
        let error =
            if connected { None } else { Some(server.last_error.clone().unwrap_or_else(|| state_words(server.state))) };
        let entry = json!({
            "connected": connected,
            "tools": if connected { count } else { 0 },
            "error": error,
            "state": server.state,
            "warnings": server.warnings,
        });
        (server.name.to_string(), entry)
    });
    Value::Object(told.collect())
}

fn state_words(state: ServerState) -> String {
    match serde_json::to_value(state) {
        Ok(Value::String(word)) => word.replace('_', " "),
        _ => String::from("not connected"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::settings::ToolFilter,
        gateway::testing::{catalog, server, tool},
    };

    fn callable() -> Callable {
        let tools = vec![
            tool(
                "a-b",
                "list_rows",
                r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#,
                None,
            ),
            tool("a-b", "drop_table", "{}", Some(r#"{"type":"object"}"#)),
            tool("c", "rows_count", "{}", None),
        ];
        let servers =
            vec![server("a-b", ServerState::Ready), server("c", ServerState::Ready), server("d", ServerState::Backoff)];
        Callable::new(&catalog(tools, servers), &ToolFilter::All, &Callable::default())
    }

    fn answer(function: &str, args: Value) -> Result<Value, String> {
        let args = serde_json::value::to_raw_value(&args).unwrap();
        Introspection::named(function)
            .unwrap()
            .answer(&callable(), &[], &args)
            .map(|text| serde_json::from_str(&text).unwrap())
            .map_err(|failure| failure.message)
    }

    #[test]
    fn lists_by_name_by_server_and_by_query() {
        let list = |args| answer("list_callable_tools", args);
        assert_eq!(list(json!({})), Ok(json!(["mcp__a_b__drop_table", "mcp__a_b__list_rows", "mcp__c__rows_count"])));
        assert_eq!(
            list(json!({"server": "a_b", "query": null})),
            Ok(json!(["mcp__a_b__drop_table", "mcp__a_b__list_rows"]))
        );
        assert_eq!(list(json!({"query": "count rows"})), Ok(json!(["mcp__c__rows_count", "mcp__a_b__list_rows"])));
        assert_eq!(
            list(json!({"server": "a-b", "detail": "signatures", "query": "rows"})),
            Ok(json!(["mcp__a_b__list_rows(n: int)  # Does list_rows."]))
        );
        assert_eq!(list(json!({"server": "x"})), Err("there is no server 'x'; configured: a-b, c, d".into()));
        assert_eq!(
            list(json!({"query": "rows ".repeat(201)})),
            Err("the query has 1005 bytes, more than 1000; a few words do".into())
        );
        assert_eq!(
            list(json!({"sever": "x"})),
            Err("list_callable_tools() got an unknown argument 'sever'; valid: query, server, detail".into())
        );
    }

    #[test]
    fn inspects_one_or_several_and_says_what_is_not_there() {
        let one = answer("inspect_tool", json!({"tool_name": "mcp__a_b__drop_table"})).unwrap();
        let keys: Vec<_> = one.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["name", "description", "inputSchema", "outputSchema", "signature"]);
        let two = answer("inspect_tool", json!({"tool_name": ["c.rows_count", "mcp__a_b__list_row"]})).unwrap();
        assert_eq!(two[0]["outputSchema"], Value::Null);
        assert!(two[0]["note"].is_string());
        assert_eq!(
            two[1],
            json!(
                "[Tool not found] 'mcp__a_b__list_row' is not available in execute_program; did you mean \
                   mcp__a_b__list_rows?"
            )
        );
        assert_eq!(
            answer("inspect_tool", json!({"tool_name": "mcp__d__x"})),
            Ok(json!(
                "[Tool not found] 'mcp__d__x' is not available in execute_program: server 'd' is not connected \
                      (lost; waiting for the next try)"
            ))
        );
        assert!(answer("inspect_tool", json!({})).unwrap_err().contains("needs the argument"));
    }
}
