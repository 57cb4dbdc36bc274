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

/// Writes at the start and after each change. Ends when catalog and settings are gone.
pub async fn keep(mut gateway: Gateway, settings: watch::Receiver<Arc<Settings>>) {
    loop {
        let folder = settings.borrow().stubs_dir.clone();
        if let Some(folder) = folder {
            write(&gateway, folder).await;
        }
        if !gateway.changed().await {
            return;
        }
        let settled = async { while let Ok(true) = tokio::time::timeout(STILL, gateway.changed()).await {} };
        // Both ends mean the same here: it is time to write.
        drop(tokio::time::timeout(PATIENCE, settled).await);
    }
}

async fn write(gateway: &Gateway, folder: PathBuf) {
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
            tracing::warn!(error = format!("{error}: {cause}"), "stubs not written");
        }
        Err(error) => tracing::error!(%error, "writing stubs panicked"),
    }
}
