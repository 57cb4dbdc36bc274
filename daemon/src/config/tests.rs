//! Whole files: what is accepted, what is refused, and in which words.

use std::{fs, path::Path, time::Duration};

use ptc_protocol::exit;

use super::{
    check, load, reload,
    settings::{SandboxChoice, Scope, ServerSettings, Settings, ToolFilter, Transport},
};

fn env(name: &str) -> Option<String> {
    match name {
        "HOME" => Some(String::from("/home/u")),
        "TOKEN" => Some(String::from("s3cr3t")),
        "T" => Some(String::from("45")),
        "NEWLINE" => Some(String::from("s3cr3t\n")),
        _ => None,
    }
}

struct Read {
    settings: Result<Settings, String>,
    warnings: Vec<String>,
}

/// Loads the text from a file; messages have the file's name replaced by `c`.
fn read_bytes(bytes: &[u8]) -> Read {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    fs::write(&path, bytes).unwrap();
    let short = |text: String| {
        text.replace(&path.display().to_string(), "c").replace(&folder.path().display().to_string(), "/base")
    };
    let loaded = load(Some(&path), &env);
    Read {
        settings: loaded.settings.map_err(|errors| short(errors.to_string())),
        warnings: loaded.warnings.into_iter().map(short).collect(),
    }
}

fn read(text: &str) -> Read {
    read_bytes(text.as_bytes())
}

fn settings(text: &str) -> Settings {
    read(text).settings.unwrap()
}

fn errors(text: &str) -> String {
    read(text).settings.unwrap_err()
}

fn only(text: &str) -> ServerSettings {
    let mut all = settings(text).servers;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// `command`, arguments and environment of a stdio server.
fn stdio(server: &ServerSettings) -> (&str, Vec<&str>, Vec<(&str, &str)>) {
    let Transport::Stdio { command, args, env, .. } = &server.transport else { panic!("not stdio: {server:?}") };
    (
        command,
        args.iter().map(String::as_str).collect(),
        env.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect(),
    )
}

#[test]
fn the_example_file_is_accepted_without_a_warning_and_says_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config.example.yaml");
    let loaded = load(Some(&path), &env);
    let found = loaded.settings.unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!(found.servers.len(), 3);
    assert_eq!(found.execution, Settings::default().execution, "the example shows the defaults");
    let text = fs::read_to_string(&path).unwrap();
    for key in [
        super::server::KEYS,
        super::execution::KEYS,
        super::filter::KEYS,
        &["servers", "tools", "execution", "stubs_dir"],
    ]
    .concat()
    {
        assert!(text.contains(&format!("{key}:")), "{key} is missing in the example");
    }
}

#[test]
fn an_empty_file_and_no_file_mean_defaults() {
    for text in ["", "\n\n", "# only a comment\n", "---\n", "\u{feff}", "{}", "servers:\ntools:\nexecution:\n"] {
        let found = settings(text);
        assert!(found.servers.is_empty() && matches!(found.tools, ToolFilter::All), "{text:?}");
        assert_eq!(found.execution, Settings::default().execution);
    }
    let nowhere = load(None, &|_| None);
    assert!(nowhere.path.is_none() && nowhere.settings.is_ok());
}

#[test]
fn values_keep_the_text_the_person_wrote() {
    let server = only(
        "servers:\n- name: a\n  transport: stdio\n  command: x\n  args: [--port, 8080, --ver, 1.10, no, 1e3, '~']\n  \
         env: {PORT: 8080, V: 1.10, OCT: 0o17, HEX: 0xFF, B: true, N: no, E: 1e3, Q: '', D: 2026-01-01, S: 1:30}\n",
    );
    let (command, args, env) = stdio(&server);
    assert_eq!(command, "x");
    assert_eq!(args, ["--port", "8080", "--ver", "1.10", "no", "1e3", "/home/u"]);
    assert_eq!(
        env,
        [
            ("B", "true"),
            ("D", "2026-01-01"),
            ("E", "1e3"),
            ("HEX", "0xFF"),
            ("N", "no"),
            ("OCT", "0o17"),
            ("PORT", "8080"),
            ("Q", ""),
            ("S", "1:30"),
            ("V", "1.10")
        ]
    );
}

