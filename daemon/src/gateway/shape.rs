//! What a JSON schema says a value looks like, in a form that a signature or a declaration can be written from.
//!
//! Reads any JSON: what is no schema, or not understood, becomes [`Shape::Any`]. References inside the document are
//! followed, once on each path; the work is bounded whatever the schema holds.

use serde_json::{Map, Value};

/// Schemas looked at for one tool.
const NODES: usize = 4_000;
/// Levels of nesting that are followed.
const LEVELS: usize = 24;

/// The look of a JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Not known, or anything.
    Any,
    /// `null`.
    Null,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// One of these scalars, each as in the schema.
    Literal(Vec<Value>),
    /// An array.
    List(Box<Shape>),
    /// An object with any keys.
    Map(Box<Shape>),
    /// An object with known keys, in the order of the schema.
    Object(Vec<Field>),
    /// One of several, never `Any`, never another union.
    Union(Vec<Shape>),
}

/// A key of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The key.
    pub name: String,
    /// Whether it must be there.
    pub required: bool,
    /// Its value.
    pub shape: Shape,
    /// What the schema says about it, may be empty.
    pub description: String,
    /// What the server assumes when it is missing.
    pub default: Option<Value>,
}

impl Field {
    /// A key that must be there, and of which nothing else is said.
    const fn any(name: String) -> Self {
        Self { name, required: true, shape: Shape::Any, description: String::new(), default: None }
    }
}

impl Shape {
    /// The shape of a whole schema document.
    #[must_use]
    pub fn of(schema: &Value) -> Self {
        Reader { root: schema, nodes: NODES, path: Vec::new() }.shape(schema, 0)
    }

    /// Whether a string is among the declared possibilities; not so for [`Shape::Any`].
    #[must_use]
    pub fn names_string(&self) -> bool {
        match self {
            Self::String => true,
            Self::Literal(values) => values.iter().any(Value::is_string),
            Self::Union(members) => members.iter().any(Self::names_string),
            Self::Any
            | Self::Null
            | Self::Integer
            | Self::Number
            | Self::Boolean
            | Self::List(_)
            | Self::Map(_)
            | Self::Object(_) => false,
        }
    }

    /// One of the given, flat and without repetition; scalars of several enumerations become one.
    #[must_use]
    pub fn union(members: impl IntoIterator<Item = Self>) -> Self {
        let mut flat: Vec<Self> = Vec::new();
        let mut queue: Vec<Self> = members.into_iter().collect();
        queue.reverse();
        while let Some(member) = queue.pop() {
            match member {
                Self::Any => return Self::Any,
                Self::Union(inner) => queue.extend(inner.into_iter().rev()),
                Self::Literal(values) => {
                    let known = flat.iter_mut().find_map(|shape| match shape {
                        Self::Literal(known) => Some(known),
                        _ => None,
                    });
                    match known {
                        Some(known) => values.into_iter().for_each(|value| {
                            if !known.contains(&value) {
                                known.push(value);
                            }
                        }),
                        None => flat.push(Self::Literal(values)),
                    }
                }
                other => {
                    if !flat.contains(&other) {
                        flat.push(other);
                    }
                }
            }
        }
        // `null` reads best at the end.
        if let Some(at) = flat.iter().position(|shape| *shape == Self::Null) {
            flat[at..].rotate_left(1);
        }
        match flat.len() {
            0 => Self::Any,
            1 => flat.swap_remove(0),
            _ => Self::Union(flat),
        }
    }
}

