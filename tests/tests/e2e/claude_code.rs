//! Claude Code itself, without network, against a scripted model: what would its model have seen?

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use ptc_tests::{
    World,
    config::{config, finance},
    fixtures::{bare_command, binary, fixture, node_command, python},
    process::Group,
    world::Ran,
};
use serde_json::{Value, json};

/// Lets Claude Code take the turns with the shim as its only server, and returns all requests to the model.
fn converse(world: &World, turns: &Value) -> Vec<Value> {
    let log = world.path("model.jsonl");
    let mut model = bare_command(&python(), &world.path("home"));
    model.arg(fixture("scripted_model.py")).arg(&log).arg(turns.to_string()).stdout(Stdio::piped());
    let mut model = Group::spawn(&mut model);
    let mut port = String::new();
    BufReader::new(model.child().stdout.take().unwrap()).read_line(&mut port).unwrap();

    let shim = json!({"mcpServers": {"ptc": {
        "command": binary("ptc-shim"),
        "args": ["--no-autostart", "--socket", world.socket()],
    }}});
    fs::write(world.path("mcp.json"), shim.to_string()).unwrap();
    let mut claude = bare_command(&node_command("claude"), &world.path("home"));
    claude
        .env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", port.trim()))
        .env("ANTHROPIC_API_KEY", "none")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("IS_SANDBOX", "1")
        .current_dir(world.path("home"))
        .stdin(Stdio::null())
        .args(["-p", "go", "--strict-mcp-config", "--output-format", "json", "--mcp-config"])
        .arg(world.path("mcp.json"))
        .args(["--allowedTools", "mcp__ptc__execute_program,mcp__ptc__list_callable_tools,mcp__ptc__inspect_tool"]);
    let ran = Ran::of(&mut claude);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(told["result"], "finished", "{told}");
    fs::read_to_string(&log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The results of tool uses in the last request, in order, with `is_error`.
fn seen(requests: &[Value]) -> Vec<(String, bool)> {
    let blocks =
        requests.last().unwrap()["messages"].as_array().unwrap().iter().filter_map(|m| m["content"].as_array());
    let results = blocks.flatten().filter(|block| block["type"] == "tool_result");
    results
        .map(|block| {
            let text = match &block["content"] {
                Value::String(text) => text.clone(),
                Value::Array(parts) => {
                    parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
                }
                other => panic!("not the content of a tool result: {other}"),
            };
            (text, block["is_error"] == json!(true))
        })
        .collect()
}

#[test]
fn its_model_sees_the_output_of_programs_and_nothing_else() {
    let world = World::ready(&config(vec![finance("financial-data")], &json!({})));
    let code = "rows = await mcp__financial_data__query_financials(ticker='AMZN')\n\
                print(' → '.join(str(row['revenue']) for row in rows))\nemit(len(rows))";
    let requests = converse(
        &world,
        &json!([
            {"tool": "mcp__ptc__list_callable_tools", "input": {}},
            {"tool": "mcp__ptc__execute_program", "input": {"code": code}},
            {"tool": "mcp__ptc__execute_program", "input": {"code": "print('before')\nraise ValueError('no')"}},
            {"tool": "mcp__ptc__execute_program", "input": {"code": "print('x' * 60000)"}},
            {"say": "finished"},
        ]),
    );

    let first = requests[0].to_string();
    assert!(
        first.contains("## ptc\\n") && first.contains("financial_data 3"),
        "the instructions name the servers: {first}"
    );
    let seen = seen(&requests);
    assert_eq!(
        seen[0],
        (
            r#"["mcp__financial_data__check_status", "mcp__financial_data__company_name", "mcp__financial_data__query_financials"]"#
                .to_owned(),
            false
        )
    );
    let (text, failed) = &seen[1];
    let (body, trace) = text.rsplit_once('\n').unwrap();
    assert_eq!(body, "[Script executed successfully]\n574785.0 → 513983.0 → 469822.0 → 386064.0\n--- result ---\n4");
    assert!(trace.starts_with("[tool calls: 1; ") && trace.ends_with("s]"), "{trace}");
    assert!(!failed);
    let (text, failed) = &seen[2];
    assert!(failed);
    assert!(
        text.starts_with("[Script execution failed]\nTraceback (most recent call last):\n  File \"<program>\", line 2"),
        "{text}"
    );
    assert!(text.ends_with("ValueError: no\n\n--- output before the error ---\nbefore"), "{text}");
    let (text, failed) = &seen[3];
    assert!(!failed && text.contains(&"x".repeat(60000)), "long output reaches the model whole: {} bytes", text.len());
}
