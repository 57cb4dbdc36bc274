//! Each configured server: can its command be started where the daemon runs, and how is it there.

use ptc_protocol::api::{ServerState, ServerStatus, Status};

use super::command::resolve;
use crate::{
    config::settings::{ServerSettings, Transport},
    ctl::render::{
        Finding,
        text::{count, one_line},
    },
};

/// A PATH and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchPath {
    pub(super) path: String,
    /// Whether it is known to be the daemon's own.
    pub(super) of_daemon: bool,
}

impl SearchPath {
    /// Of the running daemon where the system tells it, else of this process.
    pub(super) fn of_daemon(pid: Option<u32>) -> Self {
        let theirs = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/environ")).ok()).and_then(|environment| {
            let entry = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"PATH="))?;
            Some(String::from_utf8_lossy(entry).into_owned())
        });
        match theirs {
            Some(path) => Self { path, of_daemon: true },
            None => Self { path: std::env::var("PATH").unwrap_or_default(), of_daemon: false },
        }
    }
}

/// One or two findings a server, in config order; disabled ones are left out.
pub(super) fn findings(servers: &[ServerSettings], status: Option<&Status>, search: &SearchPath) -> Vec<Finding> {
    let mut findings = Vec::new();
    for server in servers.iter().filter(|server| server.enabled) {
        let layer = format!("server {}", server.name);
        let live = status.and_then(|status| status.servers.iter().find(|live| live.name == server.name));
        match (command_finding(&layer, server, search), live) {
            // A server that works needs no word about how it would be started.
            (_, Some(live)) if live.state == ServerState::Ready => findings.push(live_finding(&layer, live)),
            (command, live) => {
                // The daemon often fails for the very reason that was found; then it is said once.
                let said = |live: &&ServerStatus| {
                    command.as_ref().is_some_and(|found| live.last_error.as_ref() == Some(&found.text))
                };
                let live = live.filter(|live| !said(live)).map(|live| live_finding(&layer, live));
                findings.extend(command.into_iter().chain(live));
            }
        }
    }
    findings
}

/// What stands in the way of starting the server; none when nothing is known to.
fn command_finding(layer: &str, server: &ServerSettings, search: &SearchPath) -> Option<Finding> {
    let Transport::Stdio { command, env, cwd, .. } = &server.transport else { return None };
    if let Some(cwd) = cwd.as_deref().filter(|cwd| !cwd.is_dir()) {
        return Some(Finding::broken(layer, format!("its cwd `{}` is not a folder", cwd.display())));
    }
    let own = env.get("PATH").map(|path| path.reveal());
    let error = resolve(command, own.unwrap_or(&search.path), cwd.as_deref()).err()?;
    let remedy = match (own, search.of_daemon) {
        (Some(_), _) => "the server's `env` sets this PATH",
        (None, true) => "install it, or run `ptcctl install` again so that the service gets your present PATH",
        (None, false) => "this is your shell's PATH; the daemon's may differ",
    };
    Some(Finding::broken(layer, error.to_string()).remedy(remedy))
}

