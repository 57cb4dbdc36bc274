//! Declarations in TypeScript.

use super::described;
use crate::gateway::{
    callable::Entry,
    failure::cut,
    shape::{Field, Shape},
    signature::{one_line, quoted},
};

/// Characters kept of a parameter's description.
const PARAMETER_CHARS: usize = 400;

/// The declaration of one tool.
pub(super) fn tool(entry: &Entry) -> String {
    let (tool, signature) = (entry.tool(), entry.signature());
    let mut text = String::from("/**\n");
    for line in described(entry).lines().chain(["", &format!("In a program: await {}(...)", tool.name)]) {
        let line = format!(" * {}", comment(line));
        text.push_str(&format!("{}\n", line.trim_end()));
    }
    text.push_str(" */\n");
    let args = if signature.params.is_empty() {
        "args?: Record<string, unknown>".to_owned()
    } else {
        let optional = if signature.params.iter().any(|param| param.required) { "" } else { "?" };
        let mut args = format!("args{optional}: {{\n");
        for param in &signature.params {
            if !param.description.is_empty() {
                let words = cut(one_line(&param.description), PARAMETER_CHARS);
                args.push_str(&format!("  /** {} */\n", comment(&words)));
            }
            args.push_str(&format!("  {};\n", member(param)));
        }
        args.push('}');
        args
    };
    let returns = signature.returns.as_ref().map_or_else(|| "unknown".to_owned(), written);
    let attr = &tool.attr;
    if !attr.is_ascii() || RESERVED.contains(&attr.as_str()) {
        text.push_str(&format!(
            "declare function {attr}_({args}): Promise<{returns}>;\nexport {{ {attr}_ as {attr} }};\n"
        ));
    } else {
        text.push_str(&format!("export declare function {attr}({args}): Promise<{returns}>;\n"));
    }
    text
}

/// The index of one server.
pub(super) fn server(entries: &[(String, &Entry)]) -> String {
    entries.iter().map(|(stem, entry)| format!("export {{ {} }} from \"./{stem}\";\n", entry.tool().attr)).collect()
}

/// The index of the whole.
pub(super) fn package(servers: &[(&str, String, usize)]) -> String {
    servers.iter().map(|(server, folder, _)| format!("export * as {server} from \"./{folder}/index\";\n")).collect()
}

/// Words that TypeScript keeps for itself and Python does not.
const RESERVED: [&str; 32] = [
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "import",
    "in",
    "instanceof",
    "new",
    "null",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "typeof",
    "void",
];

/// The text for the inside of a comment.
fn comment(text: &str) -> String {
    text.replace("*/", "*\\/").chars().filter(|c| !c.is_control()).collect()
}

fn member(field: &Field) -> String {
    let plain = field.name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && field.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let key = if plain { field.name.clone() } else { quoted(&field.name) };
    let mark = if field.required { "" } else { "?" };
    format!("{key}{mark}: {}", written(&field.shape))
}

fn written(shape: &Shape) -> String {
    match shape {
        Shape::Any => "unknown".into(),
        Shape::Null => "null".into(),
        Shape::String => "string".into(),
        Shape::Integer | Shape::Number => "number".into(),
        Shape::Boolean => "boolean".into(),
        Shape::Literal(values) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "),
        Shape::List(item) => format!("Array<{}>", written(item)),
        Shape::Map(values) => format!("Record<string, {}>", written(values)),
        Shape::Object(fields) => format!("{{ {} }}", fields.iter().map(member).collect::<Vec<_>>().join("; ")),
        Shape::Union(members) => {
            let mut told: Vec<String> = Vec::new();
            for member in members {
                let text = written(member);
                if !told.contains(&text) {
                    told.push(text);
                }
            }
            told.join(" | ")
        }
    }
}
