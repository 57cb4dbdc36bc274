//! The daemon's side: absent, restarted, dying; cancellation and the client's end; progress.

mod fake;

use std::time::Duration;

use fake::{Client, Home, Script, text};
use ptc_protocol::api::Version;
use serde_json::json;

#[tokio::test]
async fn without_a_daemon_the_handshake_works_and_calls_say_what_to_do() {
    let home = Home::new();
    let mut client = Client::initialized(home.launch(), "t").await;
    assert_eq!(client.request("tools/list", json!({})).await["result"]["tools"].as_array().unwrap().len(), 3);
    for (tool, arguments) in [
        ("execute_program", json!({"code": "ok"})),
        ("list_callable_tools", json!({})),
        ("inspect_tool", json!({"tool_name": "x"})),
    ] {
        let result = client.call(tool, arguments).await;
        assert_eq!(result["isError"], true);
        let told = text(&result);
        let socket = home.socket().display().to_string();
        assert!(told.contains("ptcd is not running") && told.contains("ptcd run") && told.contains(&socket), "{told}");
    }
    // The daemon comes up later: the next call works.
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let result = client.call("execute_program", json!({"code": "ok"})).await;
    assert_eq!(text(&result), "[Script executed successfully]\nok\n");
    assert_eq!(script.seen.borrow().runs[0]["session"], "s-1");
}

#[tokio::test]
async fn a_restarted_daemon_serves_the_next_call_under_a_new_session() {
    let home = Home::new();
    let first = Script::default();
    let daemon = home.daemon(&first);
    let mut client = Client::initialized(home.launch(), "t").await;
    client.call("execute_program", json!({"code": "ok"})).await;
    daemon.crash(&first).await;

    let second = Script { first_session: 1, ..Script::default() };
    second.seen.send_modify(|seen| seen.sessions.push(json!("taken")));
    let _daemon = home.daemon(&second);
    let result = client.call("execute_program", json!({"code": "ok"})).await;
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(second.seen.borrow().runs[0]["session"], "s-2");
}

#[tokio::test]
async fn a_call_that_ran_when_the_daemon_died_is_reported_as_unknown_and_not_repeated() {
    let home = Home::new();
    let script = Script::default();
    let daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    let id = client.begin("tools/call", json!({"name": "execute_program", "arguments": {"code": "hang"}})).await;
    fake::until(&script, |seen| seen.runs.len() == 1).await;
    // The first lines of the stream are on their way; another answer shows that they were read.
    client.call("list_callable_tools", json!({})).await;
    daemon.crash(&script).await;
    let result = client.answer(id).await["result"].clone();
    assert_eq!(result["isError"], true);
    let told = text(&result);
    assert!(told.starts_with("[Outcome unknown]") && told.contains("not retried"), "{told}");
    assert!(told.contains("1 tool calls, mcp__fin__query was still running"), "{told}");
    assert_eq!(script.seen.borrow().runs.len(), 1);
    for code in ["die", "quiet end"] {
        let again = Script::default();
        let _daemon = home.daemon(&again);
        let result = client.call("execute_program", json!({"code": code})).await;
        assert!(text(&result).starts_with("[Outcome unknown]"), "{result}");
        assert_eq!(again.seen.borrow().runs.len(), 1);
    }
}

#[tokio::test]
async fn a_cancelled_call_kills_its_program_only() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    let run = json!({"name": "execute_program", "arguments": {"code": "hang"}});
    let first = client.begin("tools/call", run.clone()).await;
    let second = client.begin("tools/call", run).await;
    fake::until(&script, |seen| seen.runs.len() == 2).await;
    let params = json!({"requestId": first, "reason": "no longer wanted"});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
    fake::until(&script, |seen| seen.killed == 1).await;
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    assert!(client.others.iter().all(|message| message["id"] != first && message["id"] != second));
    assert_eq!(script.seen.borrow().killed, 1);
}

