//! The single path of every tool call: policy, budget, validation, record.