#[test]
fn null_where_a_text_is_needed_is_an_error() {
    assert_eq!(
        errors("servers:\n- {name: a, command: x, args: [~], env: {N: ~, M: , L: null}}\n"),
        "c:2:32: servers[0].args[0]: has no value; an empty text is written `\"\"`, a tilde `\"~\"`\n\
         c:2:45: servers[0].env.N: has no value; an empty text is written `\"\"`, a tilde `\"~\"`\n\
         c:2:49: servers[0].env.M: has no value; an empty text is written `\"\"`, a tilde `\"~\"`\n\
         c:2:56: servers[0].env.L: has no value; an empty text is written `\"\"`, a tilde `\"~\"`"
    );
}

#[test]
fn every_error_is_reported_at_once_in_the_order_of_lines() {
    let text = "\
servers:
  - name: a
    comand: node
  - name: b
    transport: http
    url: https://h.test/mcp
    headers:
      Authorization: Bearer ${NOPE}
  - name: a-b
    command: x
  - name: a_b
    command: y
tools: {allow: 'mcp__a__*'}
execution:
  timeout_seconds: -1
  timeout_seconds: 5
  sandbox: seatbeld
";
    assert_eq!(
        errors(text),
        "c:2:5: servers[0]: a server needs a `command` (`transport: stdio`) or a `url` (`transport: http` or `sse`)\n\
         c:3:5: servers[0].comand: unknown key `comand`; did you mean `command`?\n\
         c:8:22: servers[1].headers.Authorization: the environment variable NOPE is not set; set it where ptcd is \
         started, or write `${NOPE:-default}`\n\
         c:11:5: servers[3]: the name `a_b` is taken by the server `a-b` in line 9 (`-` and `_` count as the same)\n\
         c:13:16: tools.allow: must be a list, not a plain value; put it in brackets: `[…]`\n\
         c:15:20: execution.timeout_seconds: must be more than 0 and at most 604800 seconds, not `-1`\n\
         c:16:3: execution.timeout_seconds: stands twice in the same mapping, first in line 15\n\
         c:17:12: execution.sandbox: must be one of `auto`, `linux`, `landlock`, `seatbelt`, `none`, not `seatbeld`; \
         did you mean `seatbelt`?"
    );
}

#[test]
fn merge_keys_are_merged_and_the_explicit_key_wins() {
    let found = settings(
        "x-base: &b {transport: stdio, env: {A: '1'}}\nservers:\n- <<: *b\n  name: a\n  command: x\n  env: {B: '2'}\n\
         - <<: [*b, {command: z, env: {C: '3'}}]\n  name: c\n",
    );
    assert_eq!(stdio(&found.servers[0]), ("x", vec![], vec![("B", "2")]));
    assert_eq!(stdio(&found.servers[1]), ("z", vec![], vec![("A", "1")]));
    assert_eq!(
        errors("servers:\n- {<<: 5, name: a, command: x}\n"),
        "c:2:8: servers[0]: `<<` merges a mapping or a list of mappings"
    );
    assert!(errors("x-a: &a {}\nservers:\n- <<: *a\n  <<: *a\n  name: a\n  command: x\n").contains("`<<: [*a, *b]`"));
}

#[test]
fn numbers_may_come_from_variables_and_have_decimals() {
    let found = settings(
        "execution:\n  timeout_seconds: ${T:-30}\n  tool_call_timeout_seconds: ${NOPE:-0.5}\n  max_tool_calls: \"${T}\"\n",
    );
    assert_eq!(found.execution.timeout, Duration::from_secs(45));
    assert_eq!(found.execution.tool_call_timeout, Duration::from_millis(500));
    assert_eq!(found.execution.max_tool_calls, 45);
    // Not YAML, but what a person would try.
    let found = errors("servers: []\nexecution: {timeout_seconds: ${T:-30}}\n");
    assert!(found.starts_with("c:2:31: ") && found.contains("must be quoted"), "{found}");
}

