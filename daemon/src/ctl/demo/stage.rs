//! A private daemon in a folder of its own; nothing of it is left when it is closed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use ptc_protocol::client::Client;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::ctl::siblings;

/// Longest wait for the daemon and its one server.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// Longest wait for the daemon's end: its own limit is 8 seconds.
const STOP_DEADLINE: Duration = Duration::from_secs(12);

/// Pause between two looks.
const STEP: Duration = Duration::from_millis(20);

/// Bytes of the daemon's last words that an error shows.
const WORDS: usize = 2000;

/// `execution.sandbox` of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sandbox {
    Auto,
    None,
}

/// Folder, binaries and the daemon.
#[derive(Debug)]
pub(super) struct Stage {
    folder: TempDir,
    ptcd: PathBuf,
    shim: PathBuf,
    daemon: Option<Child>,
}

impl Stage {
    /// Makes the folder; starts nothing yet.
    pub(super) fn new() -> anyhow::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("ptc-demo-").tempdir().context("cannot make a folder for the demo")?;
        Ok(Self { folder, ptcd: siblings::find("ptcd")?, shim: siblings::find("ptc-shim")?, daemon: None })
    }

    /// Starts the daemon and waits until the demo server's tools can be called.
    pub(super) async fn open(&mut self, sandbox: Sandbox) -> anyhow::Result<()> {
        let config = self.file("config.yaml");
        fs::write(&config, config_text(&self.ptcd, sandbox)?)
            .with_context(|| format!("cannot write `{}`", config.display()))?;
        let words = fs::File::create(self.file("stderr")).context("cannot write into the demo's folder")?;
        let mut command = self.clean(&self.ptcd);
        command.arg("run").arg("--config").arg(&config).arg("--socket").arg(self.socket());
        command.arg("--state-dir").arg(self.file("state"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
        self.daemon = Some(command.spawn().with_context(|| format!("cannot start `{}`", self.ptcd.display()))?);
        let client = Client::connect_lazy(self.socket());
        let until = Instant::now() + START_DEADLINE;
        loop {
            let answer = client.tools(&Default::default()).await;
            if answer.as_ref().is_ok_and(|answer| !answer.tools.is_empty()) {
                return Ok(());
            }
            if let Some(status) = self.daemon.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("ptcd ended at its start ({status}){}", self.words());
            }
            if Instant::now() > until {
                let servers = answer.map(|answer| answer.unavailable).unwrap_or_default();
                let reasons: Vec<_> = servers.into_iter().map(|server| server.reason).collect();
                bail!("the demo server did not get ready: {}{}", reasons.join("; "), self.words());
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// The shim of a client on this stage.
    pub(super) fn shim(&self) -> anyhow::Result<Command> {
        let mut command = self.clean(&self.shim);
        let words = fs::File::create(self.file("shim-stderr")).context("cannot write into the demo's folder")?;
        command.arg("--socket").arg(self.socket()).arg("--no-autostart").stderr(words);
        Ok(command)
    }

    /// Why the daemon refuses programs, if it is for want of a sandbox.
    pub(super) async fn refusal(&self) -> Option<String> {
        Client::connect_lazy(self.socket()).status().await.ok()?.sandbox.error
    }

    /// Stops the daemon in good order, by force if it must be.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        if let Some(pid) = pid(&daemon) {
            // It may have ended by itself.
            let _asked = kill_process(pid, Signal::TERM);
            if tokio::time::timeout(STOP_DEADLINE, daemon.wait()).await.is_err() {
                let _forced = kill_process_group(pid, Signal::KILL);
            }
        }
        daemon.wait().await.context("cannot wait for ptcd").map(drop)
    }

    /// Stops the daemon and removes the folder.
    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        let stopped = self.stop().await;
        let path = self.folder.path().to_owned();
        self.folder.close().with_context(|| format!("cannot remove `{}`", path.display()))?;
        stopped
    }

    fn socket(&self) -> PathBuf {
        self.file("ptcd.sock")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command in a process group of its own, which an interrupt at the keyboard does not reach, with none of the
    /// variables that name another daemon's places.
    fn clean(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.process_group(0).kill_on_drop(true).current_dir(self.folder.path());
        for name in ["PTC_CONFIG", "PTC_MCP_CONFIG", "PTC_SOCKET", "PTC_STATE_DIR"] {
            command.env_remove(name);
        }
        command
    }

    /// The daemon's last words, for an error.
    fn words(&self) -> String {
        let bytes = fs::read(self.file("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(WORDS)..]);
        if text.trim().is_empty() { String::new() } else { format!("; it said:\n{}", text.trim()) }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// The config with the demo server. A JSON string is a YAML string; `$` would start a variable.
fn config_text(ptcd: &Path, sandbox: Sandbox) -> anyhow::Result<String> {
    let path = ptcd.to_str().with_context(|| format!("the path `{}` is not UTF-8", ptcd.display()))?;
    let sandbox = match sandbox {
        Sandbox::Auto => "auto",
        Sandbox::None => "none",
    };
    let command = serde_json::to_string(&path.replace('$', "$$"))?;
    Ok(format!(
        "servers:\n  - name: financial-data\n    transport: stdio\n    command: {command}\n    args: [__demo-server]\n\
         execution:\n  sandbox: {sandbox}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_stay_as_they_are_in_the_config() {
        let text = config_text(Path::new("/a \"b\"/$HOME/ptcd: x"), Sandbox::None).unwrap();
        let config: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(config["servers"][0]["command"].as_str(), Some("/a \"b\"/$$HOME/ptcd: x"));
        assert_eq!(config["execution"]["sandbox"].as_str(), Some("none"));
    }

    #[tokio::test]
    async fn a_daemon_that_ends_at_once_is_told_with_its_words_and_nothing_stays() {
        let home = tempfile::tempdir().unwrap();
        let fake = home.path().join("ptcd");
        crate::ctl::tests::script(&fake, "echo no luck today >&2; exit 3");
        let folder = TempDir::new_in(home.path()).unwrap();
        let path = folder.path().to_owned();
        let mut stage = Stage { folder, ptcd: fake, shim: PathBuf::new(), daemon: None };
        let error = format!("{:#}", stage.open(Sandbox::Auto).await.unwrap_err());
        assert!(error.contains("no luck today"), "{error}");
        stage.close().await.unwrap();
        assert!(!path.exists());
    }
}
