//! Configurations for worlds, as JSON, which is YAML too.

use std::path::Path;

use serde_json::{Value, json};

use crate::fixtures::{fixture, python, sdk_python};

/// A configuration with these servers and the given changes to `execution`.
///
/// Programs run without a sandbox unless `execution` or the variable `PTC_TESTS_SANDBOX` says otherwise: most tests are
/// about something else, and the sandbox's own tests need systems that have one.
pub fn config(servers: Vec<Value>, execution: &Value) -> Value {
    let sandbox = std::env::var("PTC_TESTS_SANDBOX").unwrap_or_else(|_| "none".to_owned());
    let mut merged = json!({"sandbox": sandbox, "timeout_seconds": 60, "warm_children": 1});
    let changes = execution.as_object().expect("execution is an object");
    merged.as_object_mut().expect("just made").extend(changes.clone());
    json!({"servers": servers, "execution": merged})
}

/// A stdio server.
pub fn stdio(name: &str, command: &Path, args: Vec<Value>) -> Value {
    json!({"name": name, "transport": "stdio", "command": command, "args": args})
}

/// The scripted server `fixtures/fake_server.py`; see there for its script.
pub fn fake(name: &str, script: &Value) -> Value {
    // A `$` in the script must reach the server.
    let script = script.to_string().replace('$', "$$");
    stdio(name, &python(), vec![json!(fixture("fake_server.py")), json!(script)])
}

/// The finance server written with the official Python SDK.
pub fn finance(name: &str) -> Value {
    stdio(name, &sdk_python(), vec![json!(fixture("finance_server.py"))])
}

/// A server behind a URL; `transport` is `http` or `sse`.
pub fn remote(name: &str, transport: &str, url: &str) -> Value {
    json!({"name": name, "transport": transport, "url": url})
}
