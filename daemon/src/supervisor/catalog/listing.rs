//! From the pages of `tools/list` to definitions: whatever is wrong with one tool concerns that tool alone.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::supervisor::{log::cut, mirror};

/// Tools of one server that are kept.
pub(in crate::supervisor) const MAX_TOOLS: usize = 4096;

/// Longest description kept, in bytes.
const DESCRIPTION_BYTES: usize = 64 * 1024;

/// Longest schema kept, in bytes.
const SCHEMA_BYTES: usize = 1 << 20;

/// Longest name accepted, in bytes.
const NAME_BYTES: usize = 512;

/// Warnings kept of one listing.
const WARNINGS: usize = 20;

/// One page as the server sent it.
#[derive(Debug)]
pub(in crate::supervisor) struct Page<'a> {
    pub(in crate::supervisor) tools: Vec<&'a RawValue>,
    pub(in crate::supervisor) cursor: Option<String>,
}

impl<'a> Page<'a> {
    /// Reads a `tools/list` result.
    ///
    /// # Errors
    /// It holds no list of tools.
    pub(in crate::supervisor) fn read(raw: &'a RawValue) -> Result<Self, String> {
        let members: BTreeMap<String, &RawValue> =
            serde_json::from_str(raw.get()).map_err(|_| "the answer to tools/list is not an object".to_owned())?;
        let tools = match members.get("tools").map(|tools| tools.get()) {
            None | Some("null") => return Err("the answer to tools/list has no `tools`".into()),
            Some(text) => serde_json::from_str(text).map_err(|_| "`tools` is not an array".to_owned())?,
        };
        let cursor = members.get("nextCursor").and_then(|cursor| match serde_json::from_str(cursor.get()) {
            Ok(serde_json::Value::String(text)) if !text.is_empty() => Some(text),
            // Some servers send a number; it goes back as text, as the protocol has it.
            Ok(serde_json::Value::Number(number)) => Some(number.to_string()),
            _ => None,
        });
        Ok(Self { tools, cursor })
    }
}

/// A tool as its server defines it.
#[derive(Debug, Clone)]
pub(in crate::supervisor) struct Definition {
    pub(in crate::supervisor) name: String,
    pub(in crate::supervisor) title: String,
    pub(in crate::supervisor) description: String,
    pub(in crate::supervisor) input_schema: Box<RawValue>,
    pub(in crate::supervisor) output_schema: Option<Box<RawValue>>,
    pub(in crate::supervisor) annotations: Option<Box<RawValue>>,
    /// The whole definition, to tell repeats from conflicts.
    text: String,
}

/// All tools of a server, by its own names.
#[derive(Debug, Default)]
pub(in crate::supervisor) struct Listing {
    pub(in crate::supervisor) tools: BTreeMap<String, Definition>,
    /// One sentence each.
    pub(in crate::supervisor) warnings: Vec<String>,
    left_out: usize,
    /// Whether tools may ask that arguments are mirrored beside the message.
    mirrors: bool,
}

impl Listing {
    /// An empty list. Where arguments are mirrored, tools that ask for it against the rules are hidden, as the protocol
    /// wants it.
    pub(in crate::supervisor) fn new(mirrors: bool) -> Self {
        Self { mirrors, ..Self::default() }
    }

    /// Takes in a tool. Whether it was new.
    pub(in crate::supervisor) fn add(&mut self, raw: &RawValue) -> bool {
        let mut notes = Vec::new();
        let read = definition(raw, &mut notes).and_then(|definition| match mirror::check(&definition.input_schema) {
            Err(broken) if self.mirrors => Err(format!("hid tool `{}`: {broken}", cut(&definition.name, 80))),
            Ok(()) | Err(_) => Ok(definition),
        });
        for note in notes {
            self.warn(note);
        }
        let definition = match read {
            Ok(definition) => definition,
            Err(reason) => {
                self.warn(reason);
                return false;
            }
        };
        if let Some(known) = self.tools.get_mut(&definition.name) {
            if known.text != definition.text {
                let name = cut(&known.name, 80).to_owned();
                // The choice must not depend on the order of the list.
                if definition.text < known.text {
                    *known = definition;
                }
                self.warn(format!("tool `{name}` is defined twice; one definition is hidden"));
            }
            return false;
        }
        if self.tools.len() == MAX_TOOLS {
            self.left_out += 1;
            return false;
        }
        self.tools.insert(definition.name.clone(), definition);
        true
    }

