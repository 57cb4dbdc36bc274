//! The lists of `ptcctl tools` and the page of `ptcctl inspect`.

use std::fmt::Write as _;

use comfy_table::Cell;
use ptc_protocol::api::{ToolDescription, Tools};
use serde_json::value::RawValue;

use super::{
    Look, Tone, plain_table, rows,
    text::{Lines, count, one_line, visible},
};

/// Name and summary of each tool.
pub(in crate::ctl) fn tools(answer: &Tools, look: &Look) -> String {
    if answer.tools.is_empty() {
        return "No tools.\n".into();
    }
    let mut table = plain_table(look, &["TOOL", "WHAT IT DOES"]);
    for tool in &answer.tools {
        table.add_row([Cell::new(tool.name.as_str()), Cell::new(one_line(&tool.summary, 160))]);
    }
    rows(&table)
}

/// One Python call a line.
pub(in crate::ctl) fn signatures(answer: &Tools) -> String {
    answer.tools.iter().map(|tool| format!("{}\n", visible(&tool.signature, Lines::Escape))).collect()
}

/// Servers whose tools are missing from the list, and why; empty when there are none. For stderr.
pub(in crate::ctl) fn unavailable(answer: &Tools) -> String {
    let mut text = String::new();
    if let Some(error) = &answer.config_error {
        let _written = writeln!(
            text,
            "{} the config file is not in force: {}",
            Tone::Bad.paint("error:"),
            visible(error.trim(), Lines::Keep)
        );
    }
    if !answer.unavailable.is_empty() {
        let missing = count(answer.unavailable.len(), "server");
        let _written = writeln!(text, "{} the tools of {missing} are not listed:", Tone::Waiting.paint("warning:"));
    }
    for server in &answer.unavailable {
        let _written = writeln!(text, "  {}: {}", server.server, one_line(&server.reason, 300));
    }
    text
}

/// Signature, description, note and schemas of one tool.
pub(in crate::ctl) fn description(tool: &ToolDescription) -> String {
    let mut page = format!("{}\n", visible(&tool.signature, Lines::Keep));
    if !tool.description.trim().is_empty() {
        let _written = write!(page, "\n{}\n", visible(tool.description.trim(), Lines::Keep));
    }
    if let Some(note) = &tool.note {
        let _written = write!(page, "\nnote: {}\n", visible(note, Lines::Keep));
    }
    let _written = write!(page, "\ninput schema:\n{}\n", pretty(&tool.input_schema));
    match &tool.output_schema {
        Some(schema) if schema.get() != "null" => {
            let _written = write!(page, "\noutput schema:\n{}\n", pretty(schema));
        }
        Some(_) | None => page.push_str("\noutput schema: none declared\n"),
    }
    page
}

/// Indented for reading; the text as it is when it cannot be read.
fn pretty(raw: &RawValue) -> String {
    let indented = serde_json::from_str::<serde_json::Value>(raw.get())
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| raw.get().to_owned());
    visible(&indented, Lines::Keep).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::render::tests::{bare, look};

    fn sample() -> Tools {
        serde_json::from_str(
            r#"{"tools": [
                {"name": "mcp__git__log", "server": "git", "signature": "mcp__git__log(repo: str) -> dict", "summary": "Shows\ncommits"},
                {"name": "mcp__time__now", "server": "time", "signature": "mcp__time__now() -> str"}],
                "unavailable": [{"server": "hub", "state": "backoff", "reason": "exited with code 1, next try in 8 s"}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn tools_stand_one_a_line() {
        insta::assert_snapshot!(bare(&tools(&sample(), &look())), @r#"
        TOOL            WHAT IT DOES
        mcp__git__log   Shows commits
        mcp__time__now
        "#);
        assert_eq!(signatures(&sample()), "mcp__git__log(repo: str) -> dict\nmcp__time__now() -> str\n");
        assert_eq!(tools(&Tools::default(), &look()), "No tools.\n");
    }

    #[test]
    fn missing_servers_are_named() {
        let text = bare(&unavailable(&sample()));
        assert_eq!(
            text,
            "warning: the tools of 1 server are not listed:\n  hub: exited with code 1, next try in 8 s\n"
        );
        assert_eq!(unavailable(&Tools::default()), "");
    }

    #[test]
    fn a_description_has_all_parts() {
        let tool: ToolDescription = serde_json::from_str(
            r#"{"name": "mcp__a__b", "description": " Does\nthings. ", "inputSchema": {"type": "object"}, "outputSchema": null,
                "note": "slow", "signature": "mcp__a__b() -> Any"}"#,
        )
        .unwrap();
        insta::assert_snapshot!(description(&tool), @r#"
        mcp__a__b() -> Any

        Does
        things.

        note: slow

        input schema:
        {
          "type": "object"
        }

        output schema: none declared
        "#);
    }
}
