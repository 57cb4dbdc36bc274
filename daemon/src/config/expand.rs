//! `${NAME}` and `${NAME:-default}` in a parsed string, and a leading `~`.
//!
//! Defaults may hold further references; they are looked at only when they are used. A variable that is set but empty
//! counts as set. Values of variables are taken as they are, never expanded again.

use std::{ffi::OsString, fmt};

use ptc_protocol::paths;

/// Looks a variable up; `None` when it is not set.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Bytes of an expanded string.
const MAX_EXPANDED: usize = 1 << 20;
/// References inside the defaults of references.
const MAX_NESTING: usize = 16;

/// Why a string cannot be expanded. Holds names of variables, never values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpandError {
    Unset(String),
    Unclosed,
    Nested,
    Long,
}

impl fmt::Display for ExpandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset(name) => write!(
                f,
                "the environment variable {name} is not set; set it where ptcd is started, or write `${{{name}:-default}}`"
            ),
            Self::Unclosed => f.write_str("a `${` has no matching `}`; a literal `$` is written `$$`"),
            Self::Nested => write!(f, "references nested deeper than {MAX_NESTING}"),
            Self::Long => write!(f, "longer than {MAX_EXPANDED} bytes once expanded"),
        }
    }
}

/// A string after expansion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expanded {
    pub(super) text: String,
    /// `${…}` pieces that are no references and were kept as they stand.
    pub(super) kept: Vec<String>,
}

/// Expands all references; `$$` is a literal `$`, any other `$` stays.
pub(super) fn expand(text: &str, env: Env<'_>) -> Result<Expanded, ExpandError> {
    let mut out = Expanded { text: String::with_capacity(text.len()), kept: Vec::new() };
    append(text, env, 0, &mut out)?;
    Ok(out)
}

fn append(text: &str, env: Env<'_>, depth: usize, out: &mut Expanded) -> Result<(), ExpandError> {
    if depth > MAX_NESTING {
        return Err(ExpandError::Nested);
    }
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        push(&rest[..dollar], out)?;
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$$") {
            push("$", out)?;
            rest = after;
        } else if let Some(inside) = rest.strip_prefix("${") {
            let end = closing_brace(inside).ok_or(ExpandError::Unclosed)?;
            let body = &inside[..end];
            let (name, default) = match body.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (body, None),
            };
            if !is_variable_name(name) {
                let piece = &rest[..end + 3];
                out.kept.push(piece.to_owned());
                push(piece, out)?;
            } else if let Some(value) = env(name) {
                push(&value, out)?;
            } else if let Some(default) = default {
                append(default, env, depth + 1, out)?;
            } else {
                return Err(ExpandError::Unset(name.to_owned()));
            }
            rest = &inside[end + 1..];
        } else {
            push("$", out)?;
            rest = &rest[1..];
        }
    }
    push(rest, out)
}

fn push(piece: &str, out: &mut Expanded) -> Result<(), ExpandError> {
    if out.text.len() + piece.len() > MAX_EXPANDED {
        return Err(ExpandError::Long);
    }
    out.text.push_str(piece);
    Ok(())
}

/// Where the `}` stands that closes a reference whose `${` came just before `inside`.
fn closing_brace(inside: &str) -> Option<usize> {
    let bytes = inside.as_bytes();
    let (mut open, mut at) = (1_usize, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'$' if matches!(bytes.get(at + 1), Some(b'$' | b'{')) => {
                if bytes[at + 1] == b'{' {
                    open += 1;
                }
                at += 1;
            }
            b'}' => {
                open -= 1;
                if open == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Whether the text is `[A-Za-z_][A-Za-z0-9_]*`.
pub(super) fn is_variable_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `~` alone or before a `/` becomes the home directory; anything else is returned as it is. `None` when the home
/// directory is needed and not known.
pub(super) fn home(text: String, env: Env<'_>) -> Option<String> {
    let Some(rest) = text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        return Some(text);
    };
    let home = paths::home(&|name| env(name).map(OsString::from))?.into_os_string().into_string().ok()?;
    Some(format!("{}{rest}", home.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some(String::from("alpha")),
            "EMPTY" => Some(String::new()),
            "TRICKY" => Some(String::from("${A}$$")),
            "HOME" => Some(String::from("/home/u/")),
            _ => None,
        }
    }

    fn expanded(text: &str) -> Result<String, ExpandError> {
        expand(text, &env).map(|out| out.text)
    }

    #[test]
    fn references_defaults_and_literal_dollars() {
        for (text, want) in [
            ("Bearer ${A}!", "Bearer alpha!"),
            ("${NOPE:-x}", "x"),
            ("${NOPE:-}", ""),
            ("${EMPTY:-x}", ""),
            ("${TRICKY}", "${A}$$"),
            ("$${A}", "${A}"),
            ("$$$${A}", "$${A}"),
            ("$$${A}", "$alpha"),
            ("$A $1 $( $", "$A $1 $( $"),
            ("${NOPE:-${A}/x}", "alpha/x"),
            ("${NOPE:-${NOPE2:-${A}}}/y", "alpha/y"),
            ("${A:-${NOPE}}", "alpha"),
            ("${NOPE:-a$$}b", "a$b"),
            ("${NOPE:-$${x}", "${x"),
            ("é${A}é", "éalphaé"),
        ] {
            assert_eq!(expanded(text), Ok(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn failures_name_the_variable() {
        assert_eq!(expanded("${NOPE}"), Err(ExpandError::Unset("NOPE".into())));
        assert_eq!(expanded("${OTHER:-${NOPE}}"), Err(ExpandError::Unset("NOPE".into())));
        assert_eq!(expanded("${A"), Err(ExpandError::Unclosed));
        assert_eq!(expanded("${NOPE:-${A}"), Err(ExpandError::Unclosed));
        assert!(ExpandError::Unset("NOPE".into()).to_string().contains("${NOPE:-default}"));
    }

    #[test]
    fn what_is_no_reference_is_kept_and_reported() {
        let out = expand("echo ${x%.y} ${A-b} ${} ${A}", &env).unwrap();
        assert_eq!(out.text, "echo ${x%.y} ${A-b} ${} alpha");
        assert_eq!(out.kept, ["${x%.y}", "${A-b}", "${}"]);
    }

    #[test]
    fn growth_and_nesting_are_bounded() {
        let big = |_: &str| Some("x".repeat(100_000));
        assert_eq!(expand(&"${A}".repeat(20), &big), Err(ExpandError::Long));
        let deep = format!("{}x{}", "${N:-".repeat(40), "}".repeat(40));
        assert_eq!(expanded(&deep), Err(ExpandError::Nested));
    }

    #[test]
    fn only_a_leading_tilde_means_home() {
        for (text, want) in
            [("~", "/home/u"), ("~/x", "/home/u/x"), ("~bob/x", "~bob/x"), ("--d=~/x", "--d=~/x"), ("a~", "a~")]
        {
            assert_eq!(home(text.into(), &env), Some(want.to_owned()));
        }
        assert_eq!(home("~/x".into(), &|_| None), None);
        assert_eq!(home("x".into(), &|_| None), Some("x".into()));
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_is_unchanged(text in "[^$]{0,40}") {
            prop_assert_eq!(expanded(&text), Ok(text));
        }

        #[test]
        fn a_doubled_dollar_escapes_any_text(text in ".{0,40}") {
            prop_assert_eq!(expanded(&text.replace('$', "$$")), Ok(text));
        }

        #[test]
        fn no_text_panics(text in "[${}:\\-A_ é]{0,30}") {
            drop(expanded(&text));
        }
    }
}
