//! `ptcctl` as a person uses it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use ptc_tests::{
    World,
    config::{config, fake},
    process::Group,
    until,
    wait::PATIENCE,
    world::{Ran, STOP},
};
use rustix::process::Signal;
use serde_json::{Value, json};

fn echo() -> Value {
    config(vec![fake("fake", &json!({}))], &json!({}))
}

/// A program in a file of the world.
fn program(world: &World, code: &str) -> String {
    let path = world.path("program.py");
    fs::write(&path, code).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn without_a_daemon_each_question_ends_with_its_own_code_and_one_line() {
    let world = World::empty();
    for verb in [&["status"][..], &["ps"], &["tools"], &["reload"], &["restart", "x"], &["logs"], &["kill", "p-1"]] {
        let ran = world.ctl(verb);
        assert_eq!(ran.code, Some(69), "{verb:?}");
        assert_eq!(ran.stdout, "");
        assert!(ran.stderr.starts_with("ptcctl: ") && ran.stderr.lines().count() == 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("ptcd run"), "says how to start it: {}", ran.stderr);
    }
    assert_eq!(world.ctl(&["frobnicate"]).code, Some(2));
}

#[test]
fn status_shows_the_servers_to_people_and_to_programs() {
    let world = World::ready(&echo());
    let page = world.ctl(&["status"]);
    assert_eq!(page.code, Some(0));
    assert!(page.stdout.contains("fake") && page.stdout.contains("ready"), "{}", page.stdout);
    assert!(!page.stdout.contains('\u{1b}'), "no colours but on a terminal: {:?}", page.stdout);
    let json: Value = serde_json::from_str(&world.ctl(&["status", "--json"]).stdout).unwrap();
    for key in ["daemon", "config", "sandbox", "pool", "servers", "sessions", "programs"] {
        assert!(!json[key].is_null(), "{key} is missing: {json}");
    }
    assert_eq!(json["servers"][0]["state"], "ready");
}

#[test]
fn a_program_writes_where_it_should_and_decides_the_exit_code() {
    let world = World::ready(&echo());
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nemit(await mcp__fake__echo(a=[1, 2]))\n";
    let ran = world.ctl(&["run", "--calls", &program(&world, code)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "out");
    let emitted: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(emitted, json!({"a": [1, 2]}));
    assert!(ran.stderr.contains("err\n") && ran.stderr.contains("[1] mcp__fake__echo ok"), "{}", ran.stderr);

    let failed = world.ctl(&["run", &program(&world, "print('before')\nraise ValueError('no way')\n")]);
    assert_eq!(failed.code, Some(1));
    assert_eq!(failed.stdout, "before\n");
    assert!(failed.stderr.contains("ValueError: no way"), "{}", failed.stderr);
}

#[test]
fn run_json_is_the_whole_outcome() {
    let world = World::ready(&echo());
    let ran = world.ctl(&["run", "--json", &program(&world, "print('hi')\nemit(12345678901234567890123)\n")]);
    let outcome: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&outcome["ok"], &outcome["output"]), (&json!(true), &json!("hi\n")));
    assert!(ran.stdout.contains("12345678901234567890123"), "every digit: {}", ran.stdout);
}

#[test]
fn output_comes_while_the_program_runs_and_an_interrupt_ends_it() {
    let world = World::ready(&echo());
    let code = "import asyncio\nprint('started')\nawait asyncio.sleep(1000)\n";
    let seen = world.path("seen");
    let mut command = world.command("ptcctl");
    command.args(["run", &program(&world, code)]).stdout(fs::File::create(&seen).unwrap());
    let mut run = Group::spawn(&mut command);
    until("the first output", PATIENCE, || (fs::read_to_string(&seen).unwrap() == "started\n").then_some(()));
    let programs = world.wait_status("the running program", |status| status.programs.len() == 1).programs;
    assert!(world.ctl(&["ps"]).stdout.contains(programs[0].id.as_str()));
    run.signal(Signal::INT);
    assert_eq!(run.exit(STOP).code(), Some(1));
    world.wait_status("no program left", |status| status.programs.is_empty());
}

