//! A server's result as the channel carries it to the program: texts and structured value as the server wrote them,
//! digit for digit, and a note for each thing that is left out. Big payloads are copied, never parsed into a tree,
//! unless a declared schema has to be checked.

use std::{collections::HashMap, fmt};

use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::{Value, value::RawValue};

use super::{
    failure::{Failure, cut},
    raw::{members, string},
    validate::{Flaw, Schema, Verdict},
};

/// Notes told one by one; more are counted.
const NOTES: usize = 50;
/// Texts longer than this together are compared with the structured value, so that one that repeats it is not sent.
const REPEATED_BYTES: usize = 32 << 10;
/// Characters of a text that does not fit the declared schema and is quoted.
const QUOTED_CHARS: usize = 300;

/// How a tool's results are taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'a> {
    /// The name for messages.
    pub tool: &'a str,
    /// The declared output schema.
    pub schema: Option<&'a Schema>,
    /// Whether a string result is declared to be one.
    pub keeps_text: bool,
    /// Most bytes of JSON that the program is given.
    pub limit: usize,
}

/// What the program is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Converted {
    /// The members `"ok":true,"mcp":{…}` of a result frame.
    pub body: String,
    /// Bytes of the value's JSON.
    pub bytes: u64,
}

/// Turns the raw `result` of a `tools/call` into what the program is given.
///
/// # Errors
/// `tool_error` when the server says that the tool failed, `too_large`, `invalid_result`.
pub(super) fn convert(raw: &RawValue, reading: Reading<'_>) -> Result<Converted, Failure> {
    let mut result = Envelope::read(raw);
    if result.is_error {
        return Err(Failure::tool_error(reading.tool, &result.error_text()));
    }
    let texts: usize = result.texts.iter().map(|text| text.get().len()).sum();
    if texts.max(result.structured.map_or(0, |value| value.get().len())) > reading.limit {
        let bytes = texts + result.structured.map_or(0, |value| value.get().len());
        return Err(Failure::too_large(reading.tool, u64::try_from(bytes).ok(), limit(reading)));
    }
    if let Some(schema) = reading.schema {
        result.hold_to(schema, reading.tool)?;
    }
    if texts > REPEATED_BYTES {
        result.drop_repetitions();
    }
    let bytes = result.texts.iter().map(|text| text.get().len()).sum::<usize>()
        + result.structured.map_or(0, |value| value.get().len());
    if bytes > reading.limit {
        return Err(Failure::too_large(reading.tool, u64::try_from(bytes).ok(), limit(reading)));
    }
    Ok(Converted { body: result.body(reading.keeps_text), bytes: u64::try_from(bytes).unwrap_or(u64::MAX) })
}

fn limit(reading: Reading<'_>) -> u64 {
    u64::try_from(reading.limit).unwrap_or(u64::MAX)
}

