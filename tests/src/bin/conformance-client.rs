//! The client that the official conformance suite starts, with its server's address as the last argument: a daemon that
//! has this server, and one program, given by `PTC_CONFORMANCE_PROGRAM`. The program finds the calls that the scenario
//! asks for in `calls`.

use std::env;

use ptc_tests::{
    World,
    config::{config, remote},
};
use serde_json::{Value, json};

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let url = env::args().next_back().expect("the suite names its server");
    let mut server = remote("suite", "http", &url);
    if variable("MCP_CONFORMANCE_PROTOCOL_VERSION").as_str() >= "2026" {
        server["protocol"] = json!("auto");
    }
    let context: Value = serde_json::from_str(&variable("MCP_CONFORMANCE_CONTEXT")).unwrap_or_default();
    // A JSON text in a JSON string is a string for Python, too.
    let calls = Value::from(context["toolCalls"].to_string());
    let code = format!("import json\ncalls = json.loads({calls})\n{}", variable("PTC_CONFORMANCE_PROGRAM"));
    let world = World::ready(&config(vec![server], &json!({})));
    let result = world.session().program(&code);
    assert!(!result.is_error, "{}", result.text);
}
