//! The arguments of the tools, checked against what each of them declares. Pure.
//!
//! Errors are written for the model that made the call: what is wrong, and every argument that is valid.

use ptc_protocol::api::{MAX_INSPECTED, MAX_QUERY_BYTES};
use rmcp::model::JsonObject;
use serde_json::Value;

use crate::{
    decode::{NOT_AN_OBJECT, kind},
    tools::ToolKind,
};

/// Longest message about an argument, in characters.
const MESSAGE_CHARS: usize = 300;

/// A checked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// Run a program.
    Execute {
        /// Python source.
        code: String,
        /// Lowers the daemon's deadline, in seconds.
        timeout_seconds: Option<u64>,
    },
    /// Describe tools.
    Inspect(Names),
    /// List tools.
    List {
        /// Words to rank by.
        query: Option<String>,
        /// One server only.
        server: Option<String>,
        /// How much of each.
        detail: Detail,
    },
    /// Read output that was left out.
    ReadOutput {
        /// The program's id.
        program: String,
        /// First byte.
        offset: u64,
        /// Bytes.
        limit: u64,
    },
}

/// Bytes of output when the call does not say how many, and the most.
const OUTPUT_BYTES: (u64, u64) = (16 << 10, 256 << 10);

/// The tools to describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Names {
    /// One, answered by an object.
    One(String),
    /// Several, answered by an array.
    Several(Vec<String>),
}

/// How much of each tool is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Its name.
    Names,
    /// The Python call with types.
    Signatures,
}

/// Why arguments are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{tool}: {what}. Valid arguments: {}", valid(*tool))]
pub(crate) struct BadArguments {
    tool: ToolKind,
    what: String,
}

/// Checks the arguments of a call.
///
/// # Errors
/// An argument that is missing, unknown or of the wrong type.
pub(crate) fn parse(tool: ToolKind, arguments: Option<JsonObject>) -> Result<Call, BadArguments> {
    let mut given = Given { tool, fields: unwrap_once(arguments.unwrap_or_default()) };
    if let Some(found) = given.fields.get(NOT_AN_OBJECT) {
        let found = found.as_str().unwrap_or_default();
        return Err(given.refuse(format!("the arguments must be a JSON object, not {found}")));
    }
    let call = match tool {
        ToolKind::ExecuteProgram => {
            let code = given.text("code");
            let timeout_seconds = given.whole("timeout_seconds", 1);
            given.nothing_else()?;
            Call::Execute { code: code?.ok_or_else(|| given.missing("code"))?, timeout_seconds: timeout_seconds? }
        }
        ToolKind::InspectTool => {
            let names = given.names("tool_name");
            given.nothing_else()?;
            Call::Inspect(names?.ok_or_else(|| given.missing("tool_name"))?)
        }
        ToolKind::ListCallableTools => {
            let (query, server, detail) = (given.text("query"), given.text("server"), given.detail("detail"));
            given.nothing_else()?;
            let (query, server) = (given.short("query", query?)?, given.short("server", server?)?);
            Call::List { query, server, detail: detail? }
        }
        ToolKind::ReadOutput => {
            let program = given.text("program_id");
            let (offset, limit) = (given.whole("offset", 0), given.whole("limit", 1));
            given.nothing_else()?;
            let program = given.name("program_id", program?.ok_or_else(|| given.missing("program_id"))?)?;
            let (usual, most) = OUTPUT_BYTES;
            Call::ReadOutput { program, offset: offset?.unwrap_or(0), limit: limit?.unwrap_or(usual).min(most) }
        }
    };
    Ok(call)
}

/// Arguments that were wrapped once more, as `{"arguments": {…}}`.
fn unwrap_once(mut fields: JsonObject) -> JsonObject {
    match fields.get("arguments") {
        Some(Value::Object(_)) if fields.len() == 1 => match fields.remove("arguments") {
            Some(Value::Object(inner)) => inner,
            _ => fields,
        },
        _ => fields,
    }
}

struct Given {
    tool: ToolKind,
    fields: JsonObject,
}

impl Given {
    fn refuse(&self, what: String) -> BadArguments {
        // It may repeat what the model sent.
        let what = match what.char_indices().nth(MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", &what[..end]),
            None => what,
        };
        BadArguments { tool: self.tool, what }
    }

    fn missing(&self, field: &str) -> BadArguments {
        self.refuse(format!("the argument '{field}' is missing"))
    }

    fn wrong(&self, field: &str, wanted: &str, found: &Value) -> BadArguments {
        self.refuse(format!("the argument '{field}' must be {wanted}, not {}", kind(found)))
    }

    /// Takes a field out; null is as good as none.
    fn take(&mut self, field: &str) -> Option<Value> {
        self.fields.remove(field).filter(|value| !value.is_null())
    }

