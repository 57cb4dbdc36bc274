//! The single path of every tool call: policy, budget, validation, record.

pub mod arguments;
pub mod convert;
pub mod failure;
pub mod meter;
pub mod record;
pub mod repair;
pub mod search;
pub mod shape;
pub mod signature;
#[cfg(test)]
pub(crate) mod testing;
pub mod validate;
