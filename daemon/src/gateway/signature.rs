//! A tool as a Python programmer sees it: one line with types, and the parameters one by one.

use serde_json::{Map, Value, json};

use super::shape::{Field, Shape};

/// Longest signature that is written with all details, in bytes; beyond it nested objects lose their fields, then
/// parameters are left out.
const LINE_BYTES: usize = 700;
/// Levels of nested objects whose fields are shown.
const FIELD_LEVELS: usize = 3;
/// Members of an enumeration that are shown, and the bytes they may take.
const LITERALS: usize = 24;
const LITERAL_BYTES: usize = 300;
/// Longest default that is shown, in bytes.
const DEFAULT_BYTES: usize = 80;
/// Longest type of one parameter in [`Signature::params`], in bytes.
const PARAM_BYTES: usize = 400;

/// What a tool takes and gives.
#[derive(Debug, Clone)]
pub struct Signature {
    /// Parameters, required ones first, each group in the order of the schema.
    pub params: Vec<Field>,
    /// The value a program gets, where the server declares it.
    pub returns: Option<Shape>,
    /// Whether a string that the tool returns is declared to be one and so must never be read as JSON.
    pub keeps_text: bool,
}

impl Signature {
    /// Reads the two schemas of a tool.
    #[must_use]
    pub fn new(input: &Value, output: Option<&Value>) -> Self {
        let mut params = match Shape::of(input) {
            Shape::Object(fields) => fields,
            Shape::Union(members) => alternatives(members),
            Shape::Any
            | Shape::Null
            | Shape::String
            | Shape::Integer
            | Shape::Number
            | Shape::Boolean
            | Shape::Literal(_)
            | Shape::List(_)
            | Shape::Map(_) => Vec::new(),
        };
        params.sort_by_key(|param| !param.required);
        let declared = output.map(Shape::of);
        let wrapped = match &declared {
            Some(Shape::Object(fields)) => match fields.as_slice() {
                [only] if only.name == "result" => Some(only.shape.clone()),
                _ => None,
            },
            _ => None,
        };
        let keeps_text = wrapped.as_ref().is_some_and(Shape::names_string);
        let returns = wrapped.or(declared).filter(|shape| *shape != Shape::Any);
        Self { params, returns, keeps_text }
    }

    /// `(ticker: str, limit: int = 10, **{"from"?: str}) -> dict`, one line of bounded length. An optional parameter
    /// without a declared default shows `...`.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = String::new();
        for levels in (0..=FIELD_LEVELS).rev() {
            line = self.line_with(levels, usize::MAX);
            if line.len() <= LINE_BYTES {
                return line;
            }
        }
        let mut shown = self.params.len();
        while line.len() > LINE_BYTES && shown > 1 {
            shown = (shown * LINE_BYTES / line.len()).clamp(1, shown - 1);
            line = self.line_with(0, shown);
        }
        line
    }

    fn line_with(&self, levels: usize, shown: usize) -> String {
        let (plain, keyed): (Vec<&Field>, Vec<&Field>) =
            self.params.iter().take(shown).partition(|param| is_parameter_name(&param.name));
        let mut pieces: Vec<String> = plain
            .into_iter()
            .map(|param| {
                let written = python(&param.shape, levels);
                match (&param.default, param.required) {
                    (None, true) => format!("{}: {written}", param.name),
                    (Some(default), _) => format!("{}: {written} = {}", param.name, default_text(default)),
                    (None, false) => format!("{}: {written} = ...", param.name),
                }
            })
            .collect();
        if self.params.len() > shown {
            pieces.push(format!("... {} more", self.params.len() - shown));
        }
        if !keyed.is_empty() {
            pieces.push(format!("**{}", fields_text(keyed.into_iter(), levels)));
        }
        let mut line = format!("({})", pieces.join(", "));
        if let Some(returns) = &self.returns {
            line.push_str(&format!(" -> {}", python(returns, levels)));
        }
        line
    }

    /// The parameters for the child: `name`, `type`, `required`, `default`, `keyword` where Python cannot name it,
    /// `description`.
    #[must_use]
    pub fn params_json(&self) -> Value {
        self.params
            .iter()
            .map(|param| {
                let mut entry = Map::new();
                entry.insert("name".into(), json!(param.name));
                entry.insert("type".into(), json!(type_text(&param.shape)));
                entry.insert("required".into(), json!(param.required));
                if let Some(default) = &param.default {
                    entry.insert("default".into(), default.clone());
                }
                if !is_parameter_name(&param.name) {
                    entry.insert("keyword".into(), json!(true));
                }
                Value::Object(entry)
            })
            .collect()
    }

    /// Description and parameters in words, as `help()` shows them.
    #[must_use]
    pub fn doc(&self, description: &str, keep_chars: usize) -> String {
        let mut doc = super::failure::cut(description.trim().to_owned(), keep_chars);
        let told: Vec<&Field> = self.params.iter().filter(|param| !param.description.is_empty()).collect();
        if !told.is_empty() {
            doc.push_str(if doc.is_empty() { "Parameters:" } else { "\n\nParameters:" });
            for param in told.into_iter().take(60) {
                let words = super::failure::cut(one_line(&param.description), 300);
                doc.push_str(&format!("\n    {} ({}): {words}", one_line(&param.name), type_text(&param.shape)));
            }
        }
        let keyed: Vec<String> =
            self.params.iter().filter(|param| !is_parameter_name(&param.name)).map(|p| quoted(&p.name)).collect();
        if let Some(first) = keyed.first() {
            doc.push_str(if doc.is_empty() { "" } else { "\n\n" });
            doc.push_str(&format!("Pass {} through a dict: **{{{first}: ...}}", keyed.join(", ")));
        }
        doc
    }
}