#[test]
fn every_number_has_a_range() {
    let text = "\
servers: [{name: a, command: x, startup_timeout_seconds: 0, max_concurrent_calls: 0}]
execution:
  timeout_seconds: 1e9
  max_output_bytes: 0
  max_tool_calls: abc
  max_concurrent_calls: 1.5
  tool_call_timeout_seconds: .inf
  max_tool_result_bytes: 50331649
  warm_children: 65
  max_programs: 0
  max_memory_bytes: 1 GiB
";
    let found = errors(text);
    assert_eq!(found.lines().count(), 11, "{found}");
    for part in [
        "startup_timeout_seconds: must be more than 0 and at most 86400 seconds, not `0`",
        "c:3:20: execution.timeout_seconds: must be a number of seconds such as `30` or `0.5`, without a unit, not `1e9`",
        "max_output_bytes: must be from 1 to 15728640, not `0`",
        "max_tool_calls: must be a whole number, not `abc`",
        "max_concurrent_calls: must be a whole number, not `1.5`",
        "max_tool_result_bytes: must be from 1 to 50331648, not `50331649`",
        "max_memory_bytes: must be a whole number, not `1 GiB`; write 1073741824",
    ] {
        assert!(found.contains(part), "{part}\n{found}");
    }
    assert!(errors("execution: {max_tool_calls: 99999999999999999999}").contains("must be from 1 to 1000000"));
}

#[test]
fn the_example_of_other_clients_is_read_with_warnings() {
    let found = read(
        "mcpServers:\n  fs: {command: npx, args: [-y, pkg], disabled: true}\n  web: {type: streamable-http, url: 'http://h/mcp'}\n",
    );
    let all = found.settings.unwrap().servers;
    assert_eq!(stdio(&all[0]), ("npx", vec!["-y", "pkg"], vec![]));
    assert!(!all[0].enabled && all[1].enabled && all[1].transport.kind() == "http");
    assert_eq!(
        found.warnings,
        [
            "c:1:1: mcpServers: read as `servers`; there, each entry is a list item with its `name`",
            "c:2:39: mcpServers.fs.disabled: read as `enabled: false`; write it so",
            "c:3:9: mcpServers.web.type: read as `transport`; write it so",
            "c:3:15: mcpServers.web.type: `streamable-http` is read as `http`; write it so",
        ]
    );
    let json = r#"{"mcpServers": {"fs": {"command": "npx", "args": ["-y", "pkg"], "env": {"A": "b"}}}}"#;
    assert_eq!(stdio(&only(json)), ("npx", vec!["-y", "pkg"], vec![("A", "b")]));
    let short = read("servers: [{name: a, httpUrl: 'http://h/mcp'}]");
    assert_eq!(short.settings.unwrap().servers[0].transport.kind(), "http");
    assert_eq!(short.warnings.len(), 2);
}

