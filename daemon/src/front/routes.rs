//! The routes; each asks one module and shapes its answer.

use std::time::Duration;

use axum::{
    Json, Router,
    extract::{ConnectInfo, DefaultBodyLimit, Path, Query, Request, State, rejection::JsonRejection},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{delete, get, post},
};
use futures_util::{StreamExt as _, stream};
use ptc_protocol::{
    api::{
        API_VERSION, ConfigStatus, MAX_OUTPUT_PIECE, OUTPUT_PIECE, Problem, ProgramOutput, ProgramStatus, ReloadReport,
        RunRequest, SessionEvent, SessionRequest, Status, Stubs, ToolDescription, Tools, Version,
    },
    names::{ProgramId, ServerName, SessionId},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_stream::wrappers::{ReceiverStream, WatchStream};

use super::{Front, logs, problem::Failure, sessions::Session, socket::Peer, streams::ndjson};
use crate::{
    gateway::{Language, ToolQuery},
    runner::RunRefused,
    supervisor::RestartError,
};

/// Largest program with its envelope, in bytes.
const PROGRAM_BODY: usize = 16 << 20;

/// Largest body of any other request.
const BODY: usize = 64 << 10;

/// Lines of a log that are shown when nobody says how many.
const LOG_LINES: usize = 100;

/// Configured servers that are named where one is asked for that is not.
const SERVERS_NAMED: usize = 30;

/// How long a program waits for servers it names that are on their way.
const PROGRAM_WAITS: Duration = Duration::from_secs(15);

/// How long a list of tools waits for servers that are on their way.
const LIST_WAITS: Duration = Duration::from_secs(2);

pub(super) fn router(front: Front) -> Router {
    Router::new()
        .route("/v1/version", get(|| async { Json(version()) }))
        .route("/v1/status", get(status))
        .route("/v1/tools", get(tools))
        .route("/v1/tools/{name}", get(tool))
        .route("/v1/stubs", get(stubs))
        .route("/v1/sessions", post(session))
        .route("/v1/programs", get(programs))
        .route("/v1/programs", post(run).layer(DefaultBodyLimit::max(PROGRAM_BODY)))
        .route("/v1/programs/{id}", delete(cancel))
        .route("/v1/programs/{id}/output", get(output))
        .route("/v1/reload", post(reload))
        .route("/v1/servers/{name}/restart", post(restart))
        .route("/v1/logs", get(log))
        .fallback(|| async { Failure::new(StatusCode::NOT_FOUND, "bad_request", "no such route in API version 1") })
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn(own_user_only))
        .with_state(front)
}

async fn own_user_only(ConnectInfo(peer): ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    if peer.may_speak() {
        next.run(request).await
    } else {
        Failure::new(StatusCode::FORBIDDEN, "forbidden", "this socket serves its own user only").into_response()
    }
}

fn version() -> Version {
    Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api_min: API_VERSION,
        api_max: API_VERSION,
        pid: std::process::id(),
    }
}

async fn status(State(front): State<Front>) -> Json<Status> {
    let runner = front.runner.status();
    let servers = front.supervisor.status().borrow().to_vec();
    let mut config = front.reloader.status();
    config.warnings.extend(front.stubs_trouble.borrow().as_ref().map(|trouble| format!("stubs_dir: {trouble}")));
    Json(Status {
        daemon: front.daemon_status(),
        config,
        sandbox: runner.sandbox,
        pool: runner.pool,
        servers,
        sessions: front.sessions.list(),
        programs: front.runner.programs(),
    })
}

/// Query of `GET /v1/tools`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolsQuery {
    query: Option<String>,
    server: Option<String>,
    glob: Option<String>,
}

async fn tools(State(front): State<Front>, Query(asked): Query<ToolsQuery>) -> Result<Json<Tools>, Failure> {
    let named = asked.server.map(|name| server(&front, &name)).transpose()?;
    front.gateway.settled(|_| true, LIST_WAITS).await;
    let query = ToolQuery { query: asked.query, server: named.map(|name| name.to_string()), glob: asked.glob };
    let mut tools = front.gateway.tools(&query).map_err(|problem| Failure(StatusCode::BAD_REQUEST, problem))?;
    let ConfigStatus { error, .. } = front.reloader.status();
    tools.config_error = error;
    Ok(Json(tools))
}

