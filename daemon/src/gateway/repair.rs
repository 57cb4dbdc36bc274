//! Makes the best of a server's schema: what the validator cannot take is left out and named, the rest still holds.
//!
//! References are confined to the document, and the number of subschemas that apply to one value at once is bounded,
//! so that a check between two counted steps (see `meter`) is short.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator, error::ValidationErrorKind};
use serde_json::{Map, Value};

use super::{
    meter::Metered,
    shape::{resolve, root_pointer},
};

/// Largest schema that is checked against, in bytes.
const SCHEMA_BYTES: usize = 256 << 10;
/// Parts that may be left out before the whole schema is.
const REPAIRS: usize = 40;
/// Subschemas that may apply to one value at once, and how deep they may stand in each other.
const COST: u64 = 5_000;
const CHAIN: usize = 400;
/// Compiled size of one pattern, in bytes.
const PATTERN_BYTES: usize = 1 << 20;

/// What became of a schema.
#[derive(Debug)]
pub(super) struct Repaired {
    /// Checks values; none when nothing of the schema could be used.
    pub validator: Option<Validator<Metered>>,
    /// What was left out, one sentence each.
    pub notes: Vec<String>,
}

/// What values the schema is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Arguments of a call, which are always an object.
    Arguments,
    /// Results of a tool.
    Result,
}

/// Compiles the schema text, leaving out what cannot be compiled.
#[must_use]
pub(super) fn compile(text: &str, role: Role) -> Repaired {
    let unusable = |note: String| Repaired { validator: None, notes: vec![note] };
    if text.len() > SCHEMA_BYTES {
        return unusable(format!("schema of {} bytes is not checked against; the limit is {SCHEMA_BYTES}", text.len()));
    }
    let Ok(original) = serde_json::from_str::<Value>(text) else {
        return unusable("schema is nested too deep to be checked against".into());
    };
    let mut notes = Vec::new();
    let mut schema = confine(&original, &mut notes);
    loosen(&mut schema, Place::Document, role);
    if role == Role::Arguments && !schema.get("type").is_none_or(admits_objects) {
        remove_key(&mut schema, "type");
        notes.push("ignored the schema's `/type`, which no arguments can have".into());
    }
    if !is_bounded(&schema) {
        return unusable("schema applies too many subschemas to one value to be checked against".into());
    }
    let options = jsonschema::options_for::<Metered>()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES));
    for _ in 0..REPAIRS {
        let error = match options.build(&schema) {
            Ok(validator) => return Repaired { validator: Some(validator), notes },
            Err(error) => error,
        };
        let place = error.instance_path().as_str().to_owned();
        let removed = match error.kind() {
            ValidationErrorKind::Referencing(_) if schema.get("$schema").is_some() => remove(&mut schema, "/$schema"),
            _ => remove(&mut schema, &place),
        };
        match removed {
            Some(place) => notes.push(format!("ignored the schema's `{place}`, which is not valid here")),
            None => break,
        }
    }
    notes.push("schema cannot be compiled and is not checked against".into());
    Repaired { validator: None, notes }
}

/// Whether a value of `type` can be that of an object, as far as can be said.
fn admits_objects(kind: &Value) -> bool {
    match kind {
        Value::String(name) => name == "object",
        Value::Array(names) => names.iter().any(|name| name == "object"),
        // No type at all; the compiler says so.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
    }
}

/// Keywords whose value is data, in which nothing is a schema.
const DATA: [&str; 5] = ["const", "enum", "default", "example", "examples"];
/// Keywords that give a schema another address; references are rewritten so that none is needed.
const ADDRESSES: [&str; 7] =
    ["$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$recursiveRef"];

/// Keywords whose value holds schemas by name.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// A copy in which every reference is a JSON pointer into the document itself; others are left out and noted.
fn confine(root: &Value, notes: &mut Vec<String>) -> Value {
    let mut copy = root.clone();
    confine_in(root, &mut copy, Place::Document, notes);
    if !copy.get("$schema").is_none_or(Value::is_string) {
        remove_key(&mut copy, "$schema");
    }
    copy
}

/// What an object of a schema document is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The document.
    Document,
    /// A schema in it.
    Inside,
    /// Schemas by names of their author's choice.
    Named,
}

