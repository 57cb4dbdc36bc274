//! `ptcctl` in a person's hands.

use ptc_protocol::api::ServerState;
use ptc_tests::{
    World,
    config::{config, fake},
};
use serde_json::{Value, json};

fn world() -> World {
    World::ready(&config(vec![fake("s", &json!({}))], &json!({})))
}

#[test]
fn the_demo_shows_the_main_job_and_cleans_up() {
    let world = World::empty();
    let home = world.path("home");
    let ran = world.ctl(&["demo"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in ["AMZN", "MSFT", "GOOG", "→", "[tool calls: 3; ", "bytes"] {
        assert!(ran.stdout.contains(part), "{part} is not in {}", ran.stdout);
    }
    let left: Vec<_> = std::fs::read_dir(home).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "the demo left {left:?}");
}

#[test]
fn running_programs_are_listed_and_can_be_killed() {
    let world = world();
    let mut session = world.session();
    let id = session.send_program("print('begun', flush=True)\nawait mcp__s__hang()");
    let status = world.wait_status("the call runs", |status| status.programs.iter().any(|p| p.current.is_some()));
    let program = status.programs[0].id.to_string();
    let listed = world.ctl(&["ps"]);
    assert!(listed.stdout.contains(&program) && listed.stdout.contains("mcp__s__hang"), "{}", listed.stdout);
    assert_eq!(world.ctl(&["kill", &program]).code, Some(0));
    let result = session.tool_result(id);
    assert!(result.failure().contains("--- output before the error ---\nbegun"), "{}", result.text);
    assert_ne!(world.ctl(&["kill", &program]).code, Some(0), "it is gone");
}

#[test]
fn tools_are_listed_and_inspected_as_programs_see_them() {
    let world = world();
    let tools = world.ctl(&["tools", "mcp__s__a*"]);
    assert!(tools.stdout.contains("mcp__s__add(") && !tools.stdout.contains("mcp__s__echo"), "{}", tools.stdout);
    let described = world.ctl(&["inspect", "mcp__s__add", "--json"]);
    let described: Value = serde_json::from_str(&described.stdout).unwrap();
    let described = described.get(0).unwrap_or(&described);
    assert_eq!(described["inputSchema"]["required"], json!(["a", "b"]));
    let unknown = world.ctl(&["inspect", "mcp__s__ad"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("mcp__s__add"), "{unknown:?}");
}

#[test]
fn a_server_can_be_restarted_by_hand() {
    let world = world();
    let before = world.status().servers[0].pid;
    assert_eq!(world.ctl(&["restart", "s"]).code, Some(0));
    world.wait_servers("a new process", |servers| servers[0].state == ServerState::Ready && servers[0].pid != before);
    assert_eq!(world.ctl(&["restart", "nobody"]).code, Some(1));
}

#[test]
fn logs_show_a_servers_stderr() {
    let world = World::ready(&config(vec![fake("s", &json!({"before": ["a banner on stdout"]}))], &json!({})));
    let ran = world.ctl(&["logs", "s"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("a banner on stdout"), "{}", ran.stdout);
}

#[test]
fn exit_codes_tell_what_is_wrong() {
    let world = World::empty();
    assert_eq!(world.ctl(&["status"]).code, Some(69), "no daemon");
    assert_eq!(world.ctl(&["no-such-verb"]).code, Some(2), "usage");
}
