//! The single path of every tool call: policy, budget, validation, record.

pub mod failure;
pub mod record;
pub mod search;
pub mod shape;
pub mod signature;
#[cfg(test)]
pub(crate) mod testing;