/// The type of one parameter, of bounded length.
#[must_use]
pub(super) fn type_text(shape: &Shape) -> String {
    (0..=FIELD_LEVELS)
        .rev()
        .map(|levels| python(shape, levels))
        .find(|text| text.len() <= PARAM_BYTES)
        .unwrap_or_else(|| "Any".to_owned())
}

/// Whether the name can stand before `=` in a Python call. Only ASCII names do: Python folds others to a normal form,
/// so that the server might receive another spelling.
#[must_use]
pub(super) fn is_parameter_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !KEYWORDS.contains(&name)
}

/// Words that Python keeps for itself, and the one constant that cannot be a keyword argument.
const KEYWORDS: [&str; 36] = [
    "False",
    "None",
    "True",
    "__debug__",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
];

/// Parameters of a schema that is one of several objects: all of them, required where each asks for it.
fn alternatives(members: Vec<Shape>) -> Vec<Field> {
    let objects: Vec<Vec<Field>> = members
        .into_iter()
        .filter_map(|member| match member {
            Shape::Object(fields) => Some(fields),
            _ => None,
        })
        .collect();
    let mut joined: Vec<Field> = Vec::new();
    for fields in &objects {
        for field in fields {
            let everywhere = objects.iter().all(|other| other.iter().any(|f| f.name == field.name && f.required));
            match joined.iter_mut().find(|known| known.name == field.name) {
                Some(known) => {
                    known.shape = Shape::union([known.shape.clone(), field.shape.clone()]);
                }
                None => joined.push(Field { required: everywhere, ..field.clone() }),
            }
        }
    }
    joined
}

/// The shape as a Python type; objects show their fields down to the given number of levels.
#[must_use]
pub(super) fn python(shape: &Shape, levels: usize) -> String {
    match shape {
        Shape::Any => "Any".into(),
        Shape::Null => "None".into(),
        Shape::String => "str".into(),
        Shape::Integer => "int".into(),
        Shape::Number => "float".into(),
        Shape::Boolean => "bool".into(),
        Shape::Literal(values) => literal_text(values),
        Shape::List(item) if **item == Shape::Any => "list".into(),
        Shape::List(item) => format!("list[{}]", python(item, levels)),
        Shape::Map(values) if **values == Shape::Any => "dict".into(),
        Shape::Map(values) => format!("dict[str, {}]", python(values, levels)),
        Shape::Object(_) if levels == 0 => "dict".into(),
        Shape::Object(fields) => fields_text(fields.iter(), levels),
        Shape::Union(members) => {
            let mut written: Vec<String> = Vec::new();
            for member in members {
                let text = python(member, levels);
                if !written.contains(&text) {
                    written.push(text);
                }
            }
            written.join(" | ")
        }
    }
}

fn fields_text<'a>(fields: impl Iterator<Item = &'a Field>, levels: usize) -> String {
    let fields: Vec<String> = fields
        .map(|field| {
            let mark = if field.required { "" } else { "?" };
            format!("{}{mark}: {}", quoted(&field.name), python(&field.shape, levels.saturating_sub(1)))
        })
        .collect();
    format!("{{{}}}", fields.join(", "))
}

fn literal_text(values: &[Value]) -> String {
    let mut text = "Literal[".to_owned();
    for (at, value) in values.iter().enumerate() {
        let written = literal(value);
        if at == LITERALS || text.len() + written.len() > LITERAL_BYTES {
            text.push_str(if at == 0 { "..." } else { ", ..." });
            break;
        }
        text.push_str(if at == 0 { "" } else { ", " });
        text.push_str(&written);
    }
    text.push(']');
    text
}

