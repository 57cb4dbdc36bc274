//! Failures as the API tells them.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use ptc_protocol::api::Problem;

/// A [`Problem`] with its HTTP status.
#[derive(Debug)]
pub(super) struct Failure(pub(super) StatusCode, pub(super) Problem);

impl Failure {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self(status, Problem { code: code.to_owned(), message: message.into(), close_matches: Vec::new() })
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(super) fn not_found(problem: Problem) -> Self {
        Self(StatusCode::NOT_FOUND, problem)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}
