//! Arguments that a tool wants repeated outside of the message (`x-mcp-header` in its schema, since 2026-07-28), so
//! that whoever stands between us and the server can route by them without reading it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, value::RawValue};

/// The annotation.
const ANNOTATION: &str = "x-mcp-header";

/// Whole numbers up to this one are the same everywhere.
const SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Keywords whose value is one schema or a list of them.
const SCHEMAS: [&str; 16] = [
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "contentSchema",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];

/// Keywords whose value holds schemas by name, beside `properties`.
const NAMED: [&str; 5] = ["$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies"];

/// An argument that is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    /// Names of properties, from the root on.
    path: Vec<String>,
    /// What it is called outside of the message.
    name: String,
}

/// The arguments that a tool with this schema wants repeated, each with its name and its value as plain text. None of
/// a schema that breaks the rules.
pub(super) fn mirrored(schema: &RawValue, arguments: &RawValue) -> Vec<(String, String)> {
    let mirrors = read(schema).unwrap_or_default();
    mirrors.into_iter().filter_map(|mirror| Some((mirror.name, text_at(arguments, &mirror.path)?))).collect()
}

/// Whether a schema keeps the rules.
///
/// # Errors
/// The first that it breaks, in words that follow the name of the tool.
pub(super) fn check(schema: &RawValue) -> Result<(), String> {
    read(schema).map(drop)
}

fn read(schema: &RawValue) -> Result<Vec<Mirror>, String> {
    // Nearly all schemas have none.
    if !schema.get().contains(ANNOTATION) {
        return Ok(Vec::new());
    }
    let schema: Value = serde_json::from_str(schema.get()).map_err(|_| "its schema cannot be read".to_owned())?;
    let mut mirrors = Vec::new();
    if let Value::Object(root) = &schema {
        if root.contains_key(ANNOTATION) {
            return Err(format!("`{ANNOTATION}` stands on no parameter"));
        }
        walk(root, &mut Some(Vec::new()), &mut mirrors)?;
    }
    let mut names = BTreeSet::new();
    match mirrors.iter().find(|mirror| !names.insert(mirror.name.to_ascii_lowercase())) {
        Some(again) => Err(format!("`{ANNOTATION}` names `{}` twice", again.name)),
        None => Ok(mirrors),
    }
}

/// Looks through a schema. The path is none where no argument can be found by names of properties alone.
fn walk(schema: &Map<String, Value>, path: &mut Option<Vec<String>>, mirrors: &mut Vec<Mirror>) -> Result<(), String> {
    if let Some(name) = schema.get(ANNOTATION) {
        let Some(path) = path else {
            return Err(format!("`{ANNOTATION}` stands where no argument can be found by its name"));
        };
        mirrors.push(Mirror { path: path.clone(), name: name_of(name, schema.get("type"), path)? });
    }
    for (keyword, value) in schema {
        let keyword = keyword.as_str();
        if keyword == "properties" {
            for (property, schema) in value.as_object().into_iter().flatten() {
                let Value::Object(schema) = schema else { continue };
                path.iter_mut().for_each(|path| path.push(property.clone()));
                walk(schema, path, mirrors)?;
                path.iter_mut().for_each(|path| drop(path.pop()));
            }
        } else if NAMED.contains(&keyword) {
            let schemas = value.as_object().into_iter().flat_map(Map::values);
            schemas.filter_map(Value::as_object).try_for_each(|schema| walk(schema, &mut None, mirrors))?;
        } else if SCHEMAS.contains(&keyword) {
            let schemas = value.as_array().into_iter().flatten().chain(Some(value));
            schemas.filter_map(Value::as_object).try_for_each(|schema| walk(schema, &mut None, mirrors))?;
        }
    }
    Ok(())
}

fn name_of(name: &Value, kind: Option<&Value>, path: &[String]) -> Result<String, String> {
    let parameter = path.join(".");
    let Some(name) = name.as_str().filter(|name| is_token(name)) else {
        return Err(format!("`{ANNOTATION}` of parameter `{parameter}` is no name of a header"));
    };
    let plain = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    let allowed = match kind {
        Some(Value::Array(kinds)) => {
            kinds.iter().any(plain) && kinds.iter().all(|kind| plain(kind) || kind.as_str() == Some("null"))
        }
        Some(kind) => plain(kind),
        None => false,
    };
    if !allowed {
        return Err(format!(
            "`{ANNOTATION}` stands on parameter `{parameter}`, which is no string, integer or boolean"
        ));
    }
    Ok(name.to_owned())
}

fn is_token(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}

