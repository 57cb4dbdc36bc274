//! The file as a whole: its sections, and what to say about a key nobody knows.

use std::{collections::HashMap, path::PathBuf};

use super::{
    error::{Fault, Position},
    execution,
    expand::Env,
    filter,
    reader::{Field, Fields, Reader, closest, shown},
    server,
    settings::{ServerSettings, Settings},
    tree::{self, Value},
};

/// The keys at the top.
const KEYS: &[&str] = &["servers", "tools", "execution", "stubs_dir"];

/// Every section with its keys, to say where a misplaced key belongs.
const SECTIONS: &[(&str, &[&str])] = &[
    ("the top of the file", KEYS),
    ("an entry of `servers`", server::KEYS),
    ("`tools`", filter::KEYS),
    ("`execution`", execution::KEYS),
];

/// Keys that other clients know, and what stands for them here.
const FOREIGN: &[(&str, &str)] = &[
    ("timeout", "use `startup_timeout_seconds` here, or `execution.tool_call_timeout_seconds` for calls"),
    ("autoApprove", "has no meaning here; limit tools with `tools.allow` or `tools.block`"),
    ("alwaysAllow", "has no meaning here; limit tools with `tools.allow` or `tools.block`"),
    ("alwaysLoad", "has no meaning here; remove it"),
    ("disabledTools", "use `tools.block` with names like `mcp__server__tool`"),
    ("excludeTools", "use `tools.block` with names like `mcp__server__tool`"),
    ("includeTools", "use `tools.allow` with names like `mcp__server__tool`"),
    ("enabledTools", "use `tools.allow` with names like `mcp__server__tool`"),
    ("headersHelper", "is not supported; use `headers` with `${VARIABLE}`"),
    ("envFile", "is not supported; use `env` with `${VARIABLE}`"),
    ("trust", "has no meaning here; remove it"),
    ("inputs", "is not supported; use `${VARIABLE}`"),
];

/// Errors reported of one file, and warnings.
const MAX_FAULTS: usize = 100;

/// What a text says.
pub(super) struct Parsed {
    /// With the defaults where the file says nothing, or something wrong.
    pub(super) settings: Settings,
    /// Whether the text holds no value at all.
    pub(super) empty: bool,
    /// In the order of their lines.
    pub(super) faults: Vec<Fault>,
    /// In the order of their lines.
    pub(super) warnings: Vec<Fault>,
}

/// Reads the text of a configuration; `base` is the folder that relative paths are meant from.
pub(super) fn parse(text: &str, base: PathBuf, env: Env<'_>) -> Parsed {
    let mut reader = Reader::new(env, base);
    let root = tree::parse(text, &mut reader.faults);
    let empty = root.is_none() && reader.faults.is_empty();
    let mut settings = Settings::default();
    if let Some(node) = &root {
        let field = Field { path: String::new(), node };
        if let Some(mut fields) = top(&mut reader, &field) {
            settings = read(&mut reader, &mut fields);
            close(&mut reader, &fields, KEYS);
        }
    }
    let Reader { mut faults, mut warnings, .. } = reader;
    faults.sort_by_key(|fault| fault.at);
    faults.dedup();
    if faults.len() > MAX_FAULTS {
        let more = faults.len() - MAX_FAULTS;
        faults.truncate(MAX_FAULTS);
        faults.push(Fault::whole_file(format!("and {more} more")));
    }
    warnings.truncate(MAX_FAULTS);
    warnings.sort_by_key(|fault| fault.at);
    warnings.dedup();
    Parsed { settings, empty, faults, warnings }
}

fn top<'n>(reader: &mut Reader<'_>, field: &Field<'n>) -> Option<Fields<'n>> {
    if matches!(field.node.value, Value::Mapping(_)) {
        return reader.mapping(field);
    }
    let message = format!("the file must hold keys such as `servers:`, not {}", field.node.kind());
    reader.fault(field.at(), "", message);
    None
}

