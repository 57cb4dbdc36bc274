//! Results as clients get them. Pure.

use ptc_protocol::api::{Outcome, StructuredContent};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject};

/// Key of the structured form in a result's `_meta`, where it stays out of a model's context.
pub(crate) const OUTCOME_META: &str = "ptc/outcome";

/// What a client shows its model of a result that has both text and structured content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Both, or the text.
    Text,
    /// The structured content in place of the text.
    StructuredOnly,
}

impl Reading {
    /// By `clientInfo.name`.
    pub(crate) fn of_client(name: Option<&str>) -> Self {
        match name {
            Some("claude-code") => Self::StructuredOnly,
            _ => Self::Text,
        }
    }
}

/// The result of `execute_program`.
pub(crate) fn outcome(outcome: &Outcome, reading: Reading) -> CallToolResult {
    let mut result = result(vec![outcome.text()], outcome.ok);
    let as_content = match outcome.structured_content {
        StructuredContent::Always => true,
        StructuredContent::Never => false,
        StructuredContent::Auto => reading == Reading::Text,
    };
    if as_content {
        result.structured_content = Some(outcome.structured());
    } else {
        let mut meta = JsonObject::new();
        meta.insert(OUTCOME_META.into(), outcome.structured());
        result.meta = Some(MetaObject(meta));
    }
    result
}

/// A result of text blocks.
pub(crate) fn texts(blocks: Vec<String>) -> CallToolResult {
    result(blocks, true)
}

/// A failed result that says why.
pub(crate) fn failure(text: impl Into<String>) -> CallToolResult {
    result(vec![text.into()], false)
}

fn result(blocks: Vec<String>, ok: bool) -> CallToolResult {
    let content = blocks.into_iter().map(ContentBlock::text).collect();
    if ok { CallToolResult::success(content) } else { CallToolResult::error(content) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(setting: &str, client: &str) -> Value {
        let told: Outcome = serde_json::from_value(json!({
            "program": "p-1", "ok": true, "output": "hi\n", "elapsed_ms": 1, "structured_content": setting,
        }))
        .unwrap();
        serde_json::to_value(outcome(&told, Reading::of_client(Some(client)))).unwrap()
    }

    #[test]
    fn clients_that_hide_the_text_get_the_structured_form_in_meta() {
        let told = told("auto", "claude-code");
        assert!(told.get("structuredContent").is_none(), "{told}");
        assert_eq!(told["_meta"][OUTCOME_META]["output"], "hi\n");
        assert_eq!(told["content"][0]["text"], "[Script executed successfully]\nhi\n");
    }

    #[test]
    fn other_clients_get_both_forms() {
        let told = told("auto", "inspector");
        assert_eq!(told["structuredContent"]["output"], "hi\n");
        assert_eq!((&told["isError"], told.get("_meta")), (&json!(false), None));
    }

    #[test]
    fn the_setting_wins_over_the_client() {
        assert_eq!(told("always", "claude-code")["structuredContent"]["ok"], true);
        assert!(told("never", "inspector").get("structuredContent").is_none());
    }
}
