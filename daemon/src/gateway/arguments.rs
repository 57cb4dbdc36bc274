//! What a program is told when its arguments do not fit: which argument, what is expected, which ones there are.

use serde_json::{Value, value::RawValue};

use super::{
    failure::{Code, Failure, cut},
    shape::{Field, Shape},
    signature::{is_parameter_name, quoted, type_text},
    validate::{Finding, Flaw, Schema, Verdict},
};

/// Characters that the list of valid parameters may take.
const LIST_CHARS: usize = 1_500;

/// Checks the arguments of one call.
///
/// # Errors
/// [`Code::InvalidArguments`] when they do not fit the schema. Arguments that cannot be read for a check (nested too
/// deep, numbers out of range) and checks that take too long pass; the server has the last word.
pub(super) fn check(tool: &str, schema: &Schema, params: &[Field], arguments: &RawValue) -> Result<(), Failure> {
    let Ok(value) = serde_json::from_str::<Value>(arguments.get()) else { return Ok(()) };
    match schema.check(&value, arguments.get().len()) {
        Verdict::Fits | Verdict::GivenUp => Ok(()),
        Verdict::Misfits(findings) => {
            let told: Vec<String> = findings.iter().map(|finding| words(finding, params)).collect();
            let mut message = format!("{tool}: {}", told.join("; "));
            // A schema that names no parameters takes none only where it says so.
            if !params.is_empty() || findings.iter().any(|finding| matches!(finding.flaw, Flaw::Unknown(_))) {
                message.push_str(&format!("; {}", valid(params)));
            }
            Err(Failure::new(Code::InvalidArguments, message))
        }
    }
}

/// What to add to a server's refusal: the arguments that the schema does not know, and the ones it does. Empty when
/// nothing of it can be the reason.
#[must_use]
pub(super) fn hint(params: &[Field], arguments: &RawValue, refused_as_invalid: bool) -> String {
    let unknown: Vec<String> = match serde_json::from_str::<Value>(arguments.get()) {
        Ok(Value::Object(members)) if !params.is_empty() => {
            members.keys().filter(|name| !params.iter().any(|param| param.name == **name)).cloned().collect()
        }
        _ => Vec::new(),
    };
    if unknown.is_empty() {
        return if refused_as_invalid && !params.is_empty() { format!(" ({})", valid(params)) } else { String::new() };
    }
    format!(" ({}; {})", unknown_words(&unknown, params, ""), valid(params))
}

fn words(finding: &Finding, params: &[Field]) -> String {
    let place = finding.place();
    let inside = if place.is_empty() { String::new() } else { format!(" in '{place}'") };
    match &finding.flaw {
        Flaw::Unknown(names) if place.is_empty() => unknown_words(names, params, ""),
        Flaw::Unknown(names) => unknown_words(names, fields_at(params, &place), &inside),
        Flaw::Missing(name) if place.is_empty() => format!("missing argument '{}'", cut(name.clone(), 100)),
        Flaw::Missing(name) => format!("missing key '{}'{inside}", cut(name.clone(), 100)),
        Flaw::Other(flaw) if place.is_empty() => format!("the arguments: {flaw}"),
        Flaw::Other(flaw) => format!("argument '{place}' {flaw}"),
    }
}

fn unknown_words(names: &[String], known: &[Field], inside: &str) -> String {
    let what = if inside.is_empty() { "argument" } else { "key" };
    let told: Vec<String> = names
        .iter()
        .take(5)
        .map(|name| {
            let close = close_names(name, known.iter().map(|field| field.name.as_str()), 1);
            let guess = close.first().map_or_else(String::new, |close| format!(" (did you mean '{close}'?)"));
            format!("unknown {what} '{}'{inside}{guess}", cut(name.clone(), 100))
        })
        .collect();
    told.join("; ")
}

/// The known fields of the object at a place such as `filter` or `filter["x"]`; none where it is not an object.
fn fields_at<'a>(params: &'a [Field], place: &str) -> &'a [Field] {
    match params.iter().find(|param| param.name == place).map(|param| &param.shape) {
        Some(Shape::Object(fields)) => fields,
        _ => &[],
    }
}

/// `valid: ticker (str, required), limit (int)`, or `it takes no arguments`.
#[must_use]
pub(super) fn valid(params: &[Field]) -> String {
    if params.is_empty() {
        return "it takes no arguments".into();
    }
    let mut list = String::from("valid: ");
    for (at, param) in params.iter().enumerate() {
        let required = if param.required { ", required" } else { "" };
        let name = cut(param.name.clone(), 100);
        let name = if is_parameter_name(&name) { name } else { quoted(&name) };
        let entry = format!("{name} ({}{required})", type_text(&param.shape));
        if list.len() + entry.len() > LIST_CHARS {
            list.push_str(if at == 0 { "…" } else { ", …" });
            break;
        }
        list.push_str(if at == 0 { "" } else { ", " });
        list.push_str(&entry);
    }
    list
}

