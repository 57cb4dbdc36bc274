//! End-to-end tests: the real binaries, real pipes and sockets, real and scripted servers.

mod ctl;
mod harness;
