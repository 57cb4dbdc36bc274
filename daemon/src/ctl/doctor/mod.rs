//! `ptcctl doctor`: every layer from the binaries to the servers, each with what to do when something is wrong.

mod apparmor;
mod command;
mod daemon;
mod servers;

use std::path::Path;

use ptc_protocol::{api::Status, exit, paths};

use self::daemon::Reached;
use super::{
    cli::Common,
    output::{print, say},
    render::{
        self, Finding, Grade, Look,
        text::{Lines, visible},
    },
};
use crate::config::{self, Loaded};

/// Prints the findings; fails when one of them keeps programs from running.
pub(super) async fn doctor(common: &Common) -> anyhow::Result<u8> {
    let mut findings = vec![daemon::binaries()];
    let reached = daemon::reach(common).await;
    findings.extend(daemon::findings(common, &reached)?);
    findings.extend(daemon::service());
    let status = match &reached {
        Reached::Answers { status, .. } => Some(status.as_ref()),
        Reached::Fails { .. } => None,
    };
    let env = |name: &str| std::env::var(name).ok();
    let place = paths::config_path(common.config.as_deref())?;
    let loaded = config::load(common.config.as_deref(), &env);
    findings.extend(config_findings(&loaded, &place.path, status));
    findings.extend(status.map(sandbox_findings).unwrap_or_default());
    if let Ok(settings) = &loaded.settings {
        let pid = status.map(|status| status.daemon.pid);
        findings.extend(servers::findings(&settings.servers, status, &servers::SearchPath::of_daemon(pid)));
    }
    print(&render::findings(&findings, &Look::stdout()))?;
    let broken = findings.iter().any(|finding| finding.grade == Grade::Broken);
    Ok(if broken { exit::FAILED } else { exit::OK })
}

/// Prints the AppArmor profile; what to know about it goes to stderr.
pub(super) fn apparmor_profile() -> anyhow::Result<u8> {
    let profile = apparmor::profile(&std::fs::canonicalize(super::siblings::find("ptcd")?)?)?;
    print(&profile.text)?;
    say(&profile.advice);
    Ok(exit::OK)
}

/// The file as it is now, and whether the daemon goes by it.
fn config_findings(loaded: &Loaded, place: &Path, status: Option<&Status>) -> Vec<Finding> {
    let mut findings = Vec::new();
    match (&loaded.settings, &loaded.path) {
        (Err(errors), _) => {
            let remedy = "the daemon goes on with the last good config until the file is right";
            findings.push(Finding::broken("config", errors.to_string()).remedy(remedy));
        }
        (Ok(_), None) => {
            let text = format!("there is no {}: no servers", place.display());
            findings.push(Finding::doubtful("config", text).remedy("write one, or begin with `ptcctl import --write`"));
        }
        (Ok(settings), Some(path)) => {
            let count = settings.servers.len();
            findings
                .push(Finding::good("config", format!("{}: {}", path.display(), render::text::count(count, "server"))));
        }
    }
    findings.extend(loaded.warnings.iter().map(|warning| Finding::doubtful("config", warning.clone())));
    let Some(status) = status else { return findings };
    let unheard = status.config.warnings.iter().filter(|warning| !loaded.warnings.contains(warning));
    findings.extend(unheard.map(|warning| Finding::doubtful("config", visible(warning, Lines::Keep).into_owned())));
    if let (Some(error), Ok(_)) = (&status.config.error, &loaded.settings) {
        let text = format!("the daemon could not load it: {}", visible(error.trim(), Lines::Keep));
        let remedy = "a variable that is set here may be missing for the daemon: `ptcctl install --env NAME`";
        findings.push(Finding::broken("config", text).remedy(remedy));
    }
    if let (Some(theirs), Some(ours)) = (&status.config.path, &loaded.path)
        && Path::new(theirs) != ours
    {
        findings.push(Finding::doubtful("config", format!("the daemon reads another file: {theirs}")));
    }
    findings
}

