//! The streamable HTTP transport with a scripted server.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::json;

use super::{
    web::{Ask, Web, compressed, events, json_response, open_events, plain, status, with_header},
    *,
};

#[tokio::test]
async fn every_request_carries_the_headers_and_the_session_is_ended() {
    let web = Web::new(|_| None).await;
    let house = web.house().await;
    assert_eq!(text(house.call(r#"{"n":1}"#).await), r#"{"n":1}"#);
    until("the stream is asked for", || web.count("GET") == 1).await;
    house.supervisor.shutdown().await;
    let asks = web.asks();
    assert_eq!(web.count("DELETE"), 1);
    for ask in &asks {
        assert_eq!((ask.header("authorization"), ask.header("x-tenant")), (Some("Bearer sesame-42"), Some("acme")));
        let first = ask.name() == "initialize";
        assert_eq!(ask.header("mcp-session-id"), (!first).then_some("session-1"), "{ask:?}");
        assert_eq!(ask.header("mcp-protocol-version"), (!first).then_some("2025-06-18"), "{ask:?}");
        let accept = if ask.name() == "GET" { "text/event-stream" } else { "application/json, text/event-stream" };
        if ask.name() != "DELETE" {
            assert_eq!(ask.header("accept"), Some(accept));
        }
        assert_eq!(ask.path, "/mcp");
    }
    let names: Vec<&str> = asks.iter().map(Ask::name).filter(|name| *name != "GET").collect();
    assert_eq!(names[..3], ["initialize", "notifications/initialized", "tools/list"]);
}

#[tokio::test]
async fn answers_come_as_events_too_and_notices_with_them() {
    let web = Web::new(|ask| {
        let answer = ask.echo().to_string();
        let (one, other) = answer.split_at(20);
        let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
        (ask.name() == "tools/call").then(|| {
            events(&[
                ": hello\r\n\r\n",
                &format!("event: message\r\ndata: {ping}\r\n\r\ndata: {one}"),
                &format!("{other}\r\n\r\n"),
            ])
        })
    })
    .await;
    let house = web.house().await;
    assert_eq!(text(house.call(r#"{"a":1}"#).await), r#"{"a":1}"#);
    until("the server's ping is answered", || {
        web.asks().iter().any(|ask| ask.body["id"] == "p" && ask.body["result"] == json!({}))
    })
    .await;
}

#[tokio::test]
async fn a_changed_list_is_heard_on_the_stream_of_the_server() {
    let listed = AtomicUsize::new(0);
    let senders = Mutex::new(Vec::new());
    let web = Web::new(move |ask| match ask.name() {
        "GET" => {
            let (sender, response) = open_events();
            let notice = r#"data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
            sender.try_send(format!("{notice}\n\n")).unwrap();
            senders.lock().unwrap().push(sender);
            Some(response)
        }
        "tools/list" if listed.fetch_add(1, SeqCst) > 0 => {
            let tools = json!([{ "name": "echo" }, { "name": "more" }]);
            Some(json_response(&json!({ "jsonrpc": "2.0", "id": ask.body["id"], "result": { "tools": tools } })))
        }
        _ => None,
    })
    .await;
    let house = web.house().await;
    house.tool("mcp__fake__more").await;
}

/// One lost session, found by twenty calls at once: one new handshake, and every call gets its result.
#[tokio::test]
async fn a_lost_session_is_replaced_once_and_its_calls_repeated() {
    let not_found = r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#;
    let no_id = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
    for (code, body) in [(404, not_found), (400, no_id), (200, not_found)] {
        let handshakes = AtomicUsize::new(0);
        let web = Web::new(move |ask| match (ask.name(), ask.header("mcp-session-id")) {
            ("initialize", session) => {
                assert_eq!(session, None);
                let number = handshakes.fetch_add(1, SeqCst);
                Some(with_header(plain(ask), "mcp-session-id", &format!("session-{number}")))
            }
            ("tools/call", Some("session-0")) => {
                Some(with_header(status(code, body), "content-type", "application/json"))
            }
            _ => None,
        })
        .await;
        let house = web.house().await;
        let calls = (0..20).map(|n| house.call(Box::leak(format!(r#"{{"n":{n}}}"#).into_boxed_str())));
        for (n, result) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
            assert_eq!(text(result), format!(r#"{{"n":{n}}}"#), "{code}");
        }
        assert_eq!(web.count("initialize"), 2, "{code}");
        assert_eq!(house.state("fake", ServerState::Ready).await.starts, 2);
    }
}

/// Programs that start, and calls that are made, while a session is replaced.
#[tokio::test]
async fn nobody_misses_a_tool_while_a_session_is_replaced() {
    let handshakes = AtomicUsize::new(0);
    let held = Arc::new(Mutex::new(None));
    let hold = Arc::clone(&held);
    let web = Web::new(move |ask| match (ask.name(), ask.header("mcp-session-id")) {
        ("initialize", _) if handshakes.fetch_add(1, SeqCst) == 1 => {
            let (sender, response) = open_events();
            let result = json!({ "protocolVersion": "2025-06-18", "capabilities": {} });
            let answer = json!({ "jsonrpc": "2.0", "id": ask.body["id"], "result": result });
            *hold.lock().unwrap() = Some((sender, format!("data: {answer}\n\n")));
            Some(with_header(response, "mcp-session-id", "session-2"))
        }
        ("tools/call", Some("session-1")) => Some(status(404, "")),
        _ => None,
    })
    .await;
    let house = web.house().await;
    let generation = house.supervisor.catalog().borrow().generation;
    let (first, second) = tokio::join!(house.call(r#"{"n":1}"#), async {
        house.status("fake", |status| status.state == ServerState::Starting && status.starts == 2).await;
        until("the handshake runs", || held.lock().unwrap().is_some()).await;
        let shown = house
            .catalog(|catalog| catalog.generation > generation && catalog.servers[0].state == ServerState::Starting)
            .await;
        assert_eq!((shown.servers[0].state, shown.tools.len()), (ServerState::Starting, 1));
        let (sender, answer) = held.lock().unwrap().take().unwrap();
        tokio::join!(house.call(r#"{"n":2}"#), async { sender.send(answer).await.unwrap() }).0
    });
    assert_eq!((text(first), text(second)), (r#"{"n":1}"#.into(), r#"{"n":2}"#.into()));
    assert_eq!(web.count("initialize"), 2);
}

#[tokio::test]
async fn a_session_that_is_lost_again_and_again_is_not_asked_for_in_a_loop() {
    let web = Web::new(|ask| (ask.name() == "tools/call").then(|| status(404, ""))).await;
    let house = web.house().await;
    let reason = unavailable(house.call("{}").await);
    assert!(reason.contains("reconnect"), "{reason}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(web.count("initialize") <= 3, "{}", web.count("initialize"));
    assert_eq!(web.count("tools/call"), 2);
}

#[tokio::test]
async fn a_stream_that_ends_early_fails_its_call_alone_and_at_once() {
    let web = Web::new(|ask| {
        let endless = ask.body["params"]["arguments"]["endless"] == true;
        (ask.name() == "tools/call").then(|| match endless {
            true => events(&["data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n"]),
            false => plain(ask),
        })
    })
    .await;
    let house = web.house().await;
    let began = std::time::Instant::now();
    match house.call(r#"{"endless":true}"#).await {
        Err(CallFailure::ConnectionLost { reason, .. }) => {
            assert!(reason.contains("ended before the answer"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(text(house.call("{}").await), "{}");
    assert_eq!(house.state("fake", ServerState::Ready).await.starts, 1);
}

#[tokio::test]
async fn a_stream_with_ids_is_taken_up_again_where_it_broke() {
    let answer = Arc::new(Mutex::new(String::new()));
    let web = Web::new(move |ask| match (ask.name(), ask.header("last-event-id")) {
        ("tools/call", _) => {
            *answer.lock().unwrap() = ask.echo().to_string();
            Some(events(&["id: e1\nretry: 20\ndata: \n\n"]))
        }
        ("GET", Some("e1")) => Some(events(&[&format!("id: e2\ndata: {}\n\n", answer.lock().unwrap())])),
        _ => None,
    })
    .await;
    let house = web.house().await;
    assert_eq!(text(house.call(r#"{"a":1}"#).await), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_server_that_dies_fails_its_calls_and_shows_in_the_status_and_comes_back() {
    let senders = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&senders);
    let web = Web::new(move |ask| {
        (ask.name() == "tools/call").then(|| {
            let (sender, response) = open_events();
            keep.lock().unwrap().push(sender);
            response
        })
    })
    .await;
    let house = web.house().await;
    let address = web.address;
    let (result, ()) = tokio::join!(house.call("{}"), async {
        until("the call runs", || !senders.lock().unwrap().is_empty()).await;
        web.stop().await;
        senders.lock().unwrap().clear();
    });
    assert!(matches!(result, Err(CallFailure::ConnectionLost { .. })), "{result:?}");
    let status = house.status("fake", |status| status.state == ServerState::Backoff).await;
    assert!(status.last_error.as_ref().unwrap().contains("refused"), "{status:?}");
    let _web = Web::at(address, |_| None).await;
    house.state("fake", ServerState::Ready).await;
    assert_eq!(text(house.call("{}").await), "{}");
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_origin_and_nowhere_else() {
    let other = Web::new(|_| None).await;
    let elsewhere = format!("http://{}/mcp", other.address);
    let web = Web::new(move |ask| match ask.path.as_str() {
        "/mcp" => Some(with_header(status(307, ""), "location", "/mcp/")),
        "/permanent" => Some(with_header(status(308, ""), "location", "/mcp/")),
        "/away" => Some(with_header(status(307, ""), "location", &elsewhere)),
        "/login" => Some(with_header(status(302, ""), "location", "/sign-in?next=secret-place")),
        "/loop" => Some(with_header(status(307, ""), "location", "/loop")),
        _ => None,
    })
    .await;
    for path in ["/mcp", "/permanent"] {
        let house = House::new(vec![web.settings(path)]);
        house.state("fake", ServerState::Ready).await;
        assert_eq!(text(house.call("{}").await), "{}");
    }
    for (path, wanted) in [
        ("/away", format!("redirected to http://{}/mcp, which is another origin", other.address)),
        ("/login", format!("redirected to http://{}/sign-in, which status 302", web.address)),
        ("/loop", format!("redirected to http://{} over and over", web.address)),
    ] {
        let house = House::new(vec![web.settings(path)]);
        let error = house.state("fake", ServerState::Failed).await.last_error.unwrap();
        assert!(error.starts_with(&wanted) && !error.contains("secret-place"), "{error}");
    }
    assert_eq!(other.asks().len(), 0, "nothing may reach another origin");
    let landed = web.asks().into_iter().filter(|ask| ask.path == "/mcp/");
    assert!(landed.clone().count() >= 6);
    assert!(landed.clone().all(|ask| ask.header("authorization").is_some()));
}

#[tokio::test]
async fn whoever_must_sign_in_is_told_so() {
    let web = Web::new(|ask| match ask.path.as_str() {
        "/401" => Some(with_header(status(401, ""), "www-authenticate", "Bearer realm=\"door\"")),
        "/403" => Some(status(403, "read only, Bearer sesame-42")),
        "/x/sse" => Some(status(405, "")),
        _ => Some(status(404, "<html>nothing</html>")),
    })
    .await;
    let error = async |path: &str, state| {
        let house = House::new(vec![web.settings(path)]);
        house.state("fake", state).await.last_error.unwrap()
    };
    let text = error("/401", ServerState::NeedsSignIn).await;
    assert!(text.contains("Bearer realm=\"door\"") && text.contains("renew it"), "{text}");
    let text = error("/403", ServerState::Failed).await;
    assert!(text.starts_with("forbidden: ") && !text.contains("sesame-42"), "{text}");
    assert!(error("/x/sse", ServerState::Failed).await.contains("set `transport: sse`"));
    assert!(error("/none", ServerState::Failed).await.ends_with("(a page); check `url`"));
}

#[tokio::test]
async fn a_token_that_runs_out_needs_a_sign_in() {
    let calls = AtomicUsize::new(0);
    let web = Web::new(move |ask| match ask.name() {
        "tools/call" => {
            calls.fetch_add(1, SeqCst);
            Some(status(401, ""))
        }
        _ if calls.load(SeqCst) > 0 => Some(status(401, "")),
        _ => None,
    })
    .await;
    let house = web.house().await;
    assert!(unavailable(house.call("{}").await).contains("needs sign-in"));
    house.state("fake", ServerState::NeedsSignIn).await;
}

/// Beside calls: the end of the handshake, a stream that is taken up again, and the stream of the server.
/// A question whether the server is there is answered by a wish for patience: it neither waits nor ends anything.
/// What the computer's sleep does to a server that waits for its next try, and to one that is connected.
#[tokio::test]
async fn compressed_answers_are_read() {
    let web = Web::new(|ask| {
        (ask.name() == "tools/call").then(|| match ask.body["params"]["arguments"]["events"] == true {
            true => compressed(&format!("data: {}\n\n", ask.echo()), "text/event-stream"),
            false => compressed(&ask.echo().to_string(), "application/json"),
        })
    })
    .await;
    let house = web.house().await;
    for arguments in ["{}", r#"{"events":true}"#] {
        assert_eq!(text(house.call(arguments).await), arguments);
    }
    assert!(web.asks().iter().all(|ask| ask.header("accept-encoding").unwrap().contains("gzip")));
}

#[tokio::test]
async fn an_answer_over_the_limit_fails_its_call() {
    let web = Web::new(|ask| {
        (ask.name() == "tools/call").then(|| {
            let big = "x".repeat((64 << 20) + 10);
            match ask.body["params"]["arguments"]["events"] == true {
                true => events(&[&format!("data: {big}\n\n")]),
                false => with_header(status(200, &big), "content-type", "application/json"),
            }
        })
    })
    .await;
    let house = web.house().await;
    for arguments in ["{}", r#"{"events":true}"#] {
        let result = house.call(arguments).await;
        assert!(matches!(result, Err(CallFailure::TooLarge { .. })), "{arguments}: {result:?}");
    }
    house.state("fake", ServerState::Ready).await;
}

#[tokio::test]
async fn odd_answers_fail_their_call_with_what_they_were() {
    let web = Web::new(|ask| {
        let how = ask.body["params"]["arguments"]["how"].as_str().unwrap_or_default().to_owned();
        (ask.name() == "tools/call").then(|| match how.as_str() {
            "page" => with_header(status(200, "<html>"), "content-type", "text/html; charset=utf-8"),
            "empty" => status(202, ""),
            "other" => json_response(&json!({"jsonrpc": "2.0", "id": 999, "result": {}})),
            "500" => status(500, "boom"),
            _ => with_header(status(200, &ask.echo().to_string()), "content-type", "text/plain"),
        })
    })
    .await;
    let house = web.house().await;
    let told = async |how: &str| house.call(&format!(r#"{{"how":"{how}"}}"#)).await.unwrap_err().to_string();
    assert!(told("page").await.contains("answered with text/html; charset=utf-8 in place of JSON"));
    assert!(told("empty").await.contains("202 Accepted without a message"));
    assert!(told("other").await.contains("no answer to the request"));
    assert_eq!(told("500").await, "the server answered 500 Internal Server Error: boom");
    assert_eq!(text(house.call("{}").await), "{}", "the type of the content is often wrong");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    let senders = Mutex::new(Vec::new());
    let web = Web::new(move |ask| {
        (ask.name() == "tools/call").then(|| {
            let (sender, response) = open_events();
            senders.lock().unwrap().push(sender);
            response
        })
    })
    .await;
    let house = web.house().await;
    let result = house.call_for("{}", Duration::from_millis(200)).await;
    assert!(matches!(result, Err(CallFailure::Timeout { .. })), "{result:?}");
    until("the cancellation arrives", || web.count("notifications/cancelled") == 1).await;
    let asks = web.asks();
    let id = |name: &str, path: &str| asks.iter().find(|ask| ask.name() == name).unwrap().body.pointer(path).cloned();
    assert_eq!(id("notifications/cancelled", "/params/requestId"), id("tools/call", "/id"));
}