    fn text(&mut self, field: &str) -> Result<Option<String>, BadArguments> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(field, "a string", &other)),
        }
    }

    /// A text that goes into the address of a request; an empty one is as good as none.
    fn short(&self, field: &str, text: Option<String>) -> Result<Option<String>, BadArguments> {
        match text.filter(|text| !text.trim().is_empty()) {
            Some(text) if text.len() > MAX_QUERY_BYTES => {
                Err(self
                    .refuse(format!("the argument '{field}' has {} bytes, more than {MAX_QUERY_BYTES}", text.len())))
            }
            other => Ok(other),
        }
    }

    fn whole(&mut self, field: &str, least: u64) -> Result<Option<u64>, BadArguments> {
        let Some(value) = self.take(field) else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.trim().to_owned(),
            other => return Err(self.wrong(field, "an integer", other)),
        };
        // Some clients write every number with a fraction.
        let whole = number.strip_suffix(".0").unwrap_or(&number);
        match whole.parse::<u64>() {
            Ok(number) if number >= least => Ok(Some(number)),
            _ => {
                Err(self.refuse(format!("the argument '{field}' must be an integer of at least {least}, not {value}")))
            }
        }
    }

    fn names(&mut self, field: &str) -> Result<Option<Names>, BadArguments> {
        let value = self.take(field);
        let several = |names: Vec<String>| {
            if names.len() > MAX_INSPECTED {
                let count = names.len();
                return Err(self.refuse(format!("the argument '{field}' has {count} names, more than {MAX_INSPECTED}")));
            }
            names.into_iter().map(|name| self.name(field, name)).collect::<Result<_, _>>().map(Names::Several).map(Some)
        };
        match value {
            None => Ok(None),
            Some(Value::String(text)) => match serde_json::from_str::<Vec<String>>(&text) {
                Ok(names) if !names.is_empty() => several(names),
                _ => self.name(field, text).map(Names::One).map(Some),
            },
            Some(Value::Array(items)) if !items.is_empty() => {
                let names = items.into_iter().map(|item| match item {
                    Value::String(name) => Ok(name),
                    other => Err(self.wrong(field, "a string or an array of strings", &other)),
                });
                several(names.collect::<Result<_, _>>()?)
            }
            Some(Value::Array(_)) => Err(self.refuse(format!("the argument '{field}' names no tool"))),
            Some(other) => Err(self.wrong(field, "a string or an array of strings", &other)),
        }
    }

    /// A name that goes into the address of a request.
    fn name(&self, field: &str, name: String) -> Result<String, BadArguments> {
        let named = self.short(field, Some(name))?;
        named.map(|name| name.trim().to_owned()).ok_or_else(|| self.refuse(format!("the argument '{field}' is empty")))
    }

    fn detail(&mut self, field: &str) -> Result<Detail, BadArguments> {
        match self.text(field)?.as_deref() {
            None | Some("names" | "") => Ok(Detail::Names),
            Some("signatures") => Ok(Detail::Signatures),
            Some(other) => {
                Err(self.refuse(format!("the argument '{field}' must be 'names' or 'signatures', not '{other}'")))
            }
        }
    }

    fn nothing_else(&self) -> Result<(), BadArguments> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(field) => Err(self.refuse(format!("unknown argument '{field}'"))),
        }
    }
}