#[test]
fn spellings_that_are_not_clear_are_errors_that_say_the_right_one() {
    for (text, part) in [
        (
            "servers: [{name: a, command: 'npx -y pkg'}]",
            "c:1:30: servers[0].command: is one program, without arguments: write `command: npx` and `args: [first, second]`",
        ),
        (
            "servers: [{name: a, command: /usr/bin/env -i x, args: [y]}]",
            "write `command: /usr/bin/env` and move the rest to `args`",
        ),
        ("servers: [{name: a, command: [npx, x]}]", "its arguments go to `args: [first, second]`"),
        ("servers: [{name: a, url: 'http://h/sse'}]", "add `transport: sse`"),
        ("servers: [{name: a, url: 'http://h', command: x}]", "`command` and `url` are both given"),
        ("servers: [{name: a, transport: ws, url: 'ws://h'}]", "WebSocket servers are not supported"),
        ("servers: [{name: a, transport: htp, url: 'http://h'}]", "did you mean `http`?"),
        ("servers: [{name: a, transport: stdio}]", "`transport: stdio` needs a `command`"),
        ("servers: [{name: a, transport: sse}]", "`transport: sse` needs a `url`"),
        ("servers: [{name: a, command: x, timeout: 5000}]", "use `startup_timeout_seconds` here"),
        ("servers: [{name: a, command: x, type: stdio, transport: stdio}]", "means the same as `transport`"),
        ("servers: [{name: a, command: x, enabled: true, disabled: false}]", "`enabled` is given as well"),
        ("servers: [{name: a, command: x}]\nmcpServers: {b: {command: y}}", "means the same as `servers`"),
        ("servers: [{command: x}]", "a server needs a `name`"),
        ("servers: [{name: a b, command: x}]", "is not a server name"),
        ("servers: [x]", "c:1:11: servers[0]: must be a mapping (`key: value`), not a plain value"),
        ("servers: x", "servers: must be a list"),
        ("servers: {name: a, command: x}", "c:1:10: servers: must be a list; begin each server with `- name: …`"),
        ("-name: a", "is a space missing after the `-`?"),
        ("servers:\n- name: a: b", "is a value quoted that holds `: `?"),
        ("tools: {allow: [*__x]}", "such as a pattern, must be quoted"),
        ("timeout_seconds: 5", "unknown key `timeout_seconds` here; it belongs to `execution`"),
        ("executions: {}", "did you mean `execution`?"),
        ("- a", "the file must hold keys such as `servers:`, not a list"),
        ("hello", "the file must hold keys such as `servers:`, not a plain value"),
        ("tools: {allow: [a*], block: [b*]}", "`allow` and `block` exclude each other"),
        ("tools: {allow: ['mcp__a__[x']}", "`mcp__a__[x` is no valid pattern"),
        ("tools: {allow: [{a: b}]}", "tools.allow[0]: must be one plain value, not a mapping"),
        ("execution: {trace: false}", "must be one of `summary`, `off`, not `false`"),
        ("execution: {python: python3}", "must be a path"),
    ] {
        let found = errors(text);
        assert!(found.contains(part), "{text}\n{found}");
    }
}

#[test]
fn urls_and_headers_are_checked() {
    for (text, part) in [
        ("url: 'h/mcp'", "is not a URL (relative URL without a base)"),
        ("url: 'ftp://h/mcp'", "must start with `http://` or `https://`"),
        ("url: 'https://u:s3cr3t@h/mcp'", "must not hold a user name or password"),
        ("url: 'https://h', headers: {'a b': x}", "is not the name of an HTTP header"),
        ("url: 'https://h', headers: {Accept: x}", "is set by the protocol itself"),
        ("url: 'https://h', headers: {X-A: x, x-a: y}", "is the same header as in line 1"),
        ("url: 'https://h', headers: {A: '${NEWLINE}'}", "is a line break at its end?"),
        ("url: 'https://h', headers: {A: 'é'}", "must be printable ASCII"),
        ("url: 'https://h', headers: [a]", "must be a mapping"),
    ] {
        let found = errors(&format!("servers: [{{name: a, transport: http, {text}}}]"));
        assert!(found.contains(part), "{text}\n{found}");
        assert!(!found.contains("s3cr3t"), "{found}");
    }
}

