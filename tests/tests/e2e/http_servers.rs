//! Public servers over HTTP: the official test server on both transports, killed and started again, and one from PyPI
//! behind a certificate of a private authority.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use ptc_protocol::api::ServerState;
use ptc_tests::{
    World,
    config::{config, remote},
    fixtures::{bare_command, fixture, node_command, sdk_python},
    process::Group,
    until,
    wait::PATIENCE,
};
use serde_json::json;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for(port: u16) {
    until("the server listens", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).ok());
}

/// The official test server with `sse` or `streamableHttp` on this port.
fn everything(transport: &str, port: u16, home: &Path) -> Group {
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
}

#[test]
fn the_official_server_is_supervised_over_streamable_http() {
    is_supervised("http", "streamableHttp", "/mcp");
}

#[test]
fn the_official_server_is_supervised_over_sse() {
    is_supervised("sse", "sse", "/sse");
}

fn openssl(dir: &Path, line: &str) {
    let mut command = Command::new("openssl");
    let ran = command.current_dir(dir).args(line.split_whitespace()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

/// An authority of our own, the certificate it gave to localhost, and its key.
fn certificates(dir: &Path) {
    let new = "-newkey rsa:2048 -nodes";
    openssl(dir, &format!("req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    openssl(dir, &format!("req {new} -keyout leaf.key -out leaf.csr -subj /CN=localhost"));
    fs::write(dir.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    let sign = "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out leaf.pem";
    openssl(dir, sign);
}

/// The system's trust decides, which a variable extends; without it the error names the certificate. Variables for
/// proxies do not lead astray what runs on this machine.
#[test]
fn a_private_authority_is_trusted_where_the_system_trusts_it() {
    let home = tempfile::tempdir().unwrap();
    certificates(home.path());
    let port = free_port();
    let file = |name: &str| home.path().join(name);
    let mut command = bare_command(&sdk_python(), home.path());
    command.arg(fixture("https_server.py")).arg(port.to_string()).args([file("leaf.pem"), file("leaf.key")]);
    let _server = Group::spawn(&mut command);
    wait_for(port);
    let mut settings = remote("https", "http", &format!("https://localhost:{port}/mcp"));
    settings["protocol"] = json!("auto");
    let text = config(vec![settings], &json!({})).to_string();

    let world = World::empty();
    world.write_config(&text);
    let mut command = world.command("ptcd");
    command.arg("run").env("SSL_CERT_FILE", file("ca.pem")).env("HTTPS_PROXY", "http://127.0.0.1:9");
    let _daemon = Group::spawn(command.stdout(Stdio::null()));
    until("the daemon's socket", PATIENCE, || std::os::unix::net::UnixStream::connect(world.socket()).ok());
    let ready = world.wait_servers("it is ready", |servers| servers[0].state == ServerState::Ready);
    assert_eq!(ready[0].protocol.as_deref(), Some("2026-07-28"));
    let program = world.session().program("from servers import https\nprint(await https.double(number=21))");
    assert_eq!(program.output(), "42\n");

    let distrusting = World::started(&serde_json::from_str(&text).unwrap());
    let down = distrusting.wait_servers("it says why", |servers| servers[0].last_error.is_some());
    let error = down[0].last_error.clone().unwrap();
    assert!(error.contains("invalid peer certificate: UnknownIssuer"), "{error}");
}
