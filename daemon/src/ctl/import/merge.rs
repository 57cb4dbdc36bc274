//! Puts servers into a config text. The person's lines and comments stay as they are; what cannot be done that way is
//! refused.

use anyhow::{Context as _, bail};
use serde_yaml::Value;

use super::source::Imported;

/// The new text and what became of each server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) text: String,
    /// Names that are new in the text.
    pub(super) added: Vec<String>,
    /// Names that were in it before.
    pub(super) kept: Vec<String>,
}

/// A config with these servers alone.
pub(super) fn whole(servers: &[Imported]) -> String {
    if servers.is_empty() { "servers: []\n".into() } else { format!("servers:\n{}", items(servers, "  ")) }
}

/// The config text with the servers that it does not have yet, at the head of its list.
///
/// # Errors
/// The text is not a config, or its list is written in a way that cannot be added to.
pub(super) fn merged(text: &str, servers: &[Imported]) -> anyhow::Result<Merged> {
    let present: Value = serde_yaml::from_str(text).context("it is not YAML")?;
    let list = match &present["servers"] {
        Value::Sequence(list) => list.clone(),
        Value::Null => vec![],
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Mapping(_) | Value::Tagged(_) => {
            bail!("its `servers` is not a list")
        }
    };
    let space = |name: &str| name.replace('-', "_");
    let known: Vec<_> = list.iter().filter_map(|server| server["name"].as_str()).map(space).collect();
    let (kept, new): (Vec<_>, Vec<_>) =
        servers.iter().cloned().partition(|server| known.contains(&server.name.namespace()));
    let new_text = if new.is_empty() { text.to_owned() } else { insert(text, &present, &new)? };
    let merged: Value = serde_yaml::from_str(&new_text).context(CANNOT)?;
    let mut expected: Vec<Value> = new.iter().map(serde_yaml::to_value).collect::<Result<_, _>>()?;
    expected.extend(list);
    if !new.is_empty() && (merged["servers"] != Value::Sequence(expected) || rest(&merged) != rest(&present)) {
        bail!(CANNOT);
    }
    let names = |servers: &[Imported]| servers.iter().map(|server| server.name.to_string()).collect();
    Ok(Merged { text: new_text, added: names(&new), kept: names(&kept) })
}

/// Said when the list is in flow style, or otherwise out of the ordinary.
const CANNOT: &str =
    "its `servers` list is written in a way that cannot be added to; print the servers and add them by hand";

fn insert(text: &str, present: &Value, new: &[Imported]) -> anyhow::Result<String> {
    let whole_list = whole(new);
    if present["servers"].is_null() && !text.lines().any(is_servers_key) {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{gap}{whole_list}"));
    }
    let mut out = String::with_capacity(text.len() + whole_list.len());
    let mut lines = text.split_inclusive('\n');
    for line in lines.by_ref() {
        if !is_servers_key(line) {
            out.push_str(line);
            continue;
        }
        let value = line.trim_end().trim_start_matches("servers:").trim();
        let mut comment = "";
        match value {
            "" | "[]" | "~" | "null" => {}
            value if value.starts_with('#') => comment = value,
            _ => bail!(CANNOT),
        }
        let after: Vec<_> = lines.collect();
        let indent = after.iter().map(|line| line.trim_end()).find(|line| {
            let trimmed = line.trim_start();
            !trimmed.is_empty() && !trimmed.starts_with('#')
        });
        let indent = indent
            .filter(|line| line.trim_start().starts_with('-'))
            .map(|line| &line[..line.len() - line.trim_start().len()]);
        out.push_str("servers:");
        if !comment.is_empty() {
            out.push(' ');
            out.push_str(comment);
        }
        out.push('\n');
        out.push_str(&items(new, indent.unwrap_or("  ")));
        out.extend(after);
        return Ok(out);
    }
    bail!(CANNOT)
}

fn is_servers_key(line: &str) -> bool {
    line.strip_prefix("servers:").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n', '\r']))
}

