//! Declarations in Python's stub syntax. Objects become `TypedDict`s in functional form, which takes any key.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{DOC_CHARS, described};
use crate::gateway::{
    callable::Entry,
    shape::{Field, Shape},
    signature::{is_parameter_name, literal, quoted},
};

/// The stub of one tool.
pub(super) fn tool(entry: &Entry) -> String {
    let (tool, signature) = (entry.tool(), entry.signature());
    let mut writer = Writer::default();
    let base = pascal(&tool.attr);
    let (plain, keyed): (Vec<&Field>, Vec<&Field>) =
        signature.params.iter().partition(|param| is_parameter_name(&param.name));
    let mut params: Vec<String> = Vec::new();
    for param in plain {
        let hint = format!("{base}{}", pascal(&param.name));
        let written = writer.written(&param.shape, &hint);
        params.push(match (&param.default, param.required) {
            (None, true) => format!("{}: {written}", param.name),
            (Some(default), _) if !default.is_array() && !default.is_object() => {
                format!("{}: {written} = {}", param.name, literal(default))
            }
            _ => format!("{}: {written} = ...", param.name),
        });
    }
    if !params.is_empty() {
        params.insert(0, "*".into());
    }
    if !keyed.is_empty() {
        let name = writer.typed_dict(keyed.into_iter(), &format!("{base}Keywords"));
        writer.imports.insert("Unpack");
        params.push(format!("**keywords: Unpack[{name}]"));
    }
    let returns = match &signature.returns {
        Some(shape) => writer.written(shape, &format!("{base}Result")),
        None => writer.any(),
    };
    let mut text = format!("\"\"\"{}\"\"\"\n", tool.name);
    if !writer.imports.is_empty() {
        let imports: Vec<&str> = writer.imports.iter().copied().collect();
        text.push_str(&format!("\nfrom typing import {}\n", imports.join(", ")));
    }
    if !writer.definitions.is_empty() {
        text.push_str(&format!("\n{}\n", writer.definitions.join("\n")));
    }
    text.push_str(&format!("\nasync def {}({}) -> {returns}:\n", tool.attr, params.join(", ")));
    let doc = docstring(&signature.doc(&described(entry), DOC_CHARS));
    match doc.split_once('\n') {
        None => text.push_str(&format!("    \"\"\"{doc}\"\"\"\n")),
        Some((first, rest)) => {
            let rest: Vec<String> = rest
                .lines()
                .map(|line| if line.trim().is_empty() { String::new() } else { format!("    {line}") })
                .collect();
            text.push_str(&format!("    \"\"\"{first}\n{}\n    \"\"\"\n", rest.join("\n")));
        }
    }
    text.push_str("    ...\n");
    text
}

/// The `__init__.py` of one server.
pub(super) fn server(entries: &[(String, &Entry)]) -> String {
    let name = entries.first().map_or("", |(_, entry)| entry.tool().server.as_str());
    let mut doc = format!("Tools of the server {name}.\n\n");
    let mut imports = String::new();
    for (stem, entry) in entries {
        let attr = &entry.tool().attr;
        let summary = entry.summary();
        let dash = if summary.is_empty() { "" } else { " - " };
        doc.push_str(&format!("{attr}{}{dash}{summary}\n", entry.line()));
        imports.push_str(&format!("from .{stem} import {attr} as {attr}\n"));
    }
    format!("\"\"\"{}\n\"\"\"\n\n{imports}", docstring(doc.trim_end()))
}

/// The `__init__.py` of the whole.
pub(super) fn package(servers: &[(&str, String, usize)]) -> String {
    let mut text = "\"\"\"Tools of MCP servers, as programs run by execute_program can call them.\n\nGenerated; do not edit. In a \
                    program: from servers import NAME; await NAME.TOOL(argument=value)\n\n"
        .to_owned();
    for (server, _, tools) in servers {
        text.push_str(&format!("{server}: {tools} tools\n"));
    }
    text.push_str("\"\"\"\n");
    let renamed: String = servers
        .iter()
        .filter(|(server, folder, _)| server != folder)
        .map(|(server, folder, _)| format!("from . import {folder} as {server}\n"))
        .collect();
    if !renamed.is_empty() {
        text.push_str(&format!("\n{renamed}"));
    }
    text
}

/// The text for the inside of a docstring.
fn docstring(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control() || *c == '\n' || *c == '\t').collect();
    let mut text = text.replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"");
    if text.ends_with('"') {
        text.insert(text.len() - 1, '\\');
    }
    text
}

#[derive(Default)]
struct Writer {
    imports: BTreeSet<&'static str>,
    definitions: Vec<String>,
    names: BTreeSet<String>,
}

impl Writer {
    fn any(&mut self) -> String {
        self.imports.insert("Any");
        "Any".into()
    }

    fn written(&mut self, shape: &Shape, hint: &str) -> String {
        match shape {
            Shape::Any => self.any(),
            Shape::Null => "None".into(),
            Shape::String => "str".into(),
            Shape::Integer => "int".into(),
            Shape::Number => "float".into(),
            Shape::Boolean => "bool".into(),
            Shape::Literal(values) if values.iter().all(can_be_literal) => {
                self.imports.insert("Literal");
                format!("Literal[{}]", values.iter().map(literal).collect::<Vec<_>>().join(", "))
            }
            Shape::Literal(_) => "float".into(),
            Shape::List(item) => format!("list[{}]", self.written(item, hint)),
            Shape::Map(values) => format!("dict[str, {}]", self.written(values, hint)),
            Shape::Object(fields) => self.typed_dict(fields.iter(), hint),
            Shape::Union(members) => {
                let mut told: Vec<String> = Vec::new();
                for member in members {
                    let text = self.written(member, hint);
                    if !told.contains(&text) {
                        told.push(text);
                    }
                }
                told.join(" | ")
            }
        }
    }

    fn typed_dict<'a>(&mut self, fields: impl Iterator<Item = &'a Field>, hint: &str) -> String {
        self.imports.insert("TypedDict");
        let mut told = Vec::new();
        for field in fields {
            let written = self.written(&field.shape, &format!("{hint}{}", pascal(&field.name)));
            let key = quoted(&field.name);
            if field.required {
                told.push(format!("{key}: {written}"));
            } else {
                self.imports.insert("NotRequired");
                told.push(format!("{key}: NotRequired[{written}]"));
            }
        }
        let mut name = hint.to_owned();
        let mut n = 2;
        while !self.names.insert(name.clone()) {
            name = format!("{hint}{n}");
            n += 1;
        }
        self.definitions.push(format!("{name} = TypedDict(\"{name}\", {{{}}})", told.join(", ")));
        name
    }
}

fn can_be_literal(value: &Value) -> bool {
    !value.is_f64()
}

/// `query_financials` as `QueryFinancials`; what is no ASCII letter or digit is left out.
fn pascal(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let text: String = words
        .take(6)
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
        })
        .collect();
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) { text } else { format!("T{text}") }
}