/// The value at a path; none where there is none, or null, or something that is no plain value.
fn text_at(arguments: &RawValue, path: &[String]) -> Option<String> {
    let mut value = arguments;
    for name in path {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(value.get()).ok()?;
        value = members.get(name)?;
    }
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok(),
        b't' | b'f' => Some(text.to_owned()),
        b'-' | b'0'..=b'9' => Some(whole(text).unwrap_or_else(|| text.to_owned())),
        _ => None,
    }
}

/// A whole number that was written with a fraction or an exponent.
fn whole(text: &str) -> Option<String> {
    let number: f64 = text.contains(['.', 'e', 'E']).then(|| text.parse().ok())??;
    (number.fract() == 0.0 && number.abs() <= SAFE_INTEGER).then(|| format!("{number:.0}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn of(properties: &Value, arguments: &str) -> Vec<(String, String)> {
        let schema = raw(&json!({ "type": "object", "properties": properties }));
        mirrored(&schema, &RawValue::from_string(arguments.to_owned()).unwrap())
    }

    fn broken(schema: &Value) -> String {
        let schema = raw(schema);
        assert_eq!(mirrored(&schema, &raw(&json!({ "p": "x" }))), []);
        check(&schema).unwrap_err()
    }

    #[test]
    fn values_are_found_by_the_names_of_properties_and_keep_their_digits() {
        let properties = json!({
            "region": { "type": "string", "x-mcp-header": "Region" },
            "count": { "type": "integer", "x-mcp-header": "Count" },
            "deep": { "type": "object", "properties": { "on": { "type": ["boolean", "null"], "x-mcp-header": "On" } } },
            "query": { "type": "string" },
        });
        let found = |arguments: &str| {
            let mut found = of(&properties, arguments);
            found.sort();
            found.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            found(r#"{"region":"us","count":42,"deep":{"on":false},"query":"q"}"#),
            "Count=42 On=false Region=us"
        );
        assert_eq!(
            found(r#"{"region":"\u00e9 ","count":12345678901234567890}"#),
            "Count=12345678901234567890 Region=é "
        );
        assert_eq!(found(r#"{"region":null,"count":-7.0,"deep":7}"#), "Count=-7");
        assert_eq!(found(r#"{"region":["a"],"count":1e3,"deep":{}}"#), "Count=1000");
        assert_eq!(found("{}"), "");
    }

    #[test]
    fn an_annotation_that_breaks_a_rule_spoils_its_tool() {
        let on = |parameter: Value| json!({ "properties": { "p": parameter } });
        for name in [json!(""), json!("My Region"), json!("a:b"), json!("é"), json!("a\r\nb"), json!(7), json!(null)] {
            let error = broken(&on(json!({ "type": "string", "x-mcp-header": name })));
            assert_eq!(error, "`x-mcp-header` of parameter `p` is no name of a header");
        }
        for kind in [json!("number"), json!("object"), json!("array"), json!("null"), json!(["string", "number"])] {
            let error = broken(&on(json!({ "type": kind, "x-mcp-header": "P" })));
            assert!(error.ends_with("parameter `p`, which is no string, integer or boolean"), "{error}");
        }
        assert!(broken(&on(json!({ "x-mcp-header": "P" }))).contains("no string"));
        let twice = json!({ "properties": {
            "a": { "type": "string", "x-mcp-header": "Region" },
            "b": { "type": "object", "properties": { "c": { "type": "string", "x-mcp-header": "region" } } },
        } });
        assert!(broken(&twice).ends_with("twice"));
        assert!(broken(&json!({ "x-mcp-header": "P" })).contains("no parameter"));
    }

    #[test]
    fn an_annotation_counts_only_where_names_of_properties_lead_to_it() {
        let annotated = json!({ "type": "string", "x-mcp-header": "P" });
        let one = json!({ "p": annotated });
        for schema in [
            json!({ "properties": { "p": { "type": "array", "items": annotated } } }),
            json!({ "properties": { "p": { "anyOf": [annotated, { "type": "null" }] } } }),
            json!({ "allOf": [{ "properties": one }] }),
            json!({ "if": { "properties": one } }),
            json!({ "$defs": one, "properties": { "p": { "$ref": "#/$defs/p" } } }),
            json!({ "dependentSchemas": { "q": { "properties": one } } }),
            json!({ "additionalProperties": annotated }),
        ] {
            assert!(broken(&schema).ends_with("found by its name"), "{schema}");
        }
        // Data and names are no annotations.
        for schema in [
            json!({ "properties": { "p": { "default": { "x-mcp-header": "" }, "examples": [{ "x-mcp-header": "" }] } } }),
            json!({ "properties": { "x-mcp-header": { "type": "number" } }, "required": ["x-mcp-header"] }),
        ] {
            assert_eq!(check(&raw(&schema)), Ok(()), "{schema}");
        }
    }
}
