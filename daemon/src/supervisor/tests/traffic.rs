//! Calls that go well, many at a time.

use super::*;

#[tokio::test]
async fn digits_pass_in_both_directions_as_they_are() {
    let house = House::ready(
        r#"
def call(request):
    line = request["line"]
    raw('{"jsonrpc":"2.0","id":%d,"result":{"n":123456789012345678901234567890,"f":1.10,"line":%s}}\n'
        % (request["id"], json.dumps(line)))
"#,
    )
    .await;
    let result = house.call(r#"{"id":18446744073709551616,"x":1.10}"#).await.unwrap();
    assert!(result.raw.get().starts_with(r#"{"n":123456789012345678901234567890,"f":1.10,"#), "{}", result.raw.get());
    let line = serde_json::from_str::<serde_json::Value>(result.raw.get()).unwrap()["line"].clone();
    assert!(line.as_str().unwrap().contains(r#""name":"echo","arguments":{"id":18446744073709551616,"x":1.10}}"#));
    let status = house.status("fake", |status| status.calls == 1).await;
    assert_eq!((status.failed_calls, status.protocol.as_deref()), (0, Some("2025-06-18")));
    assert!(status.last_ok.is_some() && status.last_error.is_none(), "{status:?}");
}

#[tokio::test]
async fn calls_overlap_up_to_the_limit_of_the_server() {
    // Answers only once eight calls have come, then keeps the ninth waiting for the others' places.
    let house = House::ready(
        r#"
waiting = []
def call(request):
    waiting.append(request)
    if len(waiting) == 8:
        for one in waiting:
            text(one, "together")
        waiting.clear()
"#,
    )
    .await;
    let calls = (0..16).map(|_| house.call("{}"));
    let results = futures_util::future::join_all(calls).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test]
async fn a_dropped_call_cancels_downstream_and_its_late_answer_harms_nobody() {
    let house = House::ready(
        r#"
held = []
def call(request):
    if "wait" in request["line"]:
        held.append(request)
    else:
        text(request, "quick")
def other(message):
    if message.get("method") == "notifications/cancelled":
        assert message["params"]["requestId"] == held[-1]["id"]
        text(held[-1], "late")
        text(held[-1], "later")
        print("cancelled:", message["params"]["reason"], file=sys.stderr, flush=True)
"#,
    )
    .await;
    let dropped = tokio::time::timeout(Duration::from_millis(300), house.call(r#"{"wait":1}"#)).await;
    assert!(dropped.is_err());
    house.status("fake", |status| status.last_stderr == ["cancelled: cancelled"]).await;
    assert!(house.call("{}").await.unwrap().raw.get().contains("quick"));
    let timed_out = house.call_for(r#"{"wait":1}"#, Duration::from_millis(200)).await.unwrap_err();
    assert_eq!(timed_out, CallFailure::Timeout { after: Duration::from_millis(200) });
    assert!(house.call("{}").await.is_ok());
}

#[tokio::test]
async fn progress_starts_the_clock_anew() {
    let house = House::ready(
        r#"
def call(request):
    token = request["params"]["_meta"]["progressToken"]
    for number in range(8):
        time.sleep(0.1)
        token = str(token) if number % 2 else int(token)
        send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": number}})
        time.sleep(0.3)
    text(request, "done")
"#,
    )
    .await;
    assert!(house.call_for("{}", Duration::from_millis(500)).await.is_ok());
}

#[tokio::test]
async fn a_call_that_was_given_up_before_the_server_read_it_is_never_made() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let script = r#"
made = []
def listing(request):
    reply(request, {"tools": TOOLS})
    while not os.path.exists("GO"):
        time.sleep(0.01)
def call(request):
    made.append(request["params"]["arguments"]["n"])
    text(request, json.dumps(made))
"#;
    let house = House::ready(&script.replace("GO", go.to_str().unwrap())).await;
    let large = format!(r#"{{"n":1,"filler":"{}"}}"#, "x".repeat(1 << 20));
    let brief = Duration::from_millis(100);
    // The first fills the pipe; the others wait behind it.
    for arguments in [large.as_str(), r#"{"n":2}"#, r#"{"n":3}"#] {
        assert!(matches!(house.call_for(arguments, brief).await, Err(CallFailure::Timeout { .. })));
    }
    std::fs::write(&go, "").unwrap();
    assert_eq!(text(house.call(r#"{"n":4}"#).await), "[1, 4]");
}

#[tokio::test]
async fn requests_of_the_server_are_answered_at_once_also_before_it_is_ready() {
    let script = r#"
def ask(names):
    for name in names:
        send({"jsonrpc": "2.0", "id": name, "method": name, "params": {}})
    answers = {}
    while len(answers) < len(names):
        message = receive()
        if "method" not in message:
            answers[message["id"]] = message.get("result", message.get("error", {}).get("code"))
    return [answers[name] for name in names]
old_initialize = initialize
def initialize(request):
    send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "WARN", "data": None}})
    send({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
    assert ask(["ping", "roots/list"]) == [{}, {"roots": []}]
    old_initialize(request)
def call(request):
    text(request, json.dumps(ask(["roots/list", "sampling/createMessage", "elicitation/create", "ping", "foo/bar"])))
"#;
    let house = House::ready(script).await;
    let result = house.call("{}").await.unwrap();
    let value: serde_json::Value = serde_json::from_str(result.raw.get()).unwrap();
    let text = value["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, r#"[{"roots": []}, -32601, {"action": "decline"}, {}, -32601]"#);
}

#[tokio::test]
async fn the_stateless_protocol_is_spoken_where_it_is_offered() {
    let script = r#"
listeners = []
def other(message):
    if message.get("method") == "server/discover":
        reply(message, {"supportedVersions": ["2026-07-28"], "capabilities": []})
    elif message.get("method") == "subscriptions/listen":
        assert message["params"]["notifications"] == {"toolsListChanged": True}
        TOOLS.append({"name": "later"})
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    elif "id" in message:
        send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no " + message["method"]}})
def initialize(request):
    other(dict(request, method="initialize"))
def call(request):
    params = request["params"]
    if "ask" in params["arguments"] and "requestState" not in params:
        asked = {"q": {"method": params["arguments"]["ask"]}}
        return reply(request, {"resultType": "input_required", "requestState": "kept", "inputRequests": asked})
    told = [params["_meta"]["io.modelcontextprotocol/protocolVersion"], params.get("requestState"), params.get("inputResponses")]
    reply(request, {"resultType": "complete", "content": [{"type": "text", "text": json.dumps(told)}]})
"#;
    let mut settings = fake("fake", script);
    settings.protocol = Protocol::Auto;
    let mut old = fake(
        "old",
        "def other(message):\n    if 'id' in message:\n        send({'id': message['id'], 'error': {'code': -32601, 'message': 'no'}})",
    );
    old.protocol = Protocol::Auto;
    let house = House::new(vec![settings, old]);
    let status = house.state("fake", ServerState::Ready).await;
    assert_eq!(status.protocol.as_deref(), Some("2026-07-28"));
    house.tool("mcp__fake__later").await;
    assert_eq!(text(house.call("{}").await), r#"["2026-07-28", null, null]"#);
    let declined = r#"["2026-07-28", "kept", {"q": {"action": "decline"}}]"#;
    assert_eq!(text(house.call(r#"{"ask":"elicitation/create"}"#).await), declined);
    let asked = house.call(r#"{"ask":"sampling/createMessage"}"#).await;
    let CallFailure::Rpc { message, .. } = asked.unwrap_err() else { panic!() };
    assert!(message.contains("sampling/createMessage"), "{message}");
    let status = house.state("old", ServerState::Ready).await;
    assert_eq!(status.protocol.as_deref(), Some("2025-06-18"));
}
