//! The page of `ptcctl status`.

use std::fmt::Write as _;

use comfy_table::Cell;
use ptc_protocol::api::{LayerState, SandboxStatus, ServerState, ServerStatus, Status};

use super::{
    Look, Tone, plain_table, programs, rows,
    text::{Lines, age, bytes, duration, one_line, tilde, until, visible},
};

/// Longest error shown in the table; `ptcctl logs SERVER` and `--json` have the rest.
const ERROR_WIDTH: usize = 100;

/// Warnings shown of one server.
const WARNINGS_SHOWN: usize = 3;

/// The whole page; ends in a newline.
pub(in crate::ctl) fn status(status: &Status, look: &Look) -> String {
    let mut page = String::new();
    head(&mut page, status, look);
    page.push('\n');
    if status.servers.is_empty() {
        page.push_str("No servers. Add some to the config file, or take them over with `ptcctl import`.\n");
    } else {
        page.push_str(&servers(&status.servers, look));
    }
    if !status.programs.is_empty() {
        page.push('\n');
        page.push_str(&programs(&status.programs, look));
    }
    notes(&mut page, status);
    page
}

fn head(page: &mut String, status: &Status, look: &Look) {
    let daemon = &status.daemon;
    let _written =
        write!(page, "daemon    ptcd {}, pid {}, up {}", daemon.version, daemon.pid, duration(daemon.uptime_seconds));
    if daemon.rss_bytes > 0 {
        let _written = write!(page, ", {}", bytes(daemon.rss_bytes));
    }
    if !daemon.socket.is_empty() {
        let _written = write!(page, ", {}", tilde(&daemon.socket, look.home.as_deref()));
    }
    page.push('\n');

    let config = &status.config;
    let file = config.path.as_deref().map_or_else(|| "no file".into(), |path| tilde(path, look.home.as_deref()));
    let _written = write!(page, "config    {file}");
    if let Some(loaded) = &config.loaded_at {
        let _written = write!(page, ", loaded {} ago", age(loaded, look.now));
    }
    if config.error.is_some() {
        page.push_str(&Tone::Bad.paint(", its present text is NOT in force"));
    }
    page.push('\n');

    let _written = writeln!(page, "sandbox   {}", sandbox(&status.sandbox, look));
    let pool = &status.pool;
    let _written = writeln!(
        page,
        "programs  {} running, {} queued; children: {} warm, {} starting",
        pool.running, pool.queued, pool.warm, pool.starting
    );
    let clients: Vec<_> = status
        .sessions
        .iter()
        .map(|session| {
            format!("{} (pid {}, {})", one_line(&session.client, 40), session.pid, age(&session.since, look.now))
        })
        .collect();
    let _written = writeln!(page, "sessions  {}", if clients.is_empty() { "none".into() } else { clients.join(", ") });
}

fn sandbox(sandbox: &SandboxStatus, look: &Look) -> String {
    let mut line = match (&sandbox.error, sandbox.level.as_str()) {
        (Some(_), _) => Tone::Bad.paint("unavailable, programs are refused"),
        (None, "none") => Tone::Waiting.paint("none: programs run with your own rights"),
        (None, level) => Tone::Good.paint(&one_line(level, 40)),
    };
    let missing: Vec<_> = sandbox.layers.iter().filter(|layer| layer.state != LayerState::Ok).collect();
    if !sandbox.layers.is_empty() {
        let _written = write!(line, ", {} of {} layers", sandbox.layers.len() - missing.len(), sandbox.layers.len());
    }
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|layer| one_line(&layer.name, 40)).collect();
        let _written = write!(line, " (missing: {})", names.join(", "));
    }
    if let Some(python) = &sandbox.python {
        let _written = write!(line, ", {}", tilde(python, look.home.as_deref()));
    }
    line
}

