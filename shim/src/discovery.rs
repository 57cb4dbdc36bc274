//! The tools that only ask: `list_callable_tools`, `inspect_tool` and `read_output`.

use ptc_protocol::{
    api::{Problem, ProgramOutput, ToolDescription, Tools},
    client::{Client, ClientError, ToolsQuery},
};
use rmcp::model::CallToolResult;
use serde_json::{json, value::RawValue};

use crate::{
    answer,
    arguments::{Detail, Names},
    link::{Link, Trust, chain},
};

/// Lists tools.
pub(crate) async fn list(link: &Link, query: Option<String>, server: Option<String>, detail: Detail) -> CallToolResult {
    let narrow = ToolsQuery { query, server, glob: None };
    let question = |client: Client| {
        let narrow = narrow.clone();
        async move { client.tools(&narrow).await }
    };
    match ask(link, question).await {
        Ok(tools) => answer::texts(listing(&tools, detail)),
        Err(text) => answer::failure(text),
    }
}

/// Describes tools.
pub(crate) async fn inspect(link: &Link, names: Names) -> CallToolResult {
    match names {
        Names::One(name) => match describe(link, &name).await {
            Ok(text) => answer::texts(vec![text]),
            Err(Undescribed::Unknown(text) | Undescribed::NoAnswer(text)) => answer::failure(text),
        },
        Names::Several(names) => {
            let mut parts = Vec::new();
            let mut found = false;
            for name in names {
                match describe(link, &name).await {
                    Ok(text) => {
                        found = true;
                        parts.push(text);
                    }
                    Err(Undescribed::Unknown(text)) => parts.push(json!({"name": name, "error": text}).to_string()),
                    Err(Undescribed::NoAnswer(text)) => return answer::failure(text),
                }
            }
            let text = format!("[{}]", parts.join(",\n"));
            if found { answer::texts(vec![text]) } else { answer::failure(text) }
        }
    }
}

/// Reads output of a program that has ended.
pub(crate) async fn output(link: &Link, program: &str, offset: u64, limit: u64) -> CallToolResult {
    let question = |client: Client| {
        let program = program.to_owned();
        async move {
            match client.output(&program, offset, Some(limit)).await {
                Err(ClientError::Problem(problem)) => Ok(Err(problem)),
                other => other.map(Ok),
            }
        }
    };
    match ask(link, question).await {
        Ok(Ok(piece)) => answer::texts(vec![piece_text(&piece)]),
        Ok(Err(problem)) => answer::failure(problem.message),
        Err(text) => answer::failure(text),
    }
}

/// One line that says which piece it is and how to go on, then the piece.
fn piece_text(piece: &ProgramOutput) -> String {
    let end = piece.offset + u64::try_from(piece.text.len()).unwrap_or_default();
    let rest = match piece.next {
        Some(next) => format!("; go on with offset={next}"),
        None if piece.kept < piece.total => format!("; only the first {} bytes were kept", piece.kept),
        None => "; this is the end".to_owned(),
    };
    format!("[bytes {} to {end} of {} that {} printed{rest}]\n{}", piece.offset, piece.total, piece.program, piece.text)
}

enum Undescribed {
    Unknown(String),
    NoAnswer(String),
}

async fn describe(link: &Link, name: &str) -> Result<String, Undescribed> {
    let question = |client: Client| {
        let name = name.to_owned();
        async move {
            match client.tool(&name).await {
                // An unknown name is an answer, not a fault of the connection.
                Err(ClientError::Problem(problem)) => Ok(Err(problem)),
                other => other.map(Ok),
            }
        }
    };
    match ask(link, question).await.map_err(Undescribed::NoAnswer)? {
        Ok(description) => description_text(&description).map_err(Undescribed::NoAnswer),
        Err(problem) => {
            let mut text = format!("[Tool not found] '{name}' is not available in execute_program");
            if problem.code != "unknown_tool" {
                text = problem.message;
            } else if !problem.close_matches.is_empty() {
                text.push_str(". Close matches: ");
                text.push_str(&problem.close_matches.join(", "));
            }
            Err(Undescribed::Unknown(text))
        }
    }
}

/// Asks the daemon, a second time after a look whether it runs. Only for questions that change nothing.
async fn ask<T, F>(link: &Link, question: impl Fn(Client) -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let unavailable = |text: String| format!("[ptcd not available] {text}");
    let (client, session) = link.daemon(Trust::Snapshot).await.map_err(|error| unavailable(error.to_string()))?;
    let first = question(client).await;
    let answer = match first {
        Err(ClientError::Unreachable { .. } | ClientError::Lost { .. }) => {
            let again = link.daemon(Trust::Doubted(session)).await;
            let (client, _) = again.map_err(|error| unavailable(error.to_string()))?;
            question(client).await
        }
        other => other,
    };
    answer.map_err(|error| match error {
        // A refusal is an answer, and says itself what is wrong.
        ClientError::Problem(problem) => refused(&problem),
        other => unavailable(chain(&other)),
    })
}

