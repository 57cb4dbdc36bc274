//! The shim's side of the conversation: versions old and new, progress, odd lines.

use ptc_protocol::{
    api::{Problem, RunRequest},
    client::{Client, ClientError},
    names::SessionId,
};
use ptc_tests::{
    World,
    config::{config, fake},
    wait::PATIENCE,
};
use serde_json::{Value, json};

fn world() -> World {
    World::ready(&config(vec![fake("s", &json!({}))], &json!({})))
}

#[test]
fn clients_of_2024_and_2025_get_the_version_they_ask_for() {
    let world = world();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut session = world.shim();
        let ready = session.initialize_as(version, "old client");
        assert_eq!(ready["protocolVersion"], version);
        assert_eq!(ready["serverInfo"]["name"], "ptc");
        assert_eq!(session.program("print(1)").output(), "1\n");
    }
    let mut session = world.shim();
    assert_eq!(session.initialize_as("1999-01-01", "strange client")["protocolVersion"], "2025-11-25");
}

#[test]
fn a_client_of_2026_discovers_and_asks_without_a_handshake() {
    let world = world();
    let mut session = world.shim();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "new client", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discovered = session.request("server/discover", &json!({"_meta": meta}));
    assert!(discovered["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")), "{discovered}");
    let tools = session.request("tools/list", &json!({"_meta": meta}));
    assert_eq!(tools["tools"].as_array().unwrap().len(), 3);
    let result = session.request(
        "tools/call",
        &json!({"name": "execute_program", "arguments": {"code": "print(await mcp__s__add(a=1, b=2))"}, "_meta": meta}),
    );
    assert!(result["content"][0]["text"].as_str().unwrap().contains("{'sum': 3}"), "{result}");
}

#[test]
fn progress_comes_for_those_who_gave_a_token() {
    let world = world();
    let mut session = world.session();
    let id = session.send(
        "tools/call",
        &json!({
            "name": "execute_program",
            "arguments": {"code": "await mcp__s__sleep(seconds=2.5)"},
            "_meta": {"progressToken": "tok"},
        }),
    );
    loop {
        let news: Value = session.notification("notifications/progress");
        assert_eq!(news["progressToken"], "tok");
        // The first may come before the program had its place.
        if news["message"].as_str().unwrap().contains("mcp__s__sleep") {
            break;
        }
    }
    assert!(!session.tool_result(id).is_error);
}

#[test]
fn odd_lines_from_the_client_end_nothing() {
    let world = world();
    let mut session = world.shim();
    session.line("\u{feff}");
    session.line("");
    session.initialize();
    session.line("this is not JSON");
    session.line("   ");
    let id = session.send("ping", &json!({}));
    assert!(session.answer(id).get("result").is_some());
    let id = session.send("no/such/method", &json!({}));
    assert_eq!(session.answer(id)["error"]["code"], -32601);
    assert_eq!(session.program("print(1)").output(), "1\n");
    session.close_stdin();
    assert!(session.exit(PATIENCE).success());
}

#[test]
fn structured_content_goes_to_clients_that_show_the_text_too() {
    let world = world();
    let mut plain = world.shim();
    plain.initialize_as("2025-11-25", "ptc-tests");
    let result = plain.program("emit({'a': 1})");
    assert!(result.structured.is_some(), "{}", result.raw);
    let mut claude = world.shim();
    claude.initialize_as("2025-11-25", "claude-code");
    let result = claude.program("emit({'a': 1})");
    assert_eq!(result.structured, None, "{}", result.raw);
    assert_eq!(result.outcome()["result"], json!({"a": 1}));
    assert!(result.text.contains("--- result ---\n{\"a\": 1}"), "{}", result.text);
}

#[tokio::test]
async fn a_program_of_a_session_that_is_not_open_is_refused() {
    let world = World::ready(&config(vec![], &json!({})));
    let client = Client::connect_lazy(world.socket());
    let mut request = RunRequest {
        code: "print(1)".to_owned(),
        session: Some(SessionId::parse("s-0123456789ab").unwrap()),
        timeout_seconds: None,
        stream_output: false,
        client_request: None,
    };
    match client.run(&request).await.map(drop) {
        Err(ClientError::Problem(problem)) => assert_eq!(problem.code, Problem::UNKNOWN_SESSION),
        other => panic!("a session that nobody began was taken: {other:?}"),
    }
    request.session = None;
    client.run(&request).await.unwrap();
}