fn default_text(value: &Value) -> String {
    let text = literal(value);
    if text.len() > DEFAULT_BYTES { "...".into() } else { text }
}

/// A JSON value as Python writes it.
pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members: Vec<_> =
                members.iter().map(|(key, value)| format!("{}: {}", quoted(key), literal(value))).collect();
            format!("{{{}}}", members.join(", "))
        }
    }
}

/// The text in double quotes, on one line.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The words of a text with single spaces between them.
#[must_use]
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(input: &Value) -> String {
        Signature::new(input, None).line()
    }

    #[test]
    fn required_parameters_come_first_and_optional_ones_show_their_default() {
        let schema = json!({"type": "object", "required": ["ticker", "period"], "properties": {
            "limit": {"type": "integer", "default": 10},
            "ticker": {"type": "string"},
            "period": {"enum": ["annual", "quarterly"]},
            "since": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}}, "required": ["a"]},
        }});
        assert_eq!(
            line(&schema),
            "(ticker: str, period: Literal[\"annual\", \"quarterly\"], limit: int = 10, since: str | None = None, \
             tags: list[str] = ..., where: {\"a\": float, \"b\"?: bool} = ...)"
        );
    }

    #[test]
    fn names_that_python_cannot_write_go_through_a_dict() {
        let schema = json!({"type": "object", "required": ["from"], "properties": {
            "from": {"type": "string"}, "class": {"type": "string"}, "self": {"type": "string"}, "größe": {"type": "integer"}
        }});
        assert_eq!(line(&schema), "(self: str = ..., **{\"from\": str, \"class\"?: str, \"größe\"?: int})");
        let signature = Signature::new(&schema, None);
        assert_eq!(
            signature.params_json()[0],
            json!({"name": "from", "type": "str", "required": true, "keyword": true})
        );
        assert_eq!(
            signature.doc("Lists.", 100),
            "Lists.\n\nPass \"from\", \"class\", \"größe\" through a dict: **{\"from\": ...}"
        );
    }

    #[test]
    fn a_wrapped_result_is_shown_as_what_the_program_gets() {
        let wrapped = |shape: Value| {
            Signature::new(
                &json!({}),
                Some(&json!({"type": "object", "properties": {"result": shape}, "required": ["result"]})),
            )
        };
        let text = wrapped(json!({"type": "string"}));
        assert_eq!((text.line().as_str(), text.keeps_text), ("() -> str", true));
        let list = wrapped(json!({"type": "array", "items": {"type": "integer"}}));
        assert_eq!((list.line().as_str(), list.keeps_text), ("() -> list[int]", false));
        let anything = wrapped(json!({}));
        assert_eq!((anything.line().as_str(), anything.keeps_text), ("()", false));
        let object =
            Signature::new(&json!({}), Some(&json!({"type": "object", "properties": {"n": {"type": "integer"}}})));
        assert_eq!((object.line().as_str(), object.keeps_text), ("() -> {\"n\"?: int}", false));
    }

    #[test]
    fn alternatives_at_the_top_offer_the_parameters_of_all() {
        let schema = json!({"type": "object", "oneOf": [
            {"properties": {"id": {"type": "string"}, "x": {"type": "integer"}}, "required": ["id", "x"]},
            {"properties": {"id": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["id"]},
        ]});
        assert_eq!(line(&schema), "(id: str | int, x: int = ..., y: int = ...)");
    }

    #[test]
    fn a_thousand_parameters_still_make_one_short_line() {
        let properties: Map<String, Value> =
            (0..1000).map(|n| (format!("parameter_{n}"), json!({"type": "string"}))).collect();
        let text = line(&json!({"type": "object", "properties": properties}));
        assert!(text.len() <= LINE_BYTES, "{}", text.len());
        assert!(text.contains("parameter_0: str = ...") && text.contains(" more)"), "{text}");
    }

    #[test]
    fn keyword_list_is_sorted_and_lower_words_are_found() {
        assert!(KEYWORDS.is_sorted());
        assert!(
            !is_parameter_name("class")
                && !is_parameter_name("")
                && !is_parameter_name("1a")
                && is_parameter_name("match")
        );
    }

    proptest! {
        #[test]
        fn any_two_schemas_make_one_bounded_line(
            input in crate::gateway::testing::schema(),
            output in crate::gateway::testing::schema(),
        ) {
            let signature = Signature::new(&input, Some(&output));
            let text = signature.line();
            prop_assert!(text.starts_with('(') && !text.contains('\n'));
            prop_assert!(signature.params_json().is_array());
            drop(signature.doc("d", 10));
        }
    }
}
