//! End-to-end tests: the real binaries, real pipes and sockets, real and scripted servers.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, unused_imports, reason = "tests that look into /proc stay away")
)]

mod bad_programs;
mod bad_servers;
mod cases;
#[cfg(target_os = "linux")]
mod chaos;
mod claude_code;
mod compat;
mod configs;
mod conformance;
mod ctl;
mod fidelity;
mod harness;
mod http_servers;
mod lifetimes;
mod networks;
mod public_servers;
mod sdk_clients;
mod seeds;
mod sessions;
