//! A scripted HTTP server in this process.

use std::{
    convert::Infallible,
    future::IntoFuture as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use ::http::{HeaderMap, Method, StatusCode};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

use super::*;

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl Ask {
    /// The JSON-RPC method, or the HTTP method where there is none.
    pub(super) fn name(&self) -> &str {
        self.body["method"].as_str().unwrap_or(self.method.as_str())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The result of a call: what it was called with.
    pub(super) fn echo(&self) -> Value {
        let text = self.body["params"]["arguments"].to_string();
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": { "content": [{ "type": "text", "text": text }] } })
    }
}

type Script = Box<dyn Fn(&Ask) -> Option<Response> + Send + Sync>;

struct Play {
    script: Script,
    asks: Mutex<Vec<Ask>>,
}

/// The server; it ends with this value.
pub(super) struct Web {
    pub(super) address: SocketAddr,
    play: Arc<Play>,
    tasks: JoinSet<()>,
}

impl Web {
    /// A server that answers as the script says, and as a plain server where the script says nothing.
    pub(super) async fn new(script: impl Fn(&Ask) -> Option<Response> + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), script).await
    }

    pub(super) async fn at(
        address: SocketAddr,
        script: impl Fn(&Ask) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let play = Arc::new(Play { script: Box::new(script), asks: Mutex::default() });
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(answer).with_state(Arc::clone(&play));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).into_future().await.unwrap() });
        Self { address, play, tasks }
    }

    /// Settings of a server at this one's path.
    pub(super) fn settings(&self, path: &str) -> ServerSettings {
        let url = url::Url::parse(&format!("http://{}{path}", self.address)).unwrap();
        let headers = BTreeMap::from([
            ("Authorization".to_owned(), Secret::new("Bearer sesame-42")),
            ("x-tenant".to_owned(), Secret::new("acme")),
        ]);
        ServerSettings { transport: Transport::Http { url, headers }, ..stdio("fake", "unused", &[]) }
    }

    pub(super) fn asks(&self) -> Vec<Ask> {
        self.play.asks.lock().unwrap().clone()
    }

    /// How often a method was asked for.
    pub(super) fn count(&self, name: &str) -> usize {
        self.asks().iter().filter(|ask| ask.name() == name).count()
    }

    /// A house with this server, once that is ready.
    pub(super) async fn house(&self) -> House {
        let house = House::new(vec![self.settings("/mcp")]);
        house.state("fake", ServerState::Ready).await;
        house
    }

    /// Stops to listen; connections break.
    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn answer(State(play): State<Arc<Play>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let ask = Ask {
        method: parts.method,
        path: parts.uri.path_and_query().unwrap().to_string(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    play.asks.lock().unwrap().push(ask.clone());
    (play.script)(&ask).unwrap_or_else(|| plain(&ask))
}

/// What a server without quirks answers.
pub(super) fn plain(ask: &Ask) -> Response {
    let result = match ask.name() {
        "initialize" => {
            let result = json!({
                "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                "serverInfo": { "name": "web", "version": "1" },
            });
            let mut response = json_response(&json!({ "jsonrpc": "2.0", "id": ask.body["id"], "result": result }));
            response.headers_mut().insert("mcp-session-id", "session-1".parse().unwrap());
            return response;
        }
        "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        "tools/call" => return json_response(&ask.echo()),
        "ping" => json!({}),
        "GET" => return status(405, ""),
        "DELETE" => return status(200, ""),
        _ => return status(202, ""),
    };
    json_response(&json!({ "jsonrpc": "2.0", "id": ask.body["id"], "result": result }))
}

pub(super) fn status(code: u16, body: &str) -> Response {
    (StatusCode::from_u16(code).unwrap(), body.to_owned()).into_response()
}

pub(super) fn with_header(mut response: Response, name: &'static str, value: &str) -> Response {
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

pub(super) fn json_response(value: &Value) -> Response {
    with_header(status(200, &value.to_string()), "content-type", "application/json")
}

/// A stream of these pieces that then ends.
pub(super) fn events(pieces: &[&str]) -> Response {
    let (sender, response) = open_events();
    for piece in pieces {
        sender.try_send((*piece).to_owned()).unwrap();
    }
    response
}

/// A stream that ends when its sender is dropped.
pub(super) fn open_events() -> (mpsc::Sender<String>, Response) {
    let (sender, receiver) = mpsc::channel(1000);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let body = Body::from_stream(stream.map(|piece: String| Ok::<_, Infallible>(Bytes::from(piece))));
    (sender, with_header(Response::new(body), "content-type", "text/event-stream"))
}

/// A body in the format of gzip; for the sake of a small test it is only wrapped.
pub(super) fn compressed(body: &str, kind: &str) -> Response {
    let length = u16::try_from(body.len()).unwrap();
    let mut checksum = u32::MAX;
    for byte in body.bytes() {
        checksum ^= u32::from(byte);
        for _ in 0..8 {
            checksum = (checksum >> 1) ^ (0xedb8_8320 & (checksum & 1).wrapping_neg());
        }
    }
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    bytes.extend(length.to_le_bytes());
    bytes.extend((!length).to_le_bytes());
    bytes.extend(body.bytes());
    bytes.extend((!checksum).to_le_bytes());
    bytes.extend(u32::from(length).to_le_bytes());
    let response = with_header(Response::new(Body::from(bytes)), "content-encoding", "gzip");
    with_header(response, "content-type", kind)
}