#[test]
fn paths_start_at_home_at_cwd_or_at_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    fs::write(&path, "servers:\n- {name: a, command: ./run, cwd: sub, args: [~/d, ./x]}\n- {name: b, command: ~/bin/x}\n- {name: c, command: ./y}\n").unwrap();
    let found = load(Some(&path), &env).settings.unwrap();
    let Transport::Stdio { command, args, cwd, .. } = &found.servers[0].transport else { panic!() };
    assert_eq!(Path::new(command), folder.path().join("sub/run"));
    assert_eq!(cwd.as_deref(), Some(folder.path().join("sub").as_path()));
    assert_eq!(args, &["/home/u/d", "./x"]);
    assert_eq!(stdio(&found.servers[1]).0, "/home/u/bin/x");
    assert_eq!(Path::new(stdio(&found.servers[2]).0), folder.path().join("y"));
}

#[test]
fn a_command_may_be_a_path_with_spaces() {
    assert_eq!(stdio(&only("servers: [{name: a, command: /Apps/My App - Beta/run}]")).0, "/Apps/My App - Beta/run");
}

#[test]
fn a_disabled_server_may_lack_its_variables() {
    let found = read(
        "servers:\n- {name: a, transport: http, url: '${NOPE}/mcp', headers: {A: '${NOPE2}'}, enabled: false}\n- {name: b, command: x, args: ['${NOPE}'], env: {A: '${NOPE}'}, enabled: no}\n",
    );
    let all = found.settings.unwrap().servers;
    assert_eq!((all.len(), all[0].enabled, all[1].enabled), (2, false, false));
    assert_eq!(found.warnings.len(), 4);
}

#[test]
fn words_become_settings() {
    let found = settings(
        "servers: [{name: a, command: x, scope: session, protocol: auto, max_concurrent_calls: 3}]\n\
         tools: {block: ['mcp__a__*'], allow: []}\nexecution: {sandbox: none, read_output: on}\nstubs_dir: ~/stubs\n",
    );
    assert_eq!((found.servers[0].scope, found.servers[0].max_concurrent_calls), (Scope::Session, 3));
    assert_eq!((found.execution.sandbox, found.execution.read_output), (SandboxChoice::None, true));
    assert!(!found.tools.admits("mcp__a__x") && found.tools.admits("mcp__b__x"));
    assert_eq!(found.stubs_dir.as_deref(), Some(Path::new("/home/u/stubs")));
}

