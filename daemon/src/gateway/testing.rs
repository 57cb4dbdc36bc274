//! Arbitrary JSON and small catalogs for the tests of this part.

use std::sync::Arc;

use proptest::prelude::*;
use ptc_protocol::{
    api::ServerState,
    names::{ServerName, ToolName},
};
use serde_json::{Map, Value, json, value::RawValue};

use crate::supervisor::{Catalog, ServerEntry, Tool};

/// Any JSON value of moderate size.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[a-z]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[a-zA-Z_$@\\-]{0,6}", inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// JSON that often is a schema, and often a broken one.
pub(crate) fn schema() -> impl Strategy<Value = Value> {
    let reference = prop_oneof![
        Just("#"),
        Just("#/$defs/a"),
        Just("#/$defs/b"),
        Just("#/properties/x"),
        Just("#nowhere"),
        Just("https://example.invalid/s.json"),
    ];
    let leaf = prop_oneof![
        json(),
        prop::sample::select(vec!["string", "integer", "number", "boolean", "null", "array", "object", "any"])
            .prop_map(|name| json!({"type": name})),
        reference.prop_map(|to| json!({"$ref": to})),
        prop::sample::select(vec!["(?!a)", "[", "^a+$", "(a+)+$", "\\d", "(?P<x>a)"])
            .prop_map(|pattern| json!({"type": "string", "pattern": pattern})),
        prop::collection::vec(json(), 0..4).prop_map(|values| json!({"enum": values})),
    ];
    leaf.prop_recursive(5, 64, 5, |inner| {
        let named = prop::collection::vec(("x|y|from|class|user-id|[a-z]{0,4}", inner.clone()), 0..5)
            .prop_map(|members| members.into_iter().collect::<Map<_, _>>());
        let several = prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            (named.clone(), prop::collection::vec("x|y|from", 0..3)).prop_map(
                |(properties, required)| json!({"type": "object", "properties": properties, "required": required})
            ),
            (named, inner.clone()).prop_map(|(defs, body)| {
                let mut body = body;
                if let Value::Object(body) = &mut body {
                    body.insert("$defs".into(), Value::Object(defs));
                }
                body
            }),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            (several, prop::sample::select(vec!["anyOf", "oneOf", "allOf", "prefixItems"]))
                .prop_map(|(parts, keyword)| json!({keyword: parts})),
            inner.prop_map(|inner| json!({"additionalProperties": inner})),
        ]
    })
}

/// A tool of the given server and wire name.
pub(crate) fn tool(server: &str, name: &str, input: &str, output: Option<&str>) -> Arc<Tool> {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    let server = ServerName::parse(server).unwrap();
    let ident = server.namespace();
    Arc::new(Tool {
        name: ToolName::parse(format!("mcp__{ident}__{name}")).unwrap(),
        server,
        wire_name: name.to_owned(),
        ident,
        attr: name.to_owned(),
        title: String::new(),
        description: format!("Does {name}."),
        input_schema: raw(input),
        output_schema: output.map(raw),
        annotations: None,
    })
}

/// A server without news.
pub(crate) fn server(name: &str, state: ServerState) -> ServerEntry {
    let name = ServerName::parse(name).unwrap();
    ServerEntry { ident: name.namespace(), name, state, comes_back: false, tools: 0, error: None }
}

/// A catalog of these.
pub(crate) fn catalog(tools: Vec<Arc<Tool>>, servers: Vec<ServerEntry>) -> Catalog {
    Catalog { generation: 1, tools: tools.into_iter().map(|tool| (tool.name.clone(), tool)).collect(), servers }
}