struct Reader<'a> {
    root: &'a Value,
    nodes: usize,
    /// References that are being followed.
    path: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn shape(&mut self, schema: &'a Value, level: usize) -> Shape {
        let Value::Object(schema) = schema else { return Shape::Any };
        if self.nodes == 0 || level > LEVELS {
            return Shape::Any;
        }
        self.nodes -= 1;
        let own = self.own(schema, level);
        let nullable = schema.get("nullable") == Some(&Value::Bool(true));
        if nullable && own != Shape::Any { Shape::union([own, Shape::Null]) } else { own }
    }

    /// Everything the schema object says, put together.
    fn own(&mut self, schema: &'a Map<String, Value>, level: usize) -> Shape {
        if let Some(value) = schema.get("const")
            && let Some(shape) = literal(std::slice::from_ref(value))
        {
            return shape;
        }
        if let Some(Value::Array(values)) = schema.get("enum")
            && let Some(shape) = literal(values)
        {
            return shape;
        }
        let mut parts = vec![self.typed(schema, level)];
        for keyword in ["$ref", "$dynamicRef"] {
            if let Some(Value::String(reference)) = schema.get(keyword) {
                parts.push(self.referred(reference, level));
            }
        }
        if let Some(Value::Array(all)) = schema.get("allOf") {
            parts.extend(all.iter().map(|part| self.shape(part, level + 1)));
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(any)) = schema.get(keyword)
                && !any.is_empty()
            {
                parts.push(Shape::union(any.iter().map(|part| self.shape(part, level + 1)).collect::<Vec<_>>()));
            }
        }
        parts.into_iter().fold(Shape::Any, both)
    }

    fn referred(&mut self, reference: &'a str, level: usize) -> Shape {
        let Some(target) = resolve(self.root, reference) else { return Shape::Any };
        if self.path.contains(&reference) {
            // The way back to a schema that is being read: its outermost form is all that can be said.
            return outermost(target);
        }
        self.path.push(reference);
        let shape = self.shape(target, level + 1);
        self.path.pop();
        shape
    }

    /// What `type` and the keywords that belong to one type say.
    fn typed(&mut self, schema: &'a Map<String, Value>, level: usize) -> Shape {
        match schema.get("type") {
            Some(Value::String(name)) => self.named(name, schema, level),
            Some(Value::Array(names)) if !names.is_empty() => Shape::union(
                names
                    .iter()
                    .map(|name| name.as_str().map_or(Shape::Any, |name| self.named(name, schema, level)))
                    .collect::<Vec<_>>(),
            ),
            _ if schema.get("properties").is_some_and(Value::is_object) => self.object(schema, level),
            _ if schema.get("required").and_then(Value::as_array).is_some_and(|names| !names.is_empty()) => {
                self.object(schema, level)
            }
            _ if schema.contains_key("items") || schema.contains_key("prefixItems") => self.list(schema, level),
            _ => Shape::Any,
        }
    }

    fn named(&mut self, name: &str, schema: &'a Map<String, Value>, level: usize) -> Shape {
        match name {
            "string" => Shape::String,
            "integer" => Shape::Integer,
            "number" => Shape::Number,
            "boolean" => Shape::Boolean,
            "null" => Shape::Null,
            "array" => self.list(schema, level),
            "object" => self.object(schema, level),
            _ => Shape::Any,
        }
    }

    fn list(&mut self, schema: &'a Map<String, Value>, level: usize) -> Shape {
        let tuple = match (schema.get("prefixItems"), schema.get("items")) {
            (Some(Value::Array(items)), _) | (_, Some(Value::Array(items))) => Some(items),
            _ => None,
        };
        let item = match (tuple, schema.get("items")) {
            (Some(items), _) if !items.is_empty() => {
                Shape::union(items.iter().map(|item| self.shape(item, level + 1)).collect::<Vec<_>>())
            }
            (_, Some(items)) => self.shape(items, level + 1),
            _ => Shape::Any,
        };
        Shape::List(Box::new(item))
    }

    fn object(&mut self, schema: &'a Map<String, Value>, level: usize) -> Shape {
        let required: Vec<&str> = match schema.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let undescribed = required.iter().filter(|name| properties.is_none_or(|known| !known.contains_key(**name)));
        let undescribed: Vec<Field> = undescribed.map(|name| Field::any((*name).to_owned())).collect();
        match properties {
            Some(properties) if !properties.is_empty() || !undescribed.is_empty() => Shape::Object(
                properties
                    .iter()
                    .map(|(name, property)| Field {
                        name: name.clone(),
                        required: required.contains(&name.as_str()),
                        shape: self.shape(property, level + 1),
                        description: property
                            .get("description")
                            .or_else(|| property.get("title"))
                            .and_then(Value::as_str)
                            .unwrap_or_default()
                            .to_owned(),
                        default: property.get("default").cloned(),
                    })
                    .chain(undescribed)
                    .collect(),
            ),
            None if !undescribed.is_empty() && !schema.contains_key("additionalProperties") => {
                Shape::Object(undescribed)
            }
            _ => {
                let values = match (schema.get("additionalProperties"), schema.get("patternProperties")) {
                    (Some(values @ Value::Object(_)), _) => self.shape(values, level + 1),
                    (_, Some(Value::Object(patterns))) if patterns.len() == 1 => {
                        patterns.values().next().map_or(Shape::Any, |values| self.shape(values, level + 1))
                    }
                    _ => Shape::Any,
                };
                Shape::Map(Box::new(values))
            }
        }
    }
}

