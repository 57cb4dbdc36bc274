//! A tiny MCP client: JSON-RPC lines over the stdio of a child. Just enough to do what a real client does.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// Longest wait for one answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// The protocol version asked for.
const VERSION: &str = "2025-06-18";

/// One conversation. Dropping it ends the child.
#[derive(Debug)]
pub(super) struct McpClient {
    _server: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    last_id: u64,
}

impl McpClient {
    /// Starts the server.
    pub(super) fn new(mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut server = command.spawn().context("cannot start ptc-shim")?;
        let stdin = server.stdin.take().context("ptc-shim has no stdin")?;
        let lines = BufReader::new(server.stdout.take().context("ptc-shim has no stdout")?).lines();
        Ok(Self { _server: server, stdin, lines, last_id: 0 })
    }

    /// The opening of every conversation.
    pub(super) async fn initialize(&mut self) -> anyhow::Result<()> {
        let me = json!({"name": "ptc-demo", "version": env!("CARGO_PKG_VERSION")});
        let params = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": me});
        self.request("initialize", params).await?;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await
    }

    /// The result of one request; notifications that come before it are passed over.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        tokio::time::timeout(ANSWER_DEADLINE, self.answer(id))
            .await
            .with_context(|| format!("ptc-shim did not answer {method} within {} s", ANSWER_DEADLINE.as_secs()))?
            .with_context(|| format!("ptc-shim did not answer {method}"))
    }

    async fn answer(&mut self, id: u64) -> anyhow::Result<Value> {
        loop {
            let line = self.lines.next_line().await?.context("it ended")?;
            let mut message: Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?;
            if message["id"].as_u64() != Some(id) {
                continue;
            }
            if let Some(error) = message["error"]["message"].as_str() {
                bail!("{error}");
            }
            return Ok(message["result"].take());
        }
    }

    async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await?;
        Ok(self.stdin.flush().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripted(answers: &str) -> McpClient {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("read line; {answers}; read never")]);
        McpClient::new(command).unwrap()
    }

    #[tokio::test]
    async fn only_the_answer_to_the_request_counts() {
        let mut client = scripted(
            r#"echo '{"jsonrpc":"2.0","method":"notifications/x"}'; echo '{"id":9,"result":1}'; echo '{"id":1,"result":{"a":2}}'"#,
        );
        assert_eq!(client.request("tools/list", json!({})).await.unwrap(), json!({"a": 2}));
    }

    #[tokio::test]
    async fn errors_and_an_early_end_are_told() {
        let mut client = scripted(r#"echo '{"id":1,"error":{"code":-32000,"message":"no way"}}'"#);
        assert!(format!("{:#}", client.request("m", json!({})).await.unwrap_err()).contains("no way"));
        let mut client = scripted("exit 0");
        assert!(format!("{:#}", client.request("m", json!({})).await.unwrap_err()).contains("it ended"));
    }
}
