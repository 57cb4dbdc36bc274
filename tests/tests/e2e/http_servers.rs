//! The official everything server over streamable HTTP and SSE, killed and started again in the middle of calls.

use std::{
    net::{TcpListener, TcpStream},
    process::Stdio,
    time::{Duration, Instant},
};

use ptc_protocol::api::ServerState;
use ptc_tests::{
    World,
    config::{config, remote},
    fixtures::{bare_command, node_command},
    process::Group,
    until,
    wait::PATIENCE,
};
use serde_json::json;

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts the server and waits until it listens.
fn everything(kind: &str, port: u16) -> Group {
    let mut command = bare_command(&node_command("mcp-server-everything"), &std::env::temp_dir());
    let mut server = Group::spawn(
        command.arg(kind).env("PORT", port.to_string()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()),
    );
    until("the server listens", PATIENCE, || {
        assert!(server.runs(), "the server ended at once");
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    server
}

fn survives_a_restart(kind: &str, transport: &str, path: &str) {
    let port = free_port();
    let server = everything(kind, port);
    let url = format!("http://127.0.0.1:{port}{path}");
    let world = World::ready(&config(vec![remote("every", transport, &url)], &json!({"tool_call_timeout_seconds": 30})));
    let mut session = world.session();
    let sum = "print(await mcp__every__get_sum(a=2, b=3))";
    assert_eq!(session.program(sum).output(), "The sum of 2 and 3 is 5.\n");

    let id = session.send_program(
        "try:\n    print(await mcp__every__trigger_long_running_operation(duration=25, steps=50))\nexcept ToolError as e:\n    print('lost:', e)",
    );
    world.wait_status("the call runs", |status| status.programs.iter().any(|program| program.current.is_some()));
    let start = Instant::now();
    drop(server);
    let result = session.tool_result(id);
    assert!(result.output().starts_with("lost: "), "{}", result.text);
    assert!(start.elapsed() < Duration::from_secs(3), "the call heard of it after {:?}", start.elapsed());
    world.wait_servers("the loss shows", |servers| servers[0].state != ServerState::Ready);

    let _again = everything(kind, port);
    world.wait_servers("it is back", |servers| servers[0].state == ServerState::Ready);
    assert_eq!(session.program(sum).output(), "The sum of 2 and 3 is 5.\n");
}

#[test]
fn streamable_http_survives_a_restart_in_the_middle_of_a_call() {
    survives_a_restart("streamableHttp", "http", "/mcp");
}

#[test]
fn sse_survives_a_restart_in_the_middle_of_a_call() {
    survives_a_restart("sse", "sse", "/sse");
}

#[test]
fn a_session_that_the_restarted_server_forgot_is_no_hang() {
    let port = free_port();
    let server = everything("streamableHttp", port);
    let url = format!("http://127.0.0.1:{port}/mcp");
    let world = World::ready(&config(vec![remote("every", "http", &url)], &json!({})));
    let mut session = world.session();
    assert_eq!(session.program("print(await mcp__every__get_sum(a=1, b=1))").output(), "The sum of 1 and 1 is 2.\n");
    drop(server);
    let _again = everything("streamableHttp", port);
    let start = Instant::now();
    until("a call works again", PATIENCE, || {
        let result = session.program(
            "try:\n    print(await mcp__every__get_sum(a=2, b=2))\nexcept ToolError as e:\n    print('error', e)",
        );
        assert!(!result.is_error || result.text.contains("mcp__every__get_sum"), "{}", result.text);
        result.text.contains("The sum of 2 and 2 is 4.").then_some(())
    });
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_server_that_is_not_there_is_tried_again() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let world = World::started(&config(vec![remote("every", "http", &url)], &json!({})));
    let servers = world.wait_servers("the failure shows", |servers| servers[0].last_error.is_some());
    assert!(servers[0].next_retry.is_some(), "{servers:#?}");
    let _server = everything("streamableHttp", port);
    world.wait_servers("it is found", |servers| servers[0].state == ServerState::Ready);
}
