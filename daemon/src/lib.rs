//! The ptc daemon as a library: every binary is one call into it.
//!
//! Data flows one way, `front` → `runner` → `gateway` → `supervisor`; news goes up only through `watch` snapshots.
//! `tests/tests/architecture.rs` holds the arrows to that.

pub mod app;
pub mod config;
pub mod ctl;
pub mod demo;
pub mod front;
pub mod gateway;
pub mod guardian;
pub mod logging;
pub mod mark;
pub mod python;
pub mod reload;
pub mod removal;
pub mod runner;
pub mod sandbox;
pub mod stub_folder;
pub mod stubs;
pub mod supervisor;
