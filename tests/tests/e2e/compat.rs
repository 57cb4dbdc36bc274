//! What programs, and the clients that run them, could see of the earlier Python server, they see still: text, structured
//! content and `isError`, as data in `fixtures/cases/compat.json`. What differs on purpose is listed in the README,
//! "Moving from the Python server", and tested where it belongs.
//!
//! A group has the script of a fake server `s`, `execution` settings, and `cases`: the `code`, the `text` of its result,
//! with `S.Ss` for the time, and `output`, `result`, `error` and `calls` of the structured content. A case with an `error`
//! is an error. A call is `[tool, args, ok]`, with its error when it failed. The marks below the source lines of tracebacks
//! differ between versions of Python and are left out.

use std::fs;

use ptc_tests::{
    World,
    client::ToolResult,
    config::{config, fake},
    fixtures::fixture,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    #[serde(default)]
    server: Value,
    #[serde(default)]
    execution: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    code: String,
    text: String,
    output: String,
    #[serde(default)]
    result: Value,
    error: Option<String>,
    calls: Option<Value>,
}

fn run(group: Group) -> Vec<String> {
    let or_none = |value: Value| if value.is_null() { json!({}) } else { value };
    let world = World::ready(&config(vec![fake("s", &or_none(group.server))], &or_none(group.execution)));
    let mut session = world.session();
    let mut wrong = Vec::new();
    for case in group.cases {
        let result = session.program(&case.code);
        if let Some(difference) = compare(&case, &result) {
            wrong.push(format!("{}: {:?}\n{difference}", group.name, case.code));
        }
    }
    wrong
}

fn compare(case: &Case, result: &ToolResult) -> Option<String> {
    let outcome = result.outcome();
    let calls = outcome["tool_calls"].as_array().cloned().unwrap_or_default();
    let calls: Vec<Value> = calls
        .iter()
        .map(|call| {
            let shown = [&call["tool"], &call["args"], &call["ok"]].map(Clone::clone);
            Value::from(shown.into_iter().chain(call.get("error").cloned()).collect::<Vec<_>>())
        })
        .collect();
    let error = outcome["error"].as_str().map(without_marks);
    let seen = json!({
        "text": timeless(&without_marks(&result.text)), "is_error": result.is_error, "ok": outcome["ok"],
        "output": outcome["output"], "result": outcome["result"], "error": error, "calls": calls,
    });
    let wanted = json!({
        "text": case.text, "is_error": case.error.is_some(), "ok": case.error.is_none(),
        "output": case.output, "result": case.result, "error": case.error,
        "calls": case.calls.as_ref().unwrap_or(&seen["calls"]),
    });
    let parts = wanted.as_object().into_iter().flatten();
    let different: Vec<String> = parts
        .filter(|(key, wanted)| seen[key.as_str()] != **wanted)
        .map(|(key, wanted)| format!("  {key} should be {wanted}\n  {key}        is {}", seen[key.as_str()]))
        .collect();
    (!different.is_empty()).then(|| different.join("\n"))
}

/// Without the lines that hold nothing but marks.
fn without_marks(text: &str) -> String {
    let marks =
        |line: &str| line.starts_with("    ") && line.trim().chars().all(|c| "~^".contains(c)) && line.contains('^');
    text.split_inclusive('\n').filter(|line| !marks(line)).collect()
}

/// With `S.Ss` for the seconds in the trace line.
fn timeless(text: &str) -> String {
    let Some((before, trace)) = text.rsplit_once("\n[tool calls: ") else { return text.to_owned() };
    let Some((counts, rest)) = trace.split_once("; ") else { return text.to_owned() };
    let Some((seconds, rest)) = rest.split_once("s]") else { return text.to_owned() };
    assert!(
        seconds.parse::<f64>().is_ok() && seconds.split('.').nth(1).is_some_and(|digits| digits.len() == 1),
        "{text}"
    );
    format!("{before}\n[tool calls: {counts}; S.Ss]{rest}")
}

#[test]
fn programs_see_what_the_earlier_server_showed() {
    let text = fs::read_to_string(fixture("cases").join("compat.json")).unwrap();
    let groups: Vec<Group> = serde_json::from_str(&text).unwrap();
    assert!(groups.iter().map(|group| group.cases.len()).sum::<usize>() > 50);
    let wrong: Vec<String> = groups.into_iter().flat_map(run).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
