//! What changed between two configurations. Pure.

use std::collections::BTreeMap;

use ptc_protocol::names::ServerName;

use super::settings::{Execution, ServerSettings, Settings, ToolFilter};

/// What a change of the configuration asks for. Every server of the new settings is in exactly one of `started`,
/// `restarted`, `unchanged`, or is disabled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// Enabled servers that were not there, or disabled; in the new file's order.
    pub started: Vec<ServerName>,
    /// Servers whose definition changed, in the new file's order.
    pub restarted: Vec<ServerName>,
    /// Servers that are gone or disabled now, in the old file's order.
    pub stopped: Vec<ServerName>,
    /// Enabled servers that keep running, in the new file's order. Their limits may have changed.
    pub unchanged: Vec<ServerName>,
    /// Changed keys that bind from the next program or call on, such as `execution.timeout_seconds`, `tools` or
    /// `servers.NAME.max_concurrent_calls`.
    pub settings: Vec<String>,
}

impl Diff {
    /// Whether the two configurations mean the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.started.is_empty() && self.restarted.is_empty() && self.stopped.is_empty() && self.settings.is_empty()
    }
}

/// Compares the configuration in force with a new one.
#[must_use]
pub fn diff(old: &Settings, new: &Settings) -> Diff {
    let mut found = Diff::default();
    let before: BTreeMap<&ServerName, &ServerSettings> = enabled(old).map(|server| (&server.name, server)).collect();
    for server in enabled(new) {
        let place = match before.get(&server.name) {
            None => &mut found.started,
            Some(earlier) if same_definition(earlier, server) => {
                if earlier.max_concurrent_calls != server.max_concurrent_calls {
                    found.settings.push(format!("servers.{}.max_concurrent_calls", server.name));
                }
                &mut found.unchanged
            }
            Some(_) => &mut found.restarted,
        };
        place.push(server.name.clone());
    }
    let stays = |server: &ServerSettings| enabled(new).any(|later| later.name == server.name);
    found.stopped = enabled(old).filter(|server| !stays(server)).map(|server| server.name.clone()).collect();
    if patterns(&old.tools) != patterns(&new.tools) {
        found.settings.push(String::from("tools"));
    }
    found.settings.extend(execution(&old.execution, &new.execution));
    if old.stubs_dir != new.stubs_dir {
        found.settings.push(String::from("stubs_dir"));
    }
    found
}

fn enabled(settings: &Settings) -> impl Iterator<Item = &ServerSettings> {
    settings.servers.iter().filter(|server| server.enabled)
}

/// Whether a running instance of the one is an instance of the other.
fn same_definition(old: &ServerSettings, new: &ServerSettings) -> bool {
    // Named one by one, so that a new field asks for a decision here.
    let ServerSettings { name: _, transport, enabled: _, startup_timeout, max_concurrent_calls: _, scope, protocol } =
        new;
    old.transport == *transport
        && old.startup_timeout == *startup_timeout
        && old.scope == *scope
        && old.protocol == *protocol
}

fn patterns(tools: &ToolFilter) -> (&'static str, Vec<&str>) {
    match tools {
        ToolFilter::All => ("all", Vec::new()),
        ToolFilter::Allow(globs) => ("allow", globs.iter().map(|glob| glob.glob().glob()).collect()),
        ToolFilter::Block(globs) => ("block", globs.iter().map(|glob| glob.glob().glob()).collect()),
    }
}

