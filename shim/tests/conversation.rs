//! The MCP side: handshakes of both eras, odd input, the tools' arguments.

mod fake;

use fake::{Client, Home, Script, text};
use serde_json::{Value, json};

fn modern(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "9"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[tokio::test]
async fn clients_of_every_handshake_version_are_served() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    for (asked, given) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = Client::connect(home.launch());
        let answer = client.initialize("t", asked).await;
        assert_eq!(answer["result"]["protocolVersion"], given, "{asked}");
        assert_eq!(answer["result"]["capabilities"]["tools"]["listChanged"], true);
        let tools = client.request("tools/list", json!({})).await;
        let names: Vec<_> = tools["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["execute_program", "inspect_tool", "list_callable_tools"]);
        let result = client.call("execute_program", json!({"code": "ok"})).await;
        assert_eq!(text(&result), "[Script executed successfully]\nok\n");
    }
}

#[tokio::test]
async fn a_stateless_client_of_2026_is_served_without_a_handshake() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::connect(home.launch());
    let discovered = client.request("server/discover", json!({"_meta": modern("2026-07-28")})).await;
    let versions = discovered["result"]["supportedVersions"].as_array().unwrap_or_else(|| panic!("{discovered}"));
    assert!(versions.contains(&json!("2026-07-28")), "{discovered}");
    assert!(discovered["result"]["instructions"].as_str().unwrap().contains("fin_data 4"), "{discovered}");

    let tools = client.request("tools/list", json!({"_meta": modern("2026-07-28")})).await;
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 3, "{tools}");
    let params = json!({"name": "execute_program", "arguments": {"code": "ok"}, "_meta": modern("2026-07-28")});
    let ran = client.request("tools/call", params).await;
    assert_eq!(ran["result"]["structuredContent"]["output"], "ok\n", "{ran}");
    assert_eq!(ran["result"]["resultType"], "complete");
    assert_eq!(script.seen.borrow().sessions[0]["client"], "modern 9");

    let filter = json!({"_meta": modern("2026-07-28"), "notifications": {"toolsListChanged": true}});
    let listening = client.begin("subscriptions/listen", filter).await;
    client.notification("notifications/subscriptions/acknowledged").await;
    script.catalog.send_replace(fake::catalog(2, 5));
    let changed = client.notification("notifications/tools/list_changed").await;
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], listening, "{changed}");
    client.close().await;
}

#[tokio::test]
async fn a_client_may_probe_then_fall_back_to_the_handshake() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::connect(home.launch());
    client.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}})).await;
    assert!(client.answer(1).await.get("error").is_some());
    client.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
    client.answer(2).await;
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/foo"})).await;
    client.initialize("late", "2025-06-18").await;
    let tools = client.request("tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn marks_carriage_returns_empty_lines_and_junk_are_survived() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::connect(home.launch());
    client.write(b"\r\n\nnpm WARN deprecated\n42\n{\"level\":\"info\"}\n\xff\xfe\n").await;
    client.write("\u{feff}".as_bytes()).await;
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}\r\n").await;
    // The very first message the client sees is the answer: junk is not answered.
    assert_eq!(client.next().await["result"]["serverInfo"]["name"], "ptc");
    client.write(b"  {\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}  \r\n\r\n").await;
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"no/such\"}\n").await;
    assert_eq!(client.answer(2).await["error"]["code"], -32601);
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":{\"name\":5}}\n").await;
    assert_eq!(client.answer(3).await["error"]["code"], -32602);
    client
        .write(b"{\"id\":4,\"method\":\"tools/call\",\"params\":{\"name\":\"x\",\"arguments\":{\"a\":\"\\ud800\"}}}\n")
        .await;
    assert_eq!(client.answer(4).await["result"]["isError"], true);
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"ping\"}\n").await;
    assert_eq!(client.answer("x").await["result"], json!({}));
}

