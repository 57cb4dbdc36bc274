//! A raw MCP client on the pipes of a stdio server: it sends what it is told and keeps what it gets, verbatim.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{process::Group, wait::PATIENCE};

/// A conversation with a stdio MCP server.
#[derive(Debug)]
pub struct Session {
    process: Group,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    answers: HashMap<String, String>,
    notifications: Vec<Value>,
    next_id: u64,
}

/// The result of `tools/call`, in parts.
#[derive(Debug, Clone)]
pub struct ToolResult {
    /// All text blocks, joined with line ends.
    pub text: String,
    /// `isError`, false when it is missing.
    pub is_error: bool,
    /// `structuredContent` as JSON text with all its digits.
    pub structured: Option<String>,
    /// `_meta` as JSON text with all its digits.
    pub meta: Option<String>,
    /// The `result` member verbatim.
    pub raw: String,
}

impl Session {
    /// Starts the command with piped stdin and stdout. Its stderr stays where the command points it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        let mut process = Group::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let stdin = process.child().stdin.take();
        let stdout = process.child().stdout.take().expect("piped above");
        // A full channel makes the reader wait, and then the server: as with any slow client.
        let (sender, lines) = sync_channel(4096);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process, stdin, lines, answers: HashMap::new(), notifications: Vec::new(), next_id: 0 }
    }

    /// The handshake of a 2025-era client; the result of `initialize`.
    pub fn initialize(&mut self) -> Value {
        self.initialize_as("2025-06-18", "ptc-tests")
    }

    /// The same with a protocol version and a client name.
    pub fn initialize_as(&mut self, version: &str, client: &str) -> Value {
        let result = self.request(
            "initialize",
            &json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}),
        );
        self.notify("notifications/initialized", &json!({}));
        result
    }

    /// Sends a request and waits for its result.
    ///
    /// # Panics
    /// When the answer is an error or does not come.
    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{method} failed: {answer}");
        answer["result"].clone()
    }

    /// Sends a request and returns its id, to be given to [`Session::answer`] or [`Session::tool_result`].
    pub fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: &Value) {
        self.line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Sends a line as it is. Failures are ignored: a server that is gone shows when an answer is missing.
    pub fn line(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            drop(stdin.write_all(text.as_bytes()).and_then(|()| stdin.write_all(b"\n")).and_then(|()| stdin.flush()));
        }
    }

    /// The whole message that answers a request.
    ///
    /// # Panics
    /// When it does not come.
    pub fn answer(&mut self, id: u64) -> Value {
        serde_json::from_str(&self.answer_text(id)).expect("checked when it was received")
    }

    /// The same verbatim.
    ///
    /// # Panics
    /// When it does not come.
    pub fn answer_text(&mut self, id: u64) -> String {
        let key = id.to_string();
        let deadline = Instant::now() + PATIENCE * 2;
        loop {
            if let Some(found) = self.answers.remove(&key) {
                return found;
            }
            assert!(self.take_message(deadline), "no answer to request {id}");
        }
    }

    /// The result of a `tools/call` request.
    ///
    /// # Panics
    /// When the answer is an error or does not come.
    pub fn tool_result(&mut self, id: u64) -> ToolResult {
        #[derive(Deserialize)]
        struct Answer {
            result: Option<Box<RawValue>>,
        }
        let text = self.answer_text(id);
        let answer: Answer = serde_json::from_str(&text).expect("checked when it was received");
        let raw = answer.result.unwrap_or_else(|| panic!("not a result: {text}"));
        ToolResult::parse(raw.get())
    }

    /// Calls a tool and waits for its result.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> ToolResult {
        let id = self.send_call(tool, arguments);
        self.tool_result(id)
    }

    /// Sends a `tools/call` request and returns its id.
    pub fn send_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.send("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Runs a program.
    pub fn program(&mut self, code: &str) -> ToolResult {
        self.call("execute_program", &json!({"code": code}))
    }

    /// Sends a program and returns the id of the request.
    pub fn send_program(&mut self, code: &str) -> u64 {
        self.send_call("execute_program", &json!({"code": code}))
    }

    /// Waits for the first notification of this kind that was not asked for yet, and returns its parameters.
    ///
    /// # Panics
    /// When it does not come.
    pub fn notification(&mut self, method: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.notifications.iter().position(|message| message["method"] == method) {
                return self.notifications.remove(at)["params"].clone();
            }
            assert!(self.take_message(deadline), "no {method}; there were {:?}", self.notifications);
        }
    }

    /// Closes the server's stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until the server has ended.
    pub fn exit(&mut self, deadline: Duration) -> ExitStatus {
        self.process.exit(deadline)
    }

    /// The server's process.
    pub fn process(&mut self) -> &mut Group {
        &mut self.process
    }

    /// Takes one message from the server; false when none came before the deadline.
    fn take_message(&mut self, deadline: Instant) -> bool {
        let line = match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the server closed its stdout; it ended with {:?}", self.process.exit(PATIENCE))
            }
        };
        let message: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("stdout must hold MCP and nothing else ({error}): {line}"));
        if message.get("method").is_none() {
            self.answers.insert(message["id"].to_string(), line);
        } else {
            self.notifications.push(message);
        }
        true
    }
}

impl ToolResult {
    fn parse(raw: &str) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Parts {
            #[serde(default)]
            content: Vec<Value>,
            #[serde(default)]
            is_error: bool,
            structured_content: Option<Box<RawValue>>,
            #[serde(rename = "_meta")]
            meta: Option<Box<RawValue>>,
        }
        let parts: Parts =
            serde_json::from_str(raw).unwrap_or_else(|error| panic!("not a tool result ({error}): {raw}"));
        let texts: Vec<&str> = parts.content.iter().filter_map(|block| block["text"].as_str()).collect();
        Self {
            text: texts.join("\n"),
            is_error: parts.is_error,
            structured: parts.structured_content.map(|raw| raw.get().to_owned()),
            meta: parts.meta.map(|raw| raw.get().to_owned()),
            raw: raw.to_owned(),
        }
    }

    /// The program's outcome `{ok, output, result, error, tool_calls}`, wherever the result carries it.
    ///
    /// # Panics
    /// When it is nowhere.
    pub fn outcome(&self) -> Value {
        if let Some(structured) = &self.structured {
            return serde_json::from_str(structured).expect("checked when it was received");
        }
        let meta: Value =
            serde_json::from_str(self.meta.as_deref().unwrap_or("{}")).expect("checked when it was received");
        assert!(meta["ptc/outcome"].is_object(), "no outcome in {}", self.raw);
        meta["ptc/outcome"].clone()
    }

    /// What the program printed, of a program that ended well.
    ///
    /// # Panics
    /// When it did not end well.
    pub fn output(&self) -> String {
        assert!(!self.is_error, "the program failed: {}", self.text);
        self.outcome()["output"].as_str().expect("output is text").to_owned()
    }

    /// The text of a program that failed.
    ///
    /// # Panics
    /// When it ended well.
    pub fn failure(&self) -> &str {
        assert!(self.is_error, "the program should have failed: {}", self.text);
        &self.text
    }
}
