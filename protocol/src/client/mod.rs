//! The client of the control API: HTTP/1.1 over the daemon's Unix socket, with a small pool of kept connections.
//!
//! Nothing here runs by itself: a connection is driven by the request or stream that uses it, and dropping either closes
//! the socket at once. A request is sent again only when it provably was not sent, or when it is a `GET`.

mod connection;
mod error;
mod stream;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, header};
use serde::{Serialize, de::DeserializeOwned};

use self::connection::{Connection, Unanswered};
pub use self::{error::ClientError, stream::EventStream};
use crate::{
    api::{
        LogLine, Problem, ProgramEvent, ProgramOutput, ProgramStatus, ReloadReport, RunRequest, SessionEvent,
        SessionRequest, Status, Stubs, ToolDescription, Tools, Version,
    },
    names::{ProgramId, ServerName},
};

/// How long one request may take, from the connect to the last byte of its answer; for a stream, to its head.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// Largest answer, and largest line of an event stream, in bytes.
pub const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Kept connections that wait for their next request; more are closed.
const MAX_IDLE: usize = 4;

/// A handle on one daemon's socket. Clones share the pool.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
    deadline: Duration,
}

/// What narrows `GET /v1/tools`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolsQuery {
    /// Words to rank by.
    pub query: Option<String>,
    /// One server only, as the config or as tool names spell it.
    pub server: Option<String>,
    /// Names that match this glob only.
    pub glob: Option<String>,
}