/// The servers as list items, each line indented.
fn items(servers: &[Imported], indent: &str) -> String {
    let mut out = String::new();
    for server in servers {
        let mut lead = "- ";
        let mut line = |text: String| {
            out.extend([indent, lead, &text, "\n"]);
            lead = "  ";
        };
        line(format!("name: {}", scalar(server.name.as_str())));
        line(format!("transport: {}", server.transport));
        let texts = [("command", &server.command), ("url", &server.url), ("cwd", &server.cwd)];
        for (key, text) in texts {
            if let Some(text) = text {
                line(format!("{key}: {}", scalar(text)));
            }
        }
        if !server.args.is_empty() {
            let args: Vec<_> = server.args.iter().map(|arg| quoted(arg)).collect();
            line(format!("args: [{}]", args.join(", ")));
        }
        for (key, map) in [("env", &server.env), ("headers", &server.headers)] {
            if !map.is_empty() {
                line(format!("{key}:"));
            }
            for (name, value) in map {
                line(format!("  {}: {}", scalar(name), quoted(value)));
            }
        }
        if let Some(enabled) = server.enabled {
            line(format!("enabled: {enabled}"));
        }
    }
    out
}

/// The text without quotes where no reader of YAML takes it for anything but text.
fn scalar(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "_-./@".contains(c);
    let starts_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let words = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_word = words.contains(&text.to_ascii_lowercase().as_str());
    if starts_plain && !is_word && text.chars().all(harmless) { text.to_owned() } else { quoted(text) }
}

/// A JSON string is a YAML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// All but `servers`.
fn rest(document: &Value) -> Value {
    let mut rest = document.clone();
    if let Value::Mapping(map) = &mut rest {
        map.remove("servers");
        if map.is_empty() {
            return Value::Null;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::source, *};

    fn servers(json: &str) -> Vec<Imported> {
        let mut found = source::Found::default();
        source::read(&format!("{{\"mcpServers\": {json}}}"), Path::new("/"), "f", &mut found).unwrap();
        found.servers
    }

    fn two() -> Vec<Imported> {
        servers(
            r#"{"a": {"command": "x", "args": ["no", "1.10", "$x: #y"], "env": {"K": "8080"}}, "b-c": {"url": "https://h/"}}"#,
        )
    }

    #[test]
    fn a_new_config_is_readable() {
        insta::assert_snapshot!(whole(&two()), @r#"
        servers:
          - name: a
            transport: stdio
            command: x
            args: ["no", "1.10", "$$x: #y"]
            env:
              K: "8080"
          - name: b-c
            transport: http
            url: "https://h/"
        "#);
        assert_eq!(merged("", &two()).unwrap().text, whole(&two()));
    }

    #[test]
    fn comments_and_other_keys_stay() {
        let text = "# mine\nservers: # list\n# first\n- name: z\n  command: z # why\n\nexecution:\n  trace: off\n";
        let merged = merged(text, &two()).unwrap();
        assert_eq!(merged.added, ["a", "b-c"]);
        for line in text.lines() {
            assert!(merged.text.contains(line), "{line} is gone\n{}", merged.text);
        }
    }

    #[test]
    fn known_servers_are_kept_as_they_are() {
        let text = "servers:\n    - name: b_c\n      command: z\n";
        let result = merged(text, &two()).unwrap();
        assert_eq!((result.added, result.kept), (vec!["a".to_owned()], vec!["b-c".to_owned()]));
        let again = merged(&result.text, &two()).unwrap();
        assert_eq!((again.text, again.added.len()), (result.text, 0));
    }

    #[test]
    fn empty_lists_and_missing_keys_are_filled() {
        for text in [
            "servers: []\n",
            "servers:\n",
            "execution:\n  trace: off",
            "servers: []\ntools:\n  allow: [\"*\"]\n",
            "servers: null # none\n",
        ] {
            match merged(text, &two()) {
                Ok(result) => assert_eq!(result.added.len(), 2, "{text}"),
                Err(error) => assert!(text.contains("null #"), "{text}: {error:#}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_added_to_is_refused() {
        for text in ["servers: [{name: z, command: z}]\n", "servers: x\n", "a: [\n", "servers: &all\n  - name: z\n"] {
            assert!(merged(text, &two()).is_err(), "{text}");
        }
    }
}
