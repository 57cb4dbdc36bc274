//! Protocol 2026-07-28 over streamable HTTP with a scripted server.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::json;

use super::{
    web::{Ask, Web, json_response, status},
    *,
};

#[tokio::test]
async fn the_stateless_protocol_is_spoken_where_a_server_offers_it() {
    let web = Web::new(|ask| {
        let id = &ask.body["id"];
        match ask.name() {
            "server/discover" => {
                let result = json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {},
                    "serverInfo": { "name": "web", "version": "1" }, "ttlMs": 0, "cacheScope": "private",
                });
                Some(json_response(&json!({ "jsonrpc": "2.0", "id": id, "result": result })))
            }
            "ping" => Some(status(404, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#)),
            _ => None,
        }
    })
    .await;
    let mut settings = web.settings("/mcp");
    settings.protocol = Protocol::Auto;
    let house = House::new(vec![settings]);
    let ready = house.state("fake", ServerState::Ready).await;
    assert_eq!(ready.protocol.as_deref(), Some("2026-07-28"));
    assert_eq!(text(house.call("{}").await), "{}");
    let asks = web.asks();
    assert_eq!((web.count("initialize"), web.count("GET")), (0, 0));
    for ask in asks.iter().filter(|ask| ask.method == ::http::Method::POST) {
        assert_eq!(ask.header("mcp-method"), Some(ask.name()));
        assert_eq!(ask.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(ask.header("mcp-session-id"), None);
        assert_eq!(ask.header("mcp-name"), (ask.name() == "tools/call").then_some("echo"));
    }
}

/// What the tool wants mirrored changes between its listing and the call.
#[tokio::test]
async fn arguments_are_mirrored_as_the_server_wants_it_now() {
    let listed = AtomicUsize::new(0);
    let web = Web::new(move |ask| {
        let answer = |result| Some(json_response(&json!({ "jsonrpc": "2.0", "id": ask.body["id"], "result": result })));
        match ask.name() {
            "server/discover" => answer(json!({ "supportedVersions": ["2026-07-28"] })),
            "tools/list" => {
                let name = if listed.fetch_add(1, SeqCst) == 0 { "Old" } else { "New" };
                let schema = json!({ "properties": { "p": { "type": "string", "x-mcp-header": name } } });
                answer(json!({ "tools": [{ "name": "echo", "inputSchema": schema }] }))
            }
            "tools/call" if ask.header("mcp-param-new").is_none() => {
                let error = json!({ "code": -32020, "message": "Header mismatch" });
                Some(status(400, &json!({ "jsonrpc": "2.0", "id": ask.body["id"], "error": error }).to_string()))
            }
            _ => None,
        }
    })
    .await;
    let mut settings = web.settings("/mcp");
    settings.protocol = Protocol::Auto;
    let house = House::new(vec![settings]);
    house.state("fake", ServerState::Ready).await;
    assert_eq!(text(house.call(r#"{"p":"é"}"#).await), r#"{"p":"é"}"#);
    let asks = web.asks();
    let calls: Vec<&Ask> = asks.iter().filter(|ask| ask.name() == "tools/call").collect();
    let told = |name: &str| calls.iter().map(|ask| ask.header(name)).collect::<Vec<_>>();
    assert_eq!(told("mcp-param-old"), [Some("=?base64?w6k=?="), None]);
    assert_eq!(told("mcp-param-new"), [None, Some("=?base64?w6k=?=")]);
    until("the catalog follows", || web.count("tools/list") == 3).await;
}

#[tokio::test]
async fn an_older_server_is_initialized_when_it_refuses_discovery() {
    let web = Web::new(|ask| (ask.name() == "server/discover").then(|| status(400, "what?"))).await;
    let mut settings = web.settings("/mcp");
    settings.protocol = Protocol::Auto;
    let house = House::new(vec![settings]);
    house.state("fake", ServerState::Ready).await;
    assert_eq!(web.count("initialize"), 1);
}
