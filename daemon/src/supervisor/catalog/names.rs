//! The names under which programs reach tools. They depend only on the names themselves, never on their order or on
//! how often a server was started.

use std::collections::{BTreeMap, BTreeSet};

use ptc_protocol::names::{ServerName, ToolName};
use sha2::{Digest as _, Sha256};
use unicode_normalization::is_nfkc;

/// Longest name given, in bytes.
const NAME_BYTES: usize = 200;

/// Python's hard keywords, which cannot be attributes.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// The names of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) name: ToolName,
    pub(super) attr: String,
}

/// Names the tools of a server whose place in names is `namespace`. `others` are the places of all other servers.
/// Returns the names by the server's own, and one sentence for each that differs from the plain
/// `mcp__<server>__<tool>`.
pub(super) fn give<'a>(
    namespace: &str,
    others: &[String],
    tools: impl Iterator<Item = &'a str>,
) -> (BTreeMap<&'a str, Given>, Vec<String>) {
    let mut by_plain: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for tool in tools {
        by_plain.entry(tool.replace('-', "_")).or_default().push(tool);
    }
    let mut given = BTreeMap::new();
    let mut told = Vec::new();
    let mut taken = BTreeSet::new();
    let mut marked = Vec::new();
    for (plain, tools) in &by_plain {
        let usable = is_identifier_tail(plain) && !belongs_to_another(namespace, others, plain);
        for &tool in tools {
            // Of tools that differ only in `-` and `_`, the one that is spelled like the name has it.
            if usable
                && (tools.len() == 1 || tool == plain)
                && let Some(name) = full_name(namespace, plain)
            {
                taken.insert(plain.clone());
                given.insert(tool, Given { name, attr: plain.clone() });
            } else {
                marked.push(tool);
            }
        }
    }
    for tool in marked {
        let stem = mangled(tool, NAME_BYTES - namespace.len().min(NAME_BYTES / 2) - 16);
        let found = [8, 16, 64].into_iter().find_map(|digits| {
            let attr = format!("{stem}_{}", &digest(namespace, tool)[..digits]);
            let name = full_name(namespace, &attr).filter(|_| !taken.contains(&attr))?;
            Some(Given { name, attr })
        });
        let shown: String = tool.chars().take(80).collect();
        match found {
            Some(names) => {
                taken.insert(names.attr.clone());
                told.push(format!("tool `{shown}` is called {} by programs", names.name));
                given.insert(tool, names);
            }
            None => told.push(format!("hid tool `{shown}`: no name for it could be made")),
        }
    }
    make_attributes(&mut given);
    (given, told)
}

/// The server in `servers.<ident>`: its namespace, made an identifier where it is none.
pub(super) fn server_ident(server: &ServerName) -> String {
    let namespace = server.namespace();
    if KEYWORDS.contains(&namespace.as_str()) {
        format!("{namespace}_")
    } else if namespace.starts_with(|c: char| c.is_ascii_digit()) {
        format!("server_{namespace}")
    } else {
        namespace
    }
}

/// Turns the names' tails into attributes of `servers.<ident>`: no keyword, no digit first, no underscores that Python
/// gives a meaning, and each only once.
fn make_attributes(given: &mut BTreeMap<&str, Given>) {
    let plain: BTreeSet<String> = given.values().map(|names| names.attr.clone()).collect();
    for (tool, names) in given {
        let mut attr = names.attr.clone();
        if KEYWORDS.contains(&attr.as_str()) {
            attr.push('_');
        } else if attr.starts_with("__") || attr.starts_with(|c: char| c.is_ascii_digit()) {
            attr = format!("tool_{attr}");
        }
        if attr != names.attr && plain.contains(&attr) {
            attr = format!("{attr}_{}", &digest("attribute", tool)[..8]);
        }
        names.attr = attr;
    }
}

/// Server `a` with tool `b__c` and server `a__b` with tool `c` want the same name; the longer server has it.
fn belongs_to_another(namespace: &str, others: &[String], plain: &str) -> bool {
    let full = format!("{namespace}__{plain}");
    others.iter().any(|other| other.len() > namespace.len() && full.starts_with(&format!("{other}__")))
}

fn full_name(namespace: &str, tail: &str) -> Option<ToolName> {
    let name = format!("mcp__{namespace}__{tail}");
    if name.len() <= NAME_BYTES { ToolName::parse(name).ok() } else { None }
}

/// Whether Python takes the text as the rest of an identifier and does not rewrite it.
fn is_identifier_tail(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c == '_' || unicode_ident::is_xid_continue(c)) && is_nfkc(text)
}

