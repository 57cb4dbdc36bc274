//! The supervisor with scripted servers: each is a real process.

mod bad_input;
mod life;
mod over_http;
mod over_sse;
mod stateless;
mod traffic;
mod waiting;
mod web;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use ptc_protocol::{
    api::{ServerState, ServerStatus},
    names::ServerName,
};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::{
    CallFailure, CallResult, Catalog, RestartError, ServerCall, Supervisor, Tool,
    server::{Server, Surroundings},
};
use crate::{
    config::settings::{Protocol, Scope, Secret, ServerSettings, Settings, Transport},
    guardian::Guardian,
};

const FAKE: &str = include_str!("fake.py");

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A supervisor with its task and a directory of its own.
struct House {
    supervisor: Supervisor,
    _tasks: JoinSet<()>,
    directory: tempfile::TempDir,
}

/// A server that runs the fake with this code.
fn fake(name: &str, script: &str) -> ServerSettings {
    let text = FAKE.replace("# SCRIPT", script);
    stdio(name, "python3", &["-u", "-c", &text])
}

fn stdio(name: &str, command: &str, args: &[&str]) -> ServerSettings {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    ServerSettings {
        name: ServerName::parse(name).unwrap(),
        transport: Transport::Stdio { command: command.into(), args, env: BTreeMap::new(), cwd: None },
        enabled: true,
        startup_timeout: Duration::from_secs(20),
        max_concurrent_calls: 8,
        scope: Scope::Shared,
        protocol: Protocol::Initialize,
    }
}

fn with_env(mut settings: ServerSettings, name: &str, value: &str) -> ServerSettings {
    if let Transport::Stdio { env, .. } = &mut settings.transport {
        env.insert(name.into(), Secret::new(value));
    }
    settings
}

fn of(servers: Vec<ServerSettings>) -> Settings {
    Settings { servers, ..Settings::default() }
}

impl House {
    fn new(servers: Vec<ServerSettings>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (supervisor, task) = Supervisor::start(&of(servers), Guardian::absent(), directory.path().to_owned());
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run());
        Self { supervisor, _tasks: tasks, directory }
    }

    /// A supervisor of one fake, once that is ready.
    async fn ready(script: &str) -> Self {
        let house = Self::new(vec![fake("fake", script)]);
        house.state("fake", ServerState::Ready).await;
        house
    }

    async fn status(&self, name: &str, wanted: impl Fn(&ServerStatus) -> bool) -> ServerStatus {
        let mut news = self.supervisor.status();
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let found = news.borrow_and_update().iter().find(|status| status.name.as_str() == name).cloned();
                if let Some(status) = found.filter(&wanted) {
                    return status;
                }
                news.changed().await.unwrap();
            }
        });
        match found.await {
            Ok(status) => status,
            Err(_) => panic!("not reached: {:#?}", self.supervisor.status().borrow()),
        }
    }

    async fn state(&self, name: &str, state: ServerState) -> ServerStatus {
        self.status(name, |status| status.state == state).await
    }

    async fn catalog(&self, wanted: impl Fn(&Catalog) -> bool) -> Arc<Catalog> {
        let mut news = self.supervisor.catalog();
        let found = tokio::time::timeout(PATIENCE, news.wait_for(|catalog| wanted(catalog))).await;
        Arc::clone(&found.expect("the catalog is reached").unwrap())
    }

    async fn tool(&self, name: &str) -> Arc<Tool> {
        let catalog = self.catalog(|catalog| catalog.tools.contains_key(name)).await;
        Arc::clone(&catalog.tools[name])
    }

    /// Calls a tool of the fake with a timeout.
    async fn call_for(&self, arguments: &str, timeout: Duration) -> Result<CallResult, CallFailure> {
        let tool = self.tool("mcp__fake__echo").await;
        let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
        let call = ServerCall { tool, arguments, timeout, max_result_bytes: 16 << 20, session: None };
        self.supervisor.call(call).await
    }

    async fn call(&self, arguments: &str) -> Result<CallResult, CallFailure> {
        self.call_for(arguments, PATIENCE).await
    }

    /// Calls a tool that is known, whatever has become of its server.
    async fn call_known(&self, tool: &Arc<Tool>) -> Result<CallResult, CallFailure> {
        let (tool, arguments) = (Arc::clone(tool), RawValue::from_string("{}".to_owned()).unwrap());
        let call = ServerCall { tool, arguments, timeout: PATIENCE, max_result_bytes: 16 << 20, session: None };
        self.supervisor.call(call).await
    }

    /// A file for a fake to write to.
    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn unavailable(result: Result<CallResult, CallFailure>) -> String {
    match result {
        Err(CallFailure::Unavailable { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

/// The text of a result.
fn text(result: Result<CallResult, CallFailure>) -> String {
    let raw = result.unwrap().raw;
    let value: serde_json::Value = serde_json::from_str(raw.get()).unwrap();
    value["content"][0]["text"].as_str().unwrap().to_owned()
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let reached = tokio::time::timeout(PATIENCE, async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(reached.await.is_ok(), "never came: {what}");
}

fn alive(pid: i32) -> bool {
    // A zombie answers signals too, and where nobody reaps it, it stays.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let zombie = stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
    rustix::process::Pid::from_raw(pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok()) && !zombie
}
