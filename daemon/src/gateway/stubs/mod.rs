//! Declarations of the callable tools for people and clients that browse files: `servers/<server>/<tool>.pyi` with an
//! `__init__.py` per folder, or the same as TypeScript. Pure text; who writes it to a disk is not known here.

mod python;
mod typescript;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{callable::Entry, failure::cut};

/// Characters of a description that a declaration repeats.
const DOC_CHARS: usize = 8_000;
/// Bytes of a file's name before its number and extension; file systems take 255 in all.
const STEM_BYTES: usize = 200;

/// The language of the declarations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Language {
    /// `.pyi`, typed as type checkers read it.
    #[default]
    Python,
    /// `.d.ts`.
    TypeScript,
}

impl Language {
    /// `py`, `python`, `ts` or `typescript`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "py" | "python" => Some(Self::Python),
            "ts" | "typescript" => Some(Self::TypeScript),
            _ => None,
        }
    }

    /// `python` or `typescript`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::TypeScript => "typescript",
        }
    }
}

/// The folder of each server below `servers`: its Python name, with a number where only upper and lower case would tell it
/// from another's. To be asked for all configured servers, so that no folder moves when a server comes up.
#[must_use]
pub(super) fn folders<'a>(idents: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, String> {
    let idents: BTreeSet<&str> = idents.collect();
    let mut given = BTreeSet::new();
    let mut folders = BTreeMap::new();
    for ident in &idents {
        let lower = ident.to_lowercase();
        let numbered = (2..).map(|number| format!("{ident}_{number}"));
        let own = |name: &String| !idents.iter().any(|other| other.to_lowercase() == name.to_lowercase());
        let folder = if given.insert(lower) {
            (*ident).to_owned()
        } else {
            numbered.filter(own).find(|name| given.insert(name.to_lowercase())).unwrap_or_default()
        };
        folders.insert(*ident, folder);
    }
    folders
}

/// All files, by path from the folder they are meant for; paths have `/` and no odd characters. Each server has its folder
/// of [`folders`].
#[must_use]
pub(super) fn files<'a>(
    entries: impl Iterator<Item = &'a Arc<Entry>>,
    folders: &BTreeMap<&str, String>,
    language: Language,
) -> BTreeMap<String, String> {
    let mut by_server: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        by_server.entry(entry.tool().ident.as_str()).or_default().push(entry);
    }
    let mut files = BTreeMap::new();
    let folder = |server: &str| folders.get(server).cloned().unwrap_or_else(|| server.to_owned());
    for (server, entries) in &by_server {
        let folder = folder(server);
        let entries = with_stems(entries);
        for (stem, entry) in &entries {
            let (text, extension) = match language {
                Language::Python => (python::tool(entry), "pyi"),
                Language::TypeScript => (typescript::tool(entry), "d.ts"),
            };
            files.insert(format!("servers/{folder}/{stem}.{extension}"), text);
        }
        let (text, name) = match language {
            Language::Python => (python::server(&entries), "__init__.py"),
            Language::TypeScript => (typescript::server(&entries), "index.d.ts"),
        };
        files.insert(format!("servers/{folder}/{name}"), text);
    }
    let servers: Vec<(&str, String, usize)> =
        by_server.iter().map(|(server, entries)| (*server, folder(server), entries.len())).collect();
    let (text, name) = match language {
        Language::Python => (python::package(&servers), "__init__.py"),
        Language::TypeScript => (typescript::package(&servers), "index.d.ts"),
    };
    files.insert(format!("servers/{name}"), text);
    files
}

/// The tools of one server by their short names, each with the name of its file without extension: its own where that is
/// short, not the index's, and no other's but for upper and lower case, which some file systems do not tell apart.
fn with_stems<'a>(entries: &[&'a Entry]) -> Vec<(String, &'a Entry)> {
    let mut sorted = entries.to_vec();
    sorted.sort_by(|a, b| a.tool().attr.cmp(&b.tool().attr));
    let mut taken = BTreeSet::from(["index".to_owned()]);
    let stem = |attr: &str| {
        let base = &attr[..attr.floor_char_boundary(STEM_BYTES)];
        let numbered = (2..).map(|number| format!("{base}_{number}"));
        let mut free =
            std::iter::once(base.to_owned()).chain(numbered).filter(|stem| taken.insert(stem.to_lowercase()));
        free.next().unwrap_or_default()
    };
    let stems: Vec<String> = sorted.iter().map(|entry| entry.tool().attr.as_str()).map(stem).collect();
    stems.into_iter().zip(sorted).collect()
}

