//! Who outlives whom: nothing survives a killed daemon, the shim survives every daemon, nobody mixes anything up.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use ptc_tests::{
    World,
    config::{config, fake},
    fixtures,
    process::{Witness, all_gone, descendants},
    until,
    wait::PATIENCE,
};
use rustix::process::Signal;
use serde_json::json;

const SLOW: &str = "import asyncio\nprint('begun', flush=True)\nawait mcp__s__hang()";

fn world() -> World {
    World::ready(&config(vec![fake("s", &json!({}))], &json!({})))
}

/// Directories of programs that are left in the world.
fn scratch(world: &World) -> Vec<String> {
    fn walk(dir: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.file_name().unwrap().to_string_lossy().starts_with("ptc-run-") {
                    found.push(path.display().to_string());
                }
                walk(&path, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(world.dir(), &mut found);
    found
}

fn running(world: &World) {
    world.wait_status("the call runs", |status| status.programs.iter().any(|program| program.current.is_some()));
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_survives_a_daemon_that_is_killed_in_the_middle_of_a_program() {
    let mut world = World::ready(&config(
        vec![fake("s", &json!({"ignore_eof": true, "ignore_term": true, "grandchild": "/dev/null"}))],
        &json!({}),
    ));
    let mut session = world.session();
    let id = session.send_program(SLOW);
    running(&world);
    let family = descendants(world.daemon().pid());
    assert!(family.len() >= 3, "a server, its grandchild and a program's child at least: {family:#?}");
    world.kill_daemon();
    all_gone(&family, Duration::from_secs(5));
    until("no scratch directory is left", Duration::from_secs(5), || scratch(&world).is_empty().then_some(()));

    let result = session.tool_result(id);
    assert!(result.failure().contains("unknown"), "whether it took effect is not known: {}", result.text);
    let down = session.program("print(1)");
    assert!(down.failure().contains("ptcd"), "{}", down.text);
    world.start_daemon();
    let again =
        until("the same shim works again", PATIENCE, || Some(session.program("print(1)")).filter(|r| !r.is_error));
    assert_eq!(again.output(), "1\n");
}

#[test]
#[cfg(target_os = "linux")]
fn a_stopped_daemon_leaves_nothing_and_is_quick() {
    let mut world = world();
    let mut session = world.session();
    let id = session.send_program(SLOW);
    running(&world);
    let family = descendants(world.daemon().pid());
    let start = Instant::now();
    assert!(world.stop_daemon().success());
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    all_gone(&family, Duration::from_secs(1));
    assert!(!world.socket().exists(), "the socket is removed");
    assert_eq!(scratch(&world), [""; 0]);
    assert!(session.tool_result(id).is_error);
}

#[test]
fn a_client_that_closes_stdin_in_the_middle_of_a_program_ends_it() {
    let world = world();
    let mut session = world.session();
    session.send_program(SLOW);
    running(&world);
    let start = Instant::now();
    session.close_stdin();
    session.exit(PATIENCE);
    assert!(start.elapsed() < Duration::from_millis(500), "the shim ended after {:?}", start.elapsed());
    world.wait_status("the program is gone", |status| status.programs.is_empty() && status.sessions.is_empty());
}

#[test]
fn a_shim_that_is_killed_takes_its_program_with_it() {
    let world = world();
    let mut session = world.session();
    session.send_program(SLOW);
    running(&world);
    session.process().signal(Signal::KILL);
    world.wait_status("the program is gone", |status| status.programs.is_empty() && status.sessions.is_empty());
}

#[test]
fn a_cancelled_request_ends_its_program() {
    let world = world();
    let mut session = world.session();
    let id = session.send_program(SLOW);
    running(&world);
    session.notify("notifications/cancelled", &json!({"requestId": id, "reason": "the person pressed Esc"}));
    world.wait_status("the program is gone", |status| status.programs.is_empty());
    assert_eq!(session.program("print('still here')").output(), "still here\n");
    let heard = "import asyncio\nwhile not (await mcp__s__cancelled())['requests']:\n    await asyncio.sleep(0.01)\nprint('heard')";
    assert_eq!(session.program(heard).output(), "heard\n");
}

#[test]
fn two_shims_run_programs_at_once_without_a_mix_up() {
    let world = World::ready(&config(vec![fake("s", &json!({}))], &json!({"warm_children": 2})));
    let mut sessions = [world.session(), world.session()];
    for round in 0..3 {
        let mut sent = Vec::new();
        for (who, session) in sessions.iter_mut().enumerate() {
            for n in 0..4 {
                let mark = format!("{round}-{who}-{n}");
                let code = format!(
                    "import asyncio\nfor i in range(20):\n    r = await mcp__s__echo(mark='{mark}', i=i)\n    assert r == {{'mark': '{mark}', 'i': i}}\n    print(r['mark'], i)\nemit('{mark}')"
                );
                sent.push((who, session.send_program(&code), mark));
            }
        }
        for (who, id, mark) in sent {
            let result = sessions[who].tool_result(id);
            let wanted: String = (0..20).map(|i| format!("{mark} {i}\n")).collect();
            assert_eq!(result.output(), wanted);
            assert_eq!(result.outcome()["result"], json!(mark));
        }
    }
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused_and_a_stale_socket_replaced() {
    let mut world = world();
    let second = ptc_tests::world::Ran::of(world.command("ptcd").arg("run"));
    assert_ne!(second.code, Some(0));
    assert!(second.stderr.contains("d.sock"), "{}", second.stderr);
    world.kill_daemon();
    assert!(world.socket().exists(), "a killed daemon leaves its socket");
    world.start_daemon();
    assert_eq!(world.session().program("print(1)").output(), "1\n");
}

#[test]
fn a_shim_starts_the_daemon_that_is_missing_once() {
    let world = World::empty();
    world.write_config(&config(vec![fake("s", &json!({}))], &json!({})).to_string());
    let mut sessions: Vec<_> = (0..3).map(|_| ptc_tests::Session::spawn(&mut world.command("ptc-shim"))).collect();
    for session in &mut sessions {
        session.initialize();
    }
    let ids: Vec<u64> = sessions.iter_mut().map(|session| session.send_program("print(1)")).collect();
    for (session, id) in sessions.iter_mut().zip(ids) {
        assert_eq!(session.tool_result(id).output(), "1\n");
    }
    let pid = world.status().daemon.pid;
    let daemon: BTreeSet<Witness> = Witness::of(pid).into_iter().collect();
    drop(sessions);
    assert_eq!(world.status().daemon.pid, pid, "the daemon outlives the shims");
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::TERM)
        .unwrap();
    all_gone(&daemon, PATIENCE);
}

#[test]
fn without_a_daemon_the_shim_says_what_to_do() {
    let world = World::empty();
    let mut session = world.shim();
    assert_eq!(session.initialize()["serverInfo"]["name"], "ptc");
    assert_eq!(session.request("tools/list", &json!({}))["tools"].as_array().unwrap().len(), 3);
    let result = session.program("print(1)");
    assert!(result.failure().contains("ptcd"), "{}", result.text);
    session.close_stdin();
    assert!(session.exit(PATIENCE).success());
}

#[test]
fn an_interpreter_that_comes_back_is_used_without_a_restart() {
    let mut world = World::empty();
    let python = world.path("python");
    world.write_config(&config(vec![], &json!({"python": python})).to_string());
    world.start_daemon();
    let mut session = world.session();
    let refused = session.program("print(1)");
    assert!(refused.failure().contains("SandboxError"), "{refused:?}");
    let asked =
        Command::new(fixtures::python()).args(["-c", "import sys; print(sys._base_executable)"]).output().unwrap();
    std::os::unix::fs::symlink(String::from_utf8(asked.stdout).unwrap().trim(), &python).unwrap();
    until("a program that runs", PATIENCE, || (!session.program("print(1)").is_error).then_some(()));
    assert_eq!(world.status().sandbox.error, None);
}