#[tokio::test]
async fn the_end_of_the_client_ends_the_shim_and_kills_its_programs() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    client.begin("tools/call", json!({"name": "execute_program", "arguments": {"code": "hang"}})).await;
    fake::until(&script, |seen| seen.runs.len() == 1).await;
    let took = client.close().await;
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[tokio::test]
async fn requests_sent_just_before_the_end_are_still_answered() {
    let home = Home::new();
    let mut client = Client::initialized(home.launch(), "t").await;
    let id = client.begin("tools/list", json!({})).await;
    client.close().await;
    assert_eq!(client.answer(id).await["result"]["tools"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn progress_goes_to_clients_that_asked_for_it() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    let mut params = json!({"name": "execute_program", "arguments": {"code": "slow"}});
    params["_meta"] = json!({"progressToken": "tok", "claudecode/toolUseId": "toolu_1"});
    let result = client.request("tools/call", params).await;
    assert_eq!(result["result"]["isError"], false);
    let told: Vec<_> = client.others.iter().filter(|message| message["method"] == "notifications/progress").collect();
    assert!((2..=4).contains(&told.len()), "{told:?}");
    let amounts: Vec<_> = told.iter().map(|message| message["params"]["progress"].as_f64().unwrap()).collect();
    assert!(amounts.windows(2).all(|pair| pair[0] < pair[1]), "{amounts:?}");
    let last = &told[told.len() - 1]["params"];
    assert_eq!(last["progressToken"], "tok");
    assert!(last["message"].as_str().unwrap().ends_with("s, 1 tool call, running mcp__fin__query"), "{last}");
    assert_eq!(script.seen.borrow().runs[0]["client_request"], "toolu_1");

    client.others.clear();
    client.call("execute_program", json!({"code": "slow"})).await;
    assert_eq!(client.others.len(), 0, "nobody asked");
}

#[tokio::test]
async fn a_refusal_is_passed_on() {
    let home = Home::new();
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    let result = client.call("execute_program", json!({"code": "busy"})).await;
    assert_eq!((text(&result), &result["isError"]), ("[Script not run] 32 programs wait already", &json!(true)));
}

#[tokio::test]
async fn a_daemon_of_another_api_is_named_with_both_versions() {
    let home = Home::new();
    let version = Version { version: "7.0.0".into(), api_min: 5, api_max: 6, pid: 77 };
    let script = Script { version, ..Script::default() };
    let _daemon = home.daemon(&script);
    let mut client = Client::initialized(home.launch(), "t").await;
    let result = client.call("execute_program", json!({"code": "ok"})).await;
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("ptcd 7.0.0 (pid 77) speaks control API v5 to v6"), "{result}");
    assert_eq!(script.seen.borrow().runs.len(), 0);
}

#[tokio::test]
async fn the_instructions_carry_the_map_when_the_daemon_is_there() {
    let home = Home::new();
    let mut without = Client::connect(home.launch());
    let told = without.initialize("t", "2025-11-25").await;
    assert!(!told["result"]["instructions"].as_str().unwrap().contains("Servers"));
    let script = Script::default();
    let _daemon = home.daemon(&script);
    let mut with = Client::connect(home.launch());
    let told = with.initialize("t", "2025-11-25").await;
    assert!(told["result"]["instructions"].as_str().unwrap().ends_with("Servers (number of tools): fin_data 4."));
    assert_eq!(script.seen.borrow().sessions[0]["client"], "t 1.2");
}

#[tokio::test]
async fn a_daemon_that_hangs_does_not_hold_up_the_handshake() {
    let home = Home::new();
    // It listens, and never accepts.
    let _listener = tokio::net::UnixListener::bind(home.socket()).unwrap();
    let mut client = Client::connect(home.launch());
    let began = std::time::Instant::now();
    client.initialize("t", "2025-11-25").await;
    client.request("tools/list", json!({})).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let result = client.call("execute_program", json!({"code": "ok"})).await;
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("did not answer within 2 s"), "{result}");
}
