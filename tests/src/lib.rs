//! Harness for the end-to-end tests: worlds of their own for the real binaries, and the ways to talk to them.
//!
//! It knows the binaries only from outside: their command lines, their files, the MCP conversation and the control API.
//! The tests under `tests/` say what must hold; nothing here asserts anything about the product.

pub mod client;
pub mod config;
pub mod fixtures;
pub mod process;
pub mod wait;
pub mod world;

pub use client::{Session, ToolResult};
pub use wait::until;
pub use world::World;
