//! The `execution` mapping.

use ptc_protocol::api::{StructuredContent, Trace};

use super::{
    file,
    reader::{Field, Range, Reader},
    settings::{Execution, SandboxChoice},
};

/// The keys of `execution`.
pub(super) const KEYS: &[&str] = &[
    "timeout_seconds",
    "max_output_bytes",
    "sandbox",
    "max_tool_calls",
    "max_concurrent_calls",
    "tool_call_timeout_seconds",
    "trace",
    "max_tool_result_bytes",
    "structured_content",
    "python",
    "warm_children",
    "max_programs",
    "max_memory_bytes",
    "read_output",
];

/// Longest time a program or a call may take: a week.
const MAX_SECONDS: u64 = 7 * 86_400;

/// Reads `execution`; keys with faults keep their defaults.
pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Execution {
    let mut execution = Execution::default();
    let Some(mut fields) = reader.mapping(field) else { return execution };
    let range = |min, max| Range { min, max };
    if let Some(found) = fields.take("timeout_seconds").and_then(|field| reader.seconds(&field, MAX_SECONDS)) {
        execution.timeout = found;
    }
    if let Some(found) = fields.take("tool_call_timeout_seconds").and_then(|field| reader.seconds(&field, MAX_SECONDS))
    {
        execution.tool_call_timeout = found;
    }
    // An emitted value may be as large as the output and must fit a frame of the program's channel (16 MiB).
    if let Some(found) = fields.take("max_output_bytes").and_then(|field| reader.count(&field, range(1, 15 << 20))) {
        execution.max_output_bytes = found;
    }
    if let Some(found) = fields.take("max_tool_calls").and_then(|field| reader.number(&field, range(1, 1_000_000))) {
        execution.max_tool_calls = found;
    }
    if let Some(found) = fields.take("max_concurrent_calls").and_then(|field| reader.count(&field, range(1, 1000))) {
        execution.max_concurrent_calls = found;
    }
    // The channel takes frames of 64 MiB towards the program; a result grows a little when it is wrapped.
    if let Some(found) = fields.take("max_tool_result_bytes").and_then(|field| reader.count(&field, range(1, 48 << 20)))
    {
        execution.max_tool_result_bytes = found;
    }
    if let Some(found) = fields.take("warm_children").and_then(|field| reader.count(&field, range(0, 64))) {
        execution.warm_children = found;
    }
    if let Some(found) = fields.take("max_programs").and_then(|field| reader.count(&field, range(1, 1024))) {
        execution.max_programs = found;
    }
    if let Some(found) =
        fields.take("max_memory_bytes").and_then(|field| reader.number(&field, range(64 << 20, 1 << 40)))
    {
        execution.max_memory_bytes = found;
    }
    if let Some(found) = fields.take("sandbox").and_then(|field| {
        let words = [
            ("auto", SandboxChoice::Auto),
            ("linux", SandboxChoice::Linux),
            ("landlock", SandboxChoice::Landlock),
            ("seatbelt", SandboxChoice::Seatbelt),
            ("none", SandboxChoice::None),
        ];
        reader.choice(&field, &words)
    }) {
        execution.sandbox = found;
    }
    if let Some(found) = fields
        .take("trace")
        .and_then(|field| reader.choice(&field, &[("summary", Trace::Summary), ("off", Trace::Off)]))
    {
        execution.trace = found;
    }
    if let Some(found) = fields.take("structured_content").and_then(|field| {
        let words = [
            ("auto", StructuredContent::Auto),
            ("always", StructuredContent::Always),
            ("never", StructuredContent::Never),
        ];
        reader.choice(&field, &words)
    }) {
        execution.structured_content = found;
    }
    execution.python = fields.take("python").and_then(|field| {
        let path = reader.path(&field)?;
        if !field.holds('/') && !field.holds('~') {
            reader.fault(field.at(), &field.path, "must be a path such as `/usr/bin/python3.12`, not only a name");
        }
        Some(path)
    });
    if let Some(found) = fields.take("read_output").and_then(|field| reader.boolean(&field)) {
        execution.read_output = found;
    }
    file::close(reader, &fields, KEYS);
    execution
}
