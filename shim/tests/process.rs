//! The real process: its command line, what it writes where, and how it ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod fake;

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use fake::{Home, PATIENCE, Script};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn spawn(arguments: &[&str]) -> Self {
        let mut child = command(arguments).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdin, stdout }
    }

    async fn send(&mut self, message: Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        loop {
            let line = tokio::time::timeout(PATIENCE, self.stdout.next_line()).await.unwrap().unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    async fn initialize(&mut self) -> Value {
        let client = json!({"name": "t", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        let answer = self.request(0, "initialize", params).await;
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        answer
    }

    /// Closes stdin; how long the process takes to end, and what else it wrote to stdout and stderr.
    async fn close(mut self) -> (Duration, String, String) {
        let began = Instant::now();
        drop(self.stdin);
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        let took = began.elapsed();
        assert_eq!(status.code(), Some(0));
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.into_inner().read_to_string(&mut out).await.unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
        (took, out, err)
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ptc-shim"));
    command.args(arguments).env_clear().env("HOME", "/nonexistent").kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test]
async fn the_end_of_stdin_ends_the_process_and_kills_its_program() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let socket = home.socket().display().to_string();
    let mut fastest = Duration::MAX;
    for round in 1..=5 {
        let mut shim = Process::spawn(&["--socket", &socket, "--no-autostart"]);
        shim.initialize().await;
        let call = json!({"name": "execute_program", "arguments": {"code": "hang"}});
        shim.send(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})).await;
        fake::until(&script, |seen| seen.runs.len() == round).await;
        let (took, out, err) = shim.close().await;
        assert_eq!((out.as_str(), err.as_str()), ("", ""));
        fake::until(&script, |seen| seen.killed == round).await;
        fastest = fastest.min(took);
    }
    // The best of five, because the machine that runs the tests may be busy.
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
}

#[tokio::test]
async fn a_client_that_stops_reading_ends_the_process() {
    let home = Home::new();
    let socket = home.socket().display().to_string();
    let mut shim = Process::spawn(&["--socket", &socket, "--no-autostart"]);
    shim.initialize().await;
    drop(shim.stdout);
    shim.stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n").await.unwrap();
    let status = tokio::time::timeout(PATIENCE, shim.child.wait()).await.expect("ends though stdin is open").unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_socket_path_that_cannot_be_used_is_told_in_answer_to_calls() {
    let long = format!("/tmp/{}", "x".repeat(120));
    let mut shim = Process::spawn(&["--socket", &long]);
    assert_eq!(shim.initialize().await["result"]["serverInfo"]["name"], "ptc");
    let called = shim.request(1, "tools/call", json!({"name": "execute_program", "arguments": {"code": "x"}})).await;
    let text = called["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(&long) && text.contains("PTC_SOCKET"), "{text}");
    shim.close().await;
}

#[tokio::test]
async fn the_command_line_is_checked() {
    let output = command(&["--version"]).output().await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("ptc-shim {}\n", env!("CARGO_PKG_VERSION")));
    let output = command(&["--help"]).output().await.unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for flag in ["--socket", "--config", "--state-dir", "--no-autostart"] {
        assert!(help.contains(flag), "{help}");
    }
    let output = command(&["--no-such"]).output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}
