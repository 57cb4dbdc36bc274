//! Answers that go on: newline-delimited JSON, one value a line.

use axum::{
    body::{Body, Bytes},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt as _};
use serde::Serialize;

/// The values of `stream` as NDJSON. Dropping the response drops the stream.
pub(super) fn ndjson<T: Serialize + Send + 'static>(stream: impl Stream<Item = T> + Send + 'static) -> Response {
    let lines = stream.map(|value| {
        let mut line = serde_json::to_vec(&value)?;
        line.push(b'\n');
        Ok::<_, serde_json::Error>(Bytes::from(line))
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}
