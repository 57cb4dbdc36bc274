//! Which tools programs may call. A [`Permit`] is the proof that the configured filter was asked.

use std::sync::Arc;

use super::{callable::Entry, failure::Failure};
use crate::config::settings::ToolFilter;

/// The tool may be called; only the filter gives these out.
#[derive(Debug)]
pub(super) struct Permit {
    entry: Arc<Entry>,
}

impl Permit {
    /// Asks the filter that is in force now, which may be stricter than when the program started.
    ///
    /// # Errors
    /// `not_allowed`.
    pub(super) fn ask(entry: &Arc<Entry>, filter: &ToolFilter) -> Result<Self, Failure> {
        let name = entry.tool().name.as_str();
        if filter.admits(name) { Ok(Self { entry: Arc::clone(entry) }) } else { Err(Failure::not_allowed(name)) }
    }

    /// The tool.
    #[must_use]
    pub(super) const fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}