fn live_finding(layer: &str, live: &ServerStatus) -> Finding {
    let error = live.last_error.as_deref().map_or_else(String::new, |error| format!(": {}", one_line(error, 200)));
    let stderr = live.last_stderr.last().map_or_else(String::new, |line| format!("\nstderr: {}", one_line(line, 200)));
    match live.state {
        ServerState::Ready if live.warnings.is_empty() => {
            Finding::good(layer, format!("ready, {}", count(live.tools, "tool")))
        }
        ServerState::Ready => {
            let warnings: Vec<_> = live.warnings.iter().map(|warning| one_line(warning, 200)).collect();
            Finding::doubtful(layer, format!("ready, {}\n{}", count(live.tools, "tool"), warnings.join("\n")))
        }
        ServerState::Starting => Finding::doubtful(layer, format!("still starting{error}{stderr}")),
        ServerState::Stopping | ServerState::Stopped => Finding::doubtful(layer, format!("stopped{error}")),
        ServerState::Disabled => Finding::good(layer, "disabled"),
        ServerState::NeedsSignIn => Finding::broken(layer, format!("wants a sign-in{error}")),
        ServerState::Backoff | ServerState::Failed => Finding::broken(layer, format!("does not work{error}{stderr}"))
            .remedy(format!("`ptcctl logs {}` has the rest; `ptcctl restart {0}` tries at once", live.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config, ctl::render::Grade};

    fn settings(yaml: &str) -> Vec<ServerSettings> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("c.yaml");
        std::fs::write(&path, yaml).unwrap();
        config::load(Some(&path), &|_| None).settings.unwrap().servers
    }

    fn live(state: &str, extra: &str) -> Status {
        serde_json::from_str(&format!(
            r#"{{"daemon": {{"version": "0", "pid": 1, "uptime_seconds": 0, "rss_bytes": 0}}, "config": {{"path": null, "loaded_at": null, "error": null}},
                "sandbox": {{"level": "none", "layers": []}}, "pool": {{"warm": 0, "starting": 0, "running": 0, "queued": 0}},
                "sessions": [], "programs": [], "servers": [{{"name": "a", "transport": "stdio", "state": "{state}", "pid": null,
                "since": "", "tools": 3, "calls": 0, "failed_calls": 0, "last_ok": null, "next_retry": null, {extra}}}]}}"#
        ))
        .unwrap()
    }

    const ONE: &str = "servers:\n  - {name: a, transport: stdio, command: no-such-tool}\n";

    fn bin() -> SearchPath {
        SearchPath { path: "/usr/bin:/bin".into(), of_daemon: true }
    }

    #[test]
    fn a_command_that_cannot_start_is_explained_before_its_failure() {
        let status = live("failed", r#""last_error": "cannot start", "last_stderr": ["x"]"#);
        let found = findings(&settings(ONE), Some(&status), &bin());
        assert_eq!(found[0].text, "no-such-tool not found in PATH=/usr/bin:/bin");
        assert_eq!(found[1].text, "does not work: cannot start\nstderr: x");
        assert_eq!(
            found[1].remedy.as_deref().unwrap(),
            "`ptcctl logs a` has the rest; `ptcctl restart a` tries at once"
        );
    }

    #[test]
    fn a_reason_that_the_daemon_gives_too_is_said_once() {
        let status = live("failed", r#""last_error": "no-such-tool not found in PATH=/usr/bin:/bin""#);
        assert_eq!(findings(&settings(ONE), Some(&status), &bin()).len(), 1);
    }

    #[test]
    fn a_server_that_works_is_good_whatever_its_command_looks_like() {
        let found = findings(&settings(ONE), Some(&live("ready", r#""last_error": null"#)), &bin());
        assert_eq!(found, [Finding::good("server a", "ready, 3 tools")]);
    }

    #[test]
    fn without_a_daemon_commands_are_still_checked() {
        assert_eq!(findings(&settings(ONE), None, &bin())[0].grade, Grade::Broken);
        let there = settings("servers:\n  - {name: a, transport: stdio, command: sh}\n");
        assert_eq!(findings(&there, None, &bin()), []);
    }

    #[test]
    fn the_servers_own_path_and_folder_count() {
        let own = settings("servers:\n  - {name: a, transport: stdio, command: sh, env: {PATH: /nothing}}\n");
        let found = findings(&own, None, &bin());
        assert_eq!(found[0].text, "sh not found in PATH=/nothing");
        let cwd = settings("servers:\n  - {name: a, transport: stdio, command: sh, cwd: /no/such/folder}\n");
        assert!(findings(&cwd, None, &bin())[0].text.contains("/no/such/folder"));
    }

    #[test]
    fn disabled_servers_are_left_out() {
        let off = settings("servers:\n  - {name: a, transport: stdio, command: no-such-tool, enabled: false}\n");
        assert_eq!(findings(&off, None, &bin()), []);
    }
}
