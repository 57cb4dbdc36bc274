//! Reads `mcpServers` of another client and translates each server.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, bail};
use ptc_protocol::names::ServerName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the files gave.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In the order found; names are unique, also after `-` → `_`.
    pub(super) servers: Vec<Imported>,
    /// What a person should know, one sentence each.
    pub(super) notes: Vec<String>,
}

/// A server as ptc's config writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Imported {
    pub(super) name: ServerName,
    pub(super) transport: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) args: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enabled: Option<bool>,
}

/// A server as other clients write it; what they have beyond this is not carried over.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Foreign {
    #[serde(rename = "type", alias = "transport")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, Scalar>,
    #[serde(alias = "serverUrl")]
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Scalar>,
    cwd: Option<String>,
    #[serde(default)]
    disabled: bool,
}

/// Text, or what some people write without quotes.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
struct Scalar(String);

impl TryFrom<Value> for Scalar {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(Self(text)),
            Value::Number(_) | Value::Bool(_) => Ok(Self(value.to_string())),
            Value::Null => Ok(Self(String::new())),
            Value::Array(_) | Value::Object(_) => Err("a text was expected".into()),
        }
    }
}

/// Adds the servers of one file. In `~/.claude.json` the servers of the project in `here` come first, as there they win.
///
/// # Errors
/// Not JSON, or no servers in it; `found` is unchanged then.
pub(super) fn read(text: &str, here: &Path, file: &str, found: &mut Found) -> anyhow::Result<()> {
    let document: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).context("is not JSON")?;
    let project = &document["projects"][here.to_string_lossy().as_ref()]["mcpServers"];
    // VS Code says `servers`.
    let top = if document["mcpServers"].is_null() { &document["servers"] } else { &document["mcpServers"] };
    let groups: Vec<&Map<String, Value>> = [project, top].into_iter().filter_map(Value::as_object).collect();
    if groups.is_empty() {
        bail!("has no `mcpServers`");
    }
    for (name, definition) in groups.into_iter().flatten() {
        match translate(name, definition) {
            Ok(Some(server)) => found.add(server, name, file),
            Ok(None) => found.notes.push(format!("{file}: `{name}` is ptc itself, left out")),
            Err(error) => found.notes.push(format!("{file}: `{name}` is left out: {error:#}")),
        }
    }
    Ok(())
}

impl Found {
    /// `theirs` is the name that the other client has for it.
    fn add(&mut self, server: Imported, theirs: &str, file: &str) {
        match self.servers.iter().find(|known| known.name.namespace() == server.name.namespace()) {
            Some(known) if *known == server => {}
            Some(known) => {
                let note = format!("{file}: `{}` is left out, `{}` was found before it", server.name, known.name);
                self.notes.push(note);
            }
            None => {
                if server.name.as_str() != theirs {
                    let note = format!("{file}: `{theirs}` is called `{}` here", server.name);
                    self.notes.push(note);
                }
                let odd = server.unknown_words();
                if !odd.is_empty() {
                    let note = format!("{file}: `{}` has words ptc does not know: {}", server.name, odd.join(", "));
                    self.notes.push(note);
                }
                self.servers.push(server);
            }
        }
    }
}

fn translate(name: &str, definition: &Value) -> anyhow::Result<Option<Imported>> {
    let foreign = Foreign::deserialize(definition).context("its definition cannot be read")?;
    let program = foreign.command.iter().chain(&foreign.args).filter_map(|word| Path::new(word).file_name());
    if program.into_iter().any(|program| program == "ptc-shim") {
        return Ok(None);
    }
    let transport = transport(&foreign)?;
    let (stdio, remote) = (transport == "stdio", transport != "stdio");
    let texts =
        |map: BTreeMap<String, Scalar>| map.into_iter().map(|(key, Scalar(text))| (key, words(&text))).collect();
    Ok(Some(Imported {
        name: usable_name(name)?,
        transport,
        command: foreign.command.filter(|_| stdio).map(|text| words(&text)),
        args: if stdio { foreign.args.iter().map(|text| words(text)).collect() } else { vec![] },
        url: foreign.url.filter(|_| remote).map(|text| words(&text)),
        env: if stdio { texts(foreign.env) } else { BTreeMap::new() },
        headers: if remote { texts(foreign.headers) } else { BTreeMap::new() },
        cwd: foreign.cwd.filter(|_| stdio).map(|text| words(&text)),
        enabled: foreign.disabled.then_some(false),
    }))
}

