//! The older transport over HTTP with a scripted server.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use axum::response::Response;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    web::{Ask, Web, open_events, plain, status, with_header},
    *,
};

/// The stream of a scripted server, while one is open.
type Stream = Arc<Mutex<Option<mpsc::Sender<String>>>>;

/// A server that names this endpoint, accepts messages at `/pre/messages?sid=1`, and answers on its stream.
async fn server(endpoint: &'static str, stream: &Stream) -> Web {
    Web::new(script(endpoint, stream)).await
}

fn script(endpoint: &'static str, stream: &Stream) -> impl Fn(&Ask) -> Option<Response> + Send + Sync + 'static {
    let stream = Arc::clone(stream);
    move |ask| {
        if ask.name() == "GET" {
            let (sender, response) = open_events();
            let hello = format!(
                ": keep-alive\r\n\r\nevent: ping\r\ndata: x\r\n\r\nevent: endpoint\r\ndata: {endpoint}\r\n\r\n"
            );
            sender.try_send(hello.repeat(2)).unwrap();
            *stream.lock().unwrap() = Some(sender);
            return Some(response);
        }
        if ask.path != "/pre/messages?sid=1" {
            return Some(status(404, "lost"));
        }
        if ask.body["params"]["arguments"]["die"] == true {
            stream.lock().unwrap().take();
            return Some(status(202, "Accepted"));
        }
        if ask.body["params"]["arguments"]["forget"] == true {
            return Some(status(404, "Could not find session"));
        }
        if ask.body["params"]["arguments"]["refuse"] == true {
            return Some(status(500, "boom"));
        }
        if let Some(answer) = answer(ask) {
            let (one, other) = answer.split_once(',').unwrap();
            // Split over lines and over pieces, after a keep-alive.
            let sender = stream.lock().unwrap().clone().unwrap();
            sender.try_send(format!(": keep-alive\n\nevent: message\ndata: {one},\ndata: ")).unwrap();
            sender.try_send(format!("{other}\n\n")).unwrap();
        }
        Some(status(202, "Accepted"))
    }
}

/// What a plain server answers.
fn answer(ask: &Ask) -> Option<String> {
    let result = match ask.name() {
        "tools/call" => return Some(ask.echo().to_string()),
        "initialize" => json!({"protocolVersion": "2024-11-05", "capabilities": {}}),
        "tools/list" => json!({"tools": [{ "name": "echo" }]}),
        "ping" => return Some(json!({"jsonrpc": "2.0", "id": ask.body["id"], "error": {"code": -1}}).to_string()),
        _ => return None,
    };
    Some(json!({ "jsonrpc": "2.0", "id": ask.body["id"], "result": result }).to_string())
}

fn settings(web: &Web) -> ServerSettings {
    let mut settings = web.settings("/pre/sse");
    if let Transport::Http { url, headers } = settings.transport {
        settings.transport = Transport::Sse { url, headers };
    }
    settings
}

#[tokio::test]
async fn messages_go_to_the_endpoint_and_come_on_the_stream() {
    for endpoint in ["/pre/messages?sid=1", "messages?sid=1"] {
        let stream = Stream::default();
        let web = server(endpoint, &stream).await;
        let house = House::new(vec![settings(&web)]);
        let ready = house.state("fake", ServerState::Ready).await;
        assert_eq!(ready.protocol.as_deref(), Some("2024-11-05"));
        assert!(house.call(r#"{"a":1}"#).await.unwrap().raw.get().contains(r#"{\"a\":1}"#));
        let asks = web.asks();
        assert!(asks.iter().all(|ask| ask.header("authorization") == Some("Bearer sesame-42")));
        let names: Vec<&str> = asks.iter().map(Ask::name).collect();
        assert_eq!(names, ["GET", "initialize", "notifications/initialized", "tools/list", "tools/call"]);
    }
}

#[tokio::test]
async fn a_message_that_is_not_accepted_fails_its_request_alone() {
    let stream = Stream::default();
    let web = server("/pre/messages?sid=1", &stream).await;
    let house = House::new(vec![settings(&web)]);
    let error = house.call(r#"{"refuse":true}"#).await.unwrap_err();
    assert_eq!(error.to_string(), "the server answered 500 Internal Server Error: boom");
    house.call("{}").await.unwrap();
    assert_eq!(house.state("fake", ServerState::Ready).await.starts, 1);
}

#[tokio::test]
async fn a_stream_that_ends_fails_its_calls_and_is_opened_again() {
    let stream = Stream::default();
    let web = server("/pre/messages?sid=1", &stream).await;
    let house = House::new(vec![settings(&web)]);
    let began = std::time::Instant::now();
    let result = house.call(r#"{"die":true}"#).await;
    assert!(matches!(result, Err(CallFailure::ConnectionLost { .. })), "{result:?}");
    assert!(began.elapsed() < Duration::from_secs(2));
    house.status("fake", |status| status.starts == 2 && status.state == ServerState::Ready).await;
    house.call("{}").await.unwrap();
    assert_eq!(web.count("initialize"), 2);
}

#[tokio::test]
async fn a_forgotten_session_is_replaced() {
    let stream = Stream::default();
    let web = server("/pre/messages?sid=1", &stream).await;
    let house = House::new(vec![settings(&web)]);
    let result = house.call(r#"{"forget":true}"#).await;
    assert!(matches!(result, Err(CallFailure::Unavailable { .. })), "{result:?}");
    assert_eq!(web.count("tools/call"), 2, "it is repeated once");
    house.state("fake", ServerState::Ready).await;
}

#[tokio::test]
async fn servers_that_ask_for_time_get_it() {
    let stream = Stream::default();
    let plain = script("/pre/messages?sid=1", &stream);
    let refused = AtomicUsize::new(0);
    let web = Web::new(move |ask| match (ask.name(), &ask.body["params"]["arguments"]) {
        ("GET", _) if ask.path == "/busy" => Some(with_header(status(503, ""), "retry-after", "100")),
        ("notifications/initialized", _) | ("tools/call", _) if refused.fetch_add(1, SeqCst).is_multiple_of(2) => {
            Some(with_header(status(429, ""), "retry-after", "1"))
        }
        ("tools/call", arguments) if arguments["long"] == true => {
            Some(with_header(status(429, ""), "retry-after", "100"))
        }
        _ => plain(ask),
    })
    .await;
    let house = House::new(vec![settings(&web)]);
    let began = std::time::Instant::now();
    house.call("{}").await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!((web.count("notifications/initialized"), web.count("tools/call")), (2, 2));
    let error = house.call(r#"{"long":true}"#).await.unwrap_err();
    assert!(error.to_string().contains("asks to wait 100 s"), "{error}");
    assert_eq!(house.state("fake", ServerState::Ready).await.starts, 1);

    let mut busy = settings(&web);
    if let Transport::Sse { url, .. } = &mut busy.transport {
        url.set_path("/busy");
    }
    let waiting = House::new(vec![busy]).state("fake", ServerState::Backoff).await;
    let next: jiff::Timestamp = waiting.next_retry.unwrap().parse().unwrap();
    assert!(next.duration_since(jiff::Timestamp::now()) > jiff::SignedDuration::from_secs(90), "{next}");
}

#[tokio::test]
async fn another_origin_gets_nothing() {
    let stream = Stream::default();
    let web = server("https://evil.test/m", &stream).await;
    let house = House::new(vec![settings(&web)]);
    let error = house.state("fake", ServerState::Failed).await.last_error.unwrap();
    assert!(error.contains("names another origin, https://evil.test"), "{error}");
    assert_eq!(web.count("initialize"), 0);
}

#[tokio::test]
async fn what_is_not_a_stream_says_what_it_is() {
    let web = Web::new(|ask| match ask.path.as_str() {
        "/401/sse" => Some(status(401, "")),
        _ => Some(with_header(plain(ask), "content-type", "text/html")),
    })
    .await;
    let mut wrong = settings(&web);
    let error = async |settings| {
        let house = House::new(vec![settings]);
        let down = house.status("fake", |status| status.last_error.is_some()).await;
        (down.state, down.last_error.unwrap())
    };
    assert!(error(wrong.clone()).await.1.contains("405"));
    if let Transport::Sse { url, .. } = &mut wrong.transport {
        url.set_path("/401/sse");
    }
    let (state, text) = error(wrong).await;
    assert!(state == ServerState::NeedsSignIn && text.contains("renew it"), "{state:?} {text}");
}