fn confine_in(root: &Value, value: &mut Value, place: Place, notes: &mut Vec<String>) {
    match value {
        Value::Object(members) if place == Place::Named => {
            members.values_mut().for_each(|member| confine_in(root, member, Place::Inside, notes));
        }
        Value::Object(members) => {
            members.retain(|keyword, value| {
                !(ADDRESSES.contains(&keyword.as_str()) && (value.is_string() || value.is_boolean()))
                    && (place == Place::Document || keyword != "$schema")
            });
            for keyword in ["$ref", "$dynamicRef"] {
                let Some(reference) = members.get(keyword).and_then(Value::as_str).map(ToOwned::to_owned) else {
                    continue;
                };
                members.shift_remove(keyword);
                match root_pointer(root, &reference) {
                    Some(pointer) => {
                        members.insert("$ref".into(), Value::String(pointer));
                    }
                    None => notes.push(format!("ignored a reference that leads nowhere in the schema: `{reference}`")),
                }
            }
            for (keyword, member) in members.iter_mut().filter(|(keyword, _)| !DATA.contains(&keyword.as_str())) {
                let place = if NAMED.contains(&keyword.as_str()) { Place::Named } else { Place::Inside };
                confine_in(root, member, place, notes);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| confine_in(root, item, Place::Inside, notes)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Takes schemas as their authors mean them: `nullable` of other dialects admits null, and of a call's arguments `oneOf`
/// asks for one form at least, since a server with overlapping forms takes what fits two of them.
fn loosen(value: &mut Value, place: Place, role: Role) {
    match value {
        Value::Object(members) if place == Place::Named => {
            members.values_mut().for_each(|member| loosen(member, Place::Inside, role));
        }
        Value::Object(members) => {
            if members.get("nullable") == Some(&Value::Bool(true)) {
                if let Some(Value::String(name)) = members.get("type") {
                    let both = Value::from(vec![name.as_str(), "null"]);
                    members.insert("type".into(), both);
                }
                if let Some(Value::Array(values)) = members.get_mut("enum") {
                    values.push(Value::Null);
                }
            }
            if role == Role::Arguments
                && !members.contains_key("anyOf")
                && let Some(forms) = members.shift_remove("oneOf")
            {
                members.insert("anyOf".into(), forms);
            }
            for (keyword, member) in members.iter_mut().filter(|(keyword, _)| !DATA.contains(&keyword.as_str())) {
                let place = if NAMED.contains(&keyword.as_str()) { Place::Named } else { Place::Inside };
                loosen(member, place, role);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| loosen(item, Place::Inside, role)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether no value meets more than [`COST`] subschemas at once.
fn is_bounded(schema: &Value) -> bool {
    let mut costs = Costs { root: schema, known: HashMap::new() };
    costs.all(schema)
}

struct Costs<'a> {
    root: &'a Value,
    /// By address of the schema: what it costs, or none while it is being computed.
    known: HashMap<usize, Option<(u64, usize)>>,
}

impl<'a> Costs<'a> {
    /// Whether every object of the document, taken as a schema, is within bounds.
    fn all(&mut self, value: &'a Value) -> bool {
        match value {
            Value::Object(members) => {
                self.cost(value, 0).is_some_and(|(cost, chain)| cost <= COST && chain <= CHAIN)
                    && members.values().all(|member| self.all(member))
            }
            Value::Array(items) => items.iter().all(|item| self.all(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }

    /// Subschemas that a value meets in this one, and the longest chain of them; none when it is beyond bounds.
    fn cost(&mut self, schema: &'a Value, depth: usize) -> Option<(u64, usize)> {
        let Value::Object(members) = schema else { return Some((1, 1)) };
        if depth > CHAIN {
            return None;
        }
        let address = std::ptr::from_ref(schema).addr();
        match self.known.get(&address) {
            Some(Some(known)) => return Some(*known),
            // A schema that applies itself to the same value; the validator stops there too.
            Some(None) => return Some((1, 1)),
            None => {}
        }
        self.known.insert(address, None);
        let (mut cost, mut chain) = (1_u64, 0_usize);
        for part in self.in_place(members) {
            let (more, longer) = self.cost(part, depth + 1)?;
            cost = cost.saturating_add(more);
            chain = chain.max(longer);
        }
        self.known.insert(address, Some((cost, chain + 1)));
        Some((cost, chain + 1))
    }

    /// The subschemas that apply to the same value.
    fn in_place(&self, members: &'a Map<String, Value>) -> Vec<&'a Value> {
        let mut parts = Vec::new();
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(items)) => parts.extend(items),
                ("not" | "if" | "then" | "else", schema) => parts.push(schema),
                ("dependentSchemas" | "dependencies", Value::Object(schemas)) => parts.extend(schemas.values()),
                ("$ref", Value::String(reference)) => parts.extend(resolve(self.root, reference)),
                _ => {}
            }
        }
        parts
    }
}

/// Takes out what stands at the pointer; where a schema must stand, an empty one takes its place. Tells the pointer,
/// or none when there is nothing to take out.
fn remove(schema: &mut Value, pointer: &str) -> Option<String> {
    let (parent, last) = pointer.rsplit_once('/')?;
    let holder = parent.rsplit('/').next().unwrap_or_default().to_owned();
    let container = schema.pointer_mut(parent)?;
    let key = last.replace("~1", "/").replace("~0", "~");
    match container {
        Value::Object(members) => {
            if !members.contains_key(&key) {
                return None;
            }
            // A key pattern that cannot be compiled is left out with its schema.
            let named = NAMED.contains(&holder.as_str()) && holder != "patternProperties";
            if named && !members.get(&key).is_some_and(|value| *value == Value::Bool(true)) {
                members.insert(key, Value::Bool(true));
            } else {
                members.shift_remove(&key);
            }
        }
        Value::Array(items) => {
            let at: usize = key.parse().ok().filter(|at| *at < items.len())?;
            if ["anyOf", "oneOf", "allOf", "prefixItems", "items"].contains(&holder.as_str())
                && items[at] != Value::Bool(true)
            {
                items[at] = Value::Bool(true);
            } else {
                items.remove(at);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(pointer.to_owned())
}

fn remove_key(value: &mut Value, key: &str) {
    if let Value::Object(members) = value {
        members.shift_remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::gateway::meter::{Allowance, MeteredNode, run};

    fn compiled(text: &str) -> Repaired {
        compile(text, Role::Result)
    }

    fn fits(repaired: &Repaired, value: &Value) -> bool {
        let allowance = Allowance { steps: 100_000, time: Duration::from_secs(5) };
        let validator = repaired.validator.as_ref().expect("compiled");
        run(allowance, || validator.is_valid(MeteredNode(value))).unwrap()
    }

    #[test]
    fn a_pattern_of_another_dialect_is_left_out_and_the_rest_holds() {
        for pattern in ["^(?!tmp).*$", "^[^\\s-\\d", "^(a+)+(?!b)$", "["] {
            let schema =
                json!({"type": "object", "properties": {"q": {"type": "string", "pattern": pattern, "maxLength": 40}}});
            let repaired = compiled(&schema.to_string());
            assert_eq!(repaired.notes.len(), 1, "{pattern}: {:?}", repaired.notes);
            assert!(fits(&repaired, &json!({"q": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"})), "{pattern}");
            assert!(!fits(&repaired, &json!({"q": 5})), "{pattern}");
        }
        for pattern in ["(?P<id>[a-z]+)", "^https\\:\\/\\/", "(a+)+$"] {
            let schema = json!({"properties": {"q": {"type": "string", "pattern": pattern}}});
            assert!(compiled(&schema.to_string()).validator.is_some(), "{pattern}");
        }
    }

    #[test]
    fn a_bad_key_pattern_is_left_out() {
        let schema = json!({"type": "object", "patternProperties": {"(?!x)y": {"type": "string"}}, "required": ["a"]});
        let repaired = compiled(&schema.to_string());
        assert!(fits(&repaired, &json!({"a": 1})), "{:?}", repaired.notes);
        assert!(!fits(&repaired, &json!({})));
    }

    #[test]
    fn dialects_known_and_unknown() {
        let draft4 = json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}});
        let repaired = compiled(&draft4.to_string());
        assert!(repaired.notes.is_empty(), "{:?}", repaired.notes);
        assert!(fits(&repaired, &json!({"n": 1})) && !fits(&repaired, &json!({"n": 0})));

        let own = compiled(
            &json!({"$schema": "https://example.invalid/own-dialect", "type": "object", "required": ["n"]}).to_string(),
        );
        assert_eq!(own.notes.len(), 1, "{:?}", own.notes);
        assert!(fits(&own, &json!({"n": 1})) && !fits(&own, &json!({})));

        let any = compiled(&json!({"type": "any"}).to_string());
        assert!(fits(&any, &json!({"n": 1})), "{:?}", any.notes);
        let mixed = compiled(&json!({"type": "object", "properties": {"a": {"type": "any"}, "b": "string", "c": {"exclusiveMinimum": true}},
            "required": ["b"], "additionalProperties": false}).to_string());
        assert!(fits(&mixed, &json!({"b": 1})) && !fits(&mixed, &json!({"a": 1})), "{:?}", mixed.notes);
    }

    #[test]
    fn references_stay_in_the_document() {
        let schema = json!({"$id": "https://example.invalid/s", "type": "object", "properties": {
            "own": {"$ref": "https://example.invalid/s#/$defs/n"}, "far": {"$ref": "https://other.invalid/x"},
            "lost": {"$ref": "#/$defs/none"}, "anchored": {"$ref": "#num"},
        }, "$defs": {"n": {"$anchor": "num", "type": "integer"}}});
        let repaired = compiled(&schema.to_string());
        assert_eq!(repaired.notes.len(), 2, "{:?}", repaired.notes);
        assert!(fits(&repaired, &json!({"own": 1, "far": "x", "lost": [], "anchored": 2})));
        assert!(!fits(&repaired, &json!({"own": "x"})));
        assert!(!fits(&repaired, &json!({"anchored": "x"})));
    }

    #[test]
    fn a_schema_that_fans_out_is_not_checked_against() {
        for leaf in [json!(false), json!({"type": "integer"}), json!({"not": {}})] {
            let mut defs = Map::new();
            for n in 0..40 {
                let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
                defs.insert(format!("d{n}"), json!({"anyOf": [next, {"allOf": [next]}]}));
            }
            defs.insert("d40".into(), leaf);
            let repaired = compiled(&json!({"$ref": "#/$defs/d0", "$defs": defs}).to_string());
            assert!(repaired.validator.is_none(), "{:?}", repaired.notes);
        }
        let tree = json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}}});
        assert!(!fits(&compiled(&tree.to_string()), &json!({"kids": [{"kids": [5]}]})));
        assert!(compiled(&json!({"$ref": "#"}).to_string()).validator.is_some());
    }

    #[test]
    fn nullable_admits_null_and_overlapping_forms_of_arguments_are_no_fault() {
        let schema = json!({"type": "object", "properties": {
            "v": {"type": "string", "nullable": true}, "e": {"type": "string", "enum": ["a"], "nullable": true},
            "nullable": {"type": "string"}, "n": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        }});
        for role in [Role::Arguments, Role::Result] {
            let repaired = compile(&schema.to_string(), role);
            assert!(fits(&repaired, &json!({"v": null, "e": null, "n": 1.5})), "{role:?}: {:?}", repaired.notes);
            assert!(!fits(&repaired, &json!({"nullable": null})) && !fits(&repaired, &json!({"n": "x"})), "{role:?}");
            assert_eq!(fits(&repaired, &json!({"n": 1})), role == Role::Arguments);
        }
    }

    #[test]
    fn arguments_are_objects_whatever_the_schema_says() {
        for kind in [json!("string"), json!(["string", "null"]), json!("any")] {
            let schema = json!({"type": kind, "required": ["a"]});
            let repaired = compile(&schema.to_string(), Role::Arguments);
            assert_eq!(repaired.notes.len(), 1, "{:?}", repaired.notes);
            assert!(fits(&repaired, &json!({"a": 1})) && !fits(&repaired, &json!({})), "{kind}");
        }
        let plain = compile(&json!({"type": ["object", "null"]}).to_string(), Role::Arguments);
        assert!(plain.notes.is_empty() && fits(&plain, &json!({})));
        let text = compile(&json!({"type": "string"}).to_string(), Role::Result);
        assert!(text.notes.is_empty() && !fits(&text, &json!({})));
    }

    #[test]
    fn too_large_and_too_deep_are_said() {
        let large = compiled(&json!({"description": "x".repeat(SCHEMA_BYTES)}).to_string());
        assert!(large.validator.is_none() && large.notes[0].contains("limit"));
        let deep = compiled(&format!("{}{}", "{\"not\":".repeat(200), "{}".to_owned() + &"}".repeat(200)));
        assert!(deep.validator.is_none() && deep.notes[0].contains("deep"));
    }

    proptest! {
        #[test]
        fn any_schema_is_compiled_or_given_up_with_a_note(
            schema in crate::gateway::testing::schema(),
            value in crate::gateway::testing::json(),
        ) {
            let repaired = compiled(&schema.to_string());
            match &repaired.validator {
                Some(validator) => {
                    let allowance = Allowance { steps: 20_000, time: Duration::from_secs(1) };
                    let _verdict = run(allowance, || validator.iter_errors(MeteredNode(&value)).count());
                }
                None => prop_assert!(!repaired.notes.is_empty()),
            }
        }
    }
}
