//! The systemd user unit: its text, which commands enable and disable it.

use std::fmt::Write as _;

use super::{
    UNIT,
    service::{Refused, Service, fill},
    steps::Command,
};

/// The template; `ptcctl install` fills it in.
const TEMPLATE: &str = include_str!("../../../../launchd/ptcd.service");

/// The unit's text.
///
/// # Errors
/// A value holds a character that a unit file cannot carry.
pub(super) fn unit(service: &Service) -> Result<String, Refused> {
    let arguments = service.arguments()?;
    if let Some(path) = arguments.first().filter(|path| path.contains(['"', '\'', '\\'])) {
        return Err(Refused::Executable { path: path.clone() });
    }
    // systemd takes the program's path as it is and expands variables in the arguments only.
    let dollar = |at| if at == 0 { Dollar::Keep } else { Dollar::Double };
    let command: Vec<_> = arguments.iter().enumerate().map(|(at, word)| quote(word, dollar(at))).collect();
    let mut environment = String::new();
    for (name, value) in service.environment()? {
        let _written = writeln!(environment, "Environment={}", quote(&format!("{name}={value}"), Dollar::Keep));
    }
    Ok(fill(TEMPLATE, &[("EXEC_START", &command.join(" ")), ("ENVIRONMENT", environment.trim_end_matches('\n'))]))
}

/// Enables and starts the unit. Restarting also makes a new definition bind.
pub(super) fn load() -> Vec<Command> {
    vec![
        Command::new(["systemctl", "--user", "daemon-reload"]),
        Command::new(["systemctl", "--user", "enable", UNIT]),
        Command::new(["systemctl", "--user", "restart", UNIT]),
    ]
}

/// Stops the unit; it may well not be loaded.
pub(super) fn stop() -> Command {
    Command::new(["systemctl", "--user", "stop", UNIT]).may_fail()
}

/// Stops the unit and removes its links.
pub(super) fn unload() -> Command {
    Command::new(["systemctl", "--user", "disable", "--now", UNIT]).may_fail()
}

/// Exits 0 while the unit runs.
pub(super) fn probe() -> Command {
    Command::new(["systemctl", "--user", "--quiet", "is-active", UNIT])
}

/// Makes systemd forget a unit whose file is gone.
pub(super) fn forget() -> Command {
    Command::new(["systemctl", "--user", "daemon-reload"]).may_fail()
}

/// Whether `$` starts a variable where the text is going to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dollar {
    /// Command lines expand variables.
    Double,
    /// `Environment=` does not.
    Keep,
}

/// One word of a unit file: in double quotes, with backslash, quote, `%` and, on command lines, `$` escaped.
fn quote(text: &str, dollar: Dollar) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '%' => out.push_str("%%"),
            '$' if dollar == Dollar::Double => out.push_str("$$"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ctl::install::tests::service;

    #[test]
    fn words_keep_their_meaning() {
        assert_eq!(quote("/a b/100%/\"x\"/\\y/$HOME", Dollar::Double), r#""/a b/100%%/\"x\"/\\y/$$HOME""#);
        assert_eq!(quote("PATH=/$x", Dollar::Keep), "\"PATH=/$x\"");
    }

    #[test]
    fn what_systemd_cannot_run_is_refused() {
        for path in ["/a\nb/ptcd", "/q\"q/ptcd", "/q'q/ptcd", "/back\\slash/ptcd"] {
            assert!(unit(&service(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn the_unit_leaves_the_sandbox_room() {
        let text = unit(&service("/ptcd")).unwrap();
        let settings: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        for needed in ["Type=notify", "Restart=always", "KillMode=mixed", "Delegate=yes", "TimeoutStopSec=12"] {
            assert!(settings.contains(&needed), "{needed} is missing\n{text}");
        }
        for forbidden in ["RestrictNamespaces", "SystemCallFilter", "NoNewPrivileges"] {
            assert!(!settings.iter().any(|line| line.starts_with(forbidden)), "{forbidden} would break the sandbox");
        }
    }

    /// systemd's own parser finds nothing to say. Unknown keys only warn, so any line on stderr is a failure.
    #[test]
    fn systemd_accepts_the_unit_with_odd_paths() {
        let home = tempfile::tempdir().unwrap();
        for folder in ["plain", "a b", "100%", "a&b", "$HOME", "a;b", "é"] {
            let bin = home.path().join(folder);
            std::fs::create_dir(&bin).unwrap();
            let ptcd = bin.join("ptcd");
            std::fs::copy("/bin/true", &ptcd).unwrap();
            let config = Path::new("/q\"q'q/back\\slash/100%/$HOME/c d.yaml");
            let service = Service {
                options: vec![("--config", config.into())],
                variables: vec![("PATH".into(), "/q\"q'q/100%/$HOME/back\\slash:/a b".into())],
                ..service(ptcd.to_str().unwrap())
            };
            let text = unit(&service).unwrap();
            match verify(home.path(), &text) {
                None => return,
                Some(said) => assert_eq!(said, "", "{folder}\n{text}"),
            }
        }
    }

    #[test]
    fn the_check_itself_can_fail() {
        let home = tempfile::tempdir().unwrap();
        let text = unit(&service("/bin/true")).unwrap().replace("KillMode=", "KilMode=");
        if let Some(said) = verify(home.path(), &text) {
            assert!(said.contains("KilMode"), "{said}");
        }
    }

    /// What `systemd-analyze` writes to stderr about the unit; none when there is no `systemd-analyze`.
    fn verify(home: &Path, text: &str) -> Option<String> {
        let file = home.join(UNIT);
        std::fs::write(&file, text).unwrap();
        let output = std::process::Command::new("systemd-analyze")
            .args(["--user", "verify"])
            .arg(&file)
            .env("XDG_RUNTIME_DIR", home)
            .env("HOME", home)
            .output();
        match output {
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => {
                println!("SKIPPED: the unit was not verified, systemd-analyze cannot be run: {error}");
                None
            }
        }
    }
}