#[tokio::test]
async fn a_program_of_seventeen_million_bytes_arrives() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    // Unoptimised code takes its time for so much text.
    client.patience *= 6;
    let code = "#".repeat(17 << 20);
    client.call("execute_program", json!({"code": code})).await;
    let seen = fake::until(&script, |seen| seen.runs.len() == 1).await;
    assert_eq!(seen.runs[0]["code"].as_str().unwrap().len(), 17 << 20);
}

#[tokio::test]
async fn arguments_are_checked_and_errors_name_the_valid_ones() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    let wrong = client.call("execute_program", json!({"script": "print(1)"})).await;
    assert_eq!(wrong["isError"], true);
    assert!(text(&wrong).contains("unknown argument 'script'") && text(&wrong).contains("code (string, required)"));
    let unknown = client.call("run_program", json!({})).await;
    assert_eq!(unknown["isError"], true);
    assert!(text(&unknown).starts_with("Unknown tool: run_program"), "{unknown}");
    assert_eq!(script.seen.borrow().runs, Vec::<Value>::new());

    client.call("execute_program", json!("{\"code\":\"ok\",\"timeout_seconds\":\"30\"}")).await;
    let runs = script.seen.borrow().runs.clone();
    assert_eq!(runs[0]["timeout_seconds"], 30);
    let listed = client.call("list_callable_tools", Value::Null).await;
    assert_eq!(text(&listed), "[\"mcp__fin__query\"]");
}

#[tokio::test]
async fn discovery_passes_on_what_the_daemon_says() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    let listed = client.call("list_callable_tools", json!({"query": "a b", "detail": "signatures"})).await;
    assert_eq!(text(&listed), "mcp__fin__query(t: str) -> dict");
    assert_eq!(script.seen.borrow().queries, [r#"[("query", "a b")]"#]);

    let one = client.call("inspect_tool", json!({"tool_name": "mcp__fin__query"})).await;
    let described: Value = serde_json::from_str(text(&one)).unwrap();
    assert_eq!(described["signature"], "mcp__fin__query(t: str) -> dict");
    let none = client.call("inspect_tool", json!({"tool_name": "mcp__fin/x y"})).await;
    assert_eq!(none["isError"], true);
    assert_eq!(
        text(&none),
        "[Tool not found] 'mcp__fin/x y' is not available in execute_program. Close matches: mcp__fin__query"
    );
    let both = client.call("inspect_tool", json!({"tool_name": ["mcp__fin__query", "nope"]})).await;
    let described: Value = serde_json::from_str(text(&both)).unwrap();
    assert_eq!((&described[0]["name"], &described[1]["name"]), (&json!("mcp__fin__query"), &json!("nope")));
    assert_eq!(both["isError"], false);
}

#[tokio::test]
async fn claude_code_gets_text_and_others_get_both_forms() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut claude = Client::initialized(home.launch(), "claude-code").await;
    let result = claude.call("execute_program", json!({"code": "ok"})).await;
    assert!(result.get("structuredContent").is_none(), "{result}");
    assert_eq!(result["_meta"]["ptc/outcome"]["output"], "ok\n");
    let mut other = Client::initialized(home.launch(), "other").await;
    let result = other.call("execute_program", json!({"code": "fail"})).await;
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["error"], "ValueError: no");
    assert!(text(&result).starts_with("[Script execution failed]\nValueError: no"));
}

#[tokio::test]
async fn changes_of_the_tools_are_told_once_things_hold_still() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    client.request("tools/list", json!({})).await;
    for generation in 2..7 {
        script.catalog.send_replace(fake::catalog(generation, usize::try_from(generation).unwrap()));
        tokio::task::yield_now().await;
    }
    client.notification("notifications/tools/list_changed").await;
    let tools = client.request("tools/list", json!({})).await;
    let told = tools["result"]["tools"][0]["description"].as_str().unwrap();
    assert!(told.contains("fin_data 6."), "{told}");
    assert_eq!(client.others, Vec::<Value>::new(), "several changes are one notification");
}
