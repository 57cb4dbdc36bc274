//! Programs: the request, the events, the outcome.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::names::{ProgramId, SessionId};

/// Body of `POST /v1/programs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// Python source.
    pub code: String,
    /// The session that asks; none for `ptcctl`.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// Lowers the configured deadline, in seconds; never raises it.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// Whether `output` events are wanted; without them the outcome alone carries what was printed.
    #[serde(default)]
    pub stream_output: bool,
    /// The client's own id of this request, for the records.
    #[serde(default)]
    pub client_request: Option<String>,
}

/// What a running program does, externally tagged: `{"output": {...}}`. The last event is always `outcome`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramEvent {
    /// Accepted; waits for a free place.
    Queued {
        /// The run's id.
        program: ProgramId,
        /// Programs before it.
        ahead: usize,
    },
    /// Handed to its child.
    Started {
        /// The run's id.
        program: ProgramId,
    },
    /// A piece of output as it came, cut at a character border.
    Output {
        /// Which of the two.
        stream: Stream,
        /// The text.
        text: String,
    },
    /// A call was admitted.
    CallStarted {
        /// Number of the call in its program, from 1.
        call: u64,
        /// The tool.
        tool: String,
    },
    /// A call ended.
    CallFinished(CallRecord),
    /// At most once a second while the program runs.
    Progress {
        /// Milliseconds since `started`.
        elapsed_ms: u64,
        /// Calls admitted so far.
        calls: u64,
        /// One tool that runs now.
        running: Option<String>,
    },
    /// The end.
    Outcome(Box<Outcome>),
}

/// A program's output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// The daemon's own record of a finished program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The run's id.
    pub program: ProgramId,
    /// Whether it ended as its author meant: end of code or `exit(0)`.
    pub ok: bool,
    /// What it printed, at most `max_output_bytes` of UTF-8 plus a notice when more was dropped.
    pub output: String,
    /// Bytes of output that were dropped.
    #[serde(default)]
    pub output_dropped_bytes: u64,
    /// The emitted value as JSON text, digits as the program wrote them. An emitted `null` is a value too.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub result: Option<Box<RawValue>>,
    /// Why it is not ok.
    #[serde(default)]
    pub error: Option<ProgramError>,
    /// Things the author should know of a program that ended well, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Calls in the order they ended; unfinished ones last.
    #[serde(default)]
    pub tool_calls: Vec<CallRecord>,
    /// Wall time from hand-over to the end, milliseconds.
    pub elapsed_ms: u64,
    /// Bytes of tool results that the program received.
    #[serde(default)]
    pub tool_result_bytes: u64,
    /// Whether the trace line is wanted (`execution.trace`).
    #[serde(default)]
    pub trace: Trace,
    /// When a client gets the structured form (`execution.structured_content`).
    #[serde(default)]
    pub structured_content: StructuredContent,
    /// How the program was confined.
    #[serde(default)]
    pub sandbox: String,
}

/// Bytes of a [`ProgramOutput`] when nobody says how many.
pub const OUTPUT_PIECE: usize = 64 << 10;

/// Most bytes of a [`ProgramOutput`].
pub const MAX_OUTPUT_PIECE: usize = 1 << 20;

/// Answer of `GET /v1/programs/{id}/output`: a piece of what an ended program printed, as its outcome's `output` has it.
/// The first 4 MiB of each of the last 50 programs are kept for an hour, 64 MiB in all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramOutput {
    /// The run's id.
    pub program: ProgramId,
    /// Where the text begins, in bytes of UTF-8; moved back to the border of a character.
    pub offset: u64,
    /// The text; empty behind the end.
    pub text: String,
    /// Where to go on reading; none at the end of what is kept.
    #[serde(default)]
    pub next: Option<u64>,
    /// Bytes that are kept, from the beginning.
    pub kept: u64,
    /// Bytes that were printed.
    pub total: u64,
}

/// Why a program failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramError {
    /// What kind of end it was.
    pub kind: ErrorKind,
    /// Text for the model: a traceback, or one sentence that says what to do.
    pub message: String,
}

/// Kinds of failed programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The program raised, or did not compile, or exited with a code other than 0.
    Program,
    /// It ran past its deadline and was killed.
    Timeout,
    /// It was cancelled by its client, by a person, or because its client went away.
    Cancelled,
    /// Its process ended without a final report.
    Died,
    /// It broke the protocol of its channel and was killed.
    Protocol,
    /// It went over a limit (memory, output) and was killed.
    Limit,
    /// The sandbox could not be had; nothing ran.
    Sandbox,
    /// The daemon was too busy or is stopping; nothing ran.
    Refused,
    /// The daemon itself failed.
    Internal,
}

/// One call of a tool by a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Number of the call in its program, from 1.
    pub call: u64,
    /// The tool as the program named it.
    pub tool: String,
    /// The arguments as JSON with sorted keys, cut to 197 characters and `...` when over 200.
    pub args: String,
    /// How it ended.
    pub state: CallState,
    /// Milliseconds from the arrival of the request to the answer, waiting for a slot included.
    pub ms: u64,
    /// Why it failed, cut at 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// With a value.
    Ok,
    /// With a `ToolError`.
    Failed,
    /// Still running when the program ended; whether it took effect is not known.
    Unfinished,
}

/// `execution.trace`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trace {
    /// One line with the number of calls and the time, and the first failures.
    #[default]
    Summary,
    /// Nothing.
    Off,
}

/// `execution.structured_content`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StructuredContent {
    /// Left out for clients that show it in place of the text.
    #[default]
    Auto,
    /// Always sent.
    Always,
    /// Never sent.
    Never,
}

/// A field that is there has a value, `null` included.
fn present<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(input).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emitted_null_and_long_digits_survive_the_wire() {
        let event =
            |result: &str| format!(r#"{{"outcome":{{"program":"p-1","ok":true,"output":"",{result}"elapsed_ms":1}}}}"#);
        for (sent, read) in [("", None), (r#""result":null,"#, Some("null")), (r#""result":1e400,"#, Some("1e400"))] {
            let ProgramEvent::Outcome(outcome) = serde_json::from_str(&event(sent)).unwrap() else {
                panic!("no outcome")
            };
            assert_eq!(outcome.result.as_ref().map(|raw| raw.get()), read);
            assert_eq!(serde_json::to_string(&outcome).unwrap().contains(r#""result":"#), read.is_some());
        }
    }
}
