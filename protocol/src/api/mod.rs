//! The control API, version 1: JSON over HTTP/1.1 on the daemon's Unix socket.
//!
//! | method and path | body | answer |
//! |---|---|---|
//! | `GET /v1/version` | | [`Version`] |
//! | `GET /v1/status` | | [`Status`] |
//! | `GET /v1/tools?query=&server=&glob=` | | [`Tools`] |
//! | `GET /v1/tools/{name}` | | [`ToolDescription`], 404 with [`Problem`] |
//! | `GET /v1/stubs?language=` | | [`Stubs`]; `python` (the default) or `typescript` |
//! | `POST /v1/sessions` | [`SessionRequest`] | NDJSON of [`SessionEvent`]; the session lives as long as the stream |
//! | `POST /v1/programs` | [`RunRequest`] | NDJSON of [`ProgramEvent`]; dropping the stream kills the program |
//! | `GET /v1/programs` | | array of [`ProgramStatus`] |
//! | `DELETE /v1/programs/{id}` | | `{}`, 404 with [`Problem`] |
//! | `GET /v1/programs/{id}/output?offset=&limit=` | | [`ProgramOutput`], 404 with [`Problem`] |
//! | `POST /v1/reload` | | [`ReloadReport`] |
//! | `POST /v1/servers/{name}/restart` | | `{}`, 404 or 409 with [`Problem`] |
//! | `GET /v1/logs?server=&lines=&follow=` | | NDJSON of [`LogLine`] |
//!
//! Every failure is a [`Problem`] with a matching HTTP status. Readers ignore fields they do not know; a field that is
//! added later has a default, so that binaries of neighbouring versions understand each other.

mod program;
mod session;
mod status;
mod tools;

use serde::{Deserialize, Serialize};

pub use self::{program::*, session::*, status::*, tools::*};

/// The API version this build speaks; the first path segment of every route.
pub const API_VERSION: u32 = 1;

/// Answer of `GET /v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The daemon's package version.
    pub version: String,
    /// Lowest API version it serves.
    pub api_min: u32,
    /// Highest API version it serves.
    pub api_max: u32,
    /// Its process id.
    pub pid: u32,
}

/// Body of every answer that is not 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Stable word for programs: `unknown_tool`, `unavailable` (a tool of a server that is down), `unknown_program`,
    /// `unknown_server`, `disabled`, [`UNKNOWN_SESSION`](Self::UNKNOWN_SESSION), `bad_request`, `too_large`, `busy`,
    /// `bad_config`, `forbidden`, `stopping`.
    pub code: String,
    /// Text for people: what failed, on what, what to do.
    pub message: String,
    /// Names close to the one that was not found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub close_matches: Vec<String>,
}

impl Problem {
    /// The code for a session that has ended, or that belonged to a daemon before this one: begin another.
    pub const UNKNOWN_SESSION: &'static str = "unknown_session";
}
