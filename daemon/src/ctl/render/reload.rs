//! What a reload did, in a few lines.

use std::fmt::Write as _;

use ptc_protocol::{api::ReloadReport, names::ServerName};

use super::text::{Lines, visible};

/// What was done; the errors are left to the caller, who prints them as errors.
pub(in crate::ctl) fn reload(report: &ReloadReport) -> String {
    if !report.errors.is_empty() {
        return "Nothing was changed.\n".into();
    }
    let mut text = String::new();
    for (what, servers) in
        [("started", &report.started), ("restarted", &report.restarted), ("stopped", &report.stopped)]
    {
        if !servers.is_empty() {
            let _written = writeln!(text, "{what}: {}", names(servers));
        }
    }
    let (calls, programs): (Vec<_>, Vec<_>) = report.settings.iter().partition(|key| binds_calls(key));
    for (whom, keys) in [("every call", calls), ("programs started", programs)] {
        if !keys.is_empty() {
            let keys: Vec<_> = keys.into_iter().map(|key| visible(key, Lines::Escape)).collect();
            let _written = writeln!(text, "changed settings, for {whom} from now on: {}", keys.join(", "));
        }
    }
    if text.is_empty() {
        let _written = writeln!(text, "nothing to do");
    }
    if !report.unchanged.is_empty() {
        let _written = writeln!(text, "not touched: {}", names(&report.unchanged));
    }
    text
}

/// Whether a setting binds calls of running programs, too.
fn binds_calls(key: &str) -> bool {
    key.split('.').next().is_some_and(|part| ["tools", "servers"].contains(&part))
}

fn names(servers: &[ServerName]) -> String {
    servers.iter().map(ServerName::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: &str) -> ReloadReport {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn each_kind_of_change_has_its_line() {
        let text = reload(&report(
            r#"{"started": ["a"], "restarted": ["b", "c"], "stopped": [], "unchanged": ["d"], "settings": ["tools.allow", "execution.timeout_seconds"]}"#,
        ));
        assert_eq!(
            text,
            "started: a\nrestarted: b, c\nchanged settings, for every call from now on: tools.allow\nchanged settings, \
             for programs started from now on: execution.timeout_seconds\nnot touched: d\n"
        );
    }

    #[test]
    fn no_change_is_said() {
        let text = reload(&report(r#"{"started": [], "restarted": [], "stopped": [], "unchanged": ["d"]}"#));
        assert_eq!(text, "nothing to do\nnot touched: d\n");
    }

    #[test]
    fn errors_mean_that_nothing_changed() {
        let text = reload(&report(
            r#"{"started": [], "restarted": [], "stopped": [], "unchanged": ["d"], "errors": ["c.yaml:1:1: no"]}"#,
        ));
        assert_eq!(text, "Nothing was changed.\n");
    }
}
