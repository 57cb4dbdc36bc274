//! Owner of the downstream servers: state machine, transports, process groups, catalog.
//!
//! [`Supervisor`] is the handle, [`SupervisorTask`] the one task that owns every server's own task. Calls do not pass
//! through either: they go straight to the connection of their server. News (catalog, status) goes up through `watch`.
//! This module alone knows rmcp's client side; it must never know programs, policies or HTTP routes.

mod call;
mod catalog;

pub use self::{
    call::{CallFailure, CallResult, ServerCall},
    catalog::{Catalog, ServerEntry, Tool},
};
