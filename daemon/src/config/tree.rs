//! YAML text to a tree in which every key and value knows its line and column.
//!
//! Scalars keep the text the person wrote: whether `1.10` is a number is decided by the key that reads it. Aliases are
//! copied in and merge keys (`<<`) are resolved here, so readers above see plain mappings with unique keys. The tree
//! never knows which keys exist.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::error::{Fault, Position};

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
    let hint = if before.contains("${") {
        "; inside `{…}` and `[…]`, a value with `${…}` must be quoted"
    } else if before.trim_start_matches(' ').starts_with('\t') {
        "; YAML does not indent with tabs, use spaces"
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
    merges: Vec<Entry>,
    key: Option<Key>,
}

/// The key whose value comes next.
enum Key {
    Text {
        at: Position,
        text: String,
    },
    Merge {
        at: Position,
    },
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
                    return Err(Fault::new(at, "", "this alias stands inside the value it refers to"));
                };
                let (node, weight) = (node.clone(), *weight);
                self.charge(weight, at)?;
                self.attach(node)
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
            self.faults.push(Fault::new(at, "", "YAML tags are not supported here; remove the `!…`"));
        }
        found.copied()
    }

    fn charge(&mut self, weight: usize, at: Position) -> Result<(), Fault> {
        self.weight += weight;
        if self.weight > MAX_WEIGHT {
            return Err(Fault::new(at, "", "the file is too large once its aliases are filled in"));
        }
        Ok(())
    }

    fn open(&mut self, frame: Frame) -> Result<(), Fault> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(Fault::new(frame.at, "", format!("nested deeper than {MAX_DEPTH} levels")));
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
        self.attach(node)
    }

    fn attach(&mut self, node: Node) -> Result<(), Fault> {
        match self.stack.last_mut().map(|frame| &mut frame.collection) {
            None => self.root = Some(node),
            Some(Collection::Sequence(items)) => items.push(node),
            Some(Collection::Mapping(mapping)) => match mapping.key.take() {
                None => {
                    let key = mapping.accept_key(node, self.faults);
                    mapping.key = Some(key);
                }
                Some(Key::Text { at, text }) => mapping.entries.push(Entry { at, key: text, value: node }),
                Some(Key::Merge { at }) => mapping.merges.push(Entry { at, key: String::from("<<"), value: node }),
                Some(Key::Refused) => {}
            },
        }
        Ok(())
    }

    /// The mapping's own entries followed by those of its `<<` values that it does not set itself.
    fn merge(&mut self, mapping: OpenMapping) -> Result<Vec<Entry>, Fault> {
        let OpenMapping { mut entries, mut first, merges, .. } = mapping;
        for merge in merges {
            let at = merge.value.at;
            let sources = match merge.value.value {
                Value::Sequence(items) => items,
                Value::Mapping(_) | Value::Scalar(_) => vec![merge.value],
            };
            for source in sources {
                if source.is_null() {
                    continue;
                }
                let Value::Mapping(merged) = source.value else {
                    self.faults.push(Fault::new(at, "", "`<<` merges a mapping or a list of mappings"));
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

impl OpenMapping {
    fn accept_key(&mut self, node: Node, faults: &mut Vec<Fault>) -> Key {
        let at = node.at;
        let Value::Scalar(scalar) = node.value else {
            faults.push(Fault::new(at, "", "a key must be a plain text, not a list or a mapping"));
            return Key::Refused;
        };
        let merge = scalar.plain && scalar.text == "<<";
        if let Some(first) = self.first.get(&scalar.text) {
            let advice = if merge { "; merge several with `<<: [*a, *b]`" } else { "" };
            faults.push(Fault::new(
                at,
                "",
                format!("the key `{}` stands twice in one mapping, first in line {}{advice}", scalar.text, first.line),
            ));
            return Key::Refused;
        }
        self.first.insert(scalar.text.clone(), at);
        if merge { Key::Merge { at } } else { Key::Text { at, text: scalar.text } }
    }
}
