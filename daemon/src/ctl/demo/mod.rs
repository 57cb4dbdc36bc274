//! `ptcctl demo`: the product's main job on a stage of its own. A private daemon with the demo server, a real `ptc-shim`
//! spoken to over MCP as a client would, one program, and what a model would see of it.

mod mcp;
mod stage;

use anyhow::{Context as _, bail};
use ptc_protocol::exit;
use serde_json::{Value, json};

use self::{
    mcp::McpClient,
    stage::{Sandbox, Stage},
};
use super::{
    output::print,
    render::text::{Lines, one_line, visible},
    run::Interrupts,
};

/// The program, as a model would write it.
const PROGRAM: &str = include_str!("compare.py");

/// Shows it and leaves nothing behind, however it ends.
pub(super) async fn demo() -> anyhow::Result<u8> {
    let mut interrupts = Interrupts::listen()?;
    let mut stage = Stage::new()?;
    let shown = tokio::select! {
        shown = show(&mut stage) => shown,
        () = interrupts.next() => Err(anyhow::anyhow!("interrupted")),
    };
    let closed = stage.close().await;
    print(&shown?)?;
    closed?;
    Ok(exit::OK)
}

/// The whole page. Where the system has no sandbox, the demo's own program, which is known to be harmless, runs without.
async fn show(stage: &mut Stage) -> anyhow::Result<String> {
    stage.open(Sandbox::Auto).await?;
    let seen = ask(stage).await?;
    if !seen.failed {
        return Ok(page(&seen));
    }
    let Some(refusal) = stage.refusal().await else { bail!("the program failed:\n{}", seen.text) };
    stage.stop().await?;
    stage.open(Sandbox::None).await?;
    let seen = ask(stage).await?;
    if seen.failed {
        bail!("the program failed:\n{}", seen.text);
    }
    let note =
        "ptcd would refuse programs here, `ptcctl doctor` says what to do; the demo ran its own one without a sandbox";
    Ok(format!("{}\n{note}: {}\n", page(&seen), one_line(&refusal, 400)))
}

/// Has the program run through a shim of its own.
async fn ask(stage: &Stage) -> anyhow::Result<Seen> {
    let mut client = McpClient::new(stage.shim()?)?;
    client.initialize().await?;
    let tools = client.request("tools/list", json!({})).await?;
    let names: Vec<_> =
        tools["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
    if !names.contains(&"execute_program") {
        bail!("ptc-shim does not offer execute_program, only: {}", names.join(", "));
    }
    let arguments = json!({"name": "execute_program", "arguments": {"code": PROGRAM}});
    Seen::of(&client.request("tools/call", arguments).await?)
}

/// What the shim's answer holds.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// The text that enters the conversation.
    text: String,
    failed: bool,
    calls: usize,
    /// Bytes of tool results that the program received.
    kept_out: u64,
}

impl Seen {
    fn of(result: &Value) -> anyhow::Result<Self> {
        let blocks = result["content"].as_array().context("the answer of execute_program has no content")?;
        let text: Vec<_> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        let outcome = [&result["structuredContent"], &result["_meta"]["ptc/outcome"]];
        let outcome = outcome.into_iter().find(|value| value.is_object()).unwrap_or(&Value::Null);
        Ok(Self {
            text: text.join("\n"),
            failed: result["isError"].as_bool().unwrap_or(false),
            calls: outcome["tool_calls"].as_array().map_or(0, Vec::len),
            kept_out: outcome["tool_result_bytes"].as_u64().unwrap_or(0),
        })
    }
}

fn page(seen: &Seen) -> String {
    format!(
        "The model writes one program:\n\n{}\n\
         This is all it sees of the answer:\n\n{}\n\
         {} tool calls made; {} bytes of tool results stayed out of the conversation, {} bytes entered it.\n",
        indented(PROGRAM),
        indented(&visible(&seen.text, Lines::Keep)),
        seen.calls,
        seen.kept_out,
        seen.text.len(),
    )
}

fn indented(text: &str) -> String {
    text.trim_end().lines().map(|line| if line.is_empty() { "\n".into() } else { format!("    {line}\n") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_either_place() {
        let outcome = json!({"ok": true, "tool_calls": [{}, {}], "tool_result_bytes": 5000});
        let content = json!([{"type": "text", "text": "äbc"}]);
        let expected = Seen { text: "äbc".into(), failed: false, calls: 2, kept_out: 5000 };
        let structured = json!({"content": content, "structuredContent": outcome});
        assert_eq!(Seen::of(&structured).unwrap(), expected);
        let meta = json!({"content": content, "_meta": {"ptc/outcome": outcome}});
        assert_eq!(Seen::of(&meta).unwrap(), expected);
    }

    #[test]
    fn the_page_ends_with_the_savings() {
        let page = page(&Seen { text: "AMZN: 1\n".into(), failed: false, calls: 3, kept_out: 5000 });
        assert!(page.contains("    AMZN: 1\n"), "{page}");
        let line =
            "\n3 tool calls made; 5000 bytes of tool results stayed out of the conversation, 8 bytes entered it.\n";
        assert!(page.ends_with(line), "{page}");
    }
}
