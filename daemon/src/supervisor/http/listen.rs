//! The stream on which the server says what belongs to no request. Servers need not offer one.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::time::Instant;

use super::{
    LAST_EVENT_ID, Session,
    events::{Events, Item},
    exchange::refusal,
    is_type, take_in,
};
use crate::supervisor::wire::ReplyError;

/// First pause before the stream is opened again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A stream that lasted so long was a good one.
const GOOD: Duration = Duration::from_secs(30);

/// How the stream went.
enum Ended {
    /// The server has none, or no longer.
    Never,
    /// It may work the next time.
    Again,
}

/// Keeps the stream open while the connection lasts.
pub(super) async fn listen(session: Arc<Session>) {
    let mut initialized = session.initialized.subscribe();
    let started = initialized.wait_for(|initialized| *initialized).await.is_ok();
    if !started || session.wire.modern() {
        return;
    }
    let mut events = Events::default();
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        match once(&session, &mut events).await {
            Ended::Never => return,
            Ended::Again => {}
        }
        if began.elapsed() >= GOOD {
            pause = FIRST_PAUSE;
        }
        let jitter = 0.75 + 0.5 * fastrand::f64();
        let wanted = events.retry().unwrap_or_default().min(LONGEST_PAUSE);
        tokio::time::sleep(pause.mul_f64(jitter).max(wanted).max(session.patience.left())).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn once(session: &Session, events: &mut Events) -> Ended {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    if let Some(id) = events.last_id().and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(LAST_EVENT_ID, id);
    }
    let mut response = match session.send(Method::GET, None, headers).await {
        Ok(response) => response,
        Err(error) => {
            tracing::debug!(%error, "the stream of the server could not be opened");
            session.wire.suspect();
            return Ended::Again;
        }
    };
    match response.status() {
        StatusCode::OK if is_type(&response, "text/event-stream") => {}
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            if let Some(after) = refusal(&mut response).await.retry_after {
                session.patience.ask(after);
            }
            return Ended::Again;
        }
        StatusCode::CONFLICT => return Ended::Again,
        status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => return Ended::Again,
        // A page, nothing, or a refusal: it has no such stream. Whether the session still lives, the next request
        // tells: some servers answer 404 to what they do not know.
        StatusCode::METHOD_NOT_ALLOWED => return Ended::Never,
        _ => {
            session.wire.suspect();
            return Ended::Never;
        }
    }
    while let Ok(Some(chunk)) = response.chunk().await {
        for item in events.feed(&chunk) {
            match item {
                Item::Event { data, .. } => take_in(&session.wire, data, None).await,
                Item::Oversized { id: Some(id), bytes } => {
                    session.wire.fail(&id, ReplyError::TooLarge { bytes: Some(bytes) });
                }
                Item::Oversized { id: None, .. } => session.log.warn_once("sent a notice that is too large to be read"),
            }
        }
    }
    // A half event is nothing: its stream is taken up again.
    drop(events.finish());
    session.wire.suspect();
    Ended::Again
}
