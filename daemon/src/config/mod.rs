//! The configuration: file to parsed settings, and what changed between two of them.
//!
//! This module is the only one that reads the file, YAML, or the environment on the file's behalf. It never knows what
//! a server or a program does with its settings.

mod diff;
mod error;
mod execution;
mod expand;
mod file;
mod filter;
mod load;
mod reader;
mod server;
pub mod settings;
#[cfg(test)]
mod tests;
mod trail;
mod tree;
pub mod watch;

pub use diff::{Diff, diff};
pub use error::{ConfigError, ConfigErrors, Position};
pub use expand::Env;
pub use filter::compile as tool_pattern;
pub use load::{Checked, ContentHash, Loaded, Location, MAX_FILE_BYTES, check, load, locate, reload};
