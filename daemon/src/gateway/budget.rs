//! How many calls a program may make. A [`Funded`] call is the proof that policy and budget were asked, in this order,
//! and that the call is counted; nothing else can be dispatched.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{callable::Entry, failure::Failure, policy::Permit};

/// The calls of one program.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    spent: AtomicU64,
}

/// A call that is allowed and counted.
#[derive(Debug)]
pub(super) struct Funded {
    permit: Permit,
}

impl Budget {
    /// A budget of so many calls.
    #[must_use]
    pub(super) const fn new(limit: u64) -> Self {
        Self { limit, spent: AtomicU64::new(0) }
    }

    /// Counts one call; what becomes of it later does not give it back.
    ///
    /// # Errors
    /// `budget_exhausted`; nothing was counted.
    pub(super) fn fund(&self, permit: Permit) -> Result<Funded, Failure> {
        let counted = self
            .spent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spent| (spent < self.limit).then(|| spent + 1));
        match counted {
            Ok(_) => Ok(Funded { permit }),
            Err(_) => Err(Failure::budget_exhausted(self.limit)),
        }
    }

    /// Calls counted so far.
    #[must_use]
    pub(super) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }
}

impl Funded {
    /// The tool.
    #[must_use]
    pub(super) const fn entry(&self) -> &Arc<Entry> {
        self.permit.entry()
    }
}

#[cfg(test)]
mod tests {
    use globset::Glob;

    use super::*;
    use crate::{
        config::settings::ToolFilter,
        gateway::{failure::Code, testing::tool},
    };

    #[test]
    fn calls_are_counted_up_to_the_limit_and_refused_beyond_it() {
        let entry = Arc::new(Entry::new(tool("a", "t", "{}", None)));
        let budget = Budget::new(2);
        let fund = || budget.fund(Permit::ask(&entry, &ToolFilter::All).unwrap()).map(|_| ()).map_err(|f| f.code);
        assert_eq!(
            [fund(), fund(), fund(), fund()],
            [Ok(()), Ok(()), Err(Code::BudgetExhausted), Err(Code::BudgetExhausted)]
        );
        assert_eq!(budget.spent(), 2);
    }

    #[test]
    fn a_blocked_tool_gets_no_permit_and_costs_nothing() {
        let entry = Arc::new(Entry::new(tool("a", "t", "{}", None)));
        let block = ToolFilter::Block(vec![Glob::new("mcp__a__*").unwrap().compile_matcher()]);
        assert_eq!(Permit::ask(&entry, &block).unwrap_err().code, Code::NotAllowed);
        let allow = ToolFilter::Allow(vec![Glob::new("mcp__a__*").unwrap().compile_matcher()]);
        assert!(Permit::ask(&entry, &allow).is_ok());
    }
}