fn transport(foreign: &Foreign) -> anyhow::Result<&'static str> {
    let kind = foreign.kind.as_deref().map(|kind| kind.to_ascii_lowercase().replace(['-', '_'], ""));
    Ok(match (kind.as_deref(), &foreign.command, &foreign.url) {
        (Some("stdio") | None, Some(_), _) => "stdio",
        (Some("sse"), _, Some(_)) => "sse",
        (Some("http" | "streamablehttp"), _, Some(_)) => "http",
        // Cursor writes an address alone, whatever is behind it.
        (None, None, Some(url)) if url.trim_end_matches('/').ends_with("/sse") => "sse",
        (None, None, Some(_)) => "http",
        (Some("stdio") | None, None, _) => bail!("it has neither `command` nor `url`"),
        (Some("sse" | "http" | "streamablehttp"), _, None) => bail!("it has no `url`"),
        (Some(_), ..) => bail!("its type `{}` is not known", foreign.kind.as_deref().unwrap_or_default()),
    })
}

/// The name with `-` in place of what ptc does not allow.
fn usable_name(name: &str) -> anyhow::Result<ServerName> {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' };
    let name: String = name.trim().chars().map(allowed).collect();
    if !name.contains(|c: char| c.is_ascii_alphanumeric()) {
        bail!("its name has no letters or digits");
    }
    Ok(ServerName::parse(name)?)
}

/// Variables as ptc writes them. `${NAME}` and `${NAME:-default}` stay, `${env:NAME}` and `${userHome}` are translated;
/// every other `$` is a plain character, which ptc writes twice.
fn words(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let inner = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        match inner.map(|(word, tail)| (variable(word), word, tail)) {
            Some((Some(variable), _, tail)) => {
                out.push_str(&variable);
                rest = tail;
            }
            Some((None, ..)) | None => {
                out.push_str("$$");
                rest = after;
            }
        }
    }
    out + rest
}

/// `${word}` in ptc's spelling; none when it is not a variable.
fn variable(word: &str) -> Option<String> {
    let word = word.strip_prefix("env:").unwrap_or(word);
    if word == "userHome" {
        return Some("${HOME}".into());
    }
    let name = word.split_once(":-").map_or(word, |(name, _)| name);
    let first = name.chars().next()?;
    let is_name =
        (first.is_ascii_alphabetic() || first == '_') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_name && name != "workspaceFolder").then(|| format!("${{{word}}}"))
}

