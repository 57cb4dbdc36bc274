//! The system call filter: which calls ([`policy`]), as data and as BPF ([`filter`]), by which numbers ([`table`]).
//! Pure; the launcher installs what comes out of it.

mod filter;
mod policy;
mod table;

pub(super) use self::{
    filter::Instruction,
    policy::{Attributes, Policy, allowlist, one_exec},
    table::Arch,
};