#[test]
fn kill_ends_a_program_and_an_unknown_one_is_an_error() {
    let world = World::ready(&echo());
    let mut command = world.command("ptcctl");
    command.args(["run", &program(&world, "while True: pass\n")]);
    let mut run = Group::spawn(&mut command);
    let programs = world.wait_status("the running program", |status| status.programs.len() == 1).programs;
    assert_eq!(world.ctl(&["kill", programs[0].id.as_str()]).code, Some(0));
    assert_eq!(run.exit(STOP).code(), Some(1));
    let unknown = world.ctl(&["kill", "p-none"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("p-none"), "{}", unknown.stderr);
}

#[test]
fn tools_can_be_listed_narrowed_and_inspected() {
    let world = World::ready(&echo());
    let all = world.ctl(&["tools"]);
    assert!(all.stdout.contains("mcp__fake__echo"), "{}", all.stdout);
    let narrowed = world.ctl(&["tools", "*__echo", "--signatures"]);
    assert_eq!(narrowed.stdout.lines().count(), 1, "{}", narrowed.stdout);
    assert!(narrowed.stdout.starts_with("mcp__fake__echo("), "{}", narrowed.stdout);
    assert_eq!(world.ctl(&["tools", "no_such_*"]).code, Some(1));
    assert!(world.ctl(&["inspect", "mcp__fake__echo"]).stdout.contains("input schema:"));
    let unknown = world.ctl(&["inspect", "mcp__fake__ecko"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("mcp__fake__echo"), "a close match is named: {}", unknown.stderr);
    assert!(world.ctl(&["tools", "--server", "fak"]).stderr.contains("fake"), "the servers are named");
}

#[test]
fn reload_says_what_was_done_or_why_nothing_was() {
    let world = World::ready(&echo());
    let mut two = echo();
    two["servers"].as_array_mut().unwrap().push(fake("more", &json!({})));
    world.write_config(&two.to_string());
    // The daemon watches the file too; whoever comes first, both servers get ready.
    assert_eq!(world.ctl(&["reload"]).code, Some(0));
    world.wait_servers("two servers", |servers| servers.len() == 2);
    world.write_config("servers:\n  - comand: x\n");
    let refused = world.ctl(&["reload"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("comand"), "{}", refused.stderr);
    assert_eq!(world.status().servers.len(), 2);
}

#[test]
fn a_reload_without_a_file_where_none_was_is_no_error() {
    let world = World::empty();
    let mut daemon = Group::spawn(world.command("ptcd").env_remove("PTC_CONFIG").arg("run"));
    until("the daemon's socket", PATIENCE, || {
        assert!(daemon.runs(), "the daemon ended at once");
        std::os::unix::net::UnixStream::connect(world.socket()).ok()
    });
    let ran = world.ctl(&["reload"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "nothing to do\n"), "{ran:?}");
    assert_eq!(world.status().config.error, None);
}

#[test]
fn restart_gives_a_server_a_new_process() {
    let world = World::ready(&echo());
    let before = world.status().servers[0].pid;
    assert_eq!(world.ctl(&["restart", "fake"]).code, Some(0));
    world.wait_servers("a new process", |servers| servers[0].pid.is_some() && servers[0].pid != before);
    let unknown = world.ctl(&["restart", "fake1"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("`fake`"), "a close match is named: {}", unknown.stderr);
}

#[test]
fn logs_show_what_a_server_wrote() {
    let world =
        World::ready(&config(vec![fake("fake", &json!({"stderr": {"lines": ["hello from the server"]}}))], &json!({})));
    until("the line in the log", PATIENCE, || {
        world.ctl(&["logs", "fake"]).stdout.contains("hello from the server").then_some(())
    });
    assert_eq!(world.ctl(&["logs"]).code, Some(0));
    assert_eq!(world.ctl(&["logs", "fak"]).code, Some(1));
}

#[test]
fn the_demo_shows_the_main_job_and_leaves_nothing() {
    let world = World::empty();
    let ran = world.ctl(&["demo"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for ticker in ["AMZN: $", "MSFT: $", "GOOG: $"] {
        let line = ran.stdout.lines().find(|line| line.trim_start().starts_with(ticker)).unwrap_or_default();
        assert_eq!(line.matches(" → ").count(), 3, "{}", ran.stdout);
    }
    let last = ran.stdout.lines().last().unwrap();
    let numbers: Vec<u64> = last.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let [calls, kept_out, entered] = numbers[..] else { panic!("{last}") };
    assert!(calls == 3 && kept_out > 10 * entered && entered > 0, "{last}");
    let left: Vec<_> = fs::read_dir(world.path("home")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn doctor_finds_what_keeps_a_server_from_working() {
    let mut broken = echo();
    let missing = json!({"name": "gone", "transport": "stdio", "command": "no-such-command"});
    broken["servers"].as_array_mut().unwrap().push(missing);
    let world = World::started(&broken);
    world.wait_servers("the good server", |servers| servers[0].pid.is_some());
    let sick = world.ctl(&["doctor"]);
    assert_eq!(sick.code, Some(1), "{sick:?}");
    assert!(sick.stdout.contains("no-such-command not found in PATH="), "{}", sick.stdout);
    assert!(sick.stdout.contains("daemon") && sick.stdout.contains("answers"), "{}", sick.stdout);
}

#[test]
fn doctor_is_content_with_a_healthy_daemon() {
    let world = World::ready(&echo());
    world.wait_status("the sandbox is prepared", |status| !status.sandbox.level.is_empty());
    let ran = world.ctl(&["doctor"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn import_takes_over_the_servers_of_claude_code() {
    let world = World::empty();
    let file = world.path(".mcp.json");
    let servers = json!({"mcpServers": {"files": {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "${KEY}"}}}});
    fs::write(&file, servers.to_string()).unwrap();
    let shown = world.ctl(&["import"]);
    assert!(shown.stdout.starts_with("servers:\n  - name: files\n"), "{}", shown.stdout);
    assert!(!world.config_path().exists(), "printing changes nothing");
    for round in ["added to", "nothing to add"] {
        let ran = world.ctl(&["import", "--write"]);
        assert!(ran.stdout.contains(round), "{ran:?}");
    }
    let written = fs::metadata(world.config_path()).unwrap();
    assert_eq!(written.permissions().mode() & 0o777, 0o600, "it may hold keys");
    let check = Ran::of(world.command("ptcd").arg("check").env("KEY", "k"));
    assert_eq!(check.code, Some(0), "{check:?}");
}

#[test]
fn completions_know_the_verbs() {
    let world = World::empty();
    for shell in ["bash", "zsh", "fish"] {
        assert!(world.ctl(&["completions", shell]).stdout.contains("uninstall"), "{shell}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_dry_run_of_install_changes_nothing() {
    let world = World::empty();
    let before = tree(world.dir());
    let ran = world.ctl(&["install", "--dry-run"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in ["home/.config/systemd/user/ptcd.service", "Type=notify", "run systemctl --user enable ptcd.service"] {
        assert!(ran.stdout.contains(part), "{part} is missing: {}", ran.stdout);
    }
    assert_eq!(tree(world.dir()), before);
}

/// Runs `ptcctl` with a `systemctl` that notes what it is asked and says yes.
#[test]
#[cfg(target_os = "linux")]
fn install_is_done_once_and_uninstall_takes_it_back() {
    let world = World::empty();
    let bin = world.path("bin");
    let asked = world.path("asked");
    fs::create_dir(&bin).unwrap();
    let script = format!(
        "printf '#!/bin/sh\\necho \"$@\" >> %s\\n' '{0}' > {1} && chmod 755 {1}",
        asked.display(),
        bin.join("systemctl").display()
    );
    assert!(std::process::Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success());
    let ctl = |args: &[&str]| {
        let path = format!("{}:/usr/bin:/bin", bin.display());
        Ran::of(world.command("ptcctl").args(args).env("PATH", path))
    };
    let unit = world.path("home/.config/systemd/user/ptcd.service");

    let first = ctl(&["install"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    let text = fs::read_to_string(&unit).unwrap();
    assert!(text.contains("ptcd\" \"run\" \"--config\""), "the named config is kept: {text}");
    let commands = fs::read_to_string(&asked).unwrap();
    assert!(
        commands.ends_with("--user daemon-reload\n--user enable ptcd.service\n--user restart ptcd.service\n"),
        "{commands}"
    );

    let second = ctl(&["install"]);
    assert!(second.stdout.starts_with("already installed"), "{second:?}");
    let commands = fs::read_to_string(&asked).unwrap();
    assert!(commands.ends_with("is-active ptcd.service\n"), "nothing is restarted: {commands}");

    fs::write(world.config_path(), "servers: []\n").unwrap();
    let removed = ctl(&["uninstall"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(!unit.exists() && world.config_path().exists());
    assert!(removed.stdout.contains("kept: the config"), "{}", removed.stdout);
    assert!(ctl(&["uninstall"]).stdout.starts_with("not installed"));
}

/// Every path below, but for the logs that the harness itself writes.
fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(tree(&path));
        }
        if !name.ends_with(".log") {
            found.push(name);
        }
    }
    found.sort();
    found
}

#[test]
fn stubs_are_written_for_people_and_kept_up_to_date_by_the_daemon() {
    let world = World::ready(&echo());
    let folder = world.path("stubs");
    let written = world.ctl(&["stubs", folder.to_str().unwrap()]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let stub = fs::read_to_string(folder.join("servers/fake/add.pyi")).unwrap();
    assert!(stub.contains("async def add(*, a: int, b: int) -> AddResult:"), "{stub}");
    assert!(fs::read_to_string(folder.join("servers/fake/__init__.py")).unwrap().contains("Adds two whole numbers."));
    let again = world.ctl(&["stubs", folder.to_str().unwrap()]);
    assert!(again.stdout.starts_with("0 written, "), "{}", again.stdout);
    let typescript = world.ctl(&["stubs", folder.to_str().unwrap(), "--lang", "ts"]);
    assert_eq!(typescript.code, Some(0), "{typescript:?}");
    assert!(folder.join("servers/fake/add.d.ts").exists() && folder.join("servers/fake/add.pyi").exists());
    let unknown = world.ctl(&["stubs", folder.to_str().unwrap(), "--lang", "cobol"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("typescript"), "{unknown:?}");

    let theirs = world.path("theirs");
    fs::create_dir_all(theirs.join("servers")).unwrap();
    fs::write(theirs.join("servers/fake"), "a file where a folder would be").unwrap();
    let beside = world.ctl(&["stubs", theirs.to_str().unwrap()]);
    assert!(beside.code == Some(0) && beside.stderr.contains("left alone, not written by ptc"), "{beside:?}");
    assert!(beside.stderr.ends_with("ptcctl: and 10 more\n"), "{}", beside.stderr);

    let kept = world.path("kept");
    let mut with = echo();
    with["stubs_dir"] = json!(theirs.join("servers/fake/below"));
    world.write_config(&with.to_string());
    let warned = || world.status().config.warnings.iter().any(|text| text.starts_with("stubs_dir: cannot write"));
    until("what is wrong with the folder", PATIENCE, || warned().then_some(()));
    assert!(world.ctl(&["doctor"]).stdout.contains("stubs_dir: cannot write declarations"));
    with["stubs_dir"] = json!(kept);
    world.write_config(&with.to_string());
    until("the folder is right", PATIENCE, || (!warned()).then_some(()));
    until("the daemon's stubs", PATIENCE, || kept.join("servers/fake/add.pyi").exists().then_some(()));
    fs::write(kept.join("servers/fake/mine.py"), "mine").unwrap();
    with["tools"] = json!({"block": ["mcp__fake__add"]});
    world.write_config(&with.to_string());
    until("the stale stub gone", PATIENCE, || (!kept.join("servers/fake/add.pyi").exists()).then_some(()));
    assert!(kept.join("servers/fake/echo.pyi").exists() && kept.join("servers/fake/mine.py").exists());
}
