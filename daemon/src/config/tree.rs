//! YAML text to a tree in which every key and value knows its line and column.
//!
//! Scalars keep the text the person wrote: whether `1.10` is a number is decided by the key that reads it. Aliases are
//! copied in and merge keys (`<<`) are resolved here, so readers above see plain mappings with unique keys. The tree
//! never knows which keys exist.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::{
    error::{Fault, Position},
    reader::joined,
};

/// Levels of nesting accepted; the configuration itself needs five.
const MAX_DEPTH: usize = 64;
/// Nodes (and 32-byte pieces of text) accepted after aliases are copied in. A file of the accepted size without
/// aliases stays below it; an alias bomb does not.
const MAX_WEIGHT: usize = 600_000;

/// One value with its place.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) value: Value,
}

/// What a node is.
#[derive(Clone)]
pub(super) enum Value {
    Scalar(Scalar),
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// A text as written.
#[derive(Clone)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Neither quoted nor a block, so it may mean null.
    pub(super) plain: bool,
}

impl Scalar {
    pub(super) fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

/// One key of a mapping with its value.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) at: Position,
    pub(super) key: String,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.is_null())
    }

    /// What it is, in words a person knows.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar(scalar) if scalar.is_null() => "nothing",
            Value::Scalar(_) => "a plain value",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    fn weight(&self) -> usize {
        match &self.value {
            Value::Scalar(scalar) => 1 + scalar.text.len() / 32,
            Value::Sequence(items) => 1 + items.iter().map(Self::weight).sum::<usize>(),
            Value::Mapping(entries) => {
                1 + entries.iter().map(|e| 1 + e.key.len() / 32 + e.value.weight()).sum::<usize>()
            }
        }
    }
}

/// Reads one document. `None` when the text holds no value at all (empty, or only comments). Faults that leave a usable
/// tree (duplicate keys, tags) are collected; a syntax error is the last one and leaves no tree.
pub(super) fn parse(text: &str, faults: &mut Vec<Fault>) -> Option<Node> {
    let mut builder = Builder { faults, stack: Vec::new(), anchors: HashMap::new(), root: None, weight: 0 };
    let mut documents = 0_usize;
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = match event {
            Ok(found) => found,
            Err(error) => {
                let at = position(error.marker());
                builder.faults.push(Fault::new(at, "", syntax(error.info(), text, at)));
                return None;
            }
        };
        let at = position(&span.start);
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                builder.faults.push(Fault::new(at, "", "a second document starts here; the file must hold only one"));
                return None;
            }
        }
        if let Err(fault) = builder.accept(event, at) {
            builder.faults.push(fault);
            return None;
        }
    }
    // A document of comments alone has no node, or an empty scalar when it was opened with `---`.
    builder.root.filter(|root| !root.is_null())
}

fn position(marker: &Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

fn syntax(info: &str, text: &str, at: Position) -> String {
    let line = text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
    let before: String = line.chars().take(at.column).collect();
    let hint = if info.contains("anchor") {
        "; a value that begins with `*`, such as a pattern, must be quoted"
    } else if before.contains("${") {
        "; inside `{…}` and `[…]`, a value with `${…}` must be quoted"
    } else if info.contains("tab") || before.trim_start_matches(' ').starts_with('\t') {
        "; YAML does not indent with tabs, use spaces"
    } else if info.contains("mapping values are not allowed") {
        "; is the indentation right, and is a value quoted that holds `: `?"
    } else if info.contains("expected key") || info.contains("indentation") {
        "; is the indentation right?"
    } else if info.contains("unexpected character") {
        "; a value that begins so must be quoted"
    } else {
        ""
    };
    format!("not valid YAML: {info}{hint}")
}

/// A collection that is still open.
struct Frame {
    at: Position,
    anchor: usize,
    collection: Collection,
}

enum Collection {
    Sequence(Vec<Node>),
    Mapping(OpenMapping),
}

#[derive(Default)]
struct OpenMapping {
    entries: Vec<Entry>,
    first: HashMap<String, Position>,
    merges: Vec<Node>,
    key: Option<Key>,
}

/// The key whose value comes next.
enum Key {
    Text {
        at: Position,
        text: String,
    },
    Merge,
    /// Already reported; its value is dropped.
    Refused,
}

struct Builder<'a> {
    faults: &'a mut Vec<Fault>,
    stack: Vec<Frame>,
    anchors: HashMap<usize, (Node, usize)>,
    root: Option<Node>,
    weight: usize,
}