/// Description and title of a tool, bounded, without the ends of comments and docstrings.
fn described(entry: &Entry) -> String {
    let tool = entry.tool();
    let text = if tool.description.trim().is_empty() { tool.title.trim() } else { tool.description.trim() };
    cut(text.to_owned(), DOC_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::tool;

    const INPUT: &str = r#"{"type":"object","required":["ticker","from"],"properties":{
        "ticker":{"type":"string","description":"Its \"\"\" symbol */"},
        "limit":{"type":"integer","default":10},
        "where":{"type":"object","properties":{"a b":{"type":"number"},"c":{"enum":["x",1,null]}},"required":["a b"]},
        "from":{"type":"string"}}}"#;
    const OUTPUT: &str = r#"{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}}}}}}"#;

    fn written(language: Language) -> BTreeMap<String, String> {
        let entries = [
            Arc::new(Entry::new(tool("my-fin", "query", INPUT, Some(OUTPUT)))),
            Arc::new(Entry::new(tool("my-fin", "delete", "{}", None))),
        ];
        files(entries.iter(), &folders(std::iter::once("my_fin")), language)
    }

    #[test]
    fn each_server_has_a_folder_of_its_own_on_every_file_system() {
        let idents = ["git", "Git", "GIT", "git_2", "other"];
        let found = folders(idents.into_iter());
        let given: Vec<(&str, &str)> = found.iter().map(|(ident, folder)| (*ident, folder.as_str())).collect();
        let expected = [("GIT", "GIT"), ("Git", "Git_3"), ("git", "git_4"), ("git_2", "git_2"), ("other", "other")];
        assert_eq!(given, expected);

        let entries = ["Git", "git"].map(|server| Arc::new(Entry::new(tool(server, "x", "{}", None))));
        let found = folders(["Git", "git"].into_iter());
        let python = files(entries.iter(), &found, Language::Python);
        assert!(python.contains_key("servers/Git/x.pyi") && python.contains_key("servers/git_2/x.pyi"), "{python:?}");
        assert!(python["servers/__init__.py"].ends_with("\nfrom . import git_2 as git\n"));
        let typescript = files(entries.iter(), &found, Language::TypeScript);
        assert!(typescript["servers/index.d.ts"].contains("export * as git from \"./git_2/index\";\n"));
    }

    #[test]
    fn python_files() {
        let files = written(Language::Python);
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "servers/__init__.py",
                "servers/my_fin/__init__.py",
                "servers/my_fin/delete.pyi",
                "servers/my_fin/query.pyi"
            ]
        );
        assert_eq!(
            files["servers/my_fin/query.pyi"],
            r#""""mcp__my_fin__query"""

from typing import Literal, NotRequired, TypedDict, Unpack

QueryWhere = TypedDict("QueryWhere", {"a b": float, "c": NotRequired[Literal["x", 1] | None]})
QueryKeywords = TypedDict("QueryKeywords", {"from": str})
QueryResultRows = TypedDict("QueryResultRows", {"n": NotRequired[int]})
QueryResult = TypedDict("QueryResult", {"rows": NotRequired[list[QueryResultRows]]})

async def query(*, ticker: str, limit: int = 10, where: QueryWhere = ..., **keywords: Unpack[QueryKeywords]) -> QueryResult:
    """Does query.

    Parameters:
        ticker (str): Its \"\"\" symbol */

    Pass "from" through a dict: **{"from": ...}
    """
    ...
"#
        );
        assert_eq!(
            files["servers/my_fin/__init__.py"],
            "\"\"\"Tools of the server my-fin.\n\ndelete() - Does delete.\nquery(ticker: str, limit: int = 10, where: {\"a b\": \
             float, \"c\"?: Literal[\"x\", 1] | None} = ..., **{\"from\": str}) -> {\"rows\"?: list[{\"n\"?: \
             int}]} - Does query.\n\"\"\"\n\nfrom .delete import delete as delete\nfrom .query import query as query\n"
        );
    }

    #[test]
    fn each_tool_has_a_file_of_its_own_on_every_file_system() {
        let long = "日".repeat(80);
        let names = ["TOOL", "Tool", "tool", "tool_2", "index", &long];
        let entries = names.map(|name| Arc::new(Entry::new(tool("s", name, "{}", None))));
        for language in [Language::Python, Language::TypeScript] {
            let files = files(entries.iter(), &BTreeMap::new(), language);
            let found: BTreeSet<String> = files.keys().map(|path| path.to_lowercase()).collect();
            assert_eq!(found.len(), names.len() + 2, "{found:?}");
            assert!(files.keys().all(|path| path.split('/').all(|part| part.len() <= 210)), "{found:?}");
        }
        let python = &files(entries.iter(), &BTreeMap::new(), Language::Python)["servers/s/__init__.py"];
        assert!(python.contains("from .TOOL import TOOL as TOOL\nfrom .Tool_2 import Tool as Tool\n"), "{python}");
        let typescript = &files(entries.iter(), &BTreeMap::new(), Language::TypeScript)["servers/s/index.d.ts"];
        assert!(typescript.contains("export { index } from \"./index_2\";\n"), "{typescript}");
    }

    #[test]
    fn typescript_files() {
        let files = written(Language::TypeScript);
        assert_eq!(
            files["servers/my_fin/query.d.ts"],
            "/**\n * Does query.\n *\n * In a program: await mcp__my_fin__query(...)\n */\nexport declare function query(args: {\n  \
             /** Its \"\"\" symbol *\\/ */\n  ticker: string;\n  from: string;\n  limit?: number;\n  where?: { \"a b\": number; c?: \
             \"x\" | 1 | null };\n}): Promise<{ rows?: Array<{ n?: number }> }>;\n"
        );
        assert_eq!(
            files["servers/my_fin/delete.d.ts"],
            "/**\n * Does delete.\n *\n * In a program: await mcp__my_fin__delete(...)\n */\ndeclare function delete_(args?: \
             Record<string, unknown>): Promise<unknown>;\nexport { delete_ as delete };\n"
        );
        assert_eq!(files["servers/index.d.ts"], "export * as my_fin from \"./my_fin/index\";\n");
    }
}
