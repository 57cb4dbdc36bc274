//! The harness itself: the raw client against the scripted server, and the SDK clients against it.

use ptc_tests::{
    Session,
    fixtures::{bare_command, fixture, node_modules, python, sdk_python},
    process::{Witness, all_gone, descendants},
    wait::PATIENCE,
    world::Ran,
};
use serde_json::{Value, json};

fn fake(script: &Value) -> Session {
    let home = std::env::temp_dir();
    Session::spawn(bare_command(&python(), &home).arg(fixture("fake_server.py")).arg(script.to_string()))
}

#[test]
fn the_raw_client_speaks_with_the_scripted_server() {
    let mut session =
        fake(&json!({"results": {"echo": [{"content": []}, {"content": [{"type": "text", "text": "last"}]}]}}));
    assert_eq!(session.initialize()["serverInfo"]["name"], "fake");
    assert_eq!(session.call("echo", &json!({})).raw, r#"{"content": []}"#);
    assert_eq!(session.call("echo", &json!({})).text, "last");
    assert_eq!(session.call("echo", &json!({})).text, "last");
    let ids = session.call("ids", &json!({}));
    assert_eq!(
        ids.structured.as_deref(),
        Some(
            r#"{"ids": [9007199254740993, 18446744073709551615, 18446744073709551616, -9223372036854775809, 123456789012345678901234567890]}"#
        )
    );
    session.close_stdin();
    assert!(session.exit(PATIENCE).success());
}

#[test]
#[cfg(target_os = "linux")]
fn a_dropped_session_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let mut session = fake(&json!({"ignore_eof": true, "ignore_term": true, "grandchild": pids}));
    session.initialize();
    let all = descendants(std::process::id());
    let grandchild: u32 = std::fs::read_to_string(&pids).unwrap().trim().parse().unwrap();
    let family = [Witness::of(session.process().pid()).unwrap(), Witness::of(grandchild).unwrap()].into();
    assert!(all.is_superset(&family), "{all:?}");
    drop(session);
    all_gone(&family, PATIENCE);
}

#[test]
fn the_sdk_clients_tell_what_they_saw() {
    let plan = json!({"calls": [["echo", {"a": 1}], ["fail", {"message": "no"}]]}).to_string();
    let home = std::env::temp_dir();
    let mut python_client = bare_command(&sdk_python(), &home);
    python_client.arg(fixture("sdk_client.py"));
    let mut node_client = bare_command("node".as_ref(), &home);
    node_client.env("PTC_TESTS_NODE_MODULES", node_modules()).arg(fixture("sdk_client.mjs"));
    for mut client in [python_client, node_client] {
        let ran = Ran::of(client.arg(&plan).arg(python()).arg(fixture("fake_server.py")));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let saw: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(saw["initialize"]["serverInfo"], json!({"name": "fake", "version": "1"}));
        assert_eq!(saw["results"][0]["structuredContent"], json!({"a": 1}));
        assert_eq!(saw["results"][1]["isError"], json!(true));
    }
}
