//! When the client is told that the tools have changed.

use std::{sync::Arc, time::Duration};

use ptc_protocol::api::{CatalogSummary, ServerToolCount};
use rmcp::{Peer, RoleServer};
use tokio::sync::watch;

use crate::link::{Link, Snapshot};

/// How long the catalog must hold still before it is told: servers come up one after the other.
const STILL: Duration = Duration::from_millis(250);
/// How long it may go on changing before it is told all the same.
const PATIENCE: Duration = Duration::from_secs(2);

/// Changes of the catalog, several close together as one.
#[derive(Debug)]
pub(crate) struct CatalogNews {
    snapshot: watch::Receiver<Snapshot>,
    told: Option<Arc<CatalogSummary>>,
}

impl CatalogNews {
    /// What is known now counts as told.
    pub(crate) fn new(link: &Link) -> Self {
        let mut snapshot = link.watch();
        let told = snapshot.borrow_and_update().catalog.clone();
        Self { snapshot, told }
    }

    /// Returns once the catalog differs from what was told last.
    pub(crate) async fn changed(&mut self) {
        loop {
            let differs = |told: &Option<Arc<CatalogSummary>>, known: &Snapshot| {
                known.catalog.as_ref().is_some_and(|catalog| differ(told.as_deref(), catalog))
            };
            if self.snapshot.wait_for(|known| differs(&self.told, known)).await.is_err() {
                return std::future::pending().await;
            }
            let settled =
                async { while let Ok(Ok(())) = tokio::time::timeout(STILL, self.snapshot.changed()).await {} };
            // Both ends mean the same here: it is time to tell.
            drop(tokio::time::timeout(PATIENCE, settled).await);
            let known = self.snapshot.borrow_and_update();
            if differs(&self.told, &known) {
                self.told.clone_from(&known.catalog);
                return;
            }
        }
    }
}

/// Tells one client of every change, once it has finished the handshake. Never ends.
pub(crate) async fn announce(link: Link, mut peer: watch::Receiver<Option<Peer<RoleServer>>>) {
    let mut news = CatalogNews::new(&link);
    let Ok(peer) = peer.wait_for(Option::is_some).await.map(|peer| peer.clone()) else { return };
    loop {
        news.changed().await;
        if let Some(peer) = &peer
            && let Err(error) = peer.notify_tool_list_changed().await
        {
            tracing::debug!(%error, "change of tools not told");
        }
    }
}

/// A daemon that was restarted counts its generations anew, so they tell something only while the servers are the same.
fn differ(told: Option<&CatalogSummary>, known: &CatalogSummary) -> bool {
    let none: &[ServerToolCount] = &[];
    let before = told.map_or(none, |told| &told.servers);
    before != known.servers
        || told.is_some_and(|told| told.read_output) != known.read_output
        || told.is_some_and(|told| known.generation > told.generation)
}

#[cfg(test)]
mod tests {
    use ptc_protocol::names::ServerName;

    use super::*;

    fn catalog(generation: u64, tools: usize) -> CatalogSummary {
        let server = ServerName::parse("s").unwrap();
        CatalogSummary { generation, servers: vec![ServerToolCount { server, tools }], read_output: false }
    }

    #[test]
    fn a_restarted_daemon_with_the_same_tools_is_no_news() {
        assert!(!differ(Some(&catalog(9, 3)), &catalog(1, 3)));
        assert!(differ(Some(&catalog(9, 3)), &catalog(1, 2)));
        assert!(differ(Some(&catalog(1, 3)), &catalog(2, 3)));
        assert!(differ(None, &catalog(1, 3)));
        assert!(!differ(None, &CatalogSummary::default()));
    }
}