/// A value that has both looks: the more telling one, and the fields of both objects.
fn both(one: Shape, other: Shape) -> Shape {
    match (one, other) {
        (Shape::Any, shape) | (shape, Shape::Any) => shape,
        (Shape::Object(mut fields), Shape::Object(more)) => {
            for field in more {
                match fields.iter_mut().find(|known| known.name == field.name) {
                    Some(known) => {
                        known.required |= field.required;
                        if known.shape == Shape::Any {
                            known.shape = field.shape;
                        }
                    }
                    None => fields.push(field),
                }
            }
            Shape::Object(fields)
        }
        // `{"type": "object", "anyOf": [{…}, {…}]}` says more in the second part.
        (Shape::Map(values), shape @ (Shape::Object(_) | Shape::Union(_))) if *values == Shape::Any => shape,
        (shape @ (Shape::Object(_) | Shape::Union(_)), Shape::Map(values)) if *values == Shape::Any => shape,
        (Shape::List(items), shape @ Shape::List(_)) if *items == Shape::Any => shape,
        (shape, _) => shape,
    }
}

/// An enumeration of scalars; none when a member is no scalar.
fn literal(values: &[Value]) -> Option<Shape> {
    if values.is_empty() || values.iter().any(|value| value.is_array() || value.is_object()) {
        return None;
    }
    let (nulls, mut rest): (Vec<Value>, Vec<Value>) = values.iter().cloned().partition(Value::is_null);
    let mut known: Vec<Value> = Vec::new();
    rest.retain(|value| {
        let fresh = !known.contains(value);
        if fresh {
            known.push(value.clone());
        }
        fresh
    });
    let mut members = Vec::new();
    if !rest.is_empty() {
        members.push(Shape::Literal(rest));
    }
    if !nulls.is_empty() {
        members.push(Shape::Null);
    }
    Some(Shape::union(members))
}

/// The form of a schema without its inside.
fn outermost(schema: &Value) -> Shape {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => Shape::Map(Box::new(Shape::Any)),
        Some("array") => Shape::List(Box::new(Shape::Any)),
        _ if schema.get("properties").is_some() => Shape::Map(Box::new(Shape::Any)),
        _ => Shape::Any,
    }
}

/// The schema that a reference inside the document points at: `#`, `#/a/b`, `#anchor`, also after the document's own
/// `$id`.
#[must_use]
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(root_pointer(root, reference)?.strip_prefix('#')?)
}