/// What narrows `GET /v1/logs`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogsQuery {
    /// One server's log; the daemon's own without it.
    pub server: Option<String>,
    /// The last so many lines.
    pub lines: Option<usize>,
    /// Goes on with new lines as they come.
    pub follow: bool,
}

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Client {
    /// A client of the daemon at the socket. Connects at the first request.
    #[must_use]
    pub fn connect_lazy(socket: impl Into<PathBuf>) -> Self {
        let shared = Shared { socket: socket.into(), idle: Mutex::new(Vec::new()) };
        Self { shared: Arc::new(shared), deadline: REQUEST_DEADLINE }
    }

    /// The same pool with another deadline per request, in place of [`REQUEST_DEADLINE`].
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { shared: Arc::clone(&self.shared), deadline }
    }

    /// The socket this client talks to.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.shared.socket
    }

    /// What the daemon is, checked against this build's API range.
    ///
    /// # Errors
    /// As [`Client::get`]; [`ClientError::Incompatible`] when the ranges do not overlap.
    pub async fn version(&self) -> Result<Version, ClientError> {
        let (status, body) = self.exchange(Method::GET, "/v1/version", Bytes::new()).await?;
        let version: Version = decode("GET /v1/version", status, &body)?;
        version.check()?;
        Ok(version)
    }

    /// `GET` of a JSON value. `path` begins with `/v1/` and is already escaped.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.request(Method::GET, path, Bytes::new()).await
    }

    /// `POST` of a JSON body, answered by a JSON value.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn post<B: Serialize + Sync, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, ClientError> {
        self.request(Method::POST, path, encode(path, body)?).await
    }

    /// `DELETE`, answered by a JSON value.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.request(Method::DELETE, path, Bytes::new()).await
    }

    /// A request answered by a stream of JSON lines, on a connection of its own. Dropping the stream closes it.
    ///
    /// # Errors
    /// Any [`ClientError`]; the deadline holds until the head of the answer is there.
    pub async fn stream<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<EventStream<T>, ClientError> {
        let body = body.map_or(Ok(Bytes::new()), |body| encode(path, body))?;
        let what = format!("{method} {path}");
        let request = build(method, path, body)?;
        let opened = async {
            let mut connection = Connection::open(self.socket()).await?;
            let answer = connection.send(request).await.map_err(Unanswered::into_error)?;
            Ok::<_, ClientError>((connection, answer))
        };
        let (mut connection, answer) = self.within_deadline(opened).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(EventStream::new(what, connection, answer.into_body()));
        }
        let body = self.within_deadline(connection.collect(answer.into_body(), MAX_ANSWER_BYTES)).await?;
        let refused = decode::<serde::de::IgnoredAny>(&what, status, &body).err();
        Err(self.explain(refused.unwrap_or(ClientError::Malformed { what, detail: status.to_string() })).await)
    }

    /// `GET /v1/status`.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status").await
    }

    /// `GET /v1/tools`.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn tools(&self, narrow: &ToolsQuery) -> Result<Tools, ClientError> {
        let pairs = [("query", &narrow.query), ("server", &narrow.server), ("glob", &narrow.glob)];
        let pairs = pairs.into_iter().filter_map(|(key, value)| Some((key, value.clone()?)));
        self.get(&with_query("/v1/tools", pairs)).await
    }

    /// `GET /v1/tools/{name}`; any text is a name here, the daemon answers with close matches.
    ///
    /// # Errors
    /// Any [`ClientError`]; a [`Problem`] with code `unknown_tool`.
    pub async fn tool(&self, name: &str) -> Result<ToolDescription, ClientError> {
        self.get(&format!("/v1/tools/{}", escape(name))).await
    }

    /// `GET /v1/stubs`.
    ///
    /// # Errors
    /// Any [`ClientError`]; a [`Problem`] with code `bad_request` for a language that is none.
    pub async fn stubs(&self, language: &str) -> Result<Stubs, ClientError> {
        self.get(&with_query("/v1/stubs", [("language", language.to_owned())].into_iter())).await
    }

    /// `POST /v1/programs`. Dropping the stream kills the program.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn run(&self, request: &RunRequest) -> Result<EventStream<ProgramEvent>, ClientError> {
        self.stream(Method::POST, "/v1/programs", Some(request)).await
    }

    /// `POST /v1/sessions`. The session lives as long as the stream.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn session(&self, request: &SessionRequest) -> Result<EventStream<SessionEvent>, ClientError> {
        self.stream(Method::POST, "/v1/sessions", Some(request)).await
    }

    /// `GET /v1/programs`.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn programs(&self) -> Result<Vec<ProgramStatus>, ClientError> {
        self.get("/v1/programs").await
    }

    /// `DELETE /v1/programs/{id}`.
    ///
    /// # Errors
    /// Any [`ClientError`]; a [`Problem`] with code `unknown_program`.
    pub async fn cancel(&self, program: &ProgramId) -> Result<(), ClientError> {
        self.delete::<serde::de::IgnoredAny>(&format!("/v1/programs/{}", escape(program.as_str()))).await.map(drop)
    }

    /// `GET /v1/programs/{id}/output`; `limit` in bytes, the daemon's own without it.
    ///
    /// # Errors
    /// Any [`ClientError`]; a [`Problem`] with code `unknown_program`.
    pub async fn output(&self, program: &str, offset: u64, limit: Option<u64>) -> Result<ProgramOutput, ClientError> {
        let pairs = [Some(("offset", offset.to_string())), limit.map(|limit| ("limit", limit.to_string()))];
        self.get(&with_query(&format!("/v1/programs/{}/output", escape(program)), pairs.into_iter().flatten())).await
    }

    /// `POST /v1/reload`.
    ///
    /// # Errors
    /// Any [`ClientError`]; a [`Problem`] with code `bad_config`.
    pub async fn reload(&self) -> Result<ReloadReport, ClientError> {
        self.post("/v1/reload", &()).await
    }

    /// `POST /v1/servers/{name}/restart`.
    ///
    /// # Errors
    /// Any [`ClientError`]; a [`Problem`] with code `unknown_server` or `disabled`.
    pub async fn restart(&self, server: &ServerName) -> Result<(), ClientError> {
        let path = format!("/v1/servers/{}/restart", escape(server.as_str()));
        self.post::<_, serde::de::IgnoredAny>(&path, &()).await.map(drop)
    }

    /// `GET /v1/logs`.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn logs(&self, narrow: &LogsQuery) -> Result<EventStream<LogLine>, ClientError> {
        let server = narrow.server.clone().map(|server| ("server", server));
        let lines = narrow.lines.map(|lines| ("lines", lines.to_string()));
        let follow = narrow.follow.then(|| ("follow", "true".to_owned()));
        let path = with_query("/v1/logs", [server, lines, follow].into_iter().flatten());
        self.stream::<(), _>(Method::GET, &path, None).await
    }

    async fn request<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, ClientError> {
        let what = format!("{method} {path}");
        let (status, body) = self.exchange(method, path, body).await?;
        match decode(&what, status, &body) {
            Ok(value) => Ok(value),
            Err(error) => Err(self.explain(error).await),
        }
    }

    /// An answer that makes no sense may come from a daemon of another API: asks what it is before blaming the answer.
    async fn explain(&self, error: ClientError) -> ClientError {
        if !matches!(error, ClientError::Malformed { .. }) {
            return error;
        }
        match Box::pin(self.version()).await {
            Err(incompatible @ ClientError::Incompatible(_)) => incompatible,
            _ => error,
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), ClientError> {
        let repeatable = method == Method::GET;
        let mut request = build(method, path, body)?;
        self.within_deadline(async {
            while let Some(mut kept) = self.take_idle() {
                if !kept.is_alive().await {
                    continue;
                }
                let again = repeatable.then(|| request.clone());
                match self.finish(kept, request).await {
                    Err(Unanswered::NotSent { request: unsent, .. }) => request = unsent,
                    Err(Unanswered::Lost(error)) => match again {
                        Some(again) => request = again,
                        None => return Err(ClientError::Lost { maybe_executed: true, source: error }),
                    },
                    Err(Unanswered::Other(error)) => return Err(error),
                    Ok(answer) => return Ok(answer),
                }
            }
            let fresh = Connection::open(self.socket()).await?;
            self.finish(fresh, request).await.map_err(Unanswered::into_error)
        })
        .await
    }

    /// Sends, reads the whole answer and gives the connection back to the pool.
    async fn finish(
        &self,
        mut connection: Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Unanswered> {
        let answer = connection.send(request).await?;
        let status = answer.status();
        let body = connection.collect(answer.into_body(), MAX_ANSWER_BYTES).await.map_err(Unanswered::Other)?;
        let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
        Ok((status, body))
    }

    fn take_idle(&self) -> Option<Connection> {
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn within_deadline<T>(&self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        match tokio::time::timeout(self.deadline, work).await {
            Ok(done) => done,
            Err(_) => {
                Err(ClientError::Deadline { socket: self.socket().to_owned(), seconds: self.deadline.as_secs_f64() })
            }
        }
    }
}

/// Escapes text so that it is one path segment or one query value.
#[must_use]
pub fn escape(text: &str) -> String {
    let hex = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    out
}

fn with_query(path: &str, pairs: impl Iterator<Item = (&'static str, String)>) -> String {
    let mut out = path.to_owned();
    for (at, (key, value)) in pairs.enumerate() {
        out.push(if at == 0 { '?' } else { '&' });
        out.push_str(key);
        out.push('=');
        out.push_str(&escape(&value));
    }
    out
}

fn build(method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "ptcd")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(|error| ClientError::Malformed { what: format!("request {path}"), detail: error.to_string() })
}

fn encode<B: Serialize>(path: &str, body: &B) -> Result<Bytes, ClientError> {
    serde_json::to_vec(body)
        .map(Bytes::from)
        .map_err(|error| ClientError::Malformed { what: format!("request {path}"), detail: error.to_string() })
}

fn decode<T: DeserializeOwned>(what: &str, status: StatusCode, body: &[u8]) -> Result<T, ClientError> {
    let malformed = |detail: String| ClientError::Malformed { what: what.to_owned(), detail };
    if status.is_success() {
        return serde_json::from_slice(body).map_err(|error| malformed(error.to_string()));
    }
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => Err(ClientError::Problem(problem)),
        Err(_) => Err(malformed(format!("status {status} without an explanation"))),
    }
}

#[cfg(test)]
mod tests;