fn refused(problem: &Problem) -> String {
    match problem.close_matches.as_slice() {
        [] => problem.message.clone(),
        close => format!("{}. Close matches: {}", problem.message, close.join(", ")),
    }
}

/// The text blocks of a list: the tools, then what is missing and why.
fn listing(tools: &Tools, detail: Detail) -> Vec<String> {
    let mut blocks = Vec::new();
    blocks.push(match detail {
        Detail::Names => {
            // Names are identifiers, so quoting them is all there is to JSON here; the spaces are the original's.
            let names: Vec<_> = tools.tools.iter().map(|tool| format!("\"{}\"", tool.name)).collect();
            format!("[{}]", names.join(", "))
        }
        Detail::Signatures => {
            let lines = tools.tools.iter().map(|tool| match tool.summary.as_str() {
                "" => tool.signature.clone(),
                summary => format!("{}  # {summary}", tool.signature),
            });
            let lines: Vec<_> = lines.collect();
            if lines.is_empty() { "(no tools)".to_owned() } else { lines.join("\n") }
        }
    });
    if !tools.unavailable.is_empty() {
        let servers: Vec<_> =
            tools.unavailable.iter().map(|gone| format!("{}: {}", gone.server, gone.reason)).collect();
        blocks.push(format!("UNAVAILABLE SERVERS (their tools are not listed; reconnecting): {}", servers.join("; ")));
    }
    if let Some(error) = &tools.config_error {
        blocks.push(format!("CONFIG ERROR (the last good configuration is in force): {error}"));
    }
    blocks
}

/// A description as indented JSON, with the schemas as the server wrote them.
fn description_text(description: &ToolDescription) -> Result<String, String> {
    let mut shown = description.clone();
    for schema in [Some(&mut shown.input_schema), shown.output_schema.as_mut()].into_iter().flatten() {
        // A server that sends its schemas with line breaks would look odd between ours.
        if schema.get().contains('\n')
            && let Ok(value) = serde_json::from_str::<serde_json::Value>(schema.get())
            && let Ok(compact) = RawValue::from_string(value.to_string())
        {
            *schema = compact;
        }
    }
    serde_json::to_string_pretty(&shown).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn tools() -> Tools {
        serde_json::from_value(json!({
            "tools": [
                {"name": "mcp__s__a", "server": "s", "signature": "mcp__s__a(x: int) -> dict", "summary": "Adds."},
                {"name": "mcp__s__b", "server": "s", "signature": "mcp__s__b()"},
            ],
            "unavailable": [
                {"server": "p-q", "state": "backoff", "reason": "exited with 1"},
                {"server": "r", "state": "failed", "reason": "not found"},
            ],
            "config_error": "config.yaml:3:5: unknown key",
        }))
        .unwrap()
    }

    #[test]
    fn names_are_a_json_array_and_the_missing_follow() {
        let blocks = listing(&tools(), Detail::Names);
        assert_eq!(
            blocks,
            [
                r#"["mcp__s__a", "mcp__s__b"]"#,
                "UNAVAILABLE SERVERS (their tools are not listed; reconnecting): p-q: exited with 1; r: not found",
                "CONFIG ERROR (the last good configuration is in force): config.yaml:3:5: unknown key",
            ]
        );
        assert_eq!(listing(&Tools::default(), Detail::Names), ["[]"]);
    }

    #[test]
    fn signatures_are_one_line_each() {
        let blocks = listing(&Tools { unavailable: vec![], config_error: None, ..tools() }, Detail::Signatures);
        assert_eq!(blocks, ["mcp__s__a(x: int) -> dict  # Adds.\nmcp__s__b()"]);
    }

    #[test]
    fn a_piece_of_output_says_where_it_stands() {
        let piece = |next, kept| ProgramOutput {
            program: ptc_protocol::names::ProgramId::parse("p-1").unwrap(),
            offset: 4,
            text: "é!".into(),
            next,
            kept,
            total: 20,
        };
        assert_eq!(piece_text(&piece(Some(7), 20)), "[bytes 4 to 7 of 20 that p-1 printed; go on with offset=7]\né!");
        assert!(piece_text(&piece(None, 20)).contains("; this is the end]"));
        assert!(piece_text(&piece(None, 9)).contains("; only the first 9 bytes were kept]"));
    }

    #[test]
    fn descriptions_keep_the_order_and_the_digits_of_the_schema() {
        let description: ToolDescription = serde_json::from_str(
            r#"{"name":"mcp__s__a","description":"","inputSchema":{"z":1,"a":12345678901234567890123},"outputSchema":null,"note":"n","signature":"mcp__s__a()"}"#,
        )
        .unwrap();
        let text = description_text(&description).unwrap();
        assert!(text.contains(r#""inputSchema": {"z":1,"a":12345678901234567890123}"#), "{text}");
        let keys: Vec<_> = serde_json::from_str::<Value>(&text).unwrap().as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["name", "description", "inputSchema", "outputSchema", "note", "signature"]);
    }
}