impl Imported {
    /// `${workspaceFolder}`, `${input:…}`: words of other clients that mean nothing here.
    fn unknown_words(&self) -> Vec<String> {
        let texts = self
            .command
            .iter()
            .chain(&self.args)
            .chain(&self.url)
            .chain(self.env.values())
            .chain(self.headers.values());
        let found = texts.chain(&self.cwd).flat_map(|text| {
            text.split("$${").skip(1).filter_map(|tail| Some(format!("${{{}}}", tail.split_once('}')?.0)))
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Found {
        let mut found = Found::default();
        read(text, Path::new("/work"), "f.json", &mut found).unwrap();
        found
    }

    fn stdio(name: &str, command: &str) -> Imported {
        Imported {
            name: ServerName::parse(name).unwrap(),
            transport: "stdio",
            command: Some(command.into()),
            args: vec![],
            url: None,
            env: BTreeMap::new(),
            headers: BTreeMap::new(),
            cwd: None,
            enabled: None,
        }
    }

    #[test]
    fn each_way_of_writing_a_server_is_understood() {
        let found = found(
            r#"{"mcpServers": {
                "files": {"command": "npx", "args": ["-y", "x"], "env": {"N": 1, "T": "t"}, "disabled": true},
                "hub": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
                "old": {"url": "https://h/sse"}, "new": {"serverUrl": "https://h/x"},
                "big": {"type": "streamable-http", "url": "https://h/y"}}}"#,
        );
        assert_eq!(found.notes, Vec::<String>::new());
        let files = Imported {
            args: vec!["-y".into(), "x".into()],
            env: BTreeMap::from([("N".into(), "1".into()), ("T".into(), "t".into())]),
            enabled: Some(false),
            ..stdio("files", "npx")
        };
        assert_eq!(found.servers[0], files);
        let rest: Vec<_> = found.servers[1..].iter().map(|server| (server.name.as_str(), server.transport)).collect();
        assert_eq!(rest, [("hub", "http"), ("old", "sse"), ("new", "http"), ("big", "http")]);
        assert_eq!(found.servers[1].headers["Authorization"], "Bearer ${TOKEN}");
    }

    #[test]
    fn the_projects_own_servers_win() {
        let found = found(
            r#"{"projects": {"/work": {"mcpServers": {"a": {"command": "mine"}}}, "/other": {"mcpServers": {"z": {"command": "z"}}}},
                "mcpServers": {"a": {"command": "theirs"}, "b": {"command": "b"}}}"#,
        );
        assert_eq!(found.servers, [stdio("a", "mine"), stdio("b", "b")]);
        assert_eq!(found.notes, ["f.json: `a` is left out, `a` was found before it"]);
    }

    #[test]
    fn ptc_is_not_its_own_server() {
        let found = found(r#"{"mcpServers": {"ptc": {"command": "/bin/ptc-shim"}}}"#);
        assert!(found.servers.is_empty() && found.notes[0].contains("ptc itself"), "{found:?}");
    }

    #[test]
    fn broken_servers_are_left_out_with_a_reason() {
        let found = found(
            r#"{"mcpServers": {"ok": {"command": "x"}, "a": {}, "b": {"type": "ws", "url": "u"}, "c": {"command": ["x"]}, "--": {"command": "x"}}}"#,
        );
        assert_eq!(found.servers, [stdio("ok", "x")]);
        assert_eq!(found.notes.len(), 4, "{:?}", found.notes);
    }

    #[test]
    fn names_become_usable_and_stay_unique() {
        let found = found(r#"{"mcpServers": {"my server.io": {"command": "x"}, "my_server_io": {"command": "y"}}}"#);
        assert_eq!(found.servers, [stdio("my-server-io", "x")]);
        assert_eq!(
            found.notes,
            [
                "f.json: `my server.io` is called `my-server-io` here",
                "f.json: `my_server_io` is left out, `my-server-io` was found before it"
            ]
        );
    }

    #[test]
    fn variables_are_translated_and_plain_dollars_doubled() {
        let cases = [
            ("${A}/${B:-x y}", "${A}/${B:-x y}"),
            ("${env:KEY}", "${KEY}"),
            ("${userHome}/x", "${HOME}/x"),
            ("pa$$word$1", "pa$$$$word$$1"),
            ("${input:key}", "$${input:key}"),
            ("${unclosed", "$${unclosed"),
        ];
        for (theirs, ours) in cases {
            assert_eq!(words(theirs), ours);
        }
    }

    #[test]
    fn words_of_other_clients_are_named() {
        let found = found(r#"{"servers": {"a": {"command": "x", "args": ["${workspaceFolder}/x"]}}}"#);
        assert_eq!(found.notes, ["f.json: `a` has words ptc does not know: ${workspaceFolder}"]);
    }

    #[test]
    fn a_file_without_servers_is_an_error() {
        let mut found = Found::default();
        for text in ["{}", "[]", "{\"mcpServers\": 3}", "no"] {
            assert!(read(text, Path::new("/"), "f", &mut found).is_err(), "{text}");
        }
    }
}
