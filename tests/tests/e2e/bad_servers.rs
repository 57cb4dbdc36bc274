//! Servers that misbehave: only what they broke is broken, and the status says so.

use std::{
    fs,
    time::{Duration, Instant},
};

use ptc_protocol::api::ServerState;
use ptc_tests::{
    World,
    config::{config, fake, stdio},
    process::{Witness, all_gone},
    until,
    wait::PATIENCE,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

fn world(servers: Vec<Value>) -> World {
    World::started(&config(servers, &json!({"tool_call_timeout_seconds": 30})))
}

fn is_ready(world: &World, name: &str) {
    world.wait_servers(&format!("{name} is ready"), |servers| {
        servers.iter().any(|server| server.name.as_str() == name && server.state == ServerState::Ready)
    });
}

#[test]
fn a_server_that_never_answers_initialize_holds_up_nobody() {
    let mut mute = fake("mute", &json!({"initialize": "never"}));
    mute["startup_timeout_seconds"] = json!(2);
    let world = world(vec![mute, fake("good", &json!({}))]);
    let start = Instant::now();
    let mut session = world.session();
    assert!(start.elapsed() < Duration::from_secs(2), "the handshake waited {:?}", start.elapsed());
    is_ready(&world, "good");
    assert_eq!(session.program("print(await mcp__good__echo(a=1))").output(), "{'a': 1}\n");
    let listed = session.call("list_callable_tools", &json!({}));
    assert!(listed.text.contains("mute"), "the missing server is named: {}", listed.text);
    let servers = world.wait_servers("the failure shows", |servers| servers[0].last_error.is_some());
    assert_ne!(servers[0].state, ServerState::Ready);
}

#[test]
fn whoever_names_a_tool_of_a_server_that_is_down_hears_why() {
    let down = fake("down-one", &json!({"initialize": {"exit": 3}}));
    let world = world(vec![down, fake("good", &json!({}))]);
    is_ready(&world, "good");
    world.wait_servers("the failure shows", |servers| servers[0].state == ServerState::Backoff);
    let mut session = world.session();
    let says_why = |text: &str| {
        text.contains("server 'down-one' is not connected (it is ")
            && text.contains("(exits before it is ready, code 3)")
    };
    for code in ["await mcp__down_one__x()", "from servers import down_one\nawait down_one.x(a=1)"] {
        let text = session.program(code).text;
        assert!(says_why(&text), "{text}");
    }
    let caught =
        session.program("try:\n    await mcp__down_one__x()\nexcept ToolError as e:\n    print(e.code, e.tool)");
    assert_eq!(caught.output().lines().next(), Some("unavailable mcp__down_one__x"));
    let inspected = session.call("inspect_tool", &json!({"tool_name": "mcp__down_one__x"}));
    assert!(says_why(&inspected.text), "{}", inspected.text);
}

#[test]
fn a_program_waits_for_a_server_it_names_that_is_on_its_way() {
    let mute = fake("mute", &json!({"initialize": "never"}));
    let world = world(vec![mute, fake("slow", &json!({"initialize": {"delay": 2}, "ignore_eof": true}))]);
    let mut session = world.session();
    assert_eq!(session.program("print(await mcp__slow__echo(a=1))").output(), "{'a': 1}\n");
    assert_eq!(world.status().servers[0].state, ServerState::Starting, "a server it does not name held it up");

    // The same while it is restarted.
    assert_eq!(world.ctl(&["restart", "slow"]).code, Some(0));
    world.wait_servers("it is being stopped", |servers| servers[1].state == ServerState::Stopping);
    assert_eq!(session.program("print(await mcp__slow__echo(a=2))").output(), "{'a': 2}\n");
}

#[test]
fn junk_on_stdout_is_skipped_and_counted() {
    let script = json!({
        "before": ["✨ MyServer v2 ready", "", "{\"level\":\"info\"}", "null", "[1,2,3]", "{\"half\": "],
        "around": true, "bom": true, "crlf": true,
    });
    let world = world(vec![fake("noisy", &script)]);
    is_ready(&world, "noisy");
    let result =
        world.session().program("for n in range(3):\n    print(await mcp__noisy__junk(), await mcp__noisy__echo(n=n))");
    assert_eq!(result.output(), "clean {'n': 0}\nclean {'n': 1}\nclean {'n': 2}\n");
    assert_eq!(world.status().servers[0].starts, 1, "noise is no reason to reconnect");
}

#[test]
fn one_malformed_tool_hides_itself_alone() {
    let script = json!({"extra_tools": [
        {"name": "no_schema"},
        {"name": "odd_schema", "inputSchema": true},
        {"name": 7, "inputSchema": {"type": "object"}},
        {"inputSchema": {"type": "object"}},
        "not an object",
        {"name": "odd_hints", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": "yes"}, "execution": {"taskSupport": "required"}},
    ]});
    let world = world(vec![fake("s", &script)]);
    is_ready(&world, "s");
    let mut session = world.session();
    let listed = session.call("list_callable_tools", &json!({}));
    let names: Vec<String> = serde_json::from_str(&listed.text).unwrap();
    assert!(names.contains(&"mcp__s__echo".to_owned()) && names.contains(&"mcp__s__odd_hints".to_owned()), "{names:?}");
    assert!(!world.status().servers[0].warnings.is_empty(), "the hidden tools are reported");
    assert_eq!(session.program("print(await mcp__s__echo(a=1))").output(), "{'a': 1}\n");
}

#[test]
fn answers_that_nobody_asked_for_harm_nobody() {
    let world = world(vec![fake("s", &json!({"list_changed": 50}))]);
    is_ready(&world, "s");
    let result = world.session().program(
        "import asyncio\nprint(await asyncio.gather(mcp__s__twice(), mcp__s__wrong_id(), mcp__s__progress(count=500), mcp__s__echo(a=1)))",
    );
    assert_eq!(result.output(), "['first', 'yours', 'done', {'a': 1}]\n");
    assert_eq!(world.status().servers[0].starts, 1);
}

#[test]
fn an_error_without_an_id_ends_the_call_it_can_only_mean() {
    let world = world(vec![fake("s", &json!({}))]);
    is_ready(&world, "s");
    let start = Instant::now();
    let result = world.session().program("try:\n    await mcp__s__no_id_error()\nexcept ToolError as e:\n    print(e)");
    assert!(result.output().contains("which request was that?"), "{}", result.text);
    assert!(start.elapsed() < Duration::from_secs(15), "it took {:?}", start.elapsed());
}

#[test]
fn large_results_pass_within_the_limit_and_fail_beyond_it() {
    let mut settings = config(
        vec![fake("s", &json!({}))],
        &json!({"max_tool_result_bytes": 20_000_000, "tool_call_timeout_seconds": 60, "timeout_seconds": 120}),
    );
    let world = World::ready(&settings);
    let mut session = world.session();
    let within = session.program("r = await mcp__s__big(size=19_900_000)\nprint(len(r), r[-1])");
    assert_eq!(within.output(), "19900000 x\n");
    settings["execution"]["max_tool_result_bytes"] = json!(1_000_000);
    world.write_config(&settings.to_string());
    assert_eq!(world.ctl(&["reload"]).code, Some(0));
    let beyond = session.program(
        "try:\n    await mcp__s__big(size=20_000_000)\nexcept ToolError as e:\n    print(e.code, e)\nprint(len(await mcp__s__big(size=900_000)))",
    );
    let text = beyond.output();
    assert!(text.contains("1000000") && text.ends_with("900000\n"), "{text}");
    assert_eq!(world.status().servers[0].starts, 1, "a large answer is no reason to reconnect");
}

#[test]
fn a_slow_drip_of_small_pieces_is_put_together() {
    let world = world(vec![fake("s", &json!({"chunk": 7, "drip": 0.001}))]);
    is_ready(&world, "s");
    assert_eq!(world.session().program("print(await mcp__s__echo(text='é😀'))").output(), "{'text': 'é😀'}\n");
}

#[test]
fn a_server_that_floods_its_stderr_is_drained() {
    let script = json!({"stderr": {"start": 300_000, "call": 300_000}});
    let world = world(vec![fake("s", &script)]);
    is_ready(&world, "s");
    let result = world.session().program("for n in range(5):\n    print(await mcp__s__echo(n=n))");
    assert_eq!(result.output().lines().count(), 5);
    let status = world.status();
    assert!(serde_json::to_string(&status).unwrap().len() < 100_000, "the status keeps only the end of it");
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_server_fails_its_calls_shows_within_a_second_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let received = dir.path().join("received");
    let world = world(vec![fake("s", &json!({"record": received}))]);
    is_ready(&world, "s");
    let mut session = world.session();
    let before = world.status().servers[0].clone();
    let id = session.send_program("try:\n    await mcp__s__hang()\nexcept ToolError as e:\n    print(e.code, '|', e)");
    // A call that has not been sent yet would be made of the next process.
    until("the server has the call", PATIENCE, || {
        fs::read_to_string(&received).ok().filter(|lines| lines.contains("\"hang\""))
    });
    let start = Instant::now();
    kill(before.pid.unwrap());
    let result = session.tool_result(id);
    assert!(start.elapsed() < Duration::from_secs(5), "the call heard of it after {:?}", start.elapsed());
    assert!(result.output().contains("'s'"), "{}", result.text);

    world.wait_servers("it is back", |servers| servers[0].state == ServerState::Ready && servers[0].pid != before.pid);
    assert_eq!(session.program("print(await mcp__s__echo(a=1))").output(), "{'a': 1}\n");

    let pid = world.status().servers[0].pid.unwrap();
    let start = Instant::now();
    kill(pid);
    world.wait_servers("its death shows", |servers| {
        servers[0].pid != Some(pid) || servers[0].state != ServerState::Ready
    });
    assert!(start.elapsed() < Duration::from_millis(1500), "it showed after {:?}", start.elapsed());
}

#[test]
fn a_server_that_crashes_in_a_call_is_started_again() {
    let world = world(vec![fake("s", &json!({}))]);
    is_ready(&world, "s");
    let mut session = world.session();
    let crash = session.program("await mcp__s__crash()");
    assert!(crash.failure().contains("'s'"), "{}", crash.text);
    world.wait_servers("it is back", |servers| servers[0].state == ServerState::Ready && servers[0].starts == 2);
    assert_eq!(session.program("print(await mcp__s__echo(a=1))").output(), "{'a': 1}\n");
}

#[test]
fn a_server_that_keeps_ending_backs_off() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let world = world(vec![fake("s", &json!({"exit_after": 0, "pidfile": pids})), fake("good", &json!({}))]);
    is_ready(&world, "good");
    world.wait_servers("it backs off", |servers| servers[0].state == ServerState::Backoff && servers[0].starts > 1);
    let starts = fs::read_to_string(&pids).unwrap().lines().count();
    assert!(starts < 6, "{starts} starts");
}

/// It leaves group, session and parent, and ignores whatever can be ignored.
#[test]
#[cfg(target_os = "linux")]
fn a_descendant_that_ran_away_ends_with_its_server_and_with_a_killed_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let away = format!("trap '' TERM HUP INT; echo $$ >>{}; while :; do sleep 1; done", pids.display());
    let inner = fake("s", &json!({}));
    let words: Vec<String> = std::iter::once(&inner["command"])
        .chain(inner["args"].as_array().unwrap())
        .map(|word| format!("'{}'", word.as_str().unwrap()))
        .collect();
    let line = format!("(setsid sh -c \"{}\" >/dev/null 2>&1 &); exec {}", away.replace('$', "\\$"), words.join(" "));
    let mut world = world(vec![stdio("s", "sh".as_ref(), vec![json!("-c"), json!(line.replace('$', "$$"))])]);
    is_ready(&world, "s");
    let started = |count: usize| {
        until("it ran away", PATIENCE, || {
            let text = fs::read_to_string(&pids).unwrap_or_default();
            let all: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
            (all.len() == count).then_some(all)
        })
    };
    let first = Witness::of(started(1)[0]).unwrap();
    assert_eq!(world.ctl(&["restart", "s"]).code, Some(0));
    let second = Witness::of(started(2)[1]).unwrap();
    all_gone(&[first].into(), Duration::from_secs(1));
    is_ready(&world, "s");
    world.kill_daemon();
    all_gone(&[second].into(), Duration::from_secs(5));
}

