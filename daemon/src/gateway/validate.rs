//! A tool's schemas compiled once, and checks against them with findings in plain words. Never changes a value.

use std::time::Duration;

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::{Value, value::RawValue};

use super::{
    failure::cut,
    meter::{Allowance, MeteredNode, run},
    repair::{Repaired, Role, compile},
};

/// Findings told of one value.
const FINDINGS: usize = 4;
/// Characters of a wrong value that are quoted.
const QUOTED_CHARS: usize = 60;
/// Steps that every check may use, and how many more for each byte of the value.
const STEPS: u64 = 100_000;
const STEPS_PER_BYTE: u64 = 4;
/// Thread time that one check may use.
const TIME: Duration = Duration::from_secs(2);

/// One compiled schema.
#[derive(Debug)]
pub struct Schema {
    repaired: Repaired,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The value fits, as far as the schema could be used.
    Fits,
    /// It does not; never empty, most telling first.
    Misfits(Vec<Finding>),
    /// The check would have taken too much; nothing is known.
    GivenUp,
}

/// One way in which a value does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// JSON pointer to the part of the value.
    pub pointer: String,
    /// What is wrong there.
    pub flaw: Flaw,
}

/// What is wrong with a part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// Keys that are not known.
    Unknown(Vec<String>),
    /// A key that is missing.
    Missing(String),
    /// Anything else, as words that follow the name of the part: `must be integer, not "x"`.
    Other(String),
}

impl Schema {
    /// Compiles the schema; parts that cannot be used are left out, see [`Schema::notes`].
    #[must_use]
    pub fn new(schema: &RawValue, role: Role) -> Self {
        Self { repaired: compile(schema.get(), role) }
    }

    /// What of the schema is not checked, one sentence each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.repaired.notes
    }

    /// Checks a value whose JSON text has the given length.
    #[must_use]
    pub fn check(&self, value: &Value, bytes: usize) -> Verdict {
        let Some(validator) = &self.repaired.validator else { return Verdict::Fits };
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let allowance = Allowance { steps: STEPS.saturating_add(bytes.saturating_mul(STEPS_PER_BYTE)), time: TIME };
        match run(allowance, || validator.is_valid(MeteredNode(value))) {
            Some(true) => return Verdict::Fits,
            Some(false) => {}
            None => return Verdict::GivenUp,
        }
        let findings = run(allowance, || {
            let mut errors: Vec<_> = validator.iter_errors(MeteredNode(value)).take(FINDINGS * 4).collect();
            errors.sort_by_key(|error| rank(error.kind()));
            errors.iter().take(FINDINGS).map(finding).collect::<Vec<_>>()
        });
        match findings {
            Some(findings) if !findings.is_empty() => Verdict::Misfits(findings),
            _ => Verdict::Misfits(vec![Finding {
                pointer: String::new(),
                flaw: Flaw::Other("does not fit the schema".into()),
            }]),
        }
    }
}

/// Findings that tell most about what to do come first.
const fn rank(kind: &ValidationErrorKind) -> u8 {
    match kind {
        ValidationErrorKind::AdditionalProperties { .. } | ValidationErrorKind::UnevaluatedProperties { .. } => 0,
        ValidationErrorKind::Required { .. } => 1,
        ValidationErrorKind::Type { .. } | ValidationErrorKind::Enum { .. } => 2,
        _ => 3,
    }
}

