//! The `tools` mapping: fnmatch patterns over `mcp__server__tool`.

use globset::{GlobBuilder, GlobMatcher};

use super::{
    file,
    reader::{Field, Reader, shown},
    settings::ToolFilter,
    tree::Value,
};

/// The keys of `tools`.
pub(super) const KEYS: &[&str] = &["allow", "block"];

/// Bytes of one pattern.
const MAX_PATTERN: usize = 1024;

/// Reads `tools`; a mapping with faults lets nothing through, so that a mistake never widens rights.
pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> ToolFilter {
    let Some(mut fields) = reader.mapping(field) else { return ToolFilter::Allow(Vec::new()) };
    let before = reader.faults.len();
    let allow = fields.take("allow").map(|field| patterns(reader, &field)).unwrap_or_default();
    let block = fields.take("block").map(|field| patterns(reader, &field)).unwrap_or_default();
    if !allow.is_empty() && !block.is_empty() {
        reader.fault(fields.key_at("block"), "tools.block", "`allow` and `block` exclude each other; keep one of them");
    }
    file::close(reader, &fields, KEYS);
    if reader.faults.len() > before {
        return ToolFilter::Allow(Vec::new());
    }
    match (allow.is_empty(), block.is_empty()) {
        (false, _) => ToolFilter::Allow(allow),
        (true, false) => ToolFilter::Block(block),
        (true, true) => ToolFilter::All,
    }
}

fn patterns(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<GlobMatcher> {
    let mut all = Vec::new();
    if matches!(&field.node.value, Value::Sequence(items) if items.is_empty()) {
        reader.warn(
            field.at(),
            &field.path,
            "an empty list counts as no list; to forbid every tool, use `block: [\"*\"]`",
        );
    }
    for item in reader.list(field) {
        let Some(written) = reader.text(&item) else { continue };
        match compile(written) {
            Ok(glob) => all.push(glob),
            Err(message) => reader.fault(item.at(), &item.path, format!("`{}` {message}", shown(written))),
        }
        if let Some(advice) = never_matches(written) {
            reader.warn(item.at(), &item.path, format!("`{}` matches no tool: {advice}", shown(written)));
        }
    }
    all
}

/// A pattern of the file as a matcher; the error continues the sentence that begins with the pattern.
pub fn compile(written: &str) -> Result<GlobMatcher, String> {
    if written.is_empty() {
        return Err(String::from("is no pattern"));
    }
    if written.len() > MAX_PATTERN {
        return Err(format!("is longer than {MAX_PATTERN} bytes"));
    }
    let glob = GlobBuilder::new(&as_glob(written)).literal_separator(false).backslash_escape(false).build();
    glob.map(|glob| glob.compile_matcher())
        .map_err(|error| format!("is no valid pattern: {}", error.kind().to_string().replace('\n', " ")))
}

/// fnmatch knows `*`, `?`, `[…]` and `[!…]`; what else means something to globset is made literal.
fn as_glob(written: &str) -> String {
    let mut out = String::with_capacity(written.len());
    let mut chars = written.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            _ if in_class => {
                in_class = c != ']';
                out.push(c);
            }
            '{' | '}' => out.extend(['[', c, ']']),
            // `**` crosses folders in globset; names have none.
            '*' if chars.peek() == Some(&'*') => {}
            '[' => {
                out.push('[');
                in_class = true;
                if chars.next_if_eq(&'!').is_some() {
                    out.push('!');
                } else if chars.next_if_eq(&'^').is_some() {
                    // Literal for fnmatch, a negation for globset unless it comes later.
                    match chars.next_if(|next| *next != ']') {
                        Some(next) => out.extend([next, '^']),
                        None => out.push('^'),
                    }
                }
                if let Some(first) = chars.next_if_eq(&']') {
                    out.push(first);
                }
            }
            _ => out.push(c),
        }
    }
    out
}

/// Why a pattern can match no name of the form `mcp__server__tool`.
fn never_matches(written: &str) -> Option<String> {
    let literal = &written[..written.find(['*', '?', '[']).unwrap_or(written.len())];
    let prefix = "mcp__";
    let common = literal.len().min(prefix.len());
    if literal.as_bytes()[..common] != prefix.as_bytes()[..common] || literal == written && common < prefix.len() {
        return Some(String::from("tools are named `mcp__server__tool`; `mcp__server__*` takes a whole server"));
    }
    if literal.contains('-') {
        return Some(format!("`-` is `_` in the names of tools; write `{}`", shown(&written.replace('-', "_"))));
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        compile(pattern).unwrap().is_match(name)
    }

    #[test]
    fn patterns_mean_what_fnmatch_means() {
        for (pattern, name, want) in [
            ("mcp__a__*", "mcp__a__tool", true),
            ("mcp__a__*", "mcp__b__tool", false),
            ("MCP__a__*", "mcp__a__tool", false),
            ("mcp__a__to?l", "mcp__a__tool", true),
            ("mcp__a__[st]ool", "mcp__a__tool", true),
            ("mcp__a__[!t]ool", "mcp__a__tool", false),
            ("mcp__a__[^t]ool", "mcp__a__tool", true),
            ("mcp__a__{x,y}", "mcp__a__x", false),
            ("mcp__a__{x,y}", "mcp__a__{x,y}", true),
            ("**tool", "mcp__a__tool", true),
            ("*/*", "mcp__a__a/b", true),
            ("mcp__a__a\\*", "mcp__a__a\\b", true),
            ("mcp__a__[]]", "mcp__a__]", true),
            ("mcp__a", "mcp__a__tool", false),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for pattern in ["", "mcp__a__[x", "mcp__a__[z-a]", &"x".repeat(2000)] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn patterns_that_can_match_nothing_are_found() {
        assert!(never_matches("financial__*").is_some());
        assert!(never_matches("query").is_some());
        assert!(never_matches("mcp").is_some());
        assert!(never_matches("mcp__financial-data__*").unwrap().contains("mcp__financial_data__*"));
        for pattern in ["*", "mcp__*", "mcp__a__b", "m*", "*__query", "?cp__a__b"] {
            assert_eq!(never_matches(pattern), None, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn a_name_matches_itself_and_no_pattern_panics(name in "[a-z_0-9]{1,20}", pattern in "[a\\[\\]!^{}*?,-]{0,12}") {
            prop_assert!(matches(&name, &name));
            drop(compile(&pattern));
        }
    }
}