/// The same reference as `#` and a plain JSON pointer; none when it leads nowhere in the document.
#[must_use]
pub(super) fn root_pointer(root: &Value, reference: &str) -> Option<String> {
    let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    let own = ["$id", "id"]
        .iter()
        .any(|keyword| root.get(*keyword).and_then(Value::as_str).is_some_and(|id| id.trim_end_matches('#') == base));
    if !base.is_empty() && !own {
        return None;
    }
    if fragment.is_empty() || fragment.starts_with('/') {
        if root.pointer(fragment).is_some() {
            return Some(format!("#{fragment}"));
        }
        let decoded = percent_decoded(fragment);
        return root.pointer(&decoded).is_some().then(|| format!("#{decoded}"));
    }
    ["$defs", "definitions"].iter().find_map(|keyword| {
        root.get(*keyword)?.as_object()?.iter().find_map(|(name, schema)| {
            let anchored = ["$anchor", "$dynamicAnchor", "$id", "id"].iter().any(|keyword| {
                let address = schema.get(*keyword).and_then(Value::as_str);
                address.is_some_and(|address| address.trim_start_matches('#') == fragment)
            });
            anchored.then(|| format!("#/{keyword}/{}", name.replace('~', "~0").replace('/', "~1")))
        })
    })
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = (first == b'%')
            .then(|| tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok()))
            .flatten()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match hex {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn field(name: &str, required: bool, shape: Shape) -> Field {
        Field { name: name.into(), required, shape, description: String::new(), default: None }
    }

    #[test]
    fn unions_are_flat_and_name_each_member_once() {
        let shape =
            Shape::of(&json!({"anyOf": [{"type": "null"}, {"type": ["string", "integer"]}, {"type": "string"}]}));
        assert_eq!(shape, Shape::Union(vec![Shape::String, Shape::Integer, Shape::Null]));
        assert_eq!(Shape::of(&json!({"oneOf": [{}, {"type": "string"}]})), Shape::Any);
        assert_eq!(
            Shape::of(&json!({"oneOf": [{"const": "a"}, {"const": "b"}, {"enum": ["a", null]}]})),
            Shape::Union(vec![Shape::Literal(vec![json!("a"), json!("b")]), Shape::Null])
        );
    }

    #[test]
    fn references_are_followed_by_pointer_and_by_anchor_and_end_when_they_come_back() {
        let schema = json!({
            "type": "object",
            "properties": {
                "root": {"$ref": "#/$defs/n"}, "copy": {"$ref": "#/properties/root"},
                "named": {"$ref": "#leaf"}, "lost": {"$ref": "#/nowhere"}, "far": {"$ref": "https://example.invalid/x"}
            },
            "$defs": {
                "n": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}}},
                "l": {"$anchor": "leaf", "type": "integer"}
            }
        });
        let kids = Shape::List(Box::new(Shape::Map(Box::new(Shape::Any))));
        let node = Shape::Object(vec![field("kids", false, kids)]);
        assert_eq!(
            Shape::of(&schema),
            Shape::Object(vec![
                field("root", false, node.clone()),
                field("copy", false, node),
                field("named", false, Shape::Integer),
                field("lost", false, Shape::Any),
                field("far", false, Shape::Any),
            ])
        );
        assert_eq!(Shape::of(&json!({"$ref": "#"})), Shape::Any);
    }

    #[test]
    fn all_of_joins_the_fields_and_alternatives_do_not_hide_them() {
        let schema = json!({
            "type": "object",
            "allOf": [
                {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"b": {"type": "integer"}}}
            ],
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}]
        });
        assert_eq!(
            Shape::of(&schema),
            Shape::Object(vec![field("a", true, Shape::String), field("b", false, Shape::Integer)])
        );
    }

    #[test]
    fn a_fan_of_references_costs_a_bounded_amount() {
        let mut defs = serde_json::Map::new();
        for n in 0..60 {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            defs.insert(format!("d{n}"), json!({"properties": {"a": next, "b": next}}));
        }
        let schema = json!({"$ref": "#/$defs/d0", "$defs": defs});
        assert!(matches!(Shape::of(&schema), Shape::Object(_)));
    }

    proptest! {
        #[test]
        fn any_json_has_a_shape(value in crate::gateway::testing::schema()) {
            drop(Shape::of(&value));
        }
    }
}