async fn tool(State(front): State<Front>, Path(name): Path<String>) -> Result<Json<ToolDescription>, Failure> {
    front.gateway.describe(&name).map(Json).map_err(Failure::not_found)
}

/// Query of `GET /v1/stubs`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StubsQuery {
    language: Option<String>,
}

async fn stubs(State(front): State<Front>, Query(asked): Query<StubsQuery>) -> Result<Json<Stubs>, Failure> {
    let name = asked.language.as_deref().unwrap_or("python");
    let language = Language::named(name).ok_or_else(|| {
        Failure::bad_request(format!("no declarations in `{name}`, only in `python` and `typescript`"))
    })?;
    Ok(Json(front.gateway.stubs(language)))
}

/// The body, or a sentence that says what is wrong with it.
fn body<T>(parsed: Result<Json<T>, JsonRejection>) -> Result<T, Failure> {
    match parsed {
        Ok(Json(value)) => Ok(value),
        Err(JsonRejection::BytesRejection(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(Failure::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                format!("the body is over the limit of {PROGRAM_BODY} bytes"),
            ))
        }
        Err(rejection) => Err(Failure::bad_request(rejection.body_text())),
    }
}

/// Strikes a session out, and tells the supervisor, when its stream is dropped.
struct OpenSession {
    session: Option<Session>,
    ends: tokio::sync::mpsc::Sender<SessionId>,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && self.ends.try_send(session.id.clone()).is_err()
        {
            tracing::warn!(session = %session.id, "end of session not told");
        }
    }
}

async fn session(
    State(front): State<Front>,
    request: Result<Json<SessionRequest>, JsonRejection>,
) -> Result<Response, Failure> {
    let request = body(request)?;
    let Some(session) = front.sessions.begin(&request) else {
        return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "bad_request", "no session id could be made"));
    };
    tracing::info!(session = %session.id, pid = request.pid, "session began");
    let welcome = SessionEvent::Welcome { session: session.id.clone(), daemon: version() };
    let open = OpenSession { session: Some(session), ends: front.session_ends.clone() };
    let catalogs = WatchStream::new(front.gateway.summaries()).map(move |summary| {
        let _open = &open;
        SessionEvent::Catalog(summary)
    });
    let events = stream::once(async { welcome }).chain(catalogs);
    Ok(ndjson(events.take_until(front.stopping.cancelled_owned())))
}

async fn run(
    State(front): State<Front>,
    request: Result<Json<RunRequest>, JsonRejection>,
) -> Result<Response, Failure> {
    let request = body(request)?;
    if let Some(session) = request.session.as_ref().filter(|id| !front.sessions.knows(id)) {
        let message =
            format!("session `{session}` is not open here: it has ended, or ptcd was restarted; begin another");
        return Err(Failure::new(StatusCode::NOT_FOUND, Problem::UNKNOWN_SESSION, message));
    }
    front.gateway.settled(|server| names_server(&request.code, &server.ident), PROGRAM_WAITS).await;
    match front.runner.run(request).await {
        Ok((_, events)) => Ok(ndjson(ReceiverStream::new(events))),
        Err(error @ RunRefused::Busy) => Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, "busy", error.to_string())),
        Err(error @ RunRefused::Stopping) => {
            Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error.to_string()))
        }
    }
}

/// Whether a program speaks of a server: by itself, or in the name of one of its tools.
fn names_server(code: &str, ident: &str) -> bool {
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| {
        let rest = word.strip_prefix("mcp__").and_then(|name| name.strip_prefix(ident));
        word == ident || rest.is_some_and(|rest| rest.starts_with("__"))
    })
}

async fn programs(State(front): State<Front>) -> Json<Vec<ProgramStatus>> {
    Json(front.runner.programs())
}

