//! The configuration: file to parsed settings, and what changed between two of them.

pub mod settings;
