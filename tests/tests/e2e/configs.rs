//! Configurations that are wrong, and changes of the one in force.

use std::fs;

use ptc_protocol::api::ServerState;
use ptc_tests::{
    World,
    config::{config, fake},
    fixtures::python,
    world::Ran,
};
use serde_json::json;

const THREE_MISTAKES: &str = "servers:
  - name: good
    transport: stdio
    comand: python3
  - name: other
    transport: carrier-pigeon
    command: python3
execution:
  timeout_seconds: soon
";

#[test]
fn three_mistakes_are_reported_at_once_with_their_places() {
    let world = World::empty();
    world.write_config(THREE_MISTAKES);
    let ran = Ran::of(world.command("ptcd").arg("check"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = format!("{}{}", ran.stdout, ran.stderr);
    let config = world.config_path();
    for (line, part) in [(4, "command"), (6, "carrier-pigeon"), (9, "timeout_seconds")] {
        let place = format!("{}:{line}:", config.display());
        assert!(said.lines().any(|text| text.contains(&place) && text.contains(part)), "{place} {part}: {said}");
    }
}

#[test]
fn a_daemon_with_a_bad_config_runs_without_servers_and_says_why() {
    let mut world = World::empty();
    world.write_config(THREE_MISTAKES);
    world.start_daemon();
    let error = world.status().config.error.unwrap();
    assert!(error.contains("carrier-pigeon"), "{error}");
    let mut session = world.session();
    let listed = session.call("list_callable_tools", &json!({}));
    assert!(listed.text.contains("carrier-pigeon"), "{}", listed.text);
    assert_eq!(session.program("print('programs run')").output(), "programs run\n");
}

#[test]
fn a_file_that_does_not_parse_changes_nothing() {
    let good = config(vec![fake("s", &json!({}))], &json!({}));
    let world = World::ready(&good);
    let before = world.status();
    for text in ["", "servers: [", THREE_MISTAKES] {
        world.write_config(text);
        let ran = world.ctl(&["reload"]);
        let status = world.status();
        assert_eq!(status.servers[0].pid, before.servers[0].pid, "{text:?}: {ran:?}");
        assert_eq!(status.servers.len(), 1, "{text:?}");
        assert!(status.config.error.is_some(), "{text:?}");
        assert_eq!(ran.code, Some(78), "{text:?}: {ran:?}");
    }
    world.write_config(&good.to_string());
    assert_eq!(world.ctl(&["reload"]).code, Some(0));
    let status = world.status();
    assert_eq!((status.config.error, status.servers[0].pid), (None, before.servers[0].pid));
}

#[test]
fn a_reload_touches_only_what_changed() {
    let mut settings = config(vec![fake("stays", &json!({})), fake("goes", &json!({}))], &json!({}));
    let world = World::ready(&settings);
    let before = world.status();
    let mut session = world.session();
    let id = session.send_program(
        "import asyncio\nawait asyncio.gather(*(mcp__stays__sleep(seconds=1) for _ in range(2)))\nprint('finished')",
    );
    settings["servers"] = json!([settings["servers"][0], fake("new", &json!({}))]);
    settings["tools"] = json!({"block": ["mcp__*__big"]});
    world.write_config(&settings.to_string());
    let ran = world.ctl(&["reload"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(["stays", "goes", "new"].iter().all(|name| ran.stdout.contains(name)), "{}", ran.stdout);
    assert_eq!(session.tool_result(id).output(), "finished\n");
    let servers = world.wait_servers("the new one is ready", |servers| {
        servers.len() == 2 && servers[1].name.as_str() == "new" && servers[1].state == ServerState::Ready
    });
    assert_eq!(servers[0].pid, before.servers[0].pid);
    session.notification("notifications/tools/list_changed");
    let names = session.call("list_callable_tools", &json!({})).text;
    assert!(names.contains("mcp__new__echo") && !names.contains("mcp__goes__") && !names.contains("__big"), "{names}");
}

#[test]
fn a_saved_file_is_picked_up_by_itself() {
    let mut settings = config(vec![fake("s", &json!({}))], &json!({}));
    let world = World::ready(&settings);
    for name in ["second", "third"] {
        settings["servers"][0]["name"] = json!(name);
        world.write_config(&settings.to_string());
        world.wait_servers(name, |servers| servers[0].name.as_str() == name && servers[0].state == ServerState::Ready);
    }
    settings["servers"][0]["name"] = json!("in-place");
    fs::write(world.config_path(), settings.to_string()).unwrap();
    world.wait_servers("written in place", |servers| servers[0].name.as_str() == "in-place");
}

#[test]
fn env_values_reach_the_server_as_they_were_written() {
    let mut world = World::empty();
    let seen = world.path("seen");
    world.write_config(&format!(
        "servers:\n- name: s\n  transport: stdio\n  command: {python:?}\n  args: [-c, {script:?}]\n  env:\n    PORT: 8080\n    VERSION: 1.10\n    FLAG: no\n    HOME_COPY: ${{HOME}}\n    FALLBACK: ${{PTC_TESTS_UNSET:-some thing}}\n    PRICE: $$5\nexecution: {{sandbox: none}}\n",
        python = python(),
        script = format!(
            "import json, os; open({seen:?}, 'w').write(json.dumps({{k: v for k, v in os.environ.items() if k.isupper()}}))"
        ),
    ));
    world.start_daemon();
    let text = ptc_tests::until("the server wrote its environment", ptc_tests::wait::PATIENCE, || {
        fs::read_to_string(&seen).ok().filter(|text| text.ends_with('}'))
    });
    let env: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (key, value) in
        [("PORT", "8080"), ("VERSION", "1.10"), ("FLAG", "no"), ("FALLBACK", "some thing"), ("PRICE", "$5")]
    {
        assert_eq!(env[key], value, "{key} in {env}");
    }
    assert_eq!(env["HOME_COPY"], json!(world.path("home")));
    assert!(env.get("PTC_SOCKET").is_none(), "the daemon's own variables stay with it: {env}");
}
