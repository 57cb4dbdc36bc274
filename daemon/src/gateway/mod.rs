//! The single path of every tool call: resolve, policy, budget, argument check, slot, dispatch, output schema check,
//! size limit, conversion, record.
//!
//! This module decides which tools programs see and what a call may do. It asks the supervisor for the catalog and for
//! every call; it must never know the channel to the child, HTTP routes, or how a server is reached.

mod arguments;
mod budget;
mod callable;
mod convert;
mod failure;
mod introspect;
mod meter;
mod policy;
mod program;
mod raw;
mod record;
mod repair;
mod search;
mod shape;
mod signature;
mod stubs;
#[cfg(test)]
mod testing;
mod validate;

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ptc_protocol::{
    api::{CatalogSummary, Problem, ServerState, Stubs, ToolDescription, Tools},
    names::{SessionId, ToolName},
};
use tokio::sync::watch;

use self::introspect::{not_found, select};
pub use self::{
    callable::{Callable, Entry},
    failure::{Code, Failure},
    program::{ProgramCalls, Reply},
    stubs::Language,
};
use crate::{
    config::{settings::Settings, tool_pattern},
    supervisor::{Catalog, ServerEntry, Supervisor},
};

/// Handle to the gateway; clones share it.
#[derive(Clone)]
pub struct Gateway {
    supervisor: Supervisor,
    catalog: watch::Receiver<Arc<Catalog>>,
    settings: watch::Receiver<Arc<Settings>>,
    summaries: watch::Receiver<CatalogSummary>,
    latest: Arc<Mutex<Latest>>,
}

/// The callable tools and what they were made of.
#[derive(Default)]
struct Latest {
    made_of: Option<(Arc<Catalog>, Arc<Settings>)>,
    callable: Arc<Callable>,
}

