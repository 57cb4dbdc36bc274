//! What servers should not do.

use super::*;

fn rpc(code: i64, message: &str) -> CallFailure {
    CallFailure::Rpc { code, message: message.into() }
}

#[tokio::test]
async fn odd_errors_fail_their_call_at_once() {
    let house = House::ready(
        r#"
forms = [
    '{"jsonrpc":"2.0","id":ID,"result":null,"error":{"code":-1,"message":"x"}}',
    '{"jsonrpc":"2.0","id":ID,"error":"boom"}',
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}',
    '{"jsonrpc":"2.0","error":{"code":"E42","message":"p"}}',
    '{"id":ID,"result":{"content":[]}}',
    '{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}',
    'partial line {"jsonrpc":"2.0","id":ID,"result":{"n":1}}',
]
def call(request):
    raw(forms.pop(0).replace("ID", str(request["id"])) + "\n")
"#,
    )
    .await;
    assert_eq!(house.call("{}").await.unwrap_err(), rpc(-1, "x"));
    assert_eq!(house.call("{}").await.unwrap_err(), rpc(-32603, "boom"));
    assert_eq!(house.call("{}").await.unwrap_err(), rpc(-32700, "Parse error"));
    assert_eq!(house.call("{}").await.unwrap_err(), rpc(-32603, "E42: p"));
    assert_eq!(house.call("{}").await.unwrap().raw.get(), r#"{"content":[]}"#);
    assert!(matches!(house.call("{}").await.unwrap_err(), CallFailure::Malformed { .. }));
    assert_eq!(house.call("{}").await.unwrap().raw.get(), r#"{"n":1}"#);
    let status = house.status("fake", |status| status.calls == 7).await;
    assert_eq!((status.failed_calls, status.starts, status.state), (5, 1, ServerState::Ready));
}

#[tokio::test]
async fn noise_byte_order_marks_and_floods_of_stderr_do_not_matter() {
    let house = House::ready(
        r#"
sys.stderr.write("e" * (1 << 20))
old_initialize, old_listing = initialize, listing
def initialize(request):
    raw("✨ MyServer v2 ready\n\n\r\n")
    raw(b"\xef\xbb\xbf")
    sys.stderr.write("x\n" * 200000)
    for percent in range(1000):
        sys.stderr.write("%d%%\r" % percent)
    sys.stderr.write("last words\n")
    old_initialize(request)
def listing(request):
    raw("[INFO] handling tools/list\n{\"level\":\"info\"}\n  ")
    old_listing(request)
"#,
    )
    .await;
    assert!(house.call("{}").await.is_ok());
    let status =
        house.status("fake", |status| status.last_stderr.last().is_some_and(|line| line == "last words")).await;
    assert!(status.last_stderr.len() <= 10);
    assert_eq!(status.warnings, ["wrote 3 lines to stdout that are no MCP message, such as `✨ MyServer v2 ready`"]);
}

#[tokio::test]
async fn an_answer_over_the_limit_fails_its_call_and_nothing_else() {
    let house = House::ready(
        r#"
def call(request):
    if "big" in request["line"]:
        block = b"a" * (1 << 20)
        raw('{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"')
        for _ in range(66):
            raw(block)
        raw('"}]},"id":%d}\n' % request["id"])
    else:
        text(request, "small")
"#,
    )
    .await;
    let failure = house.call(r#"{"big":1}"#).await.unwrap_err();
    let CallFailure::TooLarge { bytes: Some(bytes), limit } = failure else { panic!("{failure:?}") };
    assert!(bytes > 66 << 20 && limit == 16 << 20);
    assert!(house.call("{}").await.is_ok());
    assert_eq!(house.state("fake", ServerState::Ready).await.starts, 1);
}

#[tokio::test]
async fn bad_definitions_and_odd_names_are_reported_and_cost_only_themselves() {
    let house =
        House::ready(r#"TOOLS += [{"name": "b", "inputSchema": True}, {"inputSchema": {}}, {"name": "deploy:qa"}]"#)
            .await;
    let catalog = house.catalog(|catalog| catalog.tools.len() == 3).await;
    assert_eq!(catalog.tools["mcp__fake__b"].input_schema.get(), r#"{"type":"object"}"#);
    let (name, tool) = catalog.tools.iter().find(|(_, tool)| tool.wire_name == "deploy:qa").unwrap();
    assert!(name.as_str().starts_with("mcp__fake__deploy_qa_"));
    assert_eq!((tool.ident.as_str(), format!("mcp__fake__{}", tool.attr)), ("fake", name.to_string()));
    let status = house.state("fake", ServerState::Ready).await;
    assert_eq!((status.tools, status.warnings.len()), (3, 3), "{:?}", status.warnings);
}

#[tokio::test]
async fn lists_that_never_end_are_cut() {
    let repeating = fake(
        "repeating",
        r#"
def listing(request):
    reply(request, {"tools": [{"name": "t%d" % n} for n in range(8)], "nextCursor": "8"})
"#,
    );
    let endless = fake(
        "endless",
        r#"
page = 0
def listing(request):
    global page
    page += 1
    reply(request, {"tools": [{"name": "t%d" % page}], "nextCursor": "c%d" % page})
"#,
    );
    let house = House::new(vec![repeating, endless]);
    let status = house.state("repeating", ServerState::Ready).await;
    assert_eq!((status.tools, status.warnings.len()), (8, 1), "{:?}", status.warnings);
    let status = house.state("endless", ServerState::Ready).await;
    assert!(status.tools >= 100 && status.warnings.len() == 1, "{status:?}");
}

#[tokio::test]
async fn a_server_that_does_not_read_costs_only_its_own_calls() {
    let house = House::ready(
        r#"
def call(request):
    time.sleep(3600)
"#,
    )
    .await;
    // Far more than a pipe holds.
    let arguments = format!(r#"{{"x":"{}"}}"#, "y".repeat(1 << 20));
    let calls = (0..4).map(|_| house.call_for(&arguments, Duration::from_millis(300)));
    for result in futures_util::future::join_all(calls).await {
        assert_eq!(result.unwrap_err(), CallFailure::Timeout { after: Duration::from_millis(300) });
    }
    house.state("fake", ServerState::Ready).await;
}

#[tokio::test]
async fn secrets_are_hidden_wherever_a_server_repeats_them() {
    let script = r#"
print("key is", os.environ["API_KEY"], file=sys.stderr, flush=True)
raw("debug " + os.environ["API_KEY"] + "\n")
def call(request):
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": 1, "message": "bad key " + os.environ["API_KEY"]}})
"#;
    let house = House::new(vec![with_env(fake("fake", script), "API_KEY", "s3cr3t-value")]);
    assert_eq!(house.call("{}").await.unwrap_err(), rpc(1, "bad key [hidden]"));
    let status = house.status("fake", |status| status.last_stderr == ["key is [hidden]"]).await;
    let shown = format!("{status:?}{}", std::fs::read_to_string(house.file("server-fake.log")).unwrap());
    assert!(!shown.contains("s3cr3t") && shown.contains("debug [hidden]"), "{shown}");
}

#[tokio::test]
async fn a_server_that_names_the_versions_it_speaks_is_asked_for_the_newest_of_them() {
    let house = House::ready(
        r#"
old_initialize = initialize
def initialize(request):
    if request["params"]["protocolVersion"] == "2025-03-26":
        return old_initialize(request)
    data = {"supported": ["2024-11-05", "2025-03-26"], "requested": request["params"]["protocolVersion"]}
    error = {"code": -32602, "message": "Unsupported protocol version", "data": data}
    send({"jsonrpc": "2.0", "id": request["id"], "error": error})
"#,
    )
    .await;
    assert!(house.call("{}").await.is_ok());
    let status = house.state("fake", ServerState::Ready).await;
    assert_eq!((status.starts, status.last_error), (2, None));
    house.supervisor.restart(&ServerName::parse("fake").unwrap()).await.unwrap();
    let status = house.status("fake", |status| status.state == ServerState::Ready && status.starts > 2).await;
    assert_eq!(status.starts, 3, "what it speaks is remembered");
}

#[tokio::test]
async fn a_server_that_speaks_no_version_of_ours_says_which_it_speaks() {
    let house = House::new(vec![fake(
        "fake",
        r#"
def initialize(request):
    error = {"code": -32602, "message": "Unsupported protocol version", "data": {"supported": ["1.0", "2.0"]}}
    send({"jsonrpc": "2.0", "id": request["id"], "error": error})
"#,
    )]);
    let status = house.state("fake", ServerState::Backoff).await;
    let said = "refused to initialize: Unsupported protocol version (-32602); it speaks only 1.0, 2.0";
    assert_eq!(status.last_error.as_deref(), Some(said));
}
