//! Keeps the configuration in force: loads it at start and anew when the file changes, at SIGHUP, or when asked.
//!
//! A load that fails changes nothing; the last good configuration stays in force and the status says why.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ptc_protocol::api::{ConfigStatus, ReloadReport};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    config::{self, ContentHash, Loaded, settings::Settings, watch::ConfigWatch},
    supervisor::Supervisor,
};

/// Handle to the task that owns the configuration; clones share it.
#[derive(Debug, Clone)]
pub struct Reloader {
    asks: mpsc::Sender<oneshot::Sender<ReloadReport>>,
    status: watch::Receiver<ConfigStatus>,
}

impl Reloader {
    /// Loads the file again and tells what was done, or why nothing was.
    pub async fn reload(&self) -> ReloadReport {
        let (answer, report) = oneshot::channel();
        let stopping = || ReloadReport { errors: vec!["ptcd is stopping".to_owned()], ..ReloadReport::default() };
        if self.asks.send(answer).await.is_err() {
            return stopping();
        }
        report.await.unwrap_or_else(|_| stopping())
    }

    /// The file in force and its last load.
    #[must_use]
    pub fn status(&self) -> ConfigStatus {
        self.status.borrow().clone()
    }
}

/// The task's own part.
#[derive(Debug)]
pub struct ReloadTask {
    explicit: Option<PathBuf>,
    /// Of the content that was loaded for the start.
    hash: Option<ContentHash>,
    settings: watch::Sender<Arc<Settings>>,
    told: watch::Sender<ConfigStatus>,
    asked: mpsc::Receiver<oneshot::Sender<ReloadReport>>,
}

/// Loads the configuration for the start: when it is wrong, no servers run and the status says why.
#[must_use]
pub fn start(explicit: Option<PathBuf>) -> (Reloader, ReloadTask, watch::Receiver<Arc<Settings>>) {
    let Loaded { path, settings, warnings, hash } = config::load(explicit.as_deref(), &environment);
    let path = path.map(|path| path.display().to_string());
    let (settings, status) = match settings {
        Ok(settings) => (settings, ConfigStatus { path, loaded_at: Some(now()), error: None, warnings }),
        Err(errors) => {
            tracing::error!(error = %errors, "configuration not loaded; no servers run");
            (Settings::default(), ConfigStatus { path, loaded_at: None, error: Some(errors.to_string()), warnings })
        }
    };
    let (settings, heard) = watch::channel(Arc::new(settings));
    let (told, status) = watch::channel(status);
    // Full: those who ask wait.
    let (asks, asked) = mpsc::channel(8);
    (Reloader { asks, status }, ReloadTask { explicit, hash, settings, told, asked }, heard)
}

impl ReloadTask {
    /// Follows the file until nobody holds a [`Reloader`] any more. `hangups` brings SIGHUPs.
    pub async fn run(mut self, supervisor: Supervisor, mut hangups: mpsc::Receiver<()>) {
        let location = config::locate(self.explicit.as_deref(), &environment);
        let named = location.as_ref().is_some_and(|location| location.named);
        let file = location.map(|location| location.path);
        let mut watch = ConfigWatch::start(file.clone(), self.hash);
        loop {
            let answer = tokio::select! {
                asked = self.asked.recv() => match asked {
                    Some(answer) => Some(answer),
                    None => return,
                },
                Some(()) = hangups.recv() => None,
                () = watch.changed() => None,
            };
            let report = match file.as_deref() {
                // Nothing was there at the start, and nothing is now.
                Some(file) if !named && self.told.borrow().path.is_none() && !file.exists() => ReloadReport::default(),
                file => self.reload(&supervisor, file, answer.is_some()).await,
            };
            if let Some(answer) = answer {
                let _gone = answer.send(report);
            }
        }
    }

    async fn reload(&self, supervisor: &Supervisor, file: Option<&Path>, asked: bool) -> ReloadReport {
        let loaded = file.map(|file| config::reload(file, &environment));
        let Some(Loaded { path, settings, warnings, .. }) = loaded else {
            let error = "no configuration file is named and HOME is not set".to_owned();
            return ReloadReport { errors: vec![error], ..ReloadReport::default() };
        };
        let path = path.map(|path| path.display().to_string());
        let new = match settings {
            Ok(settings) => Arc::new(settings),
            Err(errors) => {
                tracing::error!(error = %errors, "configuration not loaded; the last good one stays in force");
                self.told.send_modify(|status| status.error = Some(errors.to_string()));
                return ReloadReport {
                    errors: errors.0.iter().map(ToString::to_string).collect(),
                    ..ReloadReport::default()
                };
            }
        };
        let old = self.settings.borrow().clone();
        self.settings.send_replace(Arc::clone(&new));
        let mut report = supervisor.apply(Arc::clone(&new)).await;
        report.settings = config::diff(&old, &new).settings;
        self.told.send_replace(ConfigStatus { path, loaded_at: Some(now()), error: None, warnings });
        let touched = report.started.len() + report.restarted.len() + report.stopped.len() + report.settings.len();
        if touched > 0 || asked {
            tracing::info!(
                started = report.started.len(),
                restarted = report.restarted.len(),
                stopped = report.stopped.len(),
                unchanged = report.unchanged.len(),
                "configuration loaded"
            );
        }
        report
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}
