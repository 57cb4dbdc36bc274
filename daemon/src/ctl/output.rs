//! Writing to standard output and standard error. Colours are in the text and are taken out here where nobody would see
//! them: no terminal, or `NO_COLOR`.

use std::io::{self, Write as _};

/// Writes to stdout and flushes.
///
/// # Errors
/// Whatever the system says; a reader that went away is an error of kind `BrokenPipe`.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes to stderr; that nobody reads it is no reason to stop.
pub(super) fn say(text: &str) {
    let mut err = anstream::stderr().lock();
    let _nobody_reads = err.write_all(text.as_bytes());
}

/// Writes bytes of a program as they are, without a look at colours.
pub(super) fn raw(to: Target, text: &str) -> io::Result<()> {
    match to {
        Target::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        }
        Target::Stderr => io::stderr().lock().write_all(text.as_bytes()),
    }
}

/// One of the two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Stdout,
    Stderr,
}
