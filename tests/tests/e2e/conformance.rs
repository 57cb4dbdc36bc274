//! The official conformance suite's client scenarios that apply to a gateway of tools, against the daemon.
//!
//! Left out: `auth/*` (the daemon signs in nowhere), `elicitation-*` (nobody is there to accept anything), `sep-2640-*`
//! (an extension about resources).

use std::fs;

use ptc_tests::{
    fixtures::{bare_command, fixture, node_modules},
    world::Ran,
};
use serde_json::Value;

/// Calls whatever there is.
const CALL_ALL: &str = "
for name in await list_callable_tools():
    try:
        print(name, await globals()[name](a=2, b=3))
    except ToolError as error:
        print(name, error)
";

/// Calls what the suite asks for.
const CALL_PLANNED: &str = "
for call in calls:
    arguments = {name: value for name, value in call['arguments'].items() if value is not None}
    print(await globals()['mcp__suite__' + call['name']](**arguments))
";

/// Runs a scenario; all of its checks must succeed or be left out.
fn passes(scenario: &str, version: &str, program: &str) {
    let home = tempfile::tempdir().unwrap();
    let mut suite = bare_command("node".as_ref(), home.path());
    suite.arg("--import").arg(fixture("older_node.mjs"));
    suite.arg(node_modules().join("@modelcontextprotocol/conformance/dist/index.js"));
    suite.args(["client", "--scenario", scenario, "--spec-version", version, "--timeout", "90000", "--output-dir"]);
    suite.arg(home.path().join("results")).arg("--command").arg(env!("CARGO_BIN_EXE_conformance-client"));
    let ran = Ran::of(suite.env("PTC_CONFORMANCE_PROGRAM", program));
    let results = fs::read_dir(home.path().join("results")).unwrap().next().unwrap().unwrap().path();
    let checks: Value = serde_json::from_slice(&fs::read(results.join("checks.json")).unwrap()).unwrap();
    let checks = checks.as_array().unwrap();
    let is = |check: &Value, wanted: &[&str]| wanted.contains(&check["status"].as_str().unwrap());
    let failed = checks.iter().filter(|check| !is(check, &["SUCCESS", "INFO", "SKIPPED"]));
    let failed: Vec<String> = failed.map(|check| format!("{}: {}", check["name"], check["errorMessage"])).collect();
    assert!(failed.is_empty(), "{scenario}: {failed:#?}");
    assert!(checks.iter().any(|check| is(check, &["SUCCESS"])), "{scenario}: {checks:#?}");
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn initialize_passes() {
    passes("initialize", "2025-11-25", "");
}

#[test]
fn calls_of_tools_pass_in_both_protocols() {
    passes("tools_call", "2025-11-25", CALL_ALL);
    passes("tools_call", "2026-07-28", CALL_ALL);
}

#[test]
fn a_broken_stream_is_taken_up_again_when_the_server_says() {
    passes("sse-retry", "2025-11-25", CALL_ALL);
}

#[test]
fn every_request_of_the_stateless_protocol_says_what_it_is() {
    passes("request-metadata", "2026-07-28", "");
    passes("http-standard-headers", "2026-07-28", CALL_ALL);
}

#[test]
fn a_server_that_asks_for_input_is_called_again_with_what_it_wants_to_remember() {
    passes("sep-2322-client-request-state", "2026-07-28", CALL_ALL);
}

#[test]
fn annotated_arguments_are_mirrored_in_headers() {
    passes("http-custom-headers", "2026-07-28", CALL_PLANNED);
}

#[test]
fn tools_whose_annotations_break_the_rules_are_hidden() {
    let only = "
assert await list_callable_tools() == ['mcp__suite__valid_tool']
await mcp__suite__valid_tool(region='x')";
    passes("http-invalid-tool-headers", "2026-07-28", only);
}

#[test]
fn schemas_stay_whole_and_nothing_they_name_is_fetched() {
    passes("json-schema-ref-no-deref", "2026-07-28", "await inspect_tool((await list_callable_tools())[0])");
    let echo = "
tools = await list_callable_tools()
focal = await inspect_tool(next(name for name in tools if 'echo' not in name))
await globals()[next(name for name in tools if 'echo' in name)](schema=focal['inputSchema'])";
    passes("json-schema-2020-12-preservation", "2025-11-25", echo);
    passes("json-schema-2020-12-preservation", "2026-07-28", echo);
}
