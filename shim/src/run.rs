//! `execute_program`: hands the program to the daemon and follows it to its end. Dropping the future kills the program.

use std::time::Instant;

use ptc_protocol::{
    api::{Outcome, Problem, ProgramEvent, RunRequest},
    client::{Client, ClientError, EventStream},
    names::SessionId,
};
use rmcp::{
    Peer, RoleServer,
    model::{CallToolResult, ProgressNotificationParam, ProgressToken},
};

use crate::{
    answer::{self, Reading},
    link::{Link, NoDaemon, Trust, chain},
    progress::{PACE, Watch},
};

/// Where progress goes.
#[derive(Debug)]
pub(crate) struct ProgressSink {
    pub(crate) peer: Peer<RoleServer>,
    pub(crate) token: ProgressToken,
}

/// A program to run.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) code: String,
    pub(crate) timeout_seconds: Option<u64>,
    /// The client's own id of the request, for the daemon's records.
    pub(crate) client_request: Option<String>,
}

/// Runs the program and tells how it went. Never fails: what goes wrong is in the result, for the model to read.
pub(crate) async fn run(
    link: &Link,
    program: Program,
    progress: Option<ProgressSink>,
    reading: Reading,
) -> CallToolResult {
    let mut watch = Watch::new(Instant::now());
    let begun = tokio::select! {
        begun = begin(link, program) => begun,
        // Starting a daemon may take a while, and a client counts silence.
        never = tick(&mut watch, progress.as_ref()) => match never {},
    };
    let mut events = match begun {
        Ok(events) => events,
        Err(refusal) => return answer::failure(refusal.to_string()),
    };
    match follow(&mut events, &mut watch, progress.as_ref()).await {
        Ok(Some(outcome)) => answer::outcome(&outcome, reading),
        Ok(None) => answer::failure(unknown_outcome("it ended the run without a result", &watch)),
        Err(error) => answer::failure(unknown_outcome(&chain(&error), &watch)),
    }
}

/// Why nothing ran, or perhaps nothing.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("[ptcd not available] {0}. Nothing was run.")]
    NoDaemon(#[from] NoDaemon),
    #[error("[Script not run] {message}")]
    Problem { message: String },
    #[error("[Outcome unknown] {message}. The program may or may not have started; it was not retried.")]
    Unknown { message: String },
    #[error("[ptcd not available] {message}. Nothing was run.")]
    NotSent { message: String },
}

async fn begin(link: &Link, program: Program) -> Result<EventStream<ProgramEvent>, Refusal> {
    let (client, session) = link.daemon(Trust::Snapshot).await?;
    let mut request = RunRequest {
        code: program.code,
        session,
        timeout_seconds: program.timeout_seconds,
        client_request: program.client_request,
        stream_output: false,
    };
    match send(&client, &request).await {
        Err(Attempt { again: Some(failed), .. }) => {
            let (client, session) = link.daemon(Trust::Doubted(failed)).await?;
            request.session = session;
            send(&client, &request).await.map_err(|attempt| attempt.refusal)
        }
        Err(attempt) => Err(attempt.refusal),
        Ok(events) => Ok(events),
    }
}

/// A request that was not taken on.
struct Attempt {
    refusal: Refusal,
    /// It certainly did not reach a daemon, so it can be sent again; with the session it was sent under.
    again: Option<Option<SessionId>>,
}

async fn send(client: &Client, request: &RunRequest) -> Result<EventStream<ProgramEvent>, Attempt> {
    client.run(request).await.map_err(|error| {
        let message = chain(&error);
        match error {
            ClientError::Unreachable { .. } | ClientError::Lost { maybe_executed: false, .. } => {
                Attempt { refusal: Refusal::NotSent { message }, again: Some(request.session.clone()) }
            }
            // The daemon was restarted and we have not heard of it yet.
            ClientError::Problem(problem) if problem.code == Problem::UNKNOWN_SESSION => {
                Attempt { refusal: Refusal::Problem { message }, again: Some(request.session.clone()) }
            }
            ClientError::Problem(_) => Attempt { refusal: Refusal::Problem { message }, again: None },
            ClientError::Foreign { .. } | ClientError::Incompatible(_) => {
                Attempt { refusal: Refusal::NotSent { message }, again: None }
            }
            ClientError::Lost { .. }
            | ClientError::Deadline { .. }
            | ClientError::TooLarge { .. }
            | ClientError::Malformed { .. } => Attempt { refusal: Refusal::Unknown { message }, again: None },
        }
    })
}

async fn follow(
    events: &mut EventStream<ProgramEvent>,
    watch: &mut Watch,
    progress: Option<&ProgressSink>,
) -> Result<Option<Outcome>, ClientError> {
    let mut telling = None;
    loop {
        let event = tokio::select! {
            event = events.next() => Some(event?),
            () = pause(&mut telling) => None,
        };
        match event {
            Some(None) => return Ok(None),
            Some(Some(ProgramEvent::Outcome(outcome))) => return Ok(Some(*outcome)),
            Some(Some(event)) => watch.see(&event),
            None => {}
        }
        if let Some(sink) = progress
            && telling.is_none()
        {
            telling = Some(Telling::Waiting(Box::pin(tokio::time::sleep(PACE / 4))));
            if let Some((seconds, sentence)) = watch.due(Instant::now()) {
                telling = Some(Telling::Sending(Box::pin(tell(sink, seconds, sentence))));
            }
        }
    }
}

/// What the progress side does beside the events: it must never hold them up.
enum Telling<'a> {
    Waiting(std::pin::Pin<Box<tokio::time::Sleep>>),
    Sending(std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>>),
}

async fn pause(telling: &mut Option<Telling<'_>>) {
    match telling {
        None => std::future::pending().await,
        Some(Telling::Waiting(sleep)) => sleep.await,
        Some(Telling::Sending(sending)) => sending.await,
    }
    *telling = None;
}

async fn tick(watch: &mut Watch, progress: Option<&ProgressSink>) -> std::convert::Infallible {
    let Some(sink) = progress else { return std::future::pending().await };
    loop {
        tokio::time::sleep(PACE).await;
        if let Some((seconds, sentence)) = watch.due(Instant::now()) {
            tell(sink, seconds, sentence).await;
        }
    }
}

async fn tell(sink: &ProgressSink, seconds: f64, sentence: String) {
    let news = ProgressNotificationParam::new(sink.token.clone(), seconds).with_message(sentence);
    if let Err(error) = sink.peer.notify_progress(news).await {
        tracing::debug!(%error, "progress not sent");
    }
}

fn unknown_outcome(why: &str, watch: &Watch) -> String {
    let running = watch.running().map(|tool| format!(", {tool} was still running")).unwrap_or_default();
    let calls = watch.calls();
    format!(
        "[Outcome unknown] ptcd went away while the program ran ({why}). The program was stopped and not retried. It had \
         made {calls} tool calls{running}; they may have taken effect. Check what was done before running it again."
    )
}
