//! A scripted daemon on a socket of its own, and a client that speaks raw JSON-RPC to the shim.
#![expect(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![expect(clippy::unwrap_used, reason = "a helper of tests")]

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use ptc_protocol::{
    api::{CatalogSummary, Problem, ServerToolCount, Version},
    launch::{Autostart, Launch},
    names::ServerName,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf},
    net::UnixListener,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_stream::wrappers::ReceiverStream;

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What the daemon has seen.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub sessions: Vec<Value>,
    pub runs: Vec<Value>,
    pub queries: Vec<String>,
    pub killed: usize,
}

#[derive(Clone)]
pub struct Script {
    pub seen: Arc<watch::Sender<Seen>>,
    pub catalog: Arc<watch::Sender<CatalogSummary>>,
    pub version: Version,
    /// Sessions up to this number belong to an earlier daemon.
    pub first_session: usize,
    pub tools: Arc<Mutex<Value>>,
}

impl Default for Script {
    fn default() -> Self {
        let tools = json!({"tools": [{"name": "mcp__fin__query", "server": "fin", "signature": "mcp__fin__query(t: str) -> dict"}]});
        Self {
            seen: Arc::new(watch::Sender::default()),
            catalog: Arc::new(watch::Sender::new(catalog(1, 4))),
            version: Version { version: "0.0.0-fake".into(), pid: 4242, ..Version::current() },
            first_session: 0,
            tools: Arc::new(Mutex::new(tools)),
        }
    }
}

pub fn catalog(generation: u64, tools: usize) -> CatalogSummary {
    CatalogSummary {
        generation,
        servers: vec![ServerToolCount { server: ServerName::parse("fin-data").unwrap(), tools }],
        read_output: false,
    }
}

/// A running daemon; dropping it closes every connection, as a crash does.
pub struct Daemon {
    tasks: JoinSet<()>,
}

pub struct Home {
    pub folder: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("d.sock")
    }

    pub fn launch(&self) -> Launch {
        Launch::new(Some(&self.socket()), None, None, Autostart::Forbidden).unwrap()
    }

    /// Starts a daemon that follows the script.
    pub fn daemon(&self, script: &Script) -> Daemon {
        drop(std::fs::remove_file(self.socket()));
        let listener = UnixListener::bind(self.socket()).unwrap();
        let router = Router::new()
            .route("/v1/version", get(async |State(script): State<Script>| Json(script.version)))
            .route("/v1/sessions", post(session))
            .route("/v1/programs", post(program))
            .route("/v1/tools", get(tools))
            .route("/v1/tools/{name}", get(tool))
            .layer(axum::extract::DefaultBodyLimit::max(64 << 20))
            .with_state(script.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { serve(listener, router).await });
        Daemon { tasks }
    }
}

/// Each connection is a task of this one, so that all of them end with it.
async fn serve(listener: UnixListener, router: Router) {
    axum::serve(listener, router).await.unwrap();
}

impl Daemon {
    /// Ends it as a crash does. The listener closes; open connections end when their handlers do.
    pub async fn crash(mut self, script: &Script) {
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        // Handlers of open streams live in tasks of their own; this tells them to break off.
        script.seen.send_modify(|_| {});
        script.catalog.send_modify(|catalog| catalog.generation = u64::MAX);
    }
}

async fn session(State(script): State<Script>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let mut number = 0;
    script.seen.send_modify(|seen| {
        seen.sessions.push(request);
        number = seen.sessions.len();
    });
    let (lines, stream) = mpsc::channel::<Result<String, std::io::Error>>(8);
    let welcome = json!({"welcome": {"session": format!("s-{number}"), "daemon": script.version}});
    let mut catalog = script.catalog.subscribe();
    let mut owner = JoinSet::new();
    owner.spawn(async move {
        drop(lines.send(Ok(format!("{welcome}\n"))).await);
        loop {
            let known = catalog.borrow_and_update().clone();
            let line = if known.generation == u64::MAX {
                Err(std::io::Error::other("crash"))
            } else {
                Ok(format!("{}\n", json!({"catalog": known})))
            };
            let ends = line.is_err();
            if lines.send(line).await.is_err() || ends {
                return;
            }
            tokio::select! {
                changed = catalog.changed() => if changed.is_err() { return },
                () = lines.closed() => return,
            }
        }
    });
    owner.detach_all();
    Body::from_stream(ReceiverStream::new(stream)).into_response()
}