/// The parts of a result that matter.
#[derive(Debug, Default)]
struct Envelope<'a> {
    is_error: bool,
    /// JSON strings.
    texts: Vec<&'a RawValue>,
    structured: Option<&'a RawValue>,
    notes: Vec<String>,
    /// Notes beyond [`NOTES`].
    unnoted: usize,
    /// Members `text` that are no text: a value that its author did not write as JSON text.
    strays: Vec<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    fn read(raw: &'a RawValue) -> Self {
        let mut result = Self::default();
        let Some([content, structured, is_error, legacy]) =
            members(raw, ["content", "structuredContent", "isError", "toolResult"])
        else {
            result.value(raw);
            return result;
        };
        // Servers written without a type for it say "true" and 1 as well.
        result.is_error = is_error.is_some_and(|flag| ["true", "1", "\"true\"", "\"True\""].contains(&flag.get()));
        result.structured = structured.or(legacy).filter(|value| value.get() != "null");
        if content.is_none() && structured.is_none() && legacy.is_none() && !result.is_error && has_others(raw) {
            result.value(raw);
        }
        match content {
            Some(content) if content.get().starts_with('[') => {
                let mut reader = serde_json::Deserializer::from_str(content.get());
                // The text is known to be a JSON array; nothing in it can fail to be read as raw items.
                let _read: Result<(), serde_json::Error> = reader.deserialize_seq(Blocks(&mut result));
            }
            Some(content) if content.get().starts_with('{') => match members(content, ["type", "text"]) {
                Some([None, None]) if content.get().len() == 2 => {}
                Some([None, None]) => result.value(content),
                _ => result.block(content),
            },
            Some(content) if content.get() != "null" => result.value(content),
            _ => {}
        }
        result.take_stray();
        result
    }

    /// A `text` that is no text is the value where there is nothing else.
    fn take_stray(&mut self) {
        if let ([only], [], None, 1) =
            (self.strays.as_slice(), self.texts.as_slice(), self.structured, self.notes.len() + self.unnoted)
        {
            self.structured = Some(only);
            self.notes.clear();
        }
    }

    /// Something that stands where content should: a string is a text, anything else a value.
    fn value(&mut self, raw: &'a RawValue) {
        if raw.get().starts_with('"') {
            self.texts.push(raw);
        } else if self.structured.is_none() && raw.get() != "null" {
            self.structured = Some(raw);
        }
    }

    fn block(&mut self, block: &'a RawValue) {
        let Some([kind, text, mime, resource]) = members(block, ["type", "text", "mimeType", "resource"]) else {
            match block.get() {
                text if text.starts_with('"') => self.texts.push(block),
                "null" => {}
                _ => self.note("unknown", None),
            }
            return;
        };
        let kind = kind.and_then(string);
        if let (None | Some("text"), Some(stray)) =
            (kind.as_deref(), text.filter(|text| !text.get().starts_with('"') && text.get() != "null"))
        {
            self.strays.push(stray);
        }
        let text = text.filter(|text| text.get().starts_with('"'));
        match (kind.as_deref(), text) {
            (None | Some("text"), Some(text)) => self.texts.push(text),
            (kind, _) => {
                let inner = resource.and_then(|resource| members(resource, ["mimeType"])).and_then(|[mime]| mime);
                let mime = mime.or(inner).and_then(string);
                self.note(kind.unwrap_or("unknown"), mime.as_deref());
            }
        }
    }

    fn note(&mut self, kind: &str, mime: Option<&str>) {
        if self.notes.len() == NOTES {
            self.unnoted += 1;
            return;
        }
        let kind = cut(kind.to_owned(), 60);
        self.notes.push(match mime {
            Some(mime) => format!("[non-text content omitted: {kind} ({})]", cut(mime.to_owned(), 100)),
            None => format!("[non-text content omitted: {kind}]"),
        });
    }

    /// The texts of a failure, stripped and joined by a space; notes when there is no text.
    fn error_text(&self) -> String {
        let texts = self.texts.iter().filter_map(|text| string(text)).map(|text| text.trim().to_owned());
        let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        match (text.is_empty(), self.structured) {
            (false, _) => text,
            (true, Some(structured)) => cut(structured.get().to_owned(), 2_000),
            (true, None) => self.notes.join(" "),
        }
    }

    /// Checks the structured value against the declared schema. A tool that declares one and answers with text alone
    /// passes when that one text, read as JSON or as it is, fits.
    fn hold_to(&self, schema: &Schema, tool: &str) -> Result<(), Failure> {
        if let Some(structured) = self.structured {
            let Ok(value) = serde_json::from_str::<Value>(structured.get()) else { return Ok(()) };
            return match schema.check(&value, structured.get().len()) {
                Verdict::Fits | Verdict::GivenUp => Ok(()),
                Verdict::Misfits(findings) => {
                    let told: Vec<String> = findings
                        .iter()
                        .map(|finding| {
                            let place = finding.place();
                            let part = if place.is_empty() { "the result".to_owned() } else { format!("'{place}'") };
                            match &finding.flaw {
                                Flaw::Unknown(names) => {
                                    format!("{part} has unknown keys {}", cut(names.join(", "), 200))
                                }
                                Flaw::Missing(name) => format!("{part} lacks '{}'", cut(name.clone(), 100)),
                                Flaw::Other(flaw) => format!("{part} {flaw}"),
                            }
                        })
                        .collect();
                    Err(Failure::invalid_result(tool, &told.join("; ")))
                }
            };
        }
        let [text] = self.texts.as_slice() else {
            let found = if self.texts.is_empty() { "no structuredContent and no text" } else { "no structuredContent" };
            return Err(Failure::invalid_result(tool, found));
        };
        let plain = string(text).unwrap_or_default();
        let bytes = text.get().len();
        let as_json = serde_json::from_str::<Value>(&plain).ok();
        let fits = |value: &Value| !matches!(schema.check(value, bytes), Verdict::Misfits(_));
        if as_json.is_some_and(|value| fits(&value)) || fits(&Value::String(plain.clone())) {
            return Ok(());
        }
        let quoted = Value::String(cut(plain, QUOTED_CHARS));
        Err(Failure::invalid_result(tool, &format!("no structuredContent; text: {quoted}")))
    }

    /// Leaves out texts that say the same as the structured value; what the program gets is the same.
    fn drop_repetitions(&mut self) {
        let Some(structured) = self.structured else { return };
        let wrapped = sole_result(structured);
        let mut whole: Option<Option<Value>> = None;
        self.texts.retain(|text| {
            if text.get().len() <= REPEATED_BYTES {
                return true;
            }
            if let Some(inner) = wrapped {
                // A text that equals the whole of `{"result": …}` tells the child not to unwrap it, and stays.
                return inner.get() != text.get();
            }
            let whole = whole.get_or_insert_with(|| serde_json::from_str(structured.get()).ok());
            let same = whole.is_some()
                && string(text).and_then(|text| serde_json::from_str::<Value>(&text).ok()).as_ref() == whole.as_ref();
            !same
        });
    }

    fn body(&self, keeps_text: bool) -> String {
        let payload: usize = self.texts.iter().map(|text| text.get().len() + 1).sum();
        let mut body = String::with_capacity(payload + self.structured.map_or(0, |value| value.get().len()) + 256);
        body.push_str("\"ok\":true,\"mcp\":{\"texts\":[");
        for (at, text) in self.texts.iter().enumerate() {
            body.push_str(if at == 0 { "" } else { "," });
            body.push_str(text.get());
        }
        body.push(']');
        if let Some(structured) = self.structured {
            body.push_str(",\"structured\":");
            body.push_str(structured.get());
        }
        let more = (self.unnoted > 0).then(|| format!("[{} more omitted]", self.unnoted));
        let notes: Vec<Value> = self.notes.iter().cloned().chain(more).map(Value::String).collect();
        body.push_str(&format!(",\"notes\":{},\"keep_text\":{keeps_text}}}", Value::Array(notes)));
        body
    }
}