impl Builder<'_> {
    fn accept(&mut self, event: Event<'_>, at: Position) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag = self.tag(tag.as_deref(), at, &["str", "int", "float", "bool", "null"]);
                let plain = style == ScalarStyle::Plain && text_tag != Some("str");
                let node = Node { at, value: Value::Scalar(Scalar { text: text.into_owned(), plain }) };
                self.complete(node, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.tag(tag.as_deref(), at, &["seq"]);
                self.open(Frame { at, anchor, collection: Collection::Sequence(Vec::new()) })
            }
            Event::MappingStart(anchor, tag) => {
                self.tag(tag.as_deref(), at, &["map"]);
                self.open(Frame { at, anchor, collection: Collection::Mapping(OpenMapping::default()) })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(frame) = self.stack.pop() else { return Ok(()) };
                let value = match frame.collection {
                    Collection::Sequence(items) => Value::Sequence(items),
                    Collection::Mapping(mapping) => Value::Mapping(self.merge(mapping)?),
                };
                self.complete(Node { at: frame.at, value }, frame.anchor)
            }
            Event::Alias(id) => {
                let Some((node, weight)) = self.anchors.get(&id) else {
                    return Err(self.fault(at, "this alias stands inside the value it refers to"));
                };
                let (node, weight) = (node.clone(), *weight);
                self.charge(weight, at)?;
                self.attach(node);
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    /// The core-schema tag's name when it is one of `known`; any other tag is a fault.
    fn tag(&mut self, tag: Option<&Tag>, at: Position, known: &[&'static str]) -> Option<&'static str> {
        let tag = tag?;
        let found = known.iter().find(|name| tag.is_yaml_core_schema() && tag.suffix == **name);
        // A lone `!` only says "not plain".
        if found.is_none() && !(tag.handle.is_empty() && tag.suffix == "!") {
            let fault = self.fault(at, "YAML tags are not supported here; remove the `!…`");
            self.faults.push(fault);
        }
        found.copied()
    }

    fn charge(&mut self, weight: usize, at: Position) -> Result<(), Fault> {
        self.weight += weight;
        if self.weight > MAX_WEIGHT {
            return Err(self.fault(at, "the file is too large once its aliases are filled in"));
        }
        Ok(())
    }

    fn open(&mut self, frame: Frame) -> Result<(), Fault> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(self.fault(frame.at, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.stack.push(frame);
        Ok(())
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        let own = match &node.value {
            Value::Scalar(scalar) => 1 + scalar.text.len() / 32,
            Value::Sequence(_) | Value::Mapping(_) => 1,
        };
        self.charge(own, node.at)?;
        if anchor > 0 {
            let weight = node.weight();
            self.charge(weight, node.at)?;
            self.anchors.insert(anchor, (node.clone(), weight));
        }
        self.attach(node);
        Ok(())
    }

    fn attach(&mut self, node: Node) {
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut frame.collection {
            Collection::Sequence(items) => items.push(node),
            Collection::Mapping(mapping) => match mapping.key.take() {
                Some(Key::Text { at, text }) => mapping.entries.push(Entry { at, key: text, value: node }),
                Some(Key::Merge) => mapping.merges.push(node),
                Some(Key::Refused) => {}
                None => match mapping.accept_key(node) {
                    Ok(key) => mapping.key = Some(key),
                    Err(refused) => {
                        mapping.key = Some(Key::Refused);
                        self.faults.push(Fault::new(refused.at, self.path(&refused.text), refused.message));
                    }
                },
            },
        }
    }

    /// The path of what is being read, as in `servers[1].env`, with one more key where there is one.
    fn path(&self, last: &str) -> String {
        let mut path = String::new();
        for frame in &self.stack {
            match &frame.collection {
                Collection::Sequence(items) => path.push_str(&format!("[{}]", items.len())),
                Collection::Mapping(mapping) => match &mapping.key {
                    Some(Key::Text { text, .. }) => path = joined(&path, text),
                    Some(Key::Merge) => path = joined(&path, "<<"),
                    Some(Key::Refused) | None => {}
                },
            }
        }
        if last.is_empty() { path } else { joined(&path, last) }
    }

    fn fault(&self, at: Position, message: impl Into<String>) -> Fault {
        Fault::new(at, self.path(""), message)
    }

    /// The mapping's own entries followed by those of its `<<` values that it does not set itself.
    fn merge(&mut self, mapping: OpenMapping) -> Result<Vec<Entry>, Fault> {
        let OpenMapping { mut entries, mut first, merges, .. } = mapping;
        for merge in merges {
            let at = merge.at;
            let sources = match merge.value {
                Value::Sequence(items) => items,
                Value::Mapping(_) | Value::Scalar(_) => vec![merge],
            };
            for source in sources {
                if source.is_null() {
                    continue;
                }
                let Value::Mapping(merged) = source.value else {
                    let fault = self.fault(at, "`<<` merges a mapping or a list of mappings");
                    self.faults.push(fault);
                    continue;
                };
                for entry in merged {
                    if first.contains_key(&entry.key) {
                        continue;
                    }
                    self.charge(1, at)?;
                    first.insert(entry.key.clone(), entry.at);
                    entries.push(entry);
                }
            }
        }
        Ok(entries)
    }
}

/// Why a key is not accepted.
struct RefusedKey {
    at: Position,
    text: String,
    message: String,
}

impl OpenMapping {
    fn accept_key(&mut self, node: Node) -> Result<Key, RefusedKey> {
        let at = node.at;
        let Value::Scalar(scalar) = node.value else {
            let message = String::from("a key must be a plain text, not a list or a mapping");
            return Err(RefusedKey { at, text: String::new(), message });
        };
        let merge = scalar.plain && scalar.text == "<<";
        if let Some(first) = self.first.get(&scalar.text) {
            let advice = if merge { "; merge several with `<<: [*a, *b]`" } else { "" };
            let message = format!("stands twice in the same mapping, first in line {}{advice}", first.line);
            return Err(RefusedKey { at, text: scalar.text, message });
        }
        self.first.insert(scalar.text.clone(), at);
        Ok(if merge { Key::Merge } else { Key::Text { at, text: scalar.text } })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_yaml::Value as Other;

    use super::*;

    fn read(text: &str) -> (Option<Node>, Vec<Fault>) {
        let mut faults = Vec::new();
        let node = parse(text, &mut faults);
        (node, faults)
    }

    /// Whether the tree says the same as the other reader's value; that one has lost how scalars were written.
    fn same(node: &Node, other: &Other) -> bool {
        match (&node.value, other) {
            (Value::Scalar(scalar), Other::String(text)) => scalar.text == *text && !scalar.is_null(),
            (Value::Scalar(scalar), Other::Null) => scalar.is_null(),
            (Value::Scalar(scalar), Other::Bool(value)) => scalar.plain && scalar.text == value.to_string(),
            (Value::Scalar(scalar), Other::Number(value)) => scalar.plain && scalar.text == value.to_string(),
            (Value::Sequence(items), Other::Sequence(others)) => {
                items.len() == others.len() && items.iter().zip(others).all(|(item, other)| same(item, other))
            }
            (Value::Mapping(entries), Other::Mapping(others)) => {
                entries.len() == others.len()
                    && entries.iter().all(|entry| {
                        others.get(Other::String(entry.key.clone())).is_some_and(|other| same(&entry.value, other))
                    })
            }
            _ => false,
        }
    }

    fn document() -> impl Strategy<Value = Other> {
        let leaf = prop_oneof![
            Just(Other::Null),
            any::<bool>().prop_map(Other::Bool),
            any::<i64>().prop_map(|number| Other::Number(number.into())),
            // What YAML gives a meaning, what needs quotes, and what needs a block.
            "[a-z~:#\\-{}\\[\\]&*!|>'\"%@`,? \n0-9.é]{0,12}".prop_map(Other::String),
            "(null|true|no|1\\.10|0o17|1e3|<<)".prop_map(Other::String),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Other::Sequence),
                prop::collection::btree_map("[a-z][a-z0-9_-]{0,6}", inner, 0..4)
                    .prop_map(|all| Other::Mapping(all.into_iter().map(|(k, v)| (Other::String(k), v)).collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn another_reader_of_yaml_agrees(value in document()) {
            let text = serde_yaml::to_string(&value).unwrap();
            let (node, faults) = read(&text);
            prop_assert_eq!(faults, [], "{}", text);
            match node {
                Some(node) => prop_assert!(same(&node, &value), "{}", text),
                None => prop_assert!(value.is_null(), "{}", text),
            }
        }

        #[test]
        fn no_text_panics_and_every_place_lies_in_the_text(text in "[a-c~:#\\-{}\\[\\]&*!|>'\"%@`,? \n\t\r.<é\u{0}\u{feff}]{0,60}") {
            let (_, faults) = read(&text);
            let lines = text.split(['\n', '\r']).count();
            for fault in faults {
                let at = fault.at.unwrap();
                prop_assert!(at.line >= 1 && at.line <= lines + 1 && at.column >= 1, "{:?} {:?}", text, fault);
            }
        }
    }

    #[test]
    fn large_files_of_one_kind_are_read_in_time() {
        for piece in [
            "[",
            "{",
            "a: ",
            "- ",
            "? ",
            "'",
            "&a ",
            "!a ",
            "x\n",
            "a: b\n",
            "[],",
            "#\n",
            "- - - x\n",
            "{}",
            "|\n",
            "\t",
            "a:\n ",
        ] {
            let text = piece.repeat((1 << 18) / piece.len());
            let start = std::time::Instant::now();
            drop(read(&text));
            // Linear reading takes well under a second; anything quadratic takes minutes.
            assert!(start.elapsed().as_secs() < 20, "{piece:?} took {:?}", start.elapsed());
        }
    }
}
