use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

use super::*;
use crate::api::API_VERSION;

/// A server that is written out by hand, so that it can misbehave on purpose.
struct Server {
    folder: tempfile::TempDir,
    listener: UnixListener,
}

impl Server {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        Self { folder, listener }
    }

    fn client(&self) -> Client {
        Client::connect_lazy(self.folder.path().join("s"))
    }

    async fn accept(&self) -> UnixStream {
        self.listener.accept().await.unwrap().0
    }
}

/// Reads one request; its first line, or none at the end of the connection.
async fn request(stream: &mut UnixStream) -> Option<String> {
    let mut seen = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&seen).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_lowercase()
                .lines()
                .find_map(|line| Some(line.strip_prefix("content-length: ")?.parse().unwrap()));
            if body.len() >= length.unwrap_or(0_usize) {
                return head.lines().next().map(str::to_owned);
            }
        }
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(bytes) => seen.extend_from_slice(&chunk[..bytes]),
        }
    }
}

async fn answer(stream: &mut UnixStream, status: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
}

async fn chunk(stream: &mut UnixStream, text: &str) {
    stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await.unwrap();
}

#[test]
fn escaped_names_are_one_segment() {
    assert_eq!(escape("a/b c?ä"), "a%2Fb%20c%3F%C3%A4");
    assert_eq!(with_query("/p", [("a", "x y".to_owned()), ("b", "&".to_owned())].into_iter()), "/p?a=x%20y&b=%26");
}

#[tokio::test]
async fn requests_one_after_the_other_share_a_connection() {
    let server = Server::new();
    let client = server.client();
    let ask = async {
        for n in 0..3 {
            assert_eq!(client.get::<Value>(&format!("/v1/{n}")).await.unwrap(), json!(n));
        }
    };
    let serve = async {
        let mut stream = server.accept().await;
        for n in 0..3 {
            assert_eq!(request(&mut stream).await.unwrap(), format!("GET /v1/{n} HTTP/1.1"));
            answer(&mut stream, "200 OK", &n.to_string()).await;
        }
    };
    tokio::join!(ask, serve);
}

#[tokio::test]
async fn requests_at_the_same_time_do_not_wait_for_each_other() {
    let server = Server::new();
    let client = server.client();
    let together = tokio::sync::Barrier::new(8);
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let client = client.clone();
        tasks.spawn(async move { client.get::<Value>("/v1/x").await.unwrap() });
    }
    let connection = async || {
        let mut stream = server.accept().await;
        request(&mut stream).await.unwrap();
        together.wait().await;
        answer(&mut stream, "200 OK", "1").await;
    };
    futures_join(8, connection).await;
    while let Some(done) = tasks.join_next().await {
        assert_eq!(done.unwrap(), json!(1));
    }
}