fn servers(servers: &[ServerStatus], look: &Look) -> String {
    let mut table = plain_table(look, &["SERVER", "STATE", "PID", "TOOLS", "SINCE", "CALLS", "LAST ERROR"]);
    for server in servers {
        let calls = match server.failed_calls {
            0 => server.calls.to_string(),
            failed => format!("{} ({failed} failed)", server.calls),
        };
        table.add_row([
            Cell::new(instance(server)),
            state_tone(server.state).cell(state_word(server.state)),
            Cell::new(server.pid.map_or_else(|| "-".into(), |pid| pid.to_string())),
            Cell::new(server.tools),
            Cell::new(age(&server.since, look.now)),
            Cell::new(calls),
            Cell::new(last_error(server, look)),
        ]);
    }
    rows(&table)
}

/// The server, and the session whose own instance it is.
fn instance(server: &ServerStatus) -> String {
    let name = server.name.as_str();
    server.session.as_ref().map_or_else(|| name.to_owned(), |session| format!("{name} ({})", session.as_str()))
}

/// The last error, also of a server that is ready again: it says why that was started anew. What follows comes behind.
fn last_error(server: &ServerStatus, look: &Look) -> String {
    let mut text = match (&server.last_error, server.state) {
        (None, _) => String::new(),
        (Some(error), _) => one_line(error, ERROR_WIDTH),
    };
    if let Some(retry) = &server.next_retry {
        let separator = if text.is_empty() { "" } else { "; " };
        let _written = write!(text, "{separator}next try {}", until(retry, look.now));
    }
    if let (false, Some(line)) = (server.state == ServerState::Ready, server.last_stderr.last()) {
        let separator = if text.is_empty() { "" } else { "; " };
        let _written = write!(text, "{separator}stderr: {}", one_line(line, ERROR_WIDTH));
    }
    text
}

/// What needs a person, below the tables.
fn notes(page: &mut String, status: &Status) {
    let mut notes: Vec<(Tone, String)> = Vec::new();
    if let Some(error) = &status.config.error {
        notes.push((Tone::Bad, format!("config: {}", visible(error.trim(), Lines::Keep))));
    }
    if let Some(error) = &status.sandbox.error {
        notes.push((Tone::Bad, format!("sandbox: {}", visible(error.trim(), Lines::Keep))));
    }
    notes.extend(status.config.warnings.iter().map(|text| (Tone::Waiting, format!("config: {}", one_line(text, 300)))));
    for server in &status.servers {
        let shown = server.warnings.iter().take(WARNINGS_SHOWN);
        notes.extend(shown.map(|text| (Tone::Waiting, format!("{}: {}", server.name, one_line(text, 300)))));
        if let Some(more) = server.warnings.len().checked_sub(WARNINGS_SHOWN).filter(|more| *more > 0) {
            let text = format!("{}: {more} more, see `ptcctl status --json`", server.name);
            notes.push((Tone::Waiting, text));
        }
    }
    if !notes.is_empty() {
        page.push('\n');
    }
    for (tone, text) in notes {
        let _written = writeln!(page, "{} {text}", tone.paint(if tone == Tone::Bad { "error:" } else { "warning:" }));
    }
}

/// As the JSON form writes it.
const fn state_word(state: ServerState) -> &'static str {
    match state {
        ServerState::Starting => "starting",
        ServerState::Ready => "ready",
        ServerState::Stopping => "stopping",
        ServerState::Backoff => "backoff",
        ServerState::Failed => "failed",
        ServerState::Stopped => "stopped",
        ServerState::Disabled => "disabled",
        ServerState::NeedsSignIn => "needs_sign_in",
    }
}