#[test]
fn secrets_are_in_no_error_warning_or_debug_output() {
    let text = "servers:\n- {name: a, transport: http, url: 'https://h/s3cr3t?k=${TOKEN}', headers: {A: '${TOKEN}'}}\n\
                - {name: b, command: x, args: ['--key=${TOKEN}'], env: {A: 's3cr3t'}}\n";
    let shown = format!("{:?}", settings(text));
    assert!(!shown.contains("s3cr3t"), "{shown}");
    let found =
        errors(&format!("{text}- {{name: c, command: '${{TOKEN}} x', args: '${{TOKEN}}', env: s3cr3t}}\n- s3cr3t\n"));
    assert!(!found.contains("s3cr3t"), "{found}");
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/c.yaml");
    let message = |path: &Path| load(Some(path), &env).settings.unwrap_err().to_string();
    assert_eq!(message(&missing), format!("{}: the file does not exist", missing.display()));
    assert!(message(folder.path()).ends_with(": is a directory, not a file"));
    let big = folder.path().join("big");
    fs::write(&big, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(message(&big).ends_with(": is larger than 1048576 bytes"));
    for (bytes, part) in [
        (&b"a: b\nx: \xff\n"[..], "c:2:4: a byte that is not UTF-8"),
        (b"\xff\xfea\0", "c: is UTF-16; save it as UTF-8"),
        (b"servers:\n\t- a\n", "c:2:"),
        (b"servers: [\n", "not valid YAML"),
        (b"a: \0\n", "not valid YAML"),
        (b"a: b\n---\nc: d\n", "a second document starts here"),
        (b"servers: !include x\n", "tags are not supported"),
        (b"x-a: &a [*a]\n", "inside the value it refers to"),
        (b"a: *b\n", "not valid YAML"),
        (b"? [a]\n: b\n", "a key must be a plain text"),
    ] {
        let found = read_bytes(bytes).settings.unwrap_err();
        assert!(found.contains(part), "{part}\n{found}");
    }
}

#[test]
fn line_ends_and_byte_order_marks_do_not_matter() {
    let text = "\u{feff}servers:\r\n- name: a\r\n  command: x\r\n  args: [y]\r\n";
    assert_eq!(stdio(&only(text)), ("x", vec!["y"], vec![]));
    assert_eq!(
        errors("\u{feff}servers:\r\n- nam: a\r\n  command: x\r\n").lines().last(),
        Some("c:2:3: servers[0].nam: unknown key `nam`; did you mean `name`?")
    );
}

#[test]
fn a_flood_of_errors_is_cut() {
    let found = errors(&"k: 1\n".repeat(300));
    assert_eq!(found.lines().count(), 101);
    assert!(found.ends_with("c: and 200 more"), "{found}");
}

#[test]
fn bombs_are_stopped() {
    let mut text = String::from("x-0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = level - 1;
        let items = vec![format!("*a{before}"); 10].join(", ");
        text.push_str(&format!("x-{level}: &a{level} [{items}]\n"));
    }
    assert!(errors(&text).contains("too large once its aliases are filled in"));
    let found = errors(&format!("x-a: {}x{}", "[".repeat(200), "]".repeat(200)));
    assert!(found.contains("nested deeper than 64 levels"), "{found}");
    let found = errors(&format!("x-a: {}", "[".repeat(100_000)));
    assert!(found.contains("not valid YAML"), "{found}");
}

#[test]
fn an_empty_or_missing_file_is_an_error_for_a_running_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    assert!(reload(&path, &env).settings.unwrap_err().to_string().ends_with("does not exist"));
    fs::write(&path, "# saved soon\n").unwrap();
    assert!(reload(&path, &env).settings.unwrap_err().to_string().contains("the file is empty"));
    fs::write(&path, "servers: []\n").unwrap();
    assert!(reload(&path, &env).settings.is_ok());
}

#[test]
fn the_file_is_found_in_the_documented_order() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let vars = |set: &'static [&'static str]| {
        let root = folder.path().to_owned();
        move |name: &str| set.contains(&name).then(|| root.join(name).display().to_string())
    };
    let at = |explicit, set| {
        super::locate(explicit, &vars(set)).map(|found| (found.path.display().to_string(), found.named))
    };
    let all = &["PTC_CONFIG", "PTC_MCP_CONFIG", "XDG_CONFIG_HOME", "HOME"];
    assert_eq!(at(Some(Path::new("/c")), all), Some((String::from("/c"), true)));
    assert_eq!(at(None, all), Some((place("PTC_CONFIG"), true)));
    assert_eq!(at(None, &all[1..]), Some((place("PTC_MCP_CONFIG"), true)));
    assert_eq!(at(None, &all[2..]), Some((place("XDG_CONFIG_HOME/ptc/config.yaml"), false)));
    assert_eq!(at(None, &all[3..]), Some((place("HOME/.config/ptc/config.yaml"), false)));
    assert_eq!(at(None, &[]), None);
}

#[test]
fn check_lists_all_errors_and_says_what_it_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    let name = path.display();
    fs::write(&path, "servers: [{name: a, command: x}, {name: b, command: x, enabled: false}]\n").unwrap();
    let found = check(Some(&path), &env);
    assert_eq!((found.code, found.text), (exit::OK, format!("{name}: ok, 1 server, 1 disabled\n")));
    fs::write(&path, "a: 1\nb: 2\n").unwrap();
    let found = check(Some(&path), &env);
    assert_eq!(found.code, exit::FAILED);
    assert!(found.text.starts_with(&format!("{name}:1:1: a: unknown key `a`")), "{}", found.text);
    assert!(found.text.ends_with("2 errors\n"), "{}", found.text);
    assert_eq!(check(None, &|_| None).code, exit::OK);
}