/// The sandbox as the daemon probed it at its start.
fn sandbox_findings(status: &Status) -> Vec<Finding> {
    use ptc_protocol::api::{LayerState, SandboxStatus};

    let sandbox = &status.sandbox;
    let mut findings = Vec::new();
    match (&sandbox.error, sandbox.level.as_str()) {
        (None, SandboxStatus::PREPARING) => findings.push(Finding::doubtful("sandbox", "still being tried; ask again")),
        (Some(error), _) => findings.push(Finding::broken("sandbox", visible(error.trim(), Lines::Keep).into_owned())),
        (None, "none") => {
            let text = "none: programs run with all your rights";
            findings.push(Finding::doubtful("sandbox", text).remedy("set `execution.sandbox: auto` in the config"));
        }
        (None, level) => findings.push(Finding::good("sandbox", format!("level {level}"))),
    }
    for layer in &sandbox.layers {
        let gap = if layer.detail.is_empty() { "" } else { ": " };
        let text = match &sandbox.error {
            Some(error) if *error == layer.detail => layer.name.clone(),
            _ => format!("{}{gap}{}", layer.name, visible(&layer.detail, Lines::Escape)),
        };
        findings.push(match layer.state {
            LayerState::Ok => Finding::good("sandbox", text),
            LayerState::MissingMandatory => Finding::broken("sandbox", format!("missing: {text}")),
            LayerState::MissingDepth => {
                Finding::doubtful("sandbox", format!("missing, other layers carry the promise: {text}"))
            }
        });
    }
    // Without one there is an error, which says what was looked for.
    if let Some(python) = &sandbox.python {
        findings.push(Finding::good("python", visible(python, Lines::Escape).into_owned()));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(sandbox: &str) -> Status {
        serde_json::from_str(&format!(
            r#"{{"daemon": {{"version": "0", "pid": 1, "uptime_seconds": 0, "rss_bytes": 0}},
                "config": {{"path": "/c.yaml", "loaded_at": null, "error": "c.yaml: no KEY"}},
                "pool": {{"warm": 0, "starting": 0, "running": 0, "queued": 0}},
                "servers": [], "sessions": [], "programs": [], "sandbox": {sandbox}}}"#
        ))
        .unwrap()
    }

    fn grades(findings: &[Finding]) -> Vec<Grade> {
        findings.iter().map(|finding| finding.grade).collect()
    }

    #[test]
    fn layers_are_graded_by_what_they_carry() {
        let found = sandbox_findings(&status(
            r#"{"level": "linux", "python": "/py", "layers": [
                {"name": "a", "state": "ok"}, {"name": "b", "state": "missing_depth"}, {"name": "c", "state": "missing_mandatory"}]}"#,
        ));
        assert_eq!(grades(&found), [Grade::Good, Grade::Good, Grade::Doubtful, Grade::Broken, Grade::Good]);
    }

    #[test]
    fn a_refusal_is_broken_and_no_sandbox_is_doubtful() {
        let refused = sandbox_findings(&status(
            r#"{"level": "linux", "error": "no room",
                "layers": [{"name": "namespaces", "state": "missing_mandatory", "detail": "no room"}]}"#,
        ));
        assert_eq!(grades(&refused), [Grade::Broken, Grade::Broken]);
        assert_eq!(refused[1].text, "missing: namespaces", "the reason is said once");
        let none = sandbox_findings(&status(r#"{"level": "none", "layers": [], "python": "/py"}"#));
        assert_eq!(grades(&none), [Grade::Doubtful, Grade::Good]);
    }

    #[test]
    fn a_config_that_only_the_daemon_refuses_points_to_its_environment() {
        let loaded = Loaded {
            path: Some("/c.yaml".into()),
            settings: Ok(config::settings::Settings::default()),
            warnings: vec![],
            hash: None,
        };
        let found = config_findings(&loaded, Path::new("/c.yaml"), Some(&status(r#"{"level": "none", "layers": []}"#)));
        assert_eq!(grades(&found), [Grade::Good, Grade::Broken]);
        assert!(found[1].remedy.as_deref().unwrap().contains("--env"), "{found:?}");
    }

    #[test]
    fn a_broken_file_shows_every_error() {
        let env = |_: &str| None;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("c.yaml");
        std::fs::write(&path, "servers:\n  - name: a\n    comand: x\n  - name: \"b c\"\n    command: y\n").unwrap();
        let found = config_findings(&config::load(Some(&path), &env), &path, None);
        assert_eq!(grades(&found), [Grade::Broken]);
        assert!(found[0].text.contains("comand") && found[0].text.contains("b c"), "{}", found[0].text);
    }
}