/// Up to `most` of the names that the given one may have been meant for, closest first.
#[must_use]
pub(super) fn close_names<'a>(wrong: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<String> {
    let wrong: String = wrong.chars().take(100).collect::<String>().to_lowercase();
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(&wrong, &name.to_lowercase());
    let mut close: Vec<(f64, &str)> =
        names.map(|name| (likeness(name), name)).filter(|(likeness, _)| *likeness >= 0.6).collect();
    close.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    close.into_iter().take(most).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::repair::Role;
    use crate::gateway::signature::Signature;

    fn verdict(schema: &Value, arguments: &Value) -> Result<(), String> {
        let raw = |value: &Value| serde_json::value::to_raw_value(value).unwrap();
        let params = Signature::new(schema, None).params;
        check("mcp__s__t", &Schema::new(&raw(schema), Role::Arguments), &params, &raw(arguments)).map_err(|failure| {
            assert_eq!(failure.code, Code::InvalidArguments);
            failure.message
        })
    }

    fn closed() -> Value {
        json!({"type": "object", "additionalProperties": false, "required": ["ticker"], "properties": {
            "ticker": {"type": "string"}, "limit": {"type": "integer"}, "body": {"type": "object"},
        }})
    }

    #[test]
    fn an_unknown_argument_is_told_with_the_valid_ones() {
        assert_eq!(
            verdict(&closed(), &json!({"tickr": "x"})).unwrap_err(),
            "mcp__s__t: unknown argument 'tickr' (did you mean 'ticker'?); missing argument 'ticker'; \
             valid: ticker (str, required), limit (int), body (dict)"
        );
    }

    #[test]
    fn a_string_is_never_taken_for_a_number_or_an_object() {
        assert_eq!(
            verdict(&closed(), &json!({"ticker": "A", "limit": "5", "body": "{\"a\":1}"})).unwrap_err(),
            "mcp__s__t: argument 'limit' must be integer, not string \"5\"; argument 'body' must be object, not string \
             \"{\\\"a\\\":1}\"; valid: ticker (str, required), limit (int), body (dict)"
        );
    }

    #[test]
    fn an_open_schema_lets_extras_pass_and_the_hint_names_them() {
        let schema = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
        assert_eq!(verdict(&schema, &json!({"q": "x", "kind": "repos"})), Ok(()));
        let params = Signature::new(&schema, None).params;
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(
            hint(&params, &raw(r#"{"q":"x","kind":"repos"}"#), false),
            " (unknown argument 'kind'; valid: q (str, required))"
        );
        assert_eq!(hint(&params, &raw(r#"{"q":"x"}"#), false), "");
        assert_eq!(hint(&params, &raw(r#"{"q":"x"}"#), true), " (valid: q (str, required))");
    }

    #[test]
    fn names_that_python_cannot_write_are_quoted_and_names_only_required_are_told() {
        let schema = json!({"type": "object", "required": ["q", "user-id"], "properties": {"user-id": {"type": "string"}, "": {}}});
        assert_eq!(
            verdict(&schema, &json!({"user-id": "x"})).unwrap_err(),
            "mcp__s__t: missing argument 'q'; valid: \"user-id\" (str, required), q (Any, required), \"\" (Any)"
        );
    }

    #[test]
    fn a_tool_without_parameters_says_so() {
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
        assert_eq!(
            verdict(&schema, &json!({"x": 1})).unwrap_err(),
            "mcp__s__t: unknown argument 'x'; it takes no arguments"
        );
    }

    #[test]
    fn a_schema_of_any_names_is_not_said_to_take_none() {
        let schema = json!({"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}});
        let said = |arguments: Value| verdict(&schema, &arguments).unwrap_err();
        assert_eq!(said(json!({})), "mcp__s__t: the arguments: must have at least 1 keys");
        assert_eq!(said(json!({"a": 1, "b": 2, "c": 3})), "mcp__s__t: the arguments: must have at most 2 keys");
        assert_eq!(said(json!({"a": "x"})), "mcp__s__t: argument 'a' must be integer, not string \"x\"");
    }

    #[test]
    fn what_cannot_be_read_for_the_check_is_left_to_the_server() {
        let deep = format!("{{\"ticker\":{}1{}}}", "[".repeat(300), "]".repeat(300));
        let raw = RawValue::from_string(deep).unwrap();
        let schema = Schema::new(&serde_json::value::to_raw_value(&closed()).unwrap(), Role::Arguments);
        assert_eq!(check("t", &schema, &[], &raw), Ok(()));
    }
}
