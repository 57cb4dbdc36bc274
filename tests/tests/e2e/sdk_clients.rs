//! The official Python and TypeScript clients drive the shim: handshake, list, all three tools.

use std::process::Command;

use ptc_tests::{
    World,
    config::{config, fake},
    fixtures::{binary, fixture, node_modules, sdk_python},
    world::Ran,
};
use serde_json::{Value, json};

const SLOW_SUM: &str = "total = 0
for n in range(4):
    total += (await mcp__calc__add(a=total, b=n))['sum']
    await mcp__calc__sleep(seconds=0.6)
print(total)
emit({'total': total})";

fn plan() -> String {
    json!({"calls": [
        ["list_callable_tools", {}],
        ["inspect_tool", {"tool_name": "mcp__calc__add"}],
        ["inspect_tool", {"tool_name": "mcp__calc__ad"}],
        ["execute_program", {"code": SLOW_SUM}],
        ["execute_program", {"code": "1 / 0"}],
    ]})
    .to_string()
}

/// Runs a client in the world's environment; it starts the shim.
fn drive(world: &World, client: &mut Command) -> Value {
    let shim = world.command("ptc-shim");
    for (key, value) in shim.get_envs() {
        client.env(key, value.unwrap_or_default());
    }
    let ran = Ran::of(client.arg(plan()).arg(binary("ptc-shim")).arg("--no-autostart"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

fn check(saw: &Value) {
    assert_eq!(saw["initialize"]["serverInfo"]["name"], "ptc");
    assert_eq!(saw["initialize"]["capabilities"]["tools"]["listChanged"], true);
    let instructions = saw["initialize"]["instructions"].as_str().unwrap();
    assert!(instructions.contains("calc") && instructions.len() < 2000, "{instructions}");
    let tools = saw["tools"].as_array().unwrap();
    let mut names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names[..3], ["execute_program", "inspect_tool", "list_callable_tools"]);
    assert!(tools.iter().all(|tool| tool["description"].as_str().unwrap().len() < 2000));

    let results = saw["results"].as_array().unwrap();
    let text = |n: usize| results[n]["content"][0]["text"].as_str().unwrap().to_owned();
    let failed = |n: usize| results[n]["isError"] == json!(true);
    let listed: Vec<String> = serde_json::from_str(&text(0)).unwrap();
    assert!(listed.is_sorted() && listed.contains(&"mcp__calc__add".to_owned()), "{listed:?}");
    let described: Value = serde_json::from_str(&text(1)).unwrap();
    assert_eq!(described["name"], "mcp__calc__add");
    assert_eq!(described["inputSchema"]["required"], json!(["a", "b"]));
    assert!(failed(2) && text(2).contains("mcp__calc__add"), "{}", text(2));
    assert!(!failed(3), "{}", text(3));
    assert!(
        text(3).starts_with("[Script executed successfully]\n11\n--- result ---\n{\"total\": 11}\n[tool calls: 8; "),
        "{}",
        text(3)
    );
    let structured = &results[3]["structuredContent"];
    assert_eq!((&structured["ok"], &structured["result"]), (&json!(true), &json!({"total": 11})));
    assert!(failed(4) && text(4).contains("line 1") && text(4).contains("ZeroDivisionError"), "{}", text(4));
    assert!(!saw["progress"].as_array().unwrap().is_empty(), "a program of two seconds tells how it goes on");
}

#[test]
fn the_official_python_client_uses_all_three_tools() {
    let world = World::ready(&config(vec![fake("calc", &json!({}))], &json!({})));
    check(&drive(&world, Command::new(sdk_python()).env_clear().arg(fixture("sdk_client.py"))));
}

#[test]
fn the_official_typescript_client_uses_all_three_tools() {
    let world = World::ready(&config(vec![fake("calc", &json!({}))], &json!({})));
    let mut client = Command::new("node");
    client.env_clear().env("PTC_TESTS_NODE_MODULES", node_modules()).arg(fixture("sdk_client.mjs"));
    check(&drive(&world, &mut client));
}
