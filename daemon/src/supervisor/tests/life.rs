//! Starts, ends, restarts and changes of the configuration.

use super::*;

#[tokio::test]
async fn a_killed_server_shows_at_once_comes_back_and_fails_the_running_call_only() {
    let house = House::ready(
        r#"
def call(request):
    if "wait" not in request["line"]:
        text(request, "ok")
"#,
    )
    .await;
    let pid = house.state("fake", ServerState::Ready).await.pid.unwrap();
    let kill = async {
        // The call is on its way once the server counts it as running; a short wait is enough for that.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let killed = std::time::Instant::now();
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        house.status("fake", |status| status.state != ServerState::Ready).await;
        assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    };
    let (failed, ()) = tokio::join!(house.call(r#"{"wait":1}"#), kill);
    let CallFailure::ConnectionLost { reason, .. } = failed.unwrap_err() else { panic!() };
    assert_eq!(reason, "exited with signal 9");
    let status = house.status("fake", |status| status.state == ServerState::Ready && status.starts == 2).await;
    assert_ne!(status.pid, Some(pid));
    assert!(house.call("{}").await.is_ok());
}

#[tokio::test]
async fn calls_wait_for_a_server_that_is_restarted_or_has_crashed_once() {
    let house = House::ready("").await;
    let tool = house.tool("mcp__fake__echo").await;
    let ready = async |house: &House, starts| {
        house.status("fake", |status| status.state == ServerState::Ready && status.starts == starts).await
    };
    house.supervisor.restart(&ServerName::parse("fake").unwrap()).await.unwrap();
    assert!(house.call_known(&tool).await.is_ok(), "a restart");
    let pid = ready(&house, 2).await.pid.and_then(|pid| i32::try_from(pid).ok()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    house.status("fake", |status| status.state != ServerState::Ready).await;
    assert!(house.call_known(&tool).await.is_ok(), "a crash");
    ready(&house, 3).await;
    let changed = with_env(fake("fake", ""), "A", "1");
    house.supervisor.apply(Arc::new(of(vec![changed]))).await;
    assert!(house.call_known(&tool).await.is_ok(), "a change of its settings");
    house.supervisor.apply(Arc::new(of(vec![ServerSettings { enabled: false, ..fake("fake", "") }]))).await;
    house.state("fake", ServerState::Disabled).await;
    assert_eq!(unavailable(house.call_known(&tool).await), "it is disabled in the configuration");
}

#[tokio::test]
async fn a_server_that_exits_after_its_start_backs_off_and_says_why() {
    let house = House::new(vec![fake(
        "fake",
        r#"
old_listing = listing
def listing(request):
    old_listing(request)
    print("giving up", file=sys.stderr, flush=True)
    sys.exit(0)
"#,
    )]);
    let status = house.status("fake", |status| status.state == ServerState::Backoff && status.starts == 2).await;
    assert_eq!(status.last_error.as_deref(), Some("exits after start, code 0"));
    assert!(status.next_retry.is_some() && status.pid.is_none());
    assert_eq!(status.last_stderr, ["giving up"]);
    let catalog = house.catalog(|catalog| catalog.tools.is_empty()).await;
    assert_eq!(catalog.servers.len(), 1);
}

#[tokio::test]
async fn only_servers_that_shall_run_are_restarted() {
    let house = House::new(vec![ServerSettings { enabled: false, ..fake("off", "") }]);
    house.state("off", ServerState::Disabled).await;
    let restart = async |name| house.supervisor.restart(&ServerName::parse(name).unwrap()).await;
    assert!(matches!(restart("off").await, Err(RestartError::Disabled { .. })));
    assert!(matches!(restart("none").await, Err(RestartError::Unknown { .. })));
}

#[tokio::test]
async fn servers_that_cannot_start_say_what_is_wrong() {
    let mut slow = fake("slow", "def initialize(request):\n    pass");
    slow.startup_timeout = Duration::from_millis(500);
    let house = House::new(vec![
        stdio("missing", "no-such-command", &[]),
        stdio("early", "sh", &["-c", "echo broken config >&2; exit 3"]),
        slow,
        fake(
            "refuses",
            "def initialize(request):\n    send({'id': request['id'], 'error': {'code': 5, 'message': 'no'}})",
        ),
    ]);
    let status = house.state("missing", ServerState::Failed).await;
    let error = status.last_error.unwrap();
    assert!(error.starts_with("no-such-command not found in PATH=/"), "{error}");
    let status = house.state("early", ServerState::Backoff).await;
    assert_eq!(status.last_error.as_deref(), Some("exits before it is ready, code 3"));
    assert_eq!(status.last_stderr, ["broken config"]);
    let late = house.status("slow", |status| status.last_error.is_some()).await;
    let told = "has not answered initialize within 500ms; it gets 4s before it is started anew";
    assert_eq!((late.state, late.last_error.as_deref()), (ServerState::Starting, Some(told)));
    let status = house.state("slow", ServerState::Backoff).await;
    assert_eq!(status.last_error.as_deref(), Some("did not answer initialize within 4s"));
    let status = house.state("refuses", ServerState::Backoff).await;
    assert_eq!(status.last_error.as_deref(), Some("refused to initialize: no (5)"));
}

#[tokio::test]
async fn versions_old_unknown_and_absent_are_spoken_with() {
    let with_version =
        |name: &str, result: &str| fake(name, &format!("def initialize(request):\n    reply(request, {result})"));
    let house = House::new(vec![
        with_version(
            "old",
            r#"{"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}"#,
        ),
        with_version("new", r#"{"protocolVersion": "2099-01-01", "capabilities": {}, "serverInfo": {"name": 7}}"#),
        with_version("bare", "{}"),
        with_version("echo", r#"{"protocolVersion": "2026-07-28", "capabilities": []}"#),
    ]);
    for (name, version) in
        [("old", "2024-11-05"), ("new", "2099-01-01"), ("bare", "2024-11-05"), ("echo", "2026-07-28")]
    {
        let status = house.state(name, ServerState::Ready).await;
        assert_eq!(status.protocol.as_deref(), Some(version));
    }
    let tool = house.tool("mcp__echo__echo").await;
    let arguments = RawValue::from_string("{}".into()).unwrap();
    let call = ServerCall { tool, arguments, timeout: PATIENCE, max_result_bytes: 1 << 20, session: None };
    assert!(house.supervisor.call(call).await.is_ok());
}

#[tokio::test]
async fn no_process_of_the_group_survives_a_stop_or_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path().join("pids");
    // A launcher whose real server, and a helper that ignores every polite request, stay behind when it dies.
    let script = directory.path().join("server.py");
    std::fs::write(&script, FAKE.replace("# SCRIPT", "")).unwrap();
    let line = format!(
        "sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' & echo $! >>{pids}; \
         python3 -u {script} <&0 & echo $! >>{pids}; wait",
        pids = pids.display(),
        script = script.display(),
    );
    // In POSIX shells a background job reads from /dev/null unless told otherwise.
    let line = line.replace("<&0", "0<&3");
    let house = House::new(vec![stdio("fake", "sh", &["-c", &format!("exec 3<&0; {line}")])]);
    let read = || -> Vec<i32> {
        std::fs::read_to_string(&pids).unwrap_or_default().lines().map(|line| line.parse().unwrap()).collect()
    };
    let launcher = house.state("fake", ServerState::Ready).await.pid.unwrap();
    let first = read();
    assert_eq!(first.len(), 2);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(launcher).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    house.status("fake", |status| status.state == ServerState::Ready && status.starts == 2).await;
    assert!(!first.iter().any(|&pid| alive(pid)), "left behind by the crash");
    house.supervisor.restart(&ServerName::parse("fake").unwrap()).await.unwrap();
    house.status("fake", |status| status.state == ServerState::Ready && status.starts == 3).await;
    let all = read();
    assert_eq!(all.len(), 6);
    assert!(!all[2..4].iter().any(|&pid| alive(pid)), "left behind by the restart");
    house.supervisor.shutdown().await;
    assert!(!all.iter().any(|&pid| alive(pid)), "left behind by the shutdown");
}

#[tokio::test]
async fn a_server_that_ignores_every_request_to_stop_does_not_hold_up_the_others() {
    let stubborn = fake(
        "stubborn",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ndef receive_nothing():\n    pass\nold_listing = listing\ndef listing(request):\n    old_listing(request)\n    while True:\n        time.sleep(3600)",
    );
    let house = House::new(vec![stubborn.clone()]);
    let pid = i32::try_from(house.state("stubborn", ServerState::Ready).await.pid.unwrap()).unwrap();
    let begun = std::time::Instant::now();
    let report = house.supervisor.apply(Arc::new(of(vec![fake("fake", "")]))).await;
    assert_eq!((report.started.len(), report.stopped.len()), (1, 1));
    house.state("fake", ServerState::Ready).await;
    assert!(alive(pid), "the new server did not wait for the old one");
    until("the old one is killed", || !alive(pid)).await;
    let again = House::new(vec![stubborn]);
    again.state("stubborn", ServerState::Ready).await;
    let stopping = std::time::Instant::now();
    again.supervisor.shutdown().await;
    assert!(stopping.elapsed() < Duration::from_secs(6), "{:?} {:?}", stopping.elapsed(), begun.elapsed());
}

#[tokio::test]
async fn only_what_changed_is_touched_by_a_reload_and_running_calls_finish() {
    let slow = "def call(request):\n    time.sleep(1)\n    text(request, 'finished')";
    let house = House::new(vec![fake("fake", slow), fake("same", ""), fake("gone", "")]);
    for name in ["fake", "same", "gone"] {
        house.state(name, ServerState::Ready).await;
    }
    let same = house.state("same", ServerState::Ready).await;
    let change = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut tuned = fake("same", "");
        tuned.max_concurrent_calls = 3;
        let mut disabled = fake("gone", "");
        disabled.enabled = false;
        let settings = of(vec![with_env(fake("fake", slow), "X", "1"), tuned, disabled, fake("new", "")]);
        house.supervisor.apply(Arc::new(settings)).await
    };
    let (called, report) = tokio::join!(house.call("{}"), change);
    assert!(called.unwrap().raw.get().contains("finished"));
    let names = |list: &[ServerName]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&report.started), ["new"]);
    assert_eq!(names(&report.restarted), ["fake"]);
    assert_eq!(names(&report.stopped), ["gone"]);
    assert_eq!(names(&report.unchanged), ["same"]);
    house.state("gone", ServerState::Disabled).await;
    house.status("fake", |status| status.state == ServerState::Ready && status.starts == 2).await;
    house.state("new", ServerState::Ready).await;
    assert_eq!(house.state("same", ServerState::Ready).await.pid, same.pid);
}

#[tokio::test]
async fn changed_tools_are_seen_and_a_flood_of_notices_is_not_obeyed() {
    let house = House::ready(
        r#"
listed = 0
old_listing = listing
def listing(request):
    global listed
    listed += 1
    if listed == 3:
        TOOLS.append({"name": "later"})
    old_listing(request)
    for _ in range(100):
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    print("listed", listed, file=sys.stderr, flush=True)
"#,
    )
    .await;
    let before = std::time::Instant::now();
    house.catalog(|catalog| catalog.tools.contains_key("mcp__fake__later")).await;
    assert!(before.elapsed() > Duration::from_millis(1500), "two refreshes came within {:?}", before.elapsed());
    assert!(before.elapsed() < Duration::from_secs(10));
    assert!(house.call("{}").await.is_ok());
}

#[tokio::test]
async fn sessions_get_instances_of_their_own_where_the_configuration_says_so() {
    use ptc_protocol::names::SessionId;
    let mut settings = fake("fake", "def call(request):\n    text(request, str(os.getpid()))");
    settings.scope = Scope::Session;
    let house = House::new(vec![settings]);
    let tool = house.tool("mcp__fake__echo").await;
    let pid_of = async |session: Option<&str>| {
        let call = ServerCall {
            tool: Arc::clone(&tool),
            arguments: RawValue::from_string("{}".into()).unwrap(),
            timeout: PATIENCE,
            max_result_bytes: 1 << 20,
            session: session.map(|text| SessionId::parse(text).unwrap()),
        };
        let result = house.supervisor.call(call).await.unwrap();
        let value: serde_json::Value = serde_json::from_str(result.raw.get()).unwrap();
        value["content"][0]["text"].as_str().unwrap().parse::<i32>().unwrap()
    };
    let (one, two, shared) = (pid_of(Some("s-1")).await, pid_of(Some("s-2")).await, pid_of(None).await);
    assert!(one != two && one != shared && two != shared);
    assert_eq!(pid_of(Some("s-1")).await, one);
    house.supervisor.session_ended(&SessionId::parse("s-1").unwrap()).await;
    until("the session's instance is gone", || !alive(one)).await;
    assert!(alive(two) && alive(shared));
    let of_two = |status: &ServerStatus| status.session.as_ref().is_some_and(|session| session.as_str() == "s-2");
    let statuses = Arc::clone(&house.supervisor.status().borrow());
    assert_eq!(statuses.iter().find(|status| of_two(status)).unwrap().pid, u32::try_from(two).ok());
    assert_ne!(pid_of(Some("s-1")).await, one);
}

#[tokio::test]
async fn a_slow_start_is_told_of_and_may_finish() {
    let mut slow = fake("slow", "time.sleep(2.5)");
    slow.startup_timeout = Duration::from_secs(1);
    let house = House::new(vec![slow]);
    let late = house.status("slow", |status| status.last_error.is_some()).await;
    let ready = house.state("slow", ServerState::Ready).await;
    assert_eq!((late.pid, late.starts), (ready.pid, 1), "it did not start over");
    assert_eq!(ready.last_error, None);
}
