use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A daemon in a few lines: notes its arguments, then answers every request with its version.
const DAEMON: &str = r#"#!/usr/bin/env python3
import http.server, json, os, socketserver, sys
args = sys.argv[1:]
home = os.path.dirname(os.path.abspath(sys.argv[0]))
with open(os.path.join(home, "starts"), "a") as starts:
    starts.write(json.dumps({"args": args, "pid": os.getpid(), "group": os.getpgrp(), "cwd": os.getcwd()}) + "\n")
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = json.dumps({"version": "0", "api_min": 1, "api_max": 1, "pid": os.getpid()}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if os.path.exists(os.path.join(home, "stop")):
            os._exit(0)
    def address_string(self):
        return "unix"
    def log_message(self, *args):
        pass
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
Server(args[args.index("--socket") + 1], Handler).serve_forever()
"#;

struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new(program: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ptcd = folder.path().join("ptcd");
        std::fs::write(&ptcd, program).unwrap();
        std::fs::set_permissions(&ptcd, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    fn launch(&self, deadline: Duration) -> Launch {
        let path = |name: &str| self.folder.path().join(name);
        let state = path("state");
        let launch = Launch::new(Some(&path("run/d.sock")), Some(&path("c.yaml")), Some(&state), Autostart::Allowed);
        Launch { ptcd: Some(path("ptcd")), deadline, ..launch.unwrap() }
    }

    fn starts(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.folder.path().join("starts")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Ends the daemon by one more request.
    async fn stop(&self, launch: &Launch) {
        std::fs::write(self.folder.path().join("stop"), "").unwrap();
        drop(launch.client().version().await);
    }
}

#[tokio::test]
async fn several_clients_at_once_start_one_daemon_with_their_flags_in_its_own_group() {
    let home = Home::new(DAEMON);
    let launch = home.launch(START_DEADLINE);
    let (one, two, three) = tokio::join!(ensure_running(&launch), ensure_running(&launch), ensure_running(&launch));
    let pid = one.unwrap().pid;
    assert_eq!((two.unwrap().pid, three.unwrap().pid), (pid, pid));
    let starts = home.starts();
    assert_eq!(starts.len(), 1, "{starts:?}");
    let path = |name: &str| home.folder.path().join(name).display().to_string();
    let (socket, config, state) = (path("run/d.sock"), path("c.yaml"), path("state"));
    let expected = ["run", "--socket", &socket, "--config", &config, "--state-dir", &state];
    assert_eq!(starts[0]["args"], serde_json::json!(expected));
    assert_eq!(starts[0]["group"], starts[0]["pid"]);
    let mode = std::fs::metadata(home.folder.path().join("run")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    home.stop(&launch).await;
}

#[tokio::test]
async fn a_daemon_that_runs_is_used_as_it_is() {
    let home = Home::new(DAEMON);
    let launch = home.launch(START_DEADLINE);
    let first = ensure_running(&launch).await.unwrap();
    let forbidden = Launch { autostart: Autostart::Forbidden, ..launch.clone() };
    assert_eq!(ensure_running(&forbidden).await.unwrap(), first);
    assert_eq!(home.starts().len(), 1);
    home.stop(&launch).await;
}

#[tokio::test]
async fn a_daemon_that_ends_at_once_is_reported_with_its_last_words() {
    let home = Home::new("#!/bin/sh\necho 'ptcd: config is broken' >&2\nexit 78\n");
    let error = ensure_running(&home.launch(START_DEADLINE)).await.unwrap_err();
    assert!(matches!(error, LaunchError::Died { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("78") && text.contains("config is broken"), "{text}");

    // Also where there is no place for its log.
    std::fs::remove_dir_all(home.folder.path().join("state")).unwrap();
    std::fs::write(home.folder.path().join("state"), "a file in place of the folder").unwrap();
    let text = ensure_running(&home.launch(START_DEADLINE)).await.unwrap_err().to_string();
    assert!(text.contains("config is broken"), "{text}");
    let left = std::fs::read_dir(home.folder.path().join("run")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["d.start-lock"]);
}

#[tokio::test]
async fn a_daemon_that_never_answers_is_reported_after_the_deadline() {
    let home = Home::new("#!/bin/sh\necho started >&2\nexec sleep 3\n");
    let error = ensure_running(&home.launch(Duration::from_millis(300))).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("within 0.3 s") && text.contains("started"), "{text}");
}

#[tokio::test]
async fn without_autostart_nothing_is_started() {
    let home = Home::new(DAEMON);
    let launch = Launch { autostart: Autostart::Forbidden, ..home.launch(START_DEADLINE) };
    let error = ensure_running(&launch).await.unwrap_err().to_string();
    assert!(error.contains("--no-autostart") && error.contains(&launch.socket.display().to_string()), "{error}");
    assert_eq!(home.starts().len(), 0);
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_is_named() {
    let home = Home::new("");
    let missing = home.folder.path().join("no-such-ptcd");
    let error = ensure_running(&Launch { ptcd: Some(missing), ..home.launch(START_DEADLINE) }).await.unwrap_err();
    assert!(error.to_string().contains("no-such-ptcd"), "{error}");
}
