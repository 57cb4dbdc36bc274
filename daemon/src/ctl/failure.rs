//! An error as the last line on stderr and as an exit code.

use std::io;

use ptc_protocol::{api::Problem, client::ClientError, exit, launch::LaunchError, paths::PathError};

use super::render::text::{Lines, visible};

/// What went wrong and what may have been meant; no control characters but newlines.
pub(super) fn text(error: &anyhow::Error) -> String {
    let said = format!("{error:#}");
    let meant = problem(error).and_then(|problem| did_you_mean(&problem.close_matches));
    let text = match meant {
        Some(meant) if !said.contains("did you mean") => format!("{}; {meant}", said.trim_end_matches('.')),
        Some(_) | None => said,
    };
    visible(&text, Lines::Keep).into_owned()
}

/// One of [`ptc_protocol::exit`].
pub(super) fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(problem) = problem(error) {
        return if problem.code == "bad_config" { exit::BAD_CONFIG } else { exit::FAILED };
    }
    for cause in error.chain() {
        if cause.is::<LaunchError>() || cause.is::<ClientError>() {
            return exit::UNAVAILABLE;
        }
        if cause.is::<PathError>() {
            return exit::USAGE;
        }
    }
    exit::FAILED
}

/// Whether stdout's reader went away.
pub(super) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    // Only an error of our own output stands alone; one below a ClientError is the daemon's.
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// `did you mean `a` or `b`?`, at most three; none for none.
fn did_you_mean(names: &[String]) -> Option<String> {
    let names: Vec<_> = names.iter().take(3).map(|name| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
}

fn problem(error: &anyhow::Error) -> Option<&Problem> {
    error.chain().find_map(|cause| cause.downcast_ref::<ClientError>()?.problem())
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    fn problem(code: &str, message: &str, close: &[&str]) -> anyhow::Error {
        let close_matches = close.iter().map(|name| (*name).to_owned()).collect();
        ClientError::Problem(Problem { code: code.into(), message: message.into(), close_matches }).into()
    }

    #[test]
    fn a_refusal_is_a_failure_with_close_matches() {
        let error = problem("unknown_server", "no server `gti`", &["git", "github"]);
        assert_eq!(text(&error), "no server `gti`; did you mean `git` or `github`?");
        assert_eq!(exit_code(&error), exit::FAILED);
    }

    #[test]
    fn matches_that_the_message_names_are_not_repeated() {
        let error = problem("unknown_tool", "no tool `x`; did you mean `y`?", &["y"]);
        assert_eq!(text(&error), "no tool `x`; did you mean `y`?");
    }

    #[test]
    fn an_absent_daemon_has_its_own_code_and_a_remedy() {
        let source = io::Error::from(io::ErrorKind::NotFound);
        let error: anyhow::Error = ClientError::Unreachable { socket: "/s".into(), source }.into();
        assert_eq!(exit_code(&error), exit::UNAVAILABLE);
        assert!(text(&error).contains("`ptcd run` or `ptcctl install`"), "{}", text(&error));
        let launch: anyhow::Error = LaunchError::NotRunning { socket: "/s".into() }.into();
        assert_eq!(exit_code(&launch), exit::UNAVAILABLE);
    }

    #[test]
    fn a_bad_config_has_its_own_code() {
        assert_eq!(exit_code(&problem("bad_config", "c.yaml:1:1: no", &[])), exit::BAD_CONFIG);
    }

    #[test]
    fn only_our_own_closed_pipe_is_a_quiet_end() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_closed_pipe(&broken().into()));
        let daemons = ClientError::Unreachable { socket: "/s".into(), source: broken() };
        assert!(!is_closed_pipe(&anyhow::Error::new(daemons)));
        assert!(is_closed_pipe(&Err::<(), _>(broken()).context("printing").unwrap_err()));
    }
}
