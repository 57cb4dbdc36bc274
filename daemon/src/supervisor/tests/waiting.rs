//! Time and the streamable HTTP transport: servers that ask for it, slow ones, and the computer's sleep.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use super::{
    web::{Web, events, open_events, status, with_header},
    *,
};

#[tokio::test]
async fn servers_that_ask_for_time_get_it() {
    let tries = AtomicUsize::new(0);
    let web = Web::new(move |ask| match (ask.path.as_str(), ask.name()) {
        ("/start", "initialize") => Some(with_header(status(503, ""), "retry-after", "100")),
        ("/mcp", "tools/call") if ask.body["params"]["arguments"]["long"] == true => {
            Some(with_header(status(429, ""), "retry-after", "100"))
        }
        ("/mcp", "tools/call") if tries.fetch_add(1, SeqCst) == 0 => {
            Some(with_header(status(429, ""), "retry-after", "1"))
        }
        _ => None,
    })
    .await;
    let house = House::new(vec![web.settings("/start")]);
    let waiting = house.state("fake", ServerState::Backoff).await;
    let next: jiff::Timestamp = waiting.next_retry.unwrap().parse().unwrap();
    assert!(next.duration_since(jiff::Timestamp::now()) > jiff::SignedDuration::from_secs(90), "{next}");
    let house = web.house().await;
    let began = std::time::Instant::now();
    assert_eq!(text(house.call("{}").await), "{}");
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(unavailable(house.call(r#"{"long":true}"#).await).contains("asks to wait 100 s"));
    assert_eq!(house.state("fake", ServerState::Ready).await.starts, 2 - 1);
}

#[tokio::test]
async fn whatever_is_sent_waits_for_a_server_that_asks_for_time() {
    let refused = Mutex::new(std::collections::BTreeSet::new());
    let answer = Mutex::new(String::new());
    let web = Web::new(move |ask| {
        let what = format!("{} {}", ask.name(), ask.header("last-event-id").unwrap_or_default());
        let asked = ["notifications/initialized ", "GET ", "GET e1"].contains(&what.as_str());
        if asked && refused.lock().unwrap().insert(what.clone()) {
            return Some(with_header(status(503, ""), "retry-after", "1"));
        }
        match what.as_str() {
            "tools/call " => {
                *answer.lock().unwrap() = ask.echo().to_string();
                Some(events(&["id: e1\nretry: 1\ndata: \n\n"]))
            }
            "GET e1" => Some(events(&[&format!("data: {}\n\n", answer.lock().unwrap())])),
            _ => None,
        }
    })
    .await;
    let house = web.house().await;
    assert_eq!(web.count("notifications/initialized"), 2);
    until("the stream of the server is asked for again", || web.count("GET") == 2).await;
    assert_eq!(text(house.call(r#"{"a":1}"#).await), r#"{"a":1}"#);
    assert_eq!(web.count("GET"), 4);
}

#[tokio::test]
async fn a_server_that_asks_for_time_is_alive() {
    let web = Web::new(|ask| match ask.name() {
        "tools/call" => Some(status(502, "")),
        "ping" => Some(with_header(status(429, ""), "retry-after", "60")),
        _ => None,
    })
    .await;
    let house = web.house().await;
    assert!(matches!(house.call("{}").await, Err(CallFailure::ConnectionLost { .. })));
    until("it is asked", || web.count("ping") == 1).await;
    let reason = loop {
        match house.call("{}").await {
            Err(CallFailure::Unavailable { reason, .. }) => break reason,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert!(reason.contains("left alone"), "{reason}");
    assert_eq!(house.state("fake", ServerState::Ready).await.starts, 1);
    assert_eq!(web.count("ping"), 1, "its wish is kept");
}

#[tokio::test]
async fn a_wake_from_sleep_is_the_time_to_look_at_servers() {
    let busy = AtomicUsize::new(0);
    let web = Web::new(move |ask| {
        let first = ask.name() == "initialize" && busy.fetch_add(1, SeqCst) == 0;
        first.then(|| with_header(status(503, ""), "retry-after", "250"))
    })
    .await;
    let (wake, wakes) = tokio::sync::watch::channel(0);
    let directory = tempfile::tempdir().unwrap();
    let surroundings = Surroundings {
        guardian: Guardian::absent(),
        log_dir: directory.path().to_owned(),
        // Processes alone take turns.
        cold_starts: Arc::new(tokio::sync::Semaphore::new(0)),
        changed: Arc::default(),
        wakes,
        epoch: tokio::time::Instant::now(),
    };
    let (server, face, _commands) = Server::new(web.settings("/mcp"), surroundings);
    let mut tasks = JoinSet::new();
    tasks.spawn(server.run());
    until("it waits", || face.report().state == ServerState::Backoff).await;
    wake.send_modify(|wakes| *wakes += 1);
    until("it is tried again", || face.report().state == ServerState::Ready).await;
    let began = std::time::Instant::now();
    wake.send_modify(|wakes| *wakes += 1);
    until("it is asked whether it is there", || web.count("ping") == 1).await;
    assert!(began.elapsed() < Duration::from_secs(10), "before its usual time");
}

#[tokio::test]
async fn a_slow_start_over_the_network_gets_more_time_with_each_try() {
    let senders = Mutex::new(Vec::new());
    let web = Web::new(move |ask| {
        (ask.name() == "initialize").then(|| {
            let (sender, response) = open_events();
            senders.lock().unwrap().push(sender);
            response
        })
    })
    .await;
    let mut settings = web.settings("/mcp");
    settings.startup_timeout = Duration::from_millis(200);
    let house = House::new(vec![settings]);
    for limit in ["200ms", "400ms", "800ms"] {
        let told = format!("did not answer initialize within {limit}");
        house.status("fake", |status| status.last_error.as_ref() == Some(&told)).await;
    }
}
