//! How a finished program is told to a model: the text and the structured form of `execute_program`'s result.

use serde_json::{Value, json};

use crate::api::{CallState, Outcome, Trace};

/// Stands in an error's message before what the failed program wrote to stderr.
pub const STDERR_HEADING: &str = "\n--- stderr ---\n";

/// Failed calls named in the trace line.
const FAILURES_SHOWN: usize = 5;

impl Outcome {
    /// The text of the result: status line, output, emitted value, trace.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let blank = self.output.trim().is_empty();
        match &self.error {
            None => {
                text.push_str("[Script executed successfully]\n");
                text.push_str(if blank { "(no output)" } else { &self.output });
                if let Some(result) = &self.result {
                    text.truncate(text.trim_end().len());
                    text.push_str(&format!("\n--- result ---\n{}", result.get()));
                }
            }
            Some(error) => {
                text.push_str("[Script execution failed]\n");
                text.push_str(&error.message);
                if !blank {
                    text.truncate(text.trim_end().len());
                    text.push_str(&format!("\n\n--- output before the error ---\n{}", self.output));
                }
            }
        }
        for warning in &self.warnings {
            text.truncate(text.trim_end().len());
            text.push_str(&format!("\nwarning: {warning}"));
        }
        if self.trace == Trace::Summary && !self.tool_calls.is_empty() {
            text.truncate(text.trim_end().len());
            text.push('\n');
            text.push_str(&self.trace_summary());
        }
        text
    }

    /// The structured form: `ok`, `output`, `result`, `error`, `tool_calls`, always all five, plus `program`,
    /// `sandbox` and `tool_result_bytes`. Integers that do not fit 64 bits become strings, since JSON readers would round
    /// them.
    #[must_use]
    pub fn structured(&self) -> Value {
        let calls: Vec<Value> = self
            .tool_calls
            .iter()
            .map(|call| {
                let mut entry = json!({
                    "tool": call.tool, "args": call.args, "ok": call.state == CallState::Ok, "ms": call.ms,
                });
                if let Some(error) = &call.error {
                    entry["error"] = json!(error);
                }
                if call.state == CallState::Unfinished {
                    entry["unfinished"] = json!(true);
                }
                entry
            })
            .collect();
        json!({
            "ok": self.ok,
            "output": self.output,
            "result": self.result.as_ref().map_or(Value::Null, |raw| exact_value(raw.get())),
            "error": self.error.as_ref().map(|error| &error.message),
            "tool_calls": calls,
            "program": self.program,
            "sandbox": self.sandbox,
            "tool_result_bytes": self.tool_result_bytes,
        })
    }

    fn trace_summary(&self) -> String {
        let failed: Vec<_> = self.tool_calls.iter().filter(|call| call.state == CallState::Failed).collect();
        let unfinished: Vec<_> = self.tool_calls.iter().filter(|call| call.state == CallState::Unfinished).collect();
        let mut line = format!("[tool calls: {}", self.tool_calls.len());
        if !failed.is_empty() {
            line.push_str(&format!(", {} failed", failed.len()));
        }
        if !unfinished.is_empty() {
            line.push_str(&format!(", {} unfinished", unfinished.len()));
        }
        let tenths = (self.elapsed_ms + 50) / 100;
        line.push_str(&format!("; {}.{}s]", tenths / 10, tenths % 10));
        for call in failed.iter().take(FAILURES_SHOWN) {
            line.push_str(&format!("\n  failed: {}: {}", call.tool, call.error.as_deref().unwrap_or("no details")));
        }
        if failed.len() > FAILURES_SHOWN {
            line.push_str(&format!("\n  ... {} more failures", failed.len() - FAILURES_SHOWN));
        }
        for call in unfinished.iter().take(FAILURES_SHOWN) {
            line.push_str(&format!("\n  unfinished: {}: still running when the program ended", call.tool));
        }
        line
    }
}

/// Parses JSON without rounding: an integer that fits neither `i64` nor `u64` becomes the string of its digits.
fn exact_value(text: &str) -> Value {
    serde_json::from_str(&quote_wide_integers(text)).unwrap_or(Value::Null)
}

