//! The official test server over both HTTP transports, killed and started again.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
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

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn wait_for(port: u16) {
    until("the server listens", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).ok());
}

/// The official test server with `sse` or `streamableHttp` on this port.
pub(crate) fn everything(transport: &str, port: u16, home: &Path) -> Group {
    let mut command = bare_command(&node_command("mcp-server-everything"), home);
    command.arg(transport).env("PORT", port.to_string()).stdin(Stdio::null());
    let log = fs::File::create(home.join("log")).unwrap();
    let server = Group::spawn(command.stdout(log.try_clone().unwrap()).stderr(log));
    wait_for(port);
    server
}

/// Calls work; a server that is killed in the middle of one fails it at once, and is found again when it is back.
fn is_supervised(transport: &str, argument: &str, path: &str) {
    let home = tempfile::tempdir().unwrap();
    let port = free_port();
    let first = everything(argument, port, home.path());
    let url = format!("http://127.0.0.1:{port}{path}");
    let world = World::ready(&config(vec![remote("everything", transport, &url)], &json!({})));
    let mut session = world.session();
    let simple = "from servers import everything\nprint(await everything.get_sum(a=2, b=3))";
    assert_eq!(session.program(simple).output(), "The sum of 2 and 3 is 5.\n");
    let status = world.status();
    assert!(status.servers[0].tools > 10, "{status:#?}");

    let long = "from servers import everything
try:
    await everything.trigger_long_running_operation(duration=40, steps=40)
except ToolError as error:
    print(error.code)";
    // It writes a line for each message.
    let written = || fs::metadata(home.path().join("log")).unwrap().len();
    let before = written();
    let running = session.send_program(long);
    world.wait_status("the call runs", |status| status.programs.iter().any(|program| program.current.is_some()));
    until("the call arrives", PATIENCE, || (written() > before).then_some(()));
    let killed = std::time::Instant::now();
    drop(first);
    assert_eq!(session.tool_result(running).output(), "connection_lost\n");
    assert!(killed.elapsed().as_secs() < 5, "{:?}", killed.elapsed());
    let down = world.wait_servers("it is down", |servers| servers[0].state == ServerState::Backoff);
    assert!(down[0].last_error.is_some(), "{down:#?}");

    let second = everything(argument, port, home.path());
    world.wait_servers("it is found again", |servers| servers[0].state == ServerState::Ready);
    assert_eq!(session.program(simple).output(), "The sum of 2 and 3 is 5.\n");

    // A quick restart between two calls: over HTTP the next call finds its session gone, and is repeated in a new one.
    drop(second);
    let _third = everything(argument, port, home.path());
    let found = until("calls work again", PATIENCE, || {
        let result = session.program(simple);
        (!result.is_error).then(|| result.output())
    });
    assert_eq!(found, "The sum of 2 and 3 is 5.\n");
    let log = world.daemon_log();
    assert!(!log.contains("Error sending response"), "noise of a library: {log}");
}

#[test]
fn the_official_server_is_supervised_over_streamable_http() {
    is_supervised("http", "streamableHttp", "/mcp");
}

#[test]
fn the_official_server_is_supervised_over_sse() {
    is_supervised("sse", "sse", "/sse");
}