fn read(reader: &mut Reader<'_>, fields: &mut Fields<'_>) -> Settings {
    let mut found = Vec::new();
    let own = fields.take("servers");
    let foreign = fields.take("mcpServers");
    if let (Some(_), Some(foreign)) = (&own, &foreign) {
        let message = "means the same as `servers`, which is given as well; move its entries there";
        reader.fault(fields.key_at("mcpServers"), &foreign.path, message);
    } else if let Some(foreign) = &foreign {
        let message = "read as `servers`; there, each entry is a list item with its `name`";
        reader.warn(fields.key_at("mcpServers"), &foreign.path, message);
    }
    for section in [own, foreign].into_iter().flatten() {
        servers(reader, &section, &mut found);
    }
    unique(reader, &found);
    let tools = fields.take("tools").map(|field| filter::read(reader, &field)).unwrap_or_default();
    let execution = fields.take("execution").map(|field| execution::read(reader, &field)).unwrap_or_default();
    let stubs_dir = fields.take("stubs_dir").and_then(|field| reader.path(&field));
    Settings { servers: found.into_iter().map(|(server, ..)| server).collect(), tools, execution, stubs_dir }
}

type Found = (ServerSettings, Position, String);

fn servers(reader: &mut Reader<'_>, section: &Field<'_>, found: &mut Vec<Found>) {
    if let Value::Mapping(entries) = &section.node.value {
        let Some(fields) = reader.mapping(section) else { return };
        if entries.iter().any(|entry| !matches!(entry.value.value, Value::Mapping(_))) {
            let message = "must be a list; begin each server with `- name: …`";
            reader.fault(section.at(), &section.path, message);
            return;
        }
        if section.path == "servers" {
            reader.warn(section.at(), "servers", "read as a list; write each entry as a list item with its `name`");
        }
        for (entry, path) in fields.rest() {
            let field = Field { path, node: &entry.value };
            if let Some(server) = server::read(reader, &field, Some(&entry.key)) {
                found.push((server, entry.at, field.path));
            }
        }
        return;
    }
    for item in reader.list(section) {
        if let Some(server) = server::read(reader, &item, None) {
            found.push((server, item.at(), item.path));
        }
    }
}

/// Two servers must differ also where Python sees them, with `_` for `-`.
fn unique(reader: &mut Reader<'_>, found: &[Found]) {
    let mut first: HashMap<String, &Found> = HashMap::new();
    for entry in found {
        let (server, at, path) = entry;
        match first.get(&server.name.namespace()) {
            None => drop(first.insert(server.name.namespace(), entry)),
            Some((other, other_at, _)) => {
                let reason = if other.name == server.name { "" } else { " (`-` and `_` count as the same)" };
                let message = format!(
                    "the name `{}` is taken by the server `{}` in line {}{reason}",
                    server.name, other.name, other_at.line
                );
                reader.fault(*at, path, message);
            }
        }
    }
}

/// Reports the keys nobody took.
pub(super) fn close(reader: &mut Reader<'_>, fields: &Fields<'_>, known: &[&str]) {
    for (entry, path) in fields.rest() {
        // Helper values for anchors; only at the top, where they cannot be a misspelt key.
        if fields.path.is_empty() && entry.key.starts_with("x-") {
            continue;
        }
        let message = match FOREIGN.iter().find(|(key, _)| *key == entry.key) {
            Some((key, advice)) => format!("unknown key `{key}`: {advice}"),
            None => unknown(&entry.key, known),
        };
        reader.fault(entry.at, &path, message);
    }
}

fn unknown(key: &str, known: &[&str]) -> String {
    let written = shown(key);
    if key.starts_with('-') {
        return format!("unknown key `{written}`; is a space missing after the `-`?");
    }
    if let Some((place, _)) = SECTIONS.iter().find(|(_, keys)| keys.contains(&key)) {
        return format!("unknown key `{written}` here; it belongs to {place}");
    }
    if let Some(word) = closest(key, known) {
        return format!("unknown key `{written}`; did you mean `{word}`?");
    }
    let list = known.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    format!("unknown key `{written}`; the keys here are {list}")
}