/// Puts quotes around integer tokens of JSON text that do not fit 64 bits.
fn quote_wide_integers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            '-' | '0'..='9' => {
                rest.find(|c: char| !matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9')).unwrap_or(rest.len())
            }
            _ => first.len_utf8(),
        };
        let (token, tail) = rest.split_at(length);
        let integer = token.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && !token.contains(['.', 'e', 'E']);
        if integer && token.parse::<i64>().is_err() && token.parse::<u64>().is_err() {
            out.push_str(&format!("\"{token}\""));
        } else {
            out.push_str(token);
        }
        rest = tail;
    }
    out
}

/// Length in bytes of the JSON string token that `text` begins with.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{CallRecord, ErrorKind, ProgramError},
        names::ProgramId,
    };

    fn outcome(output: &str) -> Outcome {
        Outcome {
            program: ProgramId::parse("p-1").unwrap(),
            ok: true,
            output: output.into(),
            output_dropped_bytes: 0,
            result: None,
            error: None,
            warnings: vec![],
            tool_calls: vec![],
            elapsed_ms: 1250,
            tool_result_bytes: 0,
            trace: Trace::Summary,
            structured_content: crate::api::StructuredContent::Auto,
            sandbox: "none".into(),
        }
    }

    fn call(tool: &str, state: CallState, error: Option<&str>) -> CallRecord {
        CallRecord { call: 1, tool: tool.into(), args: "{}".into(), state, ms: 3, error: error.map(Into::into) }
    }

    fn raw(text: &str) -> Option<Box<serde_json::value::RawValue>> {
        Some(serde_json::value::RawValue::from_string(text.into()).unwrap())
    }

    #[test]
    fn success_text_keeps_the_final_newline_until_something_follows() {
        assert_eq!(outcome("1\n").text(), "[Script executed successfully]\n1\n");
        assert_eq!(outcome(" \n").text(), "[Script executed successfully]\n(no output)");
        let emitted = Outcome { result: raw("[1, 2]"), ..outcome("1\n") };
        assert_eq!(emitted.text(), "[Script executed successfully]\n1\n--- result ---\n[1, 2]");
    }

    #[test]
    fn failure_text_shows_error_then_output_then_trace() {
        let failed = Outcome {
            ok: false,
            error: Some(ProgramError { kind: ErrorKind::Program, message: "ValueError: x\n".into() }),
            tool_calls: vec![
                call("a", CallState::Ok, None),
                call("b", CallState::Failed, Some("no")),
                call("c", CallState::Unfinished, None),
            ],
            ..outcome("hi\n")
        };
        assert_eq!(
            failed.text(),
            "[Script execution failed]\nValueError: x\n\n--- output before the error ---\nhi\n\
             [tool calls: 3, 1 failed, 1 unfinished; 1.3s]\n  failed: b: no\n  unfinished: c: still running when the program ended"
        );
    }

    #[test]
    fn only_five_failures_are_named() {
        let many =
            Outcome { tool_calls: (0..7).map(|_| call("t", CallState::Failed, Some("e"))).collect(), ..outcome("x") };
        assert!(many.text().ends_with("\n  ... 2 more failures"), "{}", many.text());
    }

    #[test]
    fn structured_form_never_rounds_an_integer() {
        let wide = Outcome {
            result: raw(
                r#"{"a": 123456789012345678901234567890, "b": 18446744073709551615, "c": "99999999999999999999\"1", "d": 1.5e3}"#,
            ),
            ..outcome("")
        };
        let value = wide.structured();
        assert_eq!(value["result"]["a"], "123456789012345678901234567890");
        assert_eq!(value["result"]["b"], 18_446_744_073_709_551_615_u64);
        assert_eq!(value["result"]["c"], "99999999999999999999\"1");
        assert_eq!(value["result"]["d"], 1500.0);
        let keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        for key in ["ok", "output", "result", "error", "tool_calls"] {
            assert!(keys.iter().any(|k| k == key), "{key} is missing");
        }
    }
}