/// Whether the object has members that a result has no use for.
fn has_others(raw: &RawValue) -> bool {
    let known = ["_meta", "resultType", "isError", "content", "structuredContent", "toolResult"];
    serde_json::from_str::<HashMap<String, IgnoredAny>>(raw.get())
        .is_ok_and(|members| members.keys().any(|name| !known.contains(&name.as_str())))
}

/// The member `result` of an object that has no other.
fn sole_result(raw: &RawValue) -> Option<&RawValue> {
    let [result] = members(raw, ["result"])?;
    let result = result?;
    // With its name, the quotes and the braces, an only member leaves little more than blanks.
    let rest = raw.get().len() - result.get().len();
    (rest <= 15).then_some(result)
}

/// Reads content blocks one by one.
struct Blocks<'r, 'a>(&'r mut Envelope<'a>);

impl<'a> Visitor<'a> for Blocks<'_, 'a> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }
    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(block) = items.next_element::<&'a RawValue>()? {
            self.0.block(block);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::gateway::failure::Code;
    use crate::gateway::repair::Role;

    const LIMIT: usize = 1 << 20;

    fn with(raw: &str, schema: Option<&Value>, limit: usize) -> Result<Converted, Failure> {
        let raw = RawValue::from_string(raw.to_owned()).unwrap();
        let schema = schema.map(|schema| Schema::new(&serde_json::value::to_raw_value(schema).unwrap(), Role::Result));
        convert(&raw, Reading { tool: "t", schema: schema.as_ref(), keeps_text: false, limit })
    }

    /// The members of the frame as one value, `keep_text` left out.
    fn mcp(raw: &str) -> Value {
        let body = with(raw, None, LIMIT).unwrap().body;
        let mut frame: Value = serde_json::from_str(&format!("{{{body}}}")).unwrap();
        assert_eq!(frame["ok"], json!(true));
        let mut mcp = frame["mcp"].take();
        mcp.as_object_mut().unwrap().remove("keep_text");
        mcp
    }

    #[test]
    fn content_may_be_missing_null_a_text_or_a_single_block() {
        let only = |value: Value| json!({"texts": [], "structured": value, "notes": []});
        assert_eq!(mcp(r#"{"structuredContent":{"a":1}}"#), only(json!({"a": 1})));
        assert_eq!(mcp(r#"{"content":null,"structuredContent":{"a":1}}"#), only(json!({"a": 1})));
        assert_eq!(mcp(r#"{"content":[],"structuredContent":[1,2]}"#), only(json!([1, 2])));
        assert_eq!(mcp(r#"{"content":[],"structuredContent":null}"#), json!({"texts": [], "notes": []}));
        assert_eq!(mcp("{}"), json!({"texts": [], "notes": []}));
        assert_eq!(mcp(r#"{"content":"hi"}"#), json!({"texts": ["hi"], "notes": []}));
        assert_eq!(mcp(r#"{"content":{"type":"text","text":"hi"}}"#), json!({"texts": ["hi"], "notes": []}));
        assert_eq!(mcp(r#"{"toolResult":{"x":1}}"#), only(json!({"x": 1})));
        assert_eq!(mcp(r#"{"rows":[1],"_meta":{}}"#), only(json!({"rows": [1], "_meta": {}})));
        assert_eq!(mcp(r#"{"_meta":{},"resultType":"complete","isError":false}"#), json!({"texts": [], "notes": []}));
        assert_eq!(mcp(r#"{"content":{"rows":[1]}}"#), only(json!({"rows": [1]})));
        assert_eq!(mcp(r#"{"content":{},"structuredContent":{"a":1}}"#), only(json!({"a": 1})));
        assert_eq!(mcp(r#"{"content":[{"type":"text","text":{"a":1}}]}"#), only(json!({"a": 1})));
        assert_eq!(mcp(r#"[1,2]"#), only(json!([1, 2])));
        assert_eq!(mcp(r#""hi""#), json!({"texts": ["hi"], "notes": []}));
        assert_eq!(mcp("null"), json!({"texts": [], "notes": []}));
    }

    #[test]
    fn odd_blocks_become_notes_and_the_text_beside_them_stays() {
        let block = |block: &str| mcp(&format!(r#"{{"content":[{block},{{"type":"text","text":"t"}}]}}"#));
        let noted = |note: &str| json!({"texts": ["t"], "notes": [note]});
        assert_eq!(block(r#"{"type":"video","data":"x"}"#), noted("[non-text content omitted: video]"));
        assert_eq!(
            block(r#"{"type":"resource_link","uri":"file:///a"}"#),
            noted("[non-text content omitted: resource_link]")
        );
        assert_eq!(
            block(r#"{"type":"image","data":"AA==","mimeType":"image/png"}"#),
            noted("[non-text content omitted: image (image/png)]")
        );
        assert_eq!(
            block(r#"{"type":"resource","resource":{"uri":"x","mimeType":"text/csv","text":"a"}}"#),
            noted("[non-text content omitted: resource (text/csv)]")
        );
        assert_eq!(block(r#"{"type":"text"}"#), noted("[non-text content omitted: text]"));
        assert_eq!(block(r#"{"type":"text","text":{"a":1}}"#), noted("[non-text content omitted: text]"));
        assert_eq!(block("5"), noted("[non-text content omitted: unknown]"));
        assert_eq!(block(r#"{"text":"u"}"#), json!({"texts": ["u", "t"], "notes": []}));
        assert_eq!(
            block(
                r#"{"type":"text","text":"u","annotations":{"audience":["robot"],"priority":"high"},"structuredContent":[1]}"#
            ),
            json!({"texts": ["u", "t"], "notes": []})
        );
        assert_eq!(block(r#"{"\ud800":1,"type":"text","text":"u"}"#), json!({"texts": ["u", "t"], "notes": []}));
    }

    #[test]
    fn a_thousand_odd_blocks_make_a_bounded_number_of_notes() {
        let blocks = vec!["5"; 1000].join(",");
        let notes = mcp(&format!(r#"{{"content":[{blocks}]}}"#))["notes"].as_array().unwrap().len();
        assert_eq!(notes, NOTES + 1);
    }

    #[test]
    fn digits_and_surrogates_pass_untouched() {
        let converted = with(
            r#"{"content":[{"type":"text","text":"\ud800 12345678901234567890123"}],"structuredContent":{"id": 123456789012345678901234567890, "f": 1.10}}"#,
            None,
            LIMIT,
        )
        .unwrap();
        assert!(converted.body.contains(r#""texts":["\ud800 12345678901234567890123"]"#), "{}", converted.body);
        assert!(converted.body.contains(r#""structured":{"id": 123456789012345678901234567890, "f": 1.10}"#));
    }

    #[test]
    fn an_error_result_is_told_in_the_servers_words_and_held_to_no_schema() {
        let schema = json!({"type": "object", "required": ["id"], "additionalProperties": false});
        let raw = r#"{"isError":true,"content":[{"type":"text","text":" repository "},{"type":"text","text":"not found\ud800"}],"structuredContent":{"error":"nf"}}"#;
        let failure = with(raw, Some(&schema), LIMIT).unwrap_err();
        assert_eq!(failure.code, Code::ToolError);
        assert_eq!(failure.message.trim_end_matches('\u{fffd}'), "'t' returned an error: repository not found");
        for flag in ["true", "\"true\"", "1"] {
            let raw = format!(r#"{{"isError":{flag},"content":[]}}"#);
            assert_eq!(with(&raw, None, LIMIT).unwrap_err().message, "'t' returned an error: no details", "{flag}");
        }
        assert!(with(r#"{"isError":"false","content":[]}"#, None, LIMIT).is_ok());
    }

    #[test]
    fn a_declared_schema_binds_results() {
        let schema = json!({"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]});
        let said = |raw: &str| with(raw, Some(&schema), LIMIT).map(|_| ()).map_err(|failure| failure.message);
        let prefix = "'t' returned data that does not match its declared output schema: ";
        assert_eq!(
            said(r#"{"content":[{"type":"text","text":"see https://x.invalid"}]}"#),
            Err(format!("{prefix}no structuredContent; text: \"see https://x.invalid\""))
        );
        assert_eq!(said(r#"{"content":[{"type":"text","text":"{\"url\":\"u\"}"}]}"#), Ok(()));
        assert_eq!(
            said(r#"{"content":[],"structuredContent":{"url":5}}"#),
            Err(format!("{prefix}'url' must be string, not 5"))
        );
        assert_eq!(said(r#"{"content":[],"structuredContent":{}}"#), Err(format!("{prefix}the result lacks 'url'")));
        assert_eq!(said(r#"{"content":[]}"#), Err(format!("{prefix}no structuredContent and no text")));
        assert_eq!(said(r#"{"content":[],"structuredContent":{"url":"u"}}"#), Ok(()));
    }

    #[test]
    fn the_limit_counts_what_the_program_gets() {
        let text = |n: usize| {
            format!(
                r#"{{"content":[{{"type":"image","data":"{}"}},{{"type":"text","text":"{}"}}]}}"#,
                "A".repeat(500),
                "a".repeat(n)
            )
        };
        assert_eq!(with(&text(98), None, 100).unwrap().bytes, 100);
        assert_eq!(
            with(&text(99), None, 100).unwrap_err().message,
            "'t' result is 101 bytes, over the 100-byte limit; request less data (narrower dates, a limit, or a filter)"
        );
    }

    #[test]
    fn a_large_text_that_repeats_the_structured_value_is_sent_once() {
        let payload = "é".repeat(REPEATED_BYTES);
        let size = payload.len() + 2;
        let wrapped = json!({"content": [{"type": "text", "text": payload}], "structuredContent": {"result": payload}});
        assert_eq!(with(&wrapped.to_string(), None, size + 20).unwrap().bytes, u64::try_from(size + 11).unwrap());
        let value = json!({"rows": [payload, 1], "n": 2.5});
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let both = json!({"content": [{"type": "text", "text": pretty}, {"type": "text", "text": "note"}], "structuredContent": value});
        let converted = with(&both.to_string(), None, size + 100).unwrap();
        assert!(converted.body.contains(r#""texts":["note"]"#));
        let whole = json!({"result": payload});
        let kept = json!({"content": [{"type": "text", "text": whole.to_string()}], "structuredContent": whole});
        assert!(!with(&kept.to_string(), None, LIMIT).unwrap().body.contains(r#""texts":[]"#));
    }

    #[test]
    fn twenty_megabytes_are_copied_and_not_parsed() {
        let raw = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(20 << 20));
        let began = Instant::now();
        let converted = with(&raw, None, 32 << 20).unwrap();
        assert_eq!(converted.bytes, (20 << 20) + 2);
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    proptest! {
        #[test]
        fn any_json_is_converted_or_refused(value in crate::gateway::testing::json(), key in "content|structuredContent|isError|toolResult|x") {
            for raw in [value.to_string(), json!({key: value}).to_string(), json!({"content": [value]}).to_string()] {
                if let Ok(converted) = with(&raw, None, 1 << 20) {
                    let frame = format!("{{{}}}", converted.body);
                    prop_assert!(serde_json::from_str::<Value>(&frame).is_ok(), "{}", frame);
                }
            }
        }
    }
}