fn finding(error: &ValidationError<'_>) -> Finding {
    // The best matching branch of an alternative says more than "none of them".
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } = error.kind()
        && let Some(deeper) = nearest(context, error.instance_path().as_str())
    {
        return deeper;
    }
    let value = error.instance();
    let flaw = match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => Flaw::Unknown(unexpected.clone()),
        ValidationErrorKind::Required { property } => {
            Flaw::Missing(property.as_str().map_or_else(|| property.to_string(), ToOwned::to_owned))
        }
        ValidationErrorKind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(name) => name.to_string(),
                TypeKind::Multiple(names) => either(names.iter().map(|name| name.to_string()).collect()),
            };
            Flaw::Other(format!("must be {wanted}, not {}", quote_with_kind(value)))
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            let wanted = wanted_types(context, error.instance_path().as_str());
            if wanted.is_empty() {
                Flaw::Other(format!("fits none of the allowed forms: {}", quote(value)))
            } else {
                Flaw::Other(format!("must be {}, not {}", either(wanted), quote_with_kind(value)))
            }
        }
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            Flaw::Other(format!("fits more than one of the allowed forms: {}", quote(value)))
        }
        ValidationErrorKind::Enum { options } => {
            let known: Vec<String> = options.as_array().map_or_else(Vec::new, |options| {
                let more = (options.len() > 20).then(|| "…".to_owned());
                options.iter().take(20).map(quote).chain(more).collect()
            });
            Flaw::Other(format!("must be one of {}, not {}", known.join(", "), quote(value)))
        }
        ValidationErrorKind::Constant { expected_value } => {
            Flaw::Other(format!("must be {}, not {}", quote(expected_value), quote(value)))
        }
        ValidationErrorKind::Minimum { limit } => {
            Flaw::Other(format!("must be at least {limit}, not {}", quote(value)))
        }
        ValidationErrorKind::Maximum { limit } => Flaw::Other(format!("must be at most {limit}, not {}", quote(value))),
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            Flaw::Other(format!("must be more than {limit}, not {}", quote(value)))
        }
        ValidationErrorKind::ExclusiveMaximum { limit } => {
            Flaw::Other(format!("must be less than {limit}, not {}", quote(value)))
        }
        ValidationErrorKind::MinLength { limit } => {
            Flaw::Other(format!("must have at least {limit} characters: {}", quote(value)))
        }
        ValidationErrorKind::MaxLength { limit } => {
            Flaw::Other(format!("must have at most {limit} characters: {}", quote(value)))
        }
        ValidationErrorKind::MinItems { limit } => Flaw::Other(format!("must have at least {limit} items")),
        ValidationErrorKind::MaxItems { limit } => Flaw::Other(format!("must have at most {limit} items")),
        ValidationErrorKind::MinProperties { limit } => Flaw::Other(format!("must have at least {limit} keys")),
        ValidationErrorKind::MaxProperties { limit } => Flaw::Other(format!("must have at most {limit} keys")),
        ValidationErrorKind::MultipleOf { multiple_of } => {
            Flaw::Other(format!("must be a multiple of {multiple_of}, not {}", quote(value)))
        }
        ValidationErrorKind::FalseSchema => Flaw::Other("is not allowed here".into()),
        ValidationErrorKind::AdditionalItems { limit } => Flaw::Other(format!("must have at most {limit} items")),
        ValidationErrorKind::UniqueItems => Flaw::Other("must not hold the same item twice".into()),
        ValidationErrorKind::Pattern { pattern } => {
            Flaw::Other(format!("must match the pattern {}, not {}", cut(pattern.clone(), 120), quote(value)))
        }
        kind => Flaw::Other(format!("does not fit `{}`: {}", kind.keyword(), quote(value))),
    };
    Finding { pointer: error.instance_path().as_str().to_owned(), flaw }
}

/// In an alternative whose branches are objects, what is wrong with the one branch that is of the right kind.
fn nearest(branches: &[Vec<ValidationError<'static>>], at: &str) -> Option<Finding> {
    let wrong_kind = |errors: &&Vec<ValidationError<'static>>| {
        errors.iter().any(|error| {
            error.instance_path().as_str() == at
                && matches!(error.kind(), ValidationErrorKind::Type { .. } | ValidationErrorKind::Constant { .. })
        })
    };
    let mut close = branches.iter().filter(|errors| !errors.is_empty() && !wrong_kind(errors));
    match (close.next(), close.next()) {
        (Some(only), None) => only.iter().min_by_key(|error| rank(error.kind())).map(finding),
        _ => None,
    }
}