const fn state_tone(state: ServerState) -> Tone {
    match state {
        ServerState::Ready => Tone::Good,
        ServerState::Starting | ServerState::Stopping | ServerState::Backoff => Tone::Waiting,
        ServerState::Failed | ServerState::NeedsSignIn => Tone::Bad,
        ServerState::Stopped | ServerState::Disabled => Tone::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::render::tests::{bare, look};

    fn sample() -> Status {
        serde_json::from_str(
            r#"{
            "daemon": {"version": "0.1.0", "pid": 4242, "uptime_seconds": 7500, "rss_bytes": 18400000,
                       "socket": "/home/me/.local/state/ptc/ptcd.sock"},
            "config": {"path": "/home/me/.config/ptc/config.yaml", "loaded_at": "2026-01-02T11:57:00Z",
                       "error": "config.yaml:3:5: unknown key `comand`", "warnings": ["`tools` is empty"]},
            "sandbox": {"level": "linux", "python": "/usr/bin/python3.11", "layers": [
                {"name": "namespaces", "state": "ok"}, {"name": "cgroup", "state": "missing_depth", "detail": "not delegated"}]},
            "pool": {"warm": 2, "starting": 0, "running": 1, "queued": 0},
            "servers": [
                {"name": "financial-data", "transport": "stdio", "state": "ready", "pid": 77, "since": "2026-01-02T09:55:00Z",
                 "tools": 12, "calls": 40, "failed_calls": 2, "last_ok": "2026-01-02T11:59:00Z", "last_error": null,
                 "next_retry": null},
                {"name": "github", "transport": "stdio", "state": "backoff", "pid": null, "since": "2026-01-02T11:59:50Z",
                 "tools": 0, "calls": 0, "failed_calls": 0, "last_ok": null, "last_error": "exited with code 1",
                 "last_stderr": ["a", "\u001b[31mNo token\u001b[0m"], "next_retry": "2026-01-02T12:00:08Z",
                 "warnings": ["1", "2", "3", "4"]},
                {"name": "shell", "transport": "stdio", "state": "ready", "pid": 78, "since": "2026-01-02T11:59:00Z",
                 "tools": 0, "calls": 1, "failed_calls": 0, "last_ok": null, "last_error": null, "next_retry": null,
                 "scope": "session", "session": "s-1"}],
            "sessions": [{"id": "s-1", "client": "claude-code 2.1.197", "pid": 90, "since": "2026-01-02T11:00:00Z"}],
            "programs": [{"id": "p-1f", "session": "s-1", "started": "2026-01-02T11:59:56Z", "calls": 3,
                          "current": "mcp__financial_data__query"}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn the_page_shows_everything_a_person_asks_first() {
        insta::assert_snapshot!(bare(&status(&sample(), &look())), @r#"
        daemon    ptcd 0.1.0, pid 4242, up 2h 5m, 18 MB, ~/.local/state/ptc/ptcd.sock
        config    ~/.config/ptc/config.yaml, loaded 3m 0s ago, its present text is NOT in force
        sandbox   linux, 1 of 2 layers (missing: cgroup), /usr/bin/python3.11
        programs  1 running, 0 queued; children: 2 warm, 0 starting
        sessions  claude-code 2.1.197 (pid 90, 1h 0m)

        SERVER          STATE    PID  TOOLS  SINCE  CALLS          LAST ERROR
        financial-data  ready    77   12     2h 5m  40 (2 failed)
        github          backoff  -    0      10s    0              exited with code 1; next try in 8s; stderr: \u{1b}[31mNo token\u{1b}[0m
        shell (s-1)     ready    78   0      1m 0s  1

        PROGRAM  STATE    PID  SESSION  AGE  CALLS  NOW
        p-1f     running  -    s-1      4s   3      mcp__financial_data__query

        error: config: config.yaml:3:5: unknown key `comand`
        warning: config: `tools` is empty
        warning: github: 1
        warning: github: 2
        warning: github: 3
        warning: github: 1 more, see `ptcctl status --json`
        "#);
    }

    #[test]
    fn an_empty_daemon_says_what_to_do_next() {
        let empty = Status { servers: vec![], programs: vec![], sessions: vec![], ..sample() };
        let page = bare(&status(&empty, &look()));
        assert!(page.contains("ptcctl import") && page.contains("sessions  none"), "{page}");
    }

    #[test]
    fn a_refusing_sandbox_is_an_error_on_the_page() {
        let mut refused = sample();
        refused.sandbox.error = Some("user namespaces are off".into());
        let page = bare(&status(&refused, &look()));
        assert!(page.contains("unavailable, programs are refused"), "{page}");
        assert!(page.contains("error: sandbox: user namespaces are off"), "{page}");
    }

    #[test]
    fn text_of_servers_cannot_steer_the_terminal() {
        let page = status(&sample(), &look());
        assert!(page.contains("\\u{1b}[31mNo token"), "{page}");
    }
}