fn execution(old: &Execution, new: &Execution) -> Vec<String> {
    let Execution {
        timeout,
        max_output_bytes,
        sandbox,
        max_tool_calls,
        max_concurrent_calls,
        tool_call_timeout,
        trace,
        max_tool_result_bytes,
        structured_content,
        python,
        warm_children,
        max_programs,
        max_memory_bytes,
        read_output,
    } = new;
    [
        ("timeout_seconds", old.timeout != *timeout),
        ("max_output_bytes", old.max_output_bytes != *max_output_bytes),
        ("sandbox", old.sandbox != *sandbox),
        ("max_tool_calls", old.max_tool_calls != *max_tool_calls),
        ("max_concurrent_calls", old.max_concurrent_calls != *max_concurrent_calls),
        ("tool_call_timeout_seconds", old.tool_call_timeout != *tool_call_timeout),
        ("trace", old.trace != *trace),
        ("max_tool_result_bytes", old.max_tool_result_bytes != *max_tool_result_bytes),
        ("structured_content", old.structured_content != *structured_content),
        ("python", old.python != *python),
        ("warm_children", old.warm_children != *warm_children),
        ("max_programs", old.max_programs != *max_programs),
        ("max_memory_bytes", old.max_memory_bytes != *max_memory_bytes),
        ("read_output", old.read_output != *read_output),
    ]
    .into_iter()
    .filter(|(_, changed)| *changed)
    .map(|(key, _)| format!("execution.{key}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::config::file;

    fn settings(text: &str) -> Settings {
        let parsed = file::parse(text, PathBuf::from("/"), &|_| None);
        assert_eq!(parsed.faults, []);
        parsed.settings
    }

    fn names(all: &[&str]) -> Vec<ServerName> {
        all.iter().map(|name| ServerName::parse(*name).unwrap()).collect()
    }

    const BASE: &str = "servers:\n- {name: a, command: x, env: {K: '1'}}\n- {name: b, command: y}\n- {name: c, command: z, enabled: false}\n";

    #[test]
    fn the_same_settings_in_other_words_change_nothing() {
        let other = "# comment\nservers:\n- {command: z, name: c, enabled: false}\n- {name: b, command: 'y', args: []}\n\
                     - {name: a, transport: stdio, command: x, env: {K: 1}}\nexecution: {timeout_seconds: 120.0}\n";
        let found = diff(&settings(BASE), &settings(other));
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(found.unchanged, names(&["b", "a"]));
    }

    #[test]
    fn only_servers_whose_definition_changed_restart() {
        for changed in [
            "{name: a, command: x2, env: {K: '1'}}",
            "{name: a, command: x, env: {K: '2'}}",
            "{name: a, command: x, env: {K: '1'}, args: [y]}",
            "{name: a, command: x, env: {K: '1'}, cwd: /d}",
            "{name: a, command: x, env: {K: '1'}, scope: session}",
            "{name: a, command: x, env: {K: '1'}, protocol: auto}",
            "{name: a, command: x, env: {K: '1'}, startup_timeout_seconds: 5}",
            "{name: a, transport: http, url: 'http://h'}",
        ] {
            let found =
                diff(&settings(BASE), &settings(&BASE.replace("{name: a, command: x, env: {K: '1'}}", changed)));
            let want = Diff { restarted: names(&["a"]), unchanged: names(&["b"]), ..Diff::default() };
            assert_eq!(found, want, "{changed}");
        }
    }

    #[test]
    fn new_gone_enabled_and_disabled_servers() {
        let new =
            "servers:\n- {name: d, command: x}\n- {name: c, command: z}\n- {name: b, command: y, enabled: false}\n";
        let want = Diff { started: names(&["d", "c"]), stopped: names(&["a", "b"]), ..Diff::default() };
        assert_eq!(diff(&settings(BASE), &settings(new)), want);
    }

    #[test]
    fn limits_filters_and_execution_restart_nothing() {
        let new = BASE.replace("command: y", "command: y, max_concurrent_calls: 1")
            + "tools: {allow: ['mcp__a__*']}\nexecution: {timeout_seconds: 5, sandbox: none, max_programs: 1}\nstubs_dir: /s\n";
        let found = diff(&settings(BASE), &settings(&new));
        let want = Diff {
            unchanged: names(&["a", "b"]),
            settings: [
                "servers.b.max_concurrent_calls",
                "tools",
                "execution.timeout_seconds",
                "execution.sandbox",
                "execution.max_programs",
                "stubs_dir",
            ]
            .map(String::from)
            .to_vec(),
            ..Diff::default()
        };
        assert_eq!(found, want);
        assert!(diff(&settings(&new), &settings(&new)).is_empty());
    }

    proptest! {
        #[test]
        fn each_enabled_server_has_exactly_one_place(old in prop::collection::btree_map("[a-d]", (0..3_u8, any::<bool>()), 0..4),
                                                     new in prop::collection::btree_map("[a-d]", (0..3_u8, any::<bool>()), 0..4)) {
            let text = |all: &BTreeMap<String, (u8, bool)>| {
                let lines = all.iter().map(|(name, (command, on))| format!("- {{name: {name}, command: c{command}, enabled: {on}}}\n"));
                format!("servers:\n{}", lines.collect::<String>())
            };
            let found = diff(&settings(&text(&old)), &settings(&text(&new)));
            let mut places = [&found.started[..], &found.restarted, &found.unchanged].concat();
            places.sort();
            let on = |all: &BTreeMap<String, (u8, bool)>| all.iter().filter(|(_, (_, on))| *on).map(|(name, _)| name.clone()).collect::<Vec<_>>();
            prop_assert_eq!(places.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>(), on(&new));
            let mut before = [&found.stopped[..], &found.restarted, &found.unchanged].concat();
            before.sort();
            prop_assert_eq!(before.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>(), on(&old));
        }
    }
}