#[test]
#[cfg(target_os = "linux")]
fn no_grandchild_survives_its_server() {
    let dir = tempfile::tempdir().unwrap();
    let (pids, own) = (dir.path().join("grandchildren"), dir.path().join("own"));
    let stubborn =
        fake("stubborn", &json!({"ignore_eof": true, "ignore_term": true, "grandchild": pids, "pidfile": own}));
    let shell = stdio("shell", "sh".as_ref(), {
        let inner = fake("inner", &json!({"pidfile": own, "grandchild": pids}));
        let words: Vec<String> = std::iter::once(&inner["command"])
            .chain(inner["args"].as_array().unwrap())
            .map(|word| format!("'{}'", word.as_str().unwrap()))
            .collect();
        vec![json!("-c"), json!(format!("{}; true", words.join(" ")))]
    });
    let mut world = world(vec![stubborn, shell]);
    is_ready(&world, "stubborn");
    is_ready(&world, "shell");
    let read =
        |path| -> Vec<u32> { fs::read_to_string(path).unwrap().lines().map(|line| line.parse().unwrap()).collect() };
    let witnesses = || read(&own).into_iter().chain(read(&pids)).filter_map(Witness::of);
    let first: std::collections::BTreeSet<Witness> = witnesses().collect();
    assert_eq!(first.len(), 4, "{first:?}");
    // A crash of the server itself leaves its grandchild to us.
    for pid in read(&own) {
        kill(pid);
    }
    all_gone(&first, PATIENCE);
    let second = until("both are back", PATIENCE, || {
        let now: std::collections::BTreeSet<Witness> = witnesses().collect();
        (now.len() == 4).then_some(now)
    });
    assert!(world.stop_daemon().success());
    all_gone(&second, Duration::from_secs(1));
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
}