/// The types that the branches ask for at the place of the alternative itself.
fn wanted_types(branches: &[Vec<ValidationError<'static>>], at: &str) -> Vec<String> {
    let mut wanted = Vec::new();
    for error in branches.iter().flatten().filter(|error| error.instance_path().as_str() == at) {
        let names: Vec<String> = match error.kind() {
            ValidationErrorKind::Type { kind: TypeKind::Single(name) } => vec![name.to_string()],
            ValidationErrorKind::Type { kind: TypeKind::Multiple(names) } => {
                names.iter().map(|name| name.to_string()).collect()
            }
            ValidationErrorKind::Constant { expected_value } => vec![quote(expected_value)],
            ValidationErrorKind::Enum { options } => {
                options.as_array().map_or_else(Vec::new, |options| options.iter().take(20).map(quote).collect())
            }
            _ => return Vec::new(),
        };
        for name in names {
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
    }
    wanted
}

/// A value in a few words: scalars as JSON, containers by their kind and size.
fn quote(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => {
            let head: String = text.chars().take(QUOTED_CHARS).collect();
            let more = if head.len() < text.len() { "…" } else { "" };
            format!("{}{more}", Value::String(head))
        }
        Value::Array(items) => format!("array of {} items", items.len()),
        Value::Object(members) if members.is_empty() => "an empty object".into(),
        Value::Object(members) => {
            let keys: Vec<&str> = members.keys().take(5).map(String::as_str).collect();
            format!("object with keys {}", cut(keys.join(", "), QUOTED_CHARS))
        }
    }
}

/// The same, with strings called so: a reader overlooks quotes around a number.
fn quote_with_kind(value: &Value) -> String {
    if value.is_string() { format!("string {}", quote(value)) } else { quote(value) }
}

/// The names joined by "or", null last.
fn either(mut names: Vec<String>) -> String {
    names.sort_by_key(|name| name == "null");
    names.join(" or ")
}

impl Finding {
    /// The part of the value in Python's spelling: `filter["since"][0]`, empty for the whole.
    #[must_use]
    pub fn place(&self) -> String {
        let mut parts = self.pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"));
        let mut place = parts.next().unwrap_or_default();
        for part in parts {
            let index = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            place.push_str(&if index { format!("[{part}]") } else { format!("[{}]", Value::String(part)) });
        }
        cut(place, 200)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn findings(schema: &Value, value: &Value) -> Vec<(String, Flaw)> {
        let schema = Schema::new(&serde_json::value::to_raw_value(schema).unwrap(), Role::Result);
        match schema.check(value, value.to_string().len()) {
            Verdict::Misfits(findings) => findings.into_iter().map(|f| (f.place(), f.flaw)).collect(),
            Verdict::Fits => Vec::new(),
            Verdict::GivenUp => panic!("given up"),
        }
    }

    fn other(words: &str) -> Flaw {
        Flaw::Other(words.into())
    }

    #[test]
    fn findings_name_the_place_and_what_is_wanted() {
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["a"], "properties": {
            "a": {"type": "integer", "minimum": 1}, "b": {"enum": ["x", "y"]},
            "c": {"type": "array", "items": {"type": "object", "properties": {"d e": {"type": ["string", "null"]}}}},
            "f": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        }});
        assert_eq!(findings(&schema, &json!({"a": "5"})), [("a".into(), other("must be integer, not string \"5\""))]);
        assert_eq!(findings(&schema, &json!({"a": 0})), [("a".into(), other("must be at least 1, not 0"))]);
        assert_eq!(
            findings(&schema, &json!({"z": 1, "b": "w"})),
            [
                (String::new(), Flaw::Unknown(vec!["z".into()])),
                (String::new(), Flaw::Missing("a".into())),
                ("b".into(), other("must be one of \"x\", \"y\", not \"w\"")),
            ]
        );
        assert_eq!(
            findings(&schema, &json!({"a": 1, "c": [{"d e": 3}]})),
            [("c[0][\"d e\"]".into(), other("must be string or null, not 3"))]
        );
        assert_eq!(
            findings(&schema, &json!({"a": 1, "f": [1]})),
            [("f".into(), other("must be string or null, not array of 1 items"))]
        );
    }

    #[test]
    fn rarer_rules_are_told_in_words_too() {
        let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {
            "m": {"multipleOf": 2}, "f": false, "i": {"items": [{"type": "string"}], "additionalItems": false},
        }});
        assert_eq!(findings(&schema, &json!({"m": 3})), [("m".into(), other("must be a multiple of 2, not 3"))]);
        assert_eq!(findings(&schema, &json!({"f": 3})), [("f".into(), other("is not allowed here"))]);
        assert_eq!(findings(&schema, &json!({"i": ["a", 1]})), [("i".into(), other("must have at most 1 items"))]);
    }

    #[test]
    fn an_alternative_of_objects_says_what_the_matching_one_misses() {
        let schema = json!({"anyOf": [
            {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind", "x"]},
            {"type": "string"},
        ]});
        assert_eq!(findings(&schema, &json!({"kind": "a"})), [(String::new(), Flaw::Missing("x".into()))]);
    }

    #[test]
    fn numbers_beyond_64_bits_are_integers_too() {
        let schema = json!({"properties": {"id": {"type": "integer"}}});
        let value: Value = serde_json::from_str(r#"{"id": 123456789012345678901234567890}"#).unwrap();
        assert_eq!(findings(&schema, &value), []);
    }

    #[test]
    fn a_huge_wrong_value_makes_a_short_finding() {
        let schema = json!({"properties": {"q": {"type": "integer"}}});
        let found = findings(&schema, &json!({"q": "é".repeat(1 << 20)}));
        assert!(matches!(&found[0].1, Flaw::Other(words) if words.len() < 300));
    }
}
