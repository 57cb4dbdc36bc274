//! What crosses a process boundary between the ptc binaries: names, control API types, program events, paths, the
//! version handshake and the small HTTP-over-Unix-socket client.
//!
//! This crate knows nothing of MCP libraries, schema validation or YAML: the shim links it and must stay small.

pub mod api;
pub mod client;
pub mod exit;
pub mod launch;
pub mod names;
pub mod outcome;
pub mod paths;
pub mod version;