/// The code says what happens: `ok`, `fail`, `hang`, `die`, `busy`, `calls`.
async fn program(State(script): State<Script>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let code = request["code"].as_str().unwrap().to_owned();
    let session = request["session"].as_str().map(|id| id.trim_start_matches("s-").parse::<usize>().unwrap());
    if session.is_some_and(|number| number <= script.first_session || number > script.seen.borrow().sessions.len()) {
        let problem = Problem { code: "unknown_session".into(), message: "who?".into(), close_matches: vec![] };
        return (StatusCode::NOT_FOUND, Json(problem)).into_response();
    }
    script.seen.send_modify(|seen| seen.runs.push(request));
    if code == "busy" {
        let problem =
            Problem { code: "busy".into(), message: "32 programs wait already".into(), close_matches: vec![] };
        return (StatusCode::SERVICE_UNAVAILABLE, Json(problem)).into_response();
    }
    let (lines, stream) = mpsc::channel::<Result<String, std::io::Error>>(8);
    let mut owner = JoinSet::new();
    owner.spawn(async move {
        let send = async |value: Value| lines.send(Ok(format!("{value}\n"))).await.is_ok();
        let mut outcome = json!({"program": "p-1", "ok": true, "output": format!("{code}\n"), "elapsed_ms": 5});
        send(json!({"queued": {"program": "p-1", "ahead": 0}})).await;
        send(json!({"started": {"program": "p-1"}})).await;
        send(json!({"call_started": {"call": 1, "tool": "mcp__fin__query"}})).await;
        match code.as_str() {
            "fail" => {
                outcome["ok"] = false.into();
                outcome["error"] = json!({"kind": "program", "message": "ValueError: no"});
            }
            "hang" => {
                send(json!({"output": {"stream": "stdout", "text": "so far\n"}})).await;
                let mut crash = script.catalog.subscribe();
                let crashed = async { drop(crash.wait_for(|catalog| catalog.generation == u64::MAX).await) };
                tokio::select! {
                    () = lines.closed() => script.seen.send_modify(|seen| seen.killed += 1),
                    () = crashed => drop(lines.send(Err(std::io::Error::other("crash"))).await),
                }
                return;
            }
            "die" => {
                drop(lines.send(Err(std::io::Error::other("crash"))).await);
                return;
            }
            "quiet end" => return,
            "slow" => tokio::time::sleep(Duration::from_millis(2300)).await,
            _ => {}
        }
        send(json!({"outcome": outcome})).await;
    });
    owner.detach_all();
    Body::from_stream(ReceiverStream::new(stream)).into_response()
}

async fn tools(State(script): State<Script>, Query(query): Query<Vec<(String, String)>>) -> Json<Value> {
    script.seen.send_modify(|seen| seen.queries.push(format!("{query:?}")));
    let tools = script.tools.lock().unwrap().clone();
    Json(tools)
}

async fn tool(Path(name): Path<String>) -> Response {
    if name == "mcp__fin__query" {
        return Json(json!({
            "name": name, "description": "d", "inputSchema": {"type": "object"}, "outputSchema": null,
            "signature": "mcp__fin__query(t: str) -> dict",
        }))
        .into_response();
    }
    let close = vec!["mcp__fin__query".to_owned()];
    let problem = Problem { code: "unknown_tool".into(), message: format!("no {name}"), close_matches: close };
    (StatusCode::NOT_FOUND, Json(problem)).into_response()
}

/// An MCP client on the other end of a pair of pipes.
pub struct Client {
    writer: Option<WriteHalf<DuplexStream>>,
    reader: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    shim: JoinSet<()>,
    pub others: Vec<Value>,
    next_id: u64,
    pub patience: Duration,
}

impl Client {
    pub fn connect(launch: Launch) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (shim_reader, shim_writer) = tokio::io::split(theirs);
        let (reader, writer) = tokio::io::split(ours);
        let mut shim = JoinSet::new();
        shim.spawn(ptc_shim::serve(shim_reader, shim_writer, Ok(launch)));
        let reader = BufReader::new(reader).lines();
        Self { writer: Some(writer), reader, shim, others: vec![], next_id: 100, patience: PATIENCE }
    }

    /// Connects and does the handshake as a client of that name.
    pub async fn initialized(launch: Launch, name: &str) -> Self {
        let mut client = Self::connect(launch);
        let answer = client.initialize(name, "2025-11-25").await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "ptc", "{answer}");
        client
    }

    pub async fn initialize(&mut self, name: &str, version: &str) -> Value {
        let params =
            json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": name, "version": "1.2"}});
        let answer = self.request("initialize", params).await;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        answer
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        let writer = self.writer.as_mut().expect("still open");
        writer.write_all(bytes).await.unwrap();
        writer.flush().await.unwrap();
    }

    pub async fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    /// Sends a request and returns its id.
    pub async fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(id).await
    }

    pub async fn call(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": name, "arguments": arguments})).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// The next message of the shim.
    pub async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(self.patience, self.reader.next_line()).await;
        let line = line.expect("the shim answers in time").unwrap().expect("the shim is still there");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The answer with that id; other messages are kept.
    pub async fn answer(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.others.push(message);
        }
    }

    /// The next notification of that method, also one that came before.
    pub async fn notification(&mut self, method: &str) -> Value {
        if let Some(at) = self.others.iter().position(|message| message["method"] == method) {
            return self.others.remove(at);
        }
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
            self.others.push(message);
        }
    }

    /// Closes the client's end and waits for the shim to end.
    pub async fn close(&mut self) -> Duration {
        let mut writer = self.writer.take().expect("still open");
        let began = std::time::Instant::now();
        writer.shutdown().await.unwrap();
        drop(writer);
        tokio::time::timeout(PATIENCE, self.shim.join_next()).await.expect("the shim ends").unwrap().unwrap();
        began.elapsed()
    }
}

/// Waits until the daemon has seen it.
pub async fn until(script: &Script, what: impl FnMut(&Seen) -> bool) -> Seen {
    let mut news = script.seen.subscribe();
    let seen = tokio::time::timeout(PATIENCE, news.wait_for(what)).await;
    seen.expect("the daemon sees it in time").unwrap().clone()
}

pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}