async fn cancel(State(front): State<Front>, Path(id): Path<String>) -> Result<Json<Value>, Failure> {
    let id = ProgramId::parse(id).map_err(|error| Failure::bad_request(error.to_string()))?;
    if front.runner.cancel(&id) {
        Ok(Json(json!({})))
    } else {
        let message = format!("no program `{id}` waits or runs; `ptcctl ps` lists them");
        Err(Failure::new(StatusCode::NOT_FOUND, "unknown_program", message))
    }
}

/// Query of `GET /v1/programs/{id}/output`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputQuery {
    offset: u64,
    limit: Option<u64>,
}

async fn output(
    State(front): State<Front>,
    Path(id): Path<String>,
    Query(asked): Query<OutputQuery>,
) -> Result<Json<ProgramOutput>, Failure> {
    let id = ProgramId::parse(id).map_err(|error| Failure::bad_request(error.to_string()))?;
    let limit =
        asked.limit.map_or(OUTPUT_PIECE, |limit| usize::try_from(limit).unwrap_or(usize::MAX)).min(MAX_OUTPUT_PIECE);
    front
        .runner
        .output(&id, asked.offset, limit)
        .map(Json)
        .map_err(|error| Failure::new(StatusCode::NOT_FOUND, "unknown_program", error.to_string()))
}

async fn reload(State(front): State<Front>) -> Json<ReloadReport> {
    Json(front.reloader.reload().await)
}

async fn restart(State(front): State<Front>, Path(name): Path<String>) -> Result<Json<Value>, Failure> {
    let name = server(&front, &name)?;
    let restarted = front.supervisor.restart(&name).await;
    restarted.map(|()| Json(json!({}))).map_err(|error| match &error {
        RestartError::Unknown { .. } => Failure::new(StatusCode::NOT_FOUND, "unknown_server", error.to_string()),
        RestartError::Disabled { .. } => Failure::new(StatusCode::CONFLICT, "disabled", error.to_string()),
    })
}

/// A configured server by name; `_` and `-` are the same to a person.
fn server(front: &Front, name: &str) -> Result<ServerName, Failure> {
    let status = front.supervisor.status();
    let known: Vec<ServerName> = status.borrow().iter().map(|server| server.name.clone()).collect();
    let same = |known: &&ServerName| known.as_str() == name || known.namespace() == name.replace('-', "_");
    if let Some(found) = known.iter().find(same) {
        return Ok(found.clone());
    }
    let names: Vec<&str> = known.iter().map(ServerName::as_str).take(SERVERS_NAMED).collect();
    let there = if names.is_empty() { "there is none".to_owned() } else { format!("there are: {}", names.join(", ")) };
    let message = format!("no server `{name}` is configured; {there}");
    let mut failure = Failure::new(StatusCode::NOT_FOUND, "unknown_server", message);
    failure.1.close_matches = known
        .iter()
        .filter(|known| strsim::jaro_winkler(known.as_str(), name) > 0.75)
        .map(|known| known.as_str().to_owned())
        .collect();
    Err(failure)
}

/// Query of `GET /v1/logs`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LogsQuery {
    server: Option<String>,
    lines: Option<usize>,
    follow: bool,
}

async fn log(State(front): State<Front>, Query(asked): Query<LogsQuery>) -> Result<Response, Failure> {
    let server = asked.server.map(|name| server(&front, &name)).transpose()?;
    let file = logs::file(&front.log_dir, server.as_ref());
    let lines = logs::lines(file, server, asked.lines.unwrap_or(LOG_LINES), asked.follow).await;
    Ok(ndjson(lines.take_until(front.stopping.cancelled_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_for_servers_it_names_and_not_for_others() {
        assert!(names_server("await mcp__s__echo()", "s") && names_server("from servers import s", "s"));
        assert!(names_server("print(servers.a_b.x())", "a_b"));
        assert!(!names_server("print(await mcp__server__sums())", "s") && !names_server("await mcp__a_b__x()", "a"));
    }
}
