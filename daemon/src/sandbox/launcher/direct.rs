//! Level `none`: the same launcher without an OS sandbox. It becomes the interpreter itself.

use std::{
    convert::Infallible,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use super::{OnStep as _, arrange_descriptors, common_limits, execute, fault};
use crate::sandbox::{
    control::{self, Order, Report},
    error::{Fault, Step},
};

/// Sets descriptors, limits and the scratch directory, then executes the interpreter.
pub(super) fn run(control: &UnixStream, order: &Order, channel: OwnedFd) -> Result<Infallible, Fault> {
    let scratch = order.scratch.as_ref().ok_or_else(|| fault(Step::Order, 0, "no scratch directory"))?;
    rustix::process::chdir(scratch).on(Step::Scratch, "chdir")?;
    arrange_descriptors(channel)?;
    control::send(control, &Report::Executing).on(Step::Order, "report")?;
    common_limits(&order.limits)?;
    execute(order)
}