/// The ASCII part of a name, with `_` for the rest.
fn mangled(tool: &str, bytes: usize) -> String {
    let mut stem = String::new();
    for c in tool.chars() {
        if c.is_ascii_alphanumeric() {
            stem.push(c);
        } else if !stem.ends_with('_') {
            stem.push('_');
        }
    }
    stem.truncate(bytes);
    let stem = stem.trim_matches('_');
    if stem.is_empty() { "tool".into() } else { stem.to_owned() }
}

fn digest(namespace: &str, tool: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(namespace.as_bytes());
    hash.update([0]);
    hash.update(tool.as_bytes());
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(tools: &[&str]) -> BTreeMap<String, String> {
        let (given, _) = give("s", &[], tools.iter().copied());
        given.into_iter().map(|(tool, names)| (tool.to_owned(), names.name.to_string())).collect()
    }

    #[test]
    fn plain_names_are_the_originals() {
        let (given, told) = give("task_runner", &[], ["echo", "Deploy-QA", "list", "日本", "2fa"].into_iter());
        let pairs: Vec<(String, &str)> =
            given.values().map(|names| (names.name.to_string(), names.attr.as_str())).collect();
        let expected = [
            ("mcp__task_runner__2fa", "tool_2fa"),
            ("mcp__task_runner__Deploy_QA", "Deploy_QA"),
            ("mcp__task_runner__echo", "echo"),
            ("mcp__task_runner__list", "list"),
            ("mcp__task_runner__日本", "日本"),
        ];
        assert_eq!(pairs, expected.map(|(name, attr)| (name.to_owned(), attr)));
        assert_eq!(told, Vec::<String>::new());
    }

    #[test]
    fn names_that_collide_or_are_no_identifiers_are_told_apart() {
        let tools = ["deploy:qa", "deploy_qa", "deploy.qa", "deploy/qa", "deploy-qa", "", "ﬁ", "a b"];
        let (given, told) = give("s", &[], tools.into_iter());
        assert_eq!(given["deploy_qa"].name.as_str(), "mcp__s__deploy_qa");
        let distinct: BTreeSet<&str> = given.values().map(|names| names.name.as_str()).collect();
        assert_eq!(distinct.len(), tools.len());
        assert_eq!(told.len(), tools.len() - 1, "{told:?}");
        assert!(given["deploy:qa"].name.as_str().starts_with("mcp__s__deploy_qa_"));
    }

    #[test]
    fn a_pair_without_a_namesake_is_marked_on_both_sides() {
        let names = names(&["a-b_c", "a_b-c"]);
        assert!(names.values().all(|name| name.starts_with("mcp__s__a_b_c_")), "{names:?}");
    }

    #[test]
    fn a_server_whose_name_contains_another_keeps_its_tools() {
        let (long, _) = give("a__b", &["a".into()], ["c"].into_iter());
        let (short, told) = give("a", &["a__b".into()], ["b__c", "b"].into_iter());
        assert_eq!(long["c"].name.as_str(), "mcp__a__b__c");
        assert_ne!(short["b__c"].name, long["c"].name);
        assert_eq!((short["b"].name.as_str(), told.len()), ("mcp__a__b", 1));
    }

    #[test]
    fn attributes_avoid_what_python_gives_a_meaning() {
        let (given, _) = give("s", &[], ["import", "import_", "__name__"].into_iter());
        assert_eq!(given["import_"].attr, "import_");
        assert!(given["import"].attr.starts_with("import__"), "{}", given["import"].attr);
        assert_eq!(given["__name__"].attr, "tool___name__");
        assert_eq!(given["import"].name.as_str(), "mcp__s__import");
    }

    proptest! {
        /// Any order gives the same names, all different, all usable.
        #[test]
        fn the_mapping_depends_on_the_names_alone(
            tools in prop::collection::btree_set("[a-c_.:-]{0,4}|\\PC{0,6}", 0..12), seed in any::<u64>(),
        ) {
            let sorted: Vec<&str> = tools.iter().map(String::as_str).collect();
            let mut shuffled = sorted.clone();
            fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
            let (one, _) = give("s", &[], sorted.iter().copied());
            let (two, _) = give("s", &[], shuffled.into_iter());
            prop_assert_eq!(&one, &two);
            prop_assert_eq!(one.len(), sorted.len());
            let names: BTreeSet<&ToolName> = one.values().map(|names| &names.name).collect();
            let attrs: BTreeSet<&String> = one.values().map(|names| &names.attr).collect();
            prop_assert_eq!((names.len(), attrs.len()), (one.len(), one.len()));
            for names in one.values() {
                prop_assert!(is_identifier_tail(names.name.as_str()), "{}", names.name);
            }
        }
    }
}
