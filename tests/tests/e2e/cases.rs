//! Trouble that people met with real servers and real programs, as data: `fixtures/cases/*.json`.
//!
//! A file is a list of cases. A case has a `name`, the script of a fake server `s` (see `fixtures/fake_server.py`),
//! optionally `execution` settings, and `programs`: each with `code` and what must hold of its result. `ok` is whether it
//! ends well, `output` the exact output, `result` the emitted JSON text, `has` and `lacks` parts of the whole text,
//! `any` parts of which one must be there. `received` lists parts of what the server must have got, spaces left out;
//! `starts` is how often the server may have been started (1 unless the case says otherwise).

use std::fs;

use ptc_tests::{
    World,
    config::{config, fake},
    fixtures::fixture,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    server: Value,
    #[serde(default)]
    execution: Value,
    programs: Vec<Program>,
    #[serde(default)]
    received: Vec<String>,
    #[serde(default = "once")]
    starts: u64,
}

fn once() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    code: Code,
    ok: Option<bool>,
    output: Option<String>,
    result: Option<String>,
    #[serde(default)]
    has: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
    #[serde(default)]
    any: Vec<String>,
}

/// A program as one string or as lines.
#[derive(Deserialize)]
#[serde(untagged)]
enum Code {
    Text(String),
    Lines(Vec<String>),
}

fn run(case: Case) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let record = dir.path().join("received");
    let mut script = if case.server.is_null() { json!({}) } else { case.server };
    script["record"] = json!(record);
    let execution = if case.execution.is_null() { json!({"timeout_seconds": 20}) } else { case.execution };
    let world = World::ready(&config(vec![fake("s", &script)], &execution));
    let mut session = world.session();
    let mut wrong = Vec::new();
    for program in case.programs {
        let code = match program.code {
            Code::Text(text) => text,
            Code::Lines(lines) => lines.join("\n"),
        };
        let result = session.program(&code);
        let text = &result.text;
        let outcome = result.outcome();
        let mut say = |what: String| wrong.push(format!("{what}\n    program: {code:?}\n    text: {text:?}"));
        if program.ok.is_some_and(|ok| ok == result.is_error) {
            say(format!("it should {}have ended well", if result.is_error { "" } else { "not " }));
        }
        if let Some(output) = program.output.filter(|output| outcome["output"] != **output) {
            say(format!("the output should be {output:?}"));
        }
        if let Some(emitted) = program.result.filter(|emitted| !text.contains(&format!("--- result ---\n{emitted}"))) {
            say(format!("the result should be {emitted}"));
        }
        program.has.iter().filter(|part| !text.contains(*part)).for_each(|part| say(format!("{part:?} is missing")));
        program
            .lacks
            .iter()
            .filter(|part| text.contains(*part))
            .for_each(|part| say(format!("{part:?} should not be there")));
        if !program.any.is_empty() && !program.any.iter().any(|part| text.contains(part)) {
            say(format!("none of {:?} is there", program.any));
        }
    }
    let received = fs::read_to_string(&record).unwrap_or_default().replace(' ', "");
    for part in case.received.iter().filter(|part| !received.contains(*part)) {
        wrong.push(format!("the server did not receive {part}\n    but {received}"));
    }
    let starts = world.status().servers[0].starts;
    if starts != case.starts {
        wrong.push(format!("the server was started {starts} times"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("{}:\n  {}", case.name, wrong.join("\n  "))) }
}

fn run_file(name: &str) {
    let text = fs::read_to_string(fixture("cases").join(name)).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    assert!(!cases.is_empty());
    let wrong: Vec<String> = cases.into_iter().filter_map(|case| run(case).err()).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn schemas() {
    run_file("schemas.json");
}

#[test]
fn names() {
    run_file("names.json");
}

#[test]
fn results() {
    run_file("results.json");
}

#[test]
fn wire() {
    run_file("wire.json");
}

#[test]
fn programs() {
    run_file("programs.json");
}
