//! Exit codes of the ptc binaries, after sysexits(3) where it has one.

/// Everything asked for was done.
pub const OK: u8 = 0;
/// The command ran and its answer is a failure: a program failed, a check found errors.
pub const FAILED: u8 = 1;
/// The command line itself was wrong.
pub const USAGE: u8 = 2;
/// The daemon could not be reached (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// The configuration is missing or wrong (`EX_CONFIG`).
pub const BAD_CONFIG: u8 = 78;