fn valid(tool: ToolKind) -> &'static str {
    match tool {
        ToolKind::ExecuteProgram => "code (string, required), timeout_seconds (integer, optional)",
        ToolKind::InspectTool => "tool_name (string or array of strings, required)",
        ToolKind::ListCallableTools => {
            "query (string, optional), server (string, optional), detail ('names' or 'signatures', optional)"
        }
        ToolKind::ReadOutput => "program_id (string, required), offset (integer, optional), limit (integer, optional)",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(tool: ToolKind, arguments: Value) -> Result<Call, String> {
        let Value::Object(arguments) = arguments else { panic!("not an object") };
        parse(tool, Some(arguments)).map_err(|error| error.to_string())
    }

    fn run(code: &str, timeout_seconds: Option<u64>) -> Result<Call, String> {
        Ok(Call::Execute { code: code.into(), timeout_seconds })
    }

    #[test]
    fn seconds_may_come_as_text_or_with_a_fraction_of_nothing() {
        for seconds in [json!(30), json!("30"), json!(" 30 "), json!(30.0), json!("30.0")] {
            let call = check(ToolKind::ExecuteProgram, json!({"code": "x", "timeout_seconds": seconds}));
            assert_eq!(call, run("x", Some(30)), "{seconds}");
        }
        for seconds in [json!(0), json!(-1), json!("soon"), json!(1.5), json!([])] {
            let call = check(ToolKind::ExecuteProgram, json!({"code": "x", "timeout_seconds": seconds}));
            assert!(call.unwrap_err().contains("'timeout_seconds' must be an integer"), "{seconds}");
        }
        assert_eq!(check(ToolKind::ExecuteProgram, json!({"code": "x", "timeout_seconds": null})), run("x", None));
    }

    #[test]
    fn unknown_missing_and_mistyped_arguments_name_the_valid_ones() {
        let valid = "Valid arguments: code (string, required), timeout_seconds (integer, optional)";
        for (arguments, what) in [
            (json!({"script": "print(1)"}), "unknown argument 'script'"),
            (json!({"code": "x", "lang": "py"}), "unknown argument 'lang'"),
            (json!({}), "the argument 'code' is missing"),
            (json!({"code": null}), "the argument 'code' is missing"),
            (json!({"code": 5}), "the argument 'code' must be a string, not an integer"),
            (json!({"code": ["x"]}), "the argument 'code' must be a string, not an array"),
            (json!({NOT_AN_OBJECT: "an array"}), "the arguments must be a JSON object, not an array"),
        ] {
            let error = check(ToolKind::ExecuteProgram, arguments).unwrap_err();
            assert_eq!(error, format!("execute_program: {what}. {valid}"));
        }
    }

    #[test]
    fn arguments_wrapped_once_more_are_unwrapped() {
        assert_eq!(check(ToolKind::ExecuteProgram, json!({"arguments": {"code": "x"}})), run("x", None));
    }

    #[test]
    fn inspect_takes_one_name_or_several() {
        let several = Ok(Call::Inspect(Names::Several(vec!["a".into(), "b".into()])));
        assert_eq!(check(ToolKind::InspectTool, json!({"tool_name": ["a", "b"]})), several);
        assert_eq!(check(ToolKind::InspectTool, json!({"tool_name": "[\"a\", \"b\"]"})), several);
        assert_eq!(
            check(ToolKind::InspectTool, json!({"tool_name": " a "})),
            Ok(Call::Inspect(Names::One("a".into())))
        );
        assert!(check(ToolKind::InspectTool, json!({"tool_name": []})).is_err());
        assert!(check(ToolKind::InspectTool, json!({"tool_name": [1]})).unwrap_err().contains("not an integer"));
        assert!(check(ToolKind::InspectTool, json!({"tool_name": " "})).unwrap_err().contains("is empty"));
        assert!(check(ToolKind::InspectTool, json!({"tool_name": ["a", ""]})).unwrap_err().contains("is empty"));
        assert!(
            check(ToolKind::InspectTool, json!({"tool_name": "x".repeat(1001)})).unwrap_err().contains("1001 bytes")
        );
        assert!(check(ToolKind::InspectTool, json!({"tool_name": vec!["a"; 51]})).unwrap_err().contains("51 names"));
        let mut long = JsonObject::new();
        long.insert("x".repeat(10_000), json!(1));
        assert!(check(ToolKind::ListCallableTools, json!(long)).unwrap_err().len() < 1500);
        assert!(check(ToolKind::InspectTool, json!({"name": "a"})).unwrap_err().contains("tool_name (string"));
    }

    #[test]
    fn output_is_read_from_the_beginning_and_in_moderation() {
        let call = |arguments| check(ToolKind::ReadOutput, arguments);
        let read = |offset, limit| Ok(Call::ReadOutput { program: "p-1".into(), offset, limit });
        assert_eq!(call(json!({"program_id": "p-1"})), read(0, 16 << 10));
        assert_eq!(call(json!({"program_id": " p-1 ", "offset": "7", "limit": 1_000_000_000})), read(7, 256 << 10));
        assert!(call(json!({"offset": 0})).unwrap_err().contains("'program_id' is missing"));
        assert!(call(json!({"program_id": "p-1", "limit": 0})).unwrap_err().contains("at least 1"));
        assert!(call(json!({"program_id": "p-1", "offset": -1})).unwrap_err().contains("at least 0"));
    }

    #[test]
    fn list_needs_nothing() {
        let all = Call::List { query: None, server: None, detail: Detail::Names };
        assert_eq!(parse(ToolKind::ListCallableTools, None), Ok(all.clone()));
        assert_eq!(check(ToolKind::ListCallableTools, json!({"query": "", "server": null, "detail": ""})), Ok(all));
        let narrowed = Call::List { query: Some("q".into()), server: Some("s".into()), detail: Detail::Signatures };
        assert_eq!(
            check(ToolKind::ListCallableTools, json!({"query": "q", "server": "s", "detail": "signatures"})),
            Ok(narrowed)
        );
        assert!(check(ToolKind::ListCallableTools, json!({"detail": "all"})).unwrap_err().contains("'signatures'"));
        for field in ["query", "server"] {
            let refused = check(ToolKind::ListCallableTools, json!({field: "word ".repeat(201)})).unwrap_err();
            assert!(refused.contains(field) && refused.contains("1005 bytes"), "{refused}");
        }
    }
}