/// Runs the same thing several times at once.
async fn futures_join(times: usize, make: impl AsyncFn()) {
    let mut all: Vec<_> = (0..times).map(|_| Box::pin(make())).collect();
    std::future::poll_fn(|cx| {
        all.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_meanwhile_is_replaced_also_for_a_post() {
    let server = Server::new();
    let client = server.client();
    let ask = async {
        client.get::<Value>("/v1/a").await.unwrap();
        client.post::<_, Value>("/v1/b", &json!({})).await.unwrap()
    };
    let serve = async {
        let mut stream = server.accept().await;
        request(&mut stream).await.unwrap();
        answer(&mut stream, "200 OK", "1").await;
        drop(stream);
        let mut stream = server.accept().await;
        assert_eq!(request(&mut stream).await.unwrap(), "POST /v1/b HTTP/1.1");
        answer(&mut stream, "200 OK", "2").await;
    };
    assert_eq!(tokio::join!(ask, serve).0, json!(2));
}

#[tokio::test]
async fn only_a_get_is_sent_again_when_it_may_have_been_carried_out() {
    for method in [Method::GET, Method::POST] {
        let server = Server::new();
        let client = server.client();
        let seen = AtomicUsize::new(0);
        let ask = async {
            client.get::<Value>("/v1/first").await.unwrap();
            match method {
                Method::GET => client.get::<Value>("/v1/x").await,
                _ => client.post::<_, Value>("/v1/x", &json!({})).await,
            }
        };
        let serve = async {
            let mut stream = server.accept().await;
            request(&mut stream).await.unwrap();
            answer(&mut stream, "200 OK", "1").await;
            // Read, then gone without an answer.
            request(&mut stream).await.unwrap();
            seen.fetch_add(1, Ordering::Relaxed);
            drop(stream);
            let mut stream = server.accept().await;
            if request(&mut stream).await.is_some() {
                seen.fetch_add(1, Ordering::Relaxed);
                answer(&mut stream, "200 OK", "2").await;
            }
            std::future::pending::<()>().await;
        };
        let result = tokio::select! { result = ask => result, () = serve => unreachable!("waits for ever") };
        match method {
            Method::GET => assert_eq!(result.unwrap(), json!(2)),
            _ => assert!(matches!(result, Err(ClientError::Lost { maybe_executed: true, .. })), "{result:?}"),
        }
        let times = if method == Method::GET { 2 } else { 1 };
        assert_eq!(seen.load(Ordering::Relaxed), times);
    }
}

#[tokio::test]
async fn nobody_at_the_socket_is_told_apart_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none");
    let error = Client::connect_lazy(&socket).status().await.unwrap_err();
    assert!(error.is_unreachable());
    assert!(error.to_string().contains(&socket.display().to_string()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_ends_at_the_deadline() {
    let server = Server::new();
    let client = server.client().with_deadline(Duration::from_secs(3));
    let error = client.get::<Value>("/v1/x").await.unwrap_err();
    assert!(matches!(error, ClientError::Deadline { .. }) && error.to_string().contains("within 3 s"), "{error}");
    let error = client.stream::<(), Value>(Method::GET, "/v1/x", None).await.unwrap_err();
    assert!(matches!(error, ClientError::Deadline { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_over_the_limit_is_refused() {
    let server = Server::new();
    let mut connection = Connection::open(server.client().socket()).await.unwrap();
    let ask = async {
        let answer = connection.send(build(Method::GET, "/v1/x", Bytes::new()).unwrap()).await.unwrap();
        connection.collect(answer.into_body(), 10).await
    };
    let serve = async {
        let mut stream = server.accept().await;
        request(&mut stream).await.unwrap();
        answer(&mut stream, "200 OK", "12345678901").await;
    };
    let (result, ()) = tokio::join!(ask, serve);
    assert!(matches!(result, Err(ClientError::TooLarge { limit: 10 })), "{result:?}");
}

#[tokio::test]
async fn a_problem_is_passed_on_and_a_foreign_answer_is_explained_by_the_version() {
    let server = Server::new();
    let client = server.client();
    let ask = async {
        let problem = client.get::<Value>("/v1/x").await.unwrap_err();
        assert_eq!(problem.problem().unwrap().code, "busy");
        let malformed = client.get::<Value>("/v1/x").await.unwrap_err();
        assert!(matches!(malformed, ClientError::Malformed { .. }), "{malformed}");
        let incompatible = client.get::<Value>("/v1/x").await.unwrap_err();
        assert!(matches!(incompatible, ClientError::Incompatible(_)), "{incompatible}");
    };
    let version = |api: u32| json!({"version": "9", "api_min": api, "api_max": api, "pid": 1}).to_string();
    let serve = async {
        let mut stream = server.accept().await;
        for (status, body) in [
            ("503 Busy", r#"{"code":"busy","message":"later"}"#.to_owned()),
            ("404 Not Found", String::new()),
            ("200 OK", version(API_VERSION)),
            ("404 Not Found", String::new()),
            ("200 OK", version(API_VERSION + 1)),
        ] {
            request(&mut stream).await.unwrap();
            answer(&mut stream, status, &body).await;
        }
    };
    tokio::join!(ask, serve);
}

#[tokio::test]
async fn events_come_whole_however_they_are_cut_and_empty_lines_do_not_count() {
    let server = Server::new();
    let client = server.client();
    let ask = async {
        let mut events = client.stream::<_, Value>(Method::POST, "/v1/x", Some(&json!({}))).await.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = events.next().await.unwrap() {
            seen.push(event);
        }
        seen
    };
    let serve = async {
        let mut stream = server.accept().await;
        request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        for piece in ["{\"a\":", "1}\n\n \n{\"b\":2}\n[3", "]\n", "4"] {
            chunk(&mut stream, piece).await;
            tokio::task::yield_now().await;
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
    };
    let (seen, ()) = tokio::join!(ask, serve);
    assert_eq!(seen, [json!({"a": 1}), json!({"b": 2}), json!([3]), json!(4)]);
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_lost_not_ended() {
    let server = Server::new();
    let client = server.client();
    let ask = async {
        let mut events = client.stream::<(), Value>(Method::GET, "/v1/x", None).await.unwrap();
        assert_eq!(events.next().await.unwrap(), Some(json!(1)));
        events.next().await
    };
    let serve = async {
        let mut stream = server.accept().await;
        request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        chunk(&mut stream, "1\n2").await;
    };
    let (end, ()) = tokio::join!(ask, serve);
    assert!(matches!(end, Err(ClientError::Lost { maybe_executed: true, .. })), "{end:?}");
}

#[tokio::test]
async fn dropping_a_stream_closes_its_connection_at_once() {
    let server = Server::new();
    let client = server.client();
    let ask = async {
        let mut events = client.stream::<(), Value>(Method::GET, "/v1/x", None).await.unwrap();
        assert_eq!(events.next().await.unwrap(), Some(json!(1)));
        drop(events);
    };
    let serve = async {
        let mut stream = server.accept().await;
        request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        chunk(&mut stream, "1\n").await;
        assert_eq!(request(&mut stream).await, None);
    };
    tokio::join!(ask, serve);
}

#[tokio::test]
async fn a_refused_stream_is_a_problem() {
    let server = Server::new();
    let client = server.client();
    let ask = client.stream::<(), Value>(Method::GET, "/v1/x", None);
    let serve = async {
        let mut stream = server.accept().await;
        request(&mut stream).await.unwrap();
        answer(&mut stream, "503 Busy", r#"{"code":"stopping","message":"bye"}"#).await;
    };
    let (refused, ()) = tokio::join!(ask, serve);
    assert_eq!(refused.unwrap_err().problem().unwrap().code, "stopping");
}
