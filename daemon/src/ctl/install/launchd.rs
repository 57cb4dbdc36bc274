//! The LaunchAgent: its property list, where it goes, which commands load and unload it.

use std::{fmt::Write as _, path::Path};

use super::{
    LABEL,
    service::{Refused, Service, fill, plain},
    steps::Command,
};

/// The template; `ptcctl install` fills it in.
const TEMPLATE: &str = include_str!("../../../../launchd/dev.ptc.ptcd.plist");

/// The agent's property list.
///
/// # Errors
/// A value holds a character that a property list cannot carry.
pub(super) fn plist(service: &Service) -> Result<String, Refused> {
    let mut arguments = String::new();
    for argument in service.arguments()? {
        let _written = writeln!(arguments, "\t\t<string>{}</string>", escape(&argument));
    }
    let mut environment = String::new();
    for (name, value) in service.environment()? {
        let _written =
            writeln!(environment, "\t\t<key>{}</key>\n\t\t<string>{}</string>", escape(&name), escape(&value));
    }
    let log = |name: &str| plain("the log folder", &service.log_dir.join(name)).map(|text| escape(&text));
    Ok(fill(
        TEMPLATE,
        &[
            ("LABEL", &escape(LABEL)),
            ("ARGUMENTS", arguments.trim_end_matches('\n')),
            ("ENVIRONMENT", environment.trim_end_matches('\n')),
            ("HOME", &escape(&plain("the home folder", &service.home)?)),
            ("STDOUT", &log("launchd.out.log")?),
            ("STDERR", &log("launchd.err.log")?),
        ],
    ))
}

/// Loads and starts the agent. Bootstrapping fails for a moment after a bootout, hence the patience.
pub(super) fn load(uid: u32, file: &Path) -> Vec<Command> {
    vec![
        Command::new(["launchctl", "enable", &target(uid)]),
        Command::new(["launchctl", "bootstrap", &domain(uid), &file.to_string_lossy()]).patient(),
    ]
}

/// Unloads the agent, which stops it; it may well not be loaded.
pub(super) fn stop(uid: u32) -> Command {
    Command::new(["launchctl", "bootout", &target(uid)]).may_fail()
}

/// Exits 0 while the agent is loaded.
pub(super) fn probe(uid: u32) -> Command {
    Command::new(["launchctl", "print", &target(uid)])
}

fn domain(uid: u32) -> String {
    format!("gui/{uid}")
}

fn target(uid: u32) -> String {
    format!("gui/{uid}/{}", LABEL)
}

/// Text of an XML element.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::ctl::install::tests::service;

    /// Every key the agent may have, with its type, from launchd.plist(5). An unknown key or a wrong type fails.
    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "PascalCase", deny_unknown_fields)]
    struct Agent {
        label: String,
        program_arguments: Vec<String>,
        environment_variables: BTreeMap<String, String>,
        working_directory: String,
        run_at_load: bool,
        keep_alive: bool,
        throttle_interval: u32,
        exit_time_out: u32,
        process_type: ProcessType,
        soft_resource_limits: Limits,
        umask: u32,
        standard_out_path: String,
        standard_error_path: String,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "PascalCase", deny_unknown_fields)]
    struct Limits {
        number_of_files: u32,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    enum ProcessType {
        Background,
        Standard,
        Adaptive,
        Interactive,
    }

    fn parse(text: &str) -> Agent {
        plist::from_bytes(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn the_agent_is_valid_and_says_what_was_asked() {
        let service = service("/Users/me/bin/ptcd");
        assert_eq!(
            parse(&plist(&service).unwrap()),
            Agent {
                label: "dev.ptc.ptcd".into(),
                program_arguments: vec!["/Users/me/bin/ptcd".into(), "run".into()],
                environment_variables: BTreeMap::from([("PATH".into(), "/opt/homebrew/bin:/usr/bin".into())]),
                working_directory: "/home/me".into(),
                run_at_load: true,
                keep_alive: true,
                throttle_interval: 5,
                exit_time_out: 12,
                process_type: ProcessType::Interactive,
                soft_resource_limits: Limits { number_of_files: 8192 },
                umask: 0o077,
                standard_out_path: "/home/me/logs/launchd.out.log".into(),
                standard_error_path: "/home/me/logs/launchd.err.log".into(),
            }
        );
    }

    #[test]
    fn odd_characters_in_paths_come_through() {
        for path in ["/a b/ptcd", "/a&b/<x>/ptcd", "/100%/\"q\"/'q'/ptcd", "/$HOME/]]>/ptcd", "/é/@PATH@/ptcd"] {
            let agent = parse(&plist(&service(path)).unwrap());
            assert_eq!(agent.program_arguments[0], path);
        }
    }

    #[test]
    fn a_newline_is_refused() {
        let error = plist(&service("/a\nb/ptcd")).unwrap_err().to_string();
        assert!(error.contains("control character"), "{error}");
    }

    #[test]
    fn strict_types_refuse_an_unknown_key() {
        let text = plist(&service("/ptcd")).unwrap().replace("<key>KeepAlive</key>", "<key>KeepAlife</key>");
        assert!(plist::from_bytes::<Agent>(text.as_bytes()).is_err());
    }
}