/// Which tools [`Gateway::tools`] lists.
#[derive(Debug, Clone, Default)]
pub struct ToolQuery {
    /// Words to rank by.
    pub query: Option<String>,
    /// Only this server's, by name or by its Python name.
    pub server: Option<String>,
    /// Only tools whose name the pattern matches, as in `tools.allow`.
    pub glob: Option<String>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl Gateway {
    /// Makes the handle and the future that keeps [`Gateway::summaries`] up to date, for the owner to poll. It ends
    /// when supervisor and settings are gone.
    pub fn new(
        supervisor: Supervisor,
        settings: watch::Receiver<Arc<Settings>>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (summary, summaries) = watch::channel(CatalogSummary::default());
        let gateway = Self { catalog: supervisor.catalog(), supervisor, settings, summaries, latest: Arc::default() };
        let task = gateway.clone().summarise(summary);
        (gateway, task)
    }

    /// The tools a program started now could call. Made anew only when catalog or settings have changed.
    #[must_use]
    pub fn callable(&self) -> Arc<Callable> {
        let catalog = Arc::clone(&self.catalog.borrow());
        let settings = Arc::clone(&self.settings.borrow());
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let current =
            latest.made_of.as_ref().is_some_and(|(c, s)| Arc::ptr_eq(c, &catalog) && Arc::ptr_eq(s, &settings));
        if !current {
            latest.callable = Arc::new(Callable::new(&catalog, &settings.tools, &latest.callable));
            latest.made_of = Some((catalog, settings));
        }
        Arc::clone(&latest.callable)
    }

    /// Opens the account of a program that is about to start; its tools and limits are those of now.
    #[must_use]
    pub fn open(&self, session: Option<SessionId>, code: &str) -> ProgramCalls {
        ProgramCalls::new(self.callable(), self.supervisor.clone(), self.settings.clone(), session, code)
    }

    /// Lists callable tools by name, or best first when there is a query.
    ///
    /// # Errors
    /// `bad_request` for a pattern that is none or a query that is too long, `unknown_server`.
    pub fn tools(&self, query: &ToolQuery) -> Result<Tools, Problem> {
        let problem =
            |code: &str, message: String| Problem { code: code.to_owned(), message, close_matches: Vec::new() };
        let glob = match &query.glob {
            Some(pattern) => {
                Some(tool_pattern(pattern).map_err(|error| problem("bad_request", format!("`{pattern}` {error}")))?)
            }
            None => None,
        };
        let callable = self.callable();
        let found = select(&callable, query.query.as_deref(), query.server.as_deref())
            .map_err(|error| problem(error.code, error.message))?;
        let wanted = |name: &str| glob.as_ref().is_none_or(|glob| glob.is_match(name));
        Ok(Tools {
            tools: found.into_iter().filter(|entry| wanted(entry.tool().name.as_str())).map(Entry::listed).collect(),
            unavailable: callable.unavailable(),
            config_error: None,
        })
    }

    /// All that is known of one tool.
    ///
    /// # Errors
    /// `unknown_tool`, with names that are close; `unavailable` when its server is down.
    pub fn describe(&self, name: &str) -> Result<ToolDescription, Problem> {
        let callable = self.callable();
        match callable.find(name) {
            Some(entry) => Ok(entry.described()),
            None => {
                let down = callable.server_down(name).is_some();
                Err(Problem {
                    code: if down { "unavailable" } else { "unknown_tool" }.into(),
                    message: not_found(&callable, name),
                    close_matches: if down { Vec::new() } else { callable.close_to(name) },
                })
            }
        }
    }

    /// Declarations of all callable tools.
    #[must_use]
    pub fn stubs(&self, language: Language) -> Stubs {
        let callable = self.callable();
        let folders = stubs::folders(callable.servers().iter().map(|server| server.ident.as_str()));
        let gone = callable.unavailable();
        let gone = gone.iter().filter_map(|gone| callable.server(gone.server.as_str()));
        let absent = gone.filter_map(|server| folders.get(server.ident.as_str()));
        Stubs {
            language: language.name().to_owned(),
            files: stubs::files(callable.entries(), &folders, language),
            absent: absent.map(|folder| format!("servers/{folder}")).collect(),
        }
    }

    /// Waits until catalog or settings have changed since this handle last waited; false when they are gone.
    pub async fn changed(&mut self) -> bool {
        let (catalog, settings) = (&mut self.catalog, &mut self.settings);
        tokio::select! {
            changed = catalog.changed() => changed.is_ok(),
            changed = settings.changed() => changed.is_ok(),
        }
    }

    /// The callable tools in a few words: the present ones, and news of every change of the set.
    #[must_use]
    pub fn summaries(&self) -> watch::Receiver<CatalogSummary> {
        self.summaries.clone()
    }

    /// Waits, at most so long, until no server that `concerned` picks is on its way. A program that comes right after
    /// the daemon's start would otherwise find none of its tools.
    pub async fn settled(&self, concerned: impl Fn(&ServerEntry) -> bool, limit: Duration) {
        let mut catalog = self.catalog.clone();
        let starting = |entry: &ServerEntry| {
            let moves = matches!(entry.state, ServerState::Starting | ServerState::Stopping);
            (moves || entry.comes_back) && concerned(entry)
        };
        // Before the first catalog, nothing is known of any server.
        let expected = self.settings.borrow().servers.iter().any(|server| server.enabled);
        let unknown = |catalog: &Catalog| expected && catalog.generation == 0;
        let settled = catalog.wait_for(|catalog| !unknown(catalog) && !catalog.servers.iter().any(starting));
        if tokio::time::timeout(limit, settled).await.is_err() {
            tracing::debug!("servers still starting");
        }
    }

    async fn summarise(mut self, summary: watch::Sender<CatalogSummary>) {
        let mut before: Option<(Vec<ToolName>, CatalogSummary)> = None;
        let mut generation = 0_u64;
        loop {
            let callable = self.callable();
            let names: Vec<ToolName> = callable.entries().map(|entry| entry.tool().name.clone()).collect();
            let read_output = self.settings.borrow().execution.read_output;
            let now = CatalogSummary { generation: 0, servers: callable.counts(), read_output };
            if before.as_ref().is_none_or(|(known, told)| *known != names || *told != now) {
                generation += 1;
                summary.send_replace(CatalogSummary { generation, ..now.clone() });
                before = Some((names, now));
            }
            if !self.changed().await {
                return;
            }
        }
    }
}
