//! Keeps the folder `stubs_dir` at what programs can call now. One task; it asks the gateway for the text and writes
//! through `stub_folder`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    config::settings::Settings,
    gateway::{Gateway, Language},
    stub_folder::{self, Update},
};

/// How long the tools must hold still before they are written: servers come up one after the other.
const STILL: Duration = Duration::from_millis(250);

/// How long they may go on changing before they are written all the same.
const PATIENCE: Duration = Duration::from_secs(2);

/// When it is tried again after it failed, should nothing change before.
const AGAIN: Duration = Duration::from_secs(30);

/// Writes at the start and after each change, and tells in `trouble` what keeps it from that. Ends when catalog and
/// settings are gone.
pub async fn keep(
    mut gateway: Gateway,
    settings: watch::Receiver<Arc<Settings>>,
    trouble: watch::Sender<Option<String>>,
) {
    loop {
        let folder = settings.borrow().stubs_dir.clone();
        let failed = match folder {
            Some(folder) => write(&gateway, folder).await.err(),
            None => None,
        };
        let again = if failed.is_some() { AGAIN } else { Duration::MAX };
        if let Some(error) = failed.as_ref().filter(|error| trouble.borrow().as_ref() != Some(error)) {
            tracing::warn!(error, "stubs not written");
        }
        trouble.send_replace(failed);
        match tokio::time::timeout(again, gateway.changed()).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => continue,
        }
        let settled = async { while let Ok(true) = tokio::time::timeout(STILL, gateway.changed()).await {} };
        // Both ends mean the same here: it is time to write.
        drop(tokio::time::timeout(PATIENCE, settled).await);
    }
}

async fn write(gateway: &Gateway, folder: PathBuf) -> Result<(), String> {
    let stubs = gateway.stubs(Language::Python);
    let shown = folder.display().to_string();
    let work = move || stub_folder::update(&folder, Language::Python.name(), &stubs.files, &stubs.absent);
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(Update { written: 0, removed: 0, .. })) => {}
        Ok(Ok(Update { written, removed, foreign, .. })) => {
            tracing::info!(folder = shown, written, removed, left_alone = foreign.len(), "stubs written");
        }
        Ok(Err(error)) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            return Err(format!("{error}: {cause}"));
        }
        Err(error) => tracing::error!(%error, "writing stubs panicked"),
    }
    Ok(())
}