    /// Whether both define the same tools in the same words.
    pub(in crate::supervisor) fn same(&self, other: &Self) -> bool {
        self.warnings == other.warnings
            && self.tools.len() == other.tools.len()
            && self.tools.values().zip(other.tools.values()).all(|(one, two)| one.text == two.text)
    }

    /// Adds a warning.
    pub(in crate::supervisor) fn warn(&mut self, text: String) {
        if self.warnings.len() < WARNINGS && !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Says what did not fit.
    pub(in crate::supervisor) fn finish(&mut self) {
        if self.left_out > 0 {
            let text = format!("{} tools over the limit of {MAX_TOOLS} are hidden", self.left_out);
            self.warnings.insert(0, text);
        }
    }
}

fn definition(raw: &RawValue, notes: &mut Vec<String>) -> Result<Definition, String> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get())
        .map_err(|_| format!("hid a tool that is no object: `{}`", cut(raw.get(), 60)))?;
    let text_of = |key: &str| members.get(key).map(|value| serde_json::from_str::<String>(value.get()));
    let name = match text_of("name") {
        Some(Ok(name)) if name.trim().is_empty() => return Err("hid a tool without a name".into()),
        Some(Ok(name)) if name.len() > NAME_BYTES => {
            return Err(format!("hid tool `{}…`: its name is too long", cut(&name, 60)));
        }
        Some(Ok(name)) => name,
        Some(Err(_)) => return Err("hid a tool whose name is no text".into()),
        None => return Err("hid a tool without a name".into()),
    };
    let shown = cut(&name, 80).to_owned();
    let mut text = |key: &str| match text_of(key) {
        None => String::new(),
        Some(Ok(text)) => {
            if text.len() > DESCRIPTION_BYTES {
                notes.push(format!("tool `{shown}`: {key} cut to {DESCRIPTION_BYTES} bytes"));
            }
            cut(&text, DESCRIPTION_BYTES).to_owned()
        }
        Some(Err(_)) if members[key].get() == "null" => String::new(),
        Some(Err(_)) => {
            notes.push(format!("tool `{shown}`: ignored its {key}, which is no text"));
            String::new()
        }
    };
    let (title, description) = (text("title"), text("description"));
    let mut object = |key: &str, limit: usize| {
        let value = members.get(key).filter(|value| value.get() != "null")?;
        if !value.get().starts_with('{') {
            notes.push(format!("tool `{shown}`: ignored its {key}, which is no object"));
            return None;
        }
        if value.get().len() > limit {
            notes.push(format!("tool `{shown}`: ignored its {key}, which is over {limit} bytes"));
            return None;
        }
        Some((*value).to_owned())
    };
    let input_schema = object("inputSchema", SCHEMA_BYTES);
    let output_schema = object("outputSchema", SCHEMA_BYTES);
    let annotations = object("annotations", DESCRIPTION_BYTES);
    let any_object = || RawValue::from_string(r#"{"type":"object"}"#.to_owned()).map_err(|error| error.to_string());
    let input_schema = match input_schema {
        Some(schema) => schema,
        None => any_object()?,
    };
    let text = raw.get().to_owned();
    Ok(Definition { name, title, description, input_schema, output_schema, annotations, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(tools: &[&str]) -> Listing {
        let mut listing = Listing::default();
        for tool in tools {
            listing.add(&RawValue::from_string((*tool).to_owned()).unwrap());
        }
        listing.finish();
        listing
    }

    #[test]
    fn a_bad_definition_concerns_that_tool_alone() {
        let bad = [
            r#"{"name":"noschema"}"#,
            r#"{"name":"nul","inputSchema":null}"#,
            r#"{"name":"b","inputSchema":true}"#,
            r#"{"name":"d","description":5,"inputSchema":{}}"#,
            r#"{"name":"a","annotations":[],"inputSchema":{}}"#,
            r#"{"name":"o","inputSchema":{},"outputSchema":true}"#,
            r#"{"name":"i","inputSchema":{},"icons":"x"}"#,
            r#"{"inputSchema":{}}"#,
            "7",
            r#"{"name":7}"#,
        ];
        let good = r#"{"name":"good","description":"fine","inputSchema":{"type":"object"}}"#;
        let listing = listing(&[&bad[..5], &[good], &bad[5..]].concat());
        let names: Vec<&str> = listing.tools.keys().map(String::as_str).collect();
        assert_eq!(names, ["a", "b", "d", "good", "i", "noschema", "nul", "o"]);
        assert_eq!(listing.tools["good"].description, "fine");
        assert_eq!(listing.tools["b"].input_schema.get(), r#"{"type":"object"}"#);
        assert!(listing.tools["o"].output_schema.is_none() && listing.tools["a"].annotations.is_none());
        assert_eq!(
            listing.warnings,
            [
                "tool `b`: ignored its inputSchema, which is no object",
                "tool `d`: ignored its description, which is no text",
                "tool `a`: ignored its annotations, which is no object",
                "tool `o`: ignored its outputSchema, which is no object",
                "hid a tool without a name",
                "hid a tool that is no object: `7`",
                "hid a tool whose name is no text",
            ]
        );
    }

    #[test]
    fn a_tool_that_breaks_the_rules_of_mirroring_is_hidden_where_they_hold() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let bad = raw(r#"{"name":"t","inputSchema":{"properties":{"p":{"type":"number","x-mcp-header":"P"}}}}"#);
        let mut listing = Listing::new(true);
        assert!(!listing.add(&bad));
        let told = "hid tool `t`: `x-mcp-header` stands on parameter `p`, which is no string, integer or boolean";
        assert_eq!(listing.warnings, [told]);
        assert!(Listing::new(false).add(&bad));
    }

    #[test]
    fn repeats_are_one_tool_and_conflicts_do_not_depend_on_the_order() {
        let plain = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
        let other = r#"{"name":"t","description":"other","inputSchema":{"type":"object","required":["q"]}}"#;
        let one = listing(&[plain, plain, other]);
        let two = listing(&[other, plain]);
        assert_eq!(one.tools["t"].description, two.tools["t"].description);
        assert_eq!(one.warnings, ["tool `t` is defined twice; one definition is hidden"]);
        assert!(listing(&[plain, plain]).warnings.is_empty());
    }

    #[test]
    fn recursive_and_odd_schemas_stay_verbatim() {
        let schema =
            r##"{"type":"object","$defs":{"n":{"properties":{"kids":{"items":{"$ref":"#/$defs/n"}}}}}, "x": 1.0e400}"##;
        let listing = listing(&[&format!(r#"{{"name":"tree","inputSchema":{schema},"outputSchema":{schema}}}"#)]);
        assert_eq!(listing.tools["tree"].input_schema.get(), schema);
        assert_eq!(listing.tools["tree"].output_schema.as_ref().unwrap().get(), schema);
    }

    #[test]
    fn the_number_of_tools_is_bounded() {
        let tools: Vec<String> = (0..MAX_TOOLS + 3).map(|number| format!(r#"{{"name":"t{number}"}}"#)).collect();
        let listing = listing(&tools.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((listing.tools.len(), listing.warnings.len()), (MAX_TOOLS, 1));
    }

    #[test]
    fn odd_pages_are_read() {
        let page = |text: &str| {
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            Page::read(&raw).map(|page| (page.tools.len(), page.cursor))
        };
        assert_eq!(page(r#"{"tools":[{},1],"nextCursor":"8"}"#), Ok((2, Some("8".into()))));
        assert_eq!(page(r#"{"tools":[],"nextCursor":8}"#), Ok((0, Some("8".into()))));
        assert_eq!(page(r#"{"tools":[],"nextCursor":""}"#), Ok((0, None)));
        assert_eq!(page(r#"{"tools":[],"nextCursor":null}"#), Ok((0, None)));
        assert!(page("{}").is_err() && page("null").is_err() && page(r#"{"tools":{}}"#).is_err());
    }
}
