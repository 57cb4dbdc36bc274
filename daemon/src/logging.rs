//! Where the daemon's own log goes: daily files in the state directory, a bounded number, and stderr on a terminal.
//!
//! Arguments, results, environment values and headers are never logged, by anyone.

use std::{io::IsTerminal as _, path::Path};

use tracing_appender::{
    non_blocking::WorkerGuard,
    rolling::{InitError, RollingFileAppender, Rotation},
};
use tracing_subscriber::{EnvFilter, Layer as _, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// Name of the link to the file that is written now.
pub const LATEST: &str = "ptcd.log";

/// Daily files kept.
const FILES: usize = 7;

/// Starts logging below `log_dir`; `PTC_LOG` holds a filter as of `tracing_subscriber::EnvFilter`, else `info`. What is
/// still buffered is written when the guard is dropped.
///
/// # Errors
/// The directory cannot be made or written.
pub fn start(log_dir: &Path) -> Result<WorkerGuard, InitError> {
    let appender = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("ptcd")
        .filename_suffix("log")
        .max_log_files(FILES)
        .latest_symlink(LATEST)
        .build(log_dir)?;
    // Full: lines are dropped, the daemon never waits for its log.
    let (writer, guard) = tracing_appender::non_blocking(appender);
    let file = fmt::layer().with_ansi(false).with_target(false).with_writer(writer).with_filter(filter());
    let terminal = std::io::stderr()
        .is_terminal()
        .then(|| fmt::layer().with_target(false).with_writer(std::io::stderr).with_filter(filter()));
    let started = tracing_subscriber::registry().with(file).with(terminal).try_init();
    if started.is_err() {
        // Somebody else's subscriber is in place, as in tests; it gets our lines.
    }
    Ok(guard)
}

/// rmcp prints whole results at `debug`, and warns of each request whose answer the wire took before it; it is kept to
/// errors.
fn filter() -> EnvFilter {
    let wanted = std::env::var("PTC_LOG").ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "info".to_owned());
    let filter = EnvFilter::try_new(&wanted).unwrap_or_else(|_| EnvFilter::new("info"));
    ["rmcp=error", "hyper=warn", "hyper_util=warn", "reqwest=warn", "h2=warn", "rustls=warn"]
        .into_iter()
        .filter_map(|directive| directive.parse().ok())
        .fold(filter, EnvFilter::add_directive)
}
