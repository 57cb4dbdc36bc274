//! Reading typed values from the tree while collecting every fault instead of stopping at the first.
//!
//! Knows shapes (text, number, choice, list) and expansion; never knows what a key means.

use std::{path::PathBuf, time::Duration};

use super::{
    error::{Fault, Position},
    expand::{self, Env, ExpandError},
    tree::{Entry, Node, Scalar, Value},
};

/// What reading a file has found so far.
pub(super) struct Reader<'a> {
    pub(super) env: Env<'a>,
    /// Folder that relative paths are meant from.
    pub(super) base: PathBuf,
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Fault>,
    /// What an unset variable is: an error, or only a warning where the value will not be used.
    pub(super) unset: Unset,
}

/// See [`Reader::unset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unset {
    Error,
    Warning,
}

/// A value with the key it stands under.
#[derive(Clone)]
pub(super) struct Field<'n> {
    pub(super) path: String,
    pub(super) node: &'n Node,
}

impl Field<'_> {
    pub(super) fn at(&self) -> Position {
        self.node.at
    }

    /// Whether the text as written holds the character.
    pub(super) fn holds(&self, wanted: char) -> bool {
        matches!(&self.node.value, Value::Scalar(scalar) if scalar.text.contains(wanted))
    }
}

/// The keys of one mapping; whoever reads it takes the keys it knows and closes it with the rest.
pub(super) struct Fields<'n> {
    pub(super) path: String,
    pub(super) at: Position,
    entries: &'n [Entry],
    taken: Vec<bool>,
}

impl<'n> Fields<'n> {
    /// The value of the key; none also when it is null, which everywhere means "not set".
    pub(super) fn take(&mut self, key: &str) -> Option<Field<'n>> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        self.taken[index] = true;
        let node = &self.entries[index].value;
        (!node.is_null()).then(|| Field { path: joined(&self.path, key), node })
    }

    /// Where the key itself stands.
    pub(super) fn key_at(&self, key: &str) -> Position {
        self.entries.iter().find(|entry| entry.key == key).map_or(self.at, |entry| entry.at)
    }

    /// The keys nobody took, with their full path.
    pub(super) fn rest(&self) -> impl Iterator<Item = (&'n Entry, String)> {
        self.entries
            .iter()
            .zip(&self.taken)
            .filter(|(_, taken)| !**taken)
            .map(|(entry, _)| (entry, joined(&self.path, &entry.key)))
    }
}

/// The path of a key below another path.
pub(super) fn joined(path: &str, key: &str) -> String {
    let key = shown(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// The text as it may stand in a message: on one line and not long.
pub(super) fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        out.push('…');
    }
    out
}

/// Numbers a key accepts, both ends included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(env: Env<'a>, base: PathBuf) -> Self {
        Self { env, base, faults: Vec::new(), warnings: Vec::new(), unset: Unset::Error }
    }

    pub(super) fn fault(&mut self, at: Position, key: &str, message: impl Into<String>) {
        self.faults.push(Fault::new(at, key, message));
    }

    pub(super) fn warn(&mut self, at: Position, key: &str, message: impl Into<String>) {
        self.warnings.push(Fault::new(at, key, message));
    }

    /// Opens a mapping.
    pub(super) fn mapping<'n>(&mut self, field: &Field<'n>) -> Option<Fields<'n>> {
        let Value::Mapping(entries) = &field.node.value else {
            self.fault(field.at(), &field.path, format!("must be a mapping (`key: value`), not {}", field.node.kind()));
            return None;
        };
        Some(Fields { path: field.path.clone(), at: field.at(), entries, taken: vec![false; entries.len()] })
    }

    /// The items of a list; an empty one when it is something else.
    pub(super) fn list<'n>(&mut self, field: &Field<'n>) -> Vec<Field<'n>> {
        let Value::Sequence(items) = &field.node.value else {
            let advice = match &field.node.value {
                Value::Scalar(_) => "; put it in brackets: `[…]`",
                Value::Sequence(_) | Value::Mapping(_) => "",
            };
            self.fault(field.at(), &field.path, format!("must be a list, not {}{advice}", field.node.kind()));
            return Vec::new();
        };
        let items = items.iter().enumerate();
        items.map(|(index, node)| Field { path: format!("{}[{index}]", field.path), node }).collect()
    }

    fn scalar<'n>(&mut self, field: &Field<'n>) -> Option<&'n Scalar> {
        let Value::Scalar(scalar) = &field.node.value else {
            self.fault(field.at(), &field.path, format!("must be one plain value, not {}", field.node.kind()));
            return None;
        };
        if scalar.is_null() {
            self.fault(field.at(), &field.path, "has no value; an empty text is written `\"\"`, a tilde `\"~\"`");
            return None;
        }
        Some(scalar)
    }

    /// The text as written.
    pub(super) fn text<'n>(&mut self, field: &Field<'n>) -> Option<&'n str> {
        self.scalar(field).map(|scalar| scalar.text.as_str())
    }

    /// The text with its variables filled in.
    pub(super) fn expanded(&mut self, field: &Field<'_>) -> Option<String> {
        let written = self.text(field)?;
        match expand::expand(written, self.env) {
            Ok(expanded) => {
                for piece in expanded.kept {
                    let message = format!(
                        "`{}` is no variable reference and stays as it is; a literal `$` is written `$$`",
                        shown(&piece)
                    );
                    self.warn(field.at(), &field.path, message);
                }
                if expanded.text.contains('\0') {
                    self.fault(field.at(), &field.path, "must not hold a NUL character");
                    return None;
                }
                Some(expanded.text)
            }
            Err(error @ ExpandError::Unset(_)) if self.unset == Unset::Warning => {
                self.warn(field.at(), &field.path, error.to_string());
                None
            }
            Err(error) => {
                self.fault(field.at(), &field.path, error.to_string());
                None
            }
        }
    }

    /// The expanded text with a leading `~` replaced by the home directory.
    pub(super) fn expanded_home(&mut self, field: &Field<'_>) -> Option<String> {
        let text = self.expanded(field)?;
        let found = expand::home(text, self.env);
        if found.is_none() {
            self.fault(field.at(), &field.path, "starts with `~`, but there is no home directory; set HOME");
        }
        found
    }

    /// A path: expanded, absolute, relative ones from the configuration's folder.
    pub(super) fn path(&mut self, field: &Field<'_>) -> Option<PathBuf> {
        let text = self.expanded_home(field)?;
        if text.is_empty() {
            self.fault(field.at(), &field.path, "must not be empty");
            return None;
        }
        Some(self.base.join(text))
    }

    /// A whole number in the range.
    pub(super) fn number(&mut self, field: &Field<'_>, range: Range) -> Option<u64> {
        let written = self.text(field)?;
        let text = self.expanded(field)?;
        let text = text.trim();
        let negative = text.strip_prefix('-').is_some_and(is_digits);
        let too_long = is_digits(text) && text.parse::<u64>().is_err();
        match text.parse::<u64>() {
            Ok(number) if is_digits(text) && (range.min..=range.max).contains(&number) => return Some(number),
            Ok(_) if is_digits(text) => {}
            _ if negative || too_long => {}
            _ => {
                let advice = bytes_of(text).map(|bytes| format!("; write {bytes}")).unwrap_or_default();
                let message = format!("must be a whole number, not `{}`{advice}", shown(written));
                self.fault(field.at(), &field.path, message);
                return None;
            }
        }
        let message = format!("must be from {} to {}, not `{}`", range.min, range.max, shown(written));
        self.fault(field.at(), &field.path, message);
        None
    }

    /// A number that indexes or counts something in memory.
    pub(super) fn count(&mut self, field: &Field<'_>, range: Range) -> Option<usize> {
        self.number(field, range).and_then(|number| usize::try_from(number).ok())
    }

    /// Seconds, whole or decimal, more than zero and at most `max`.
    pub(super) fn seconds(&mut self, field: &Field<'_>, max: u64) -> Option<Duration> {
        let written = self.text(field)?;
        let text = self.expanded(field)?;
        let text = text.trim();
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let unsigned = whole.strip_prefix('-').unwrap_or(whole);
        if !is_digits(unsigned) || !is_digits(part) {
            let message =
                format!("must be a number of seconds such as `30` or `0.5`, without a unit, not `{}`", shown(written));
            self.fault(field.at(), &field.path, message);
            return None;
        }
        let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.001);
        let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let found = duration.filter(|duration| *duration <= Duration::from_secs(max));
        if found.is_none() {
            let message = format!("must be more than 0 and at most {max} seconds, not `{}`", shown(written));
            self.fault(field.at(), &field.path, message);
        }
        found
    }

    /// True or false.
    pub(super) fn boolean(&mut self, field: &Field<'_>) -> Option<bool> {
        let written = self.text(field)?;
        let text = self.expanded(field)?;
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => {
                let message = format!("must be `true` or `false`, not `{}`", shown(written));
                self.fault(field.at(), &field.path, message);
                None
            }
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, field: &Field<'_>, words: &[(&str, T)]) -> Option<T> {
        let written = self.text(field)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == written) {
            return Some(*value);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let list = known.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let advice = closest(written, &known).map(|word| format!("; did you mean `{word}`?")).unwrap_or_default();
        self.fault(field.at(), &field.path, format!("must be one of {list}, not `{}`{advice}", shown(written)));
        None
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// What `16 MiB` and the like are in bytes.
fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// The known word that was probably meant.
pub(super) fn closest<'w>(written: &str, known: &[&'w str]) -> Option<&'w str> {
    let plain = |word: &str| word.to_lowercase().replace(['_', '-', ' '], "");
    let wanted = plain(written);
    if wanted.len() > 64 {
        return None;
    }
    let distance = |word: &str| strsim::damerau_levenshtein(&wanted, &plain(word));
    let best = known.iter().min_by_key(|word| distance(word))?;
    (distance(best) <= wanted.len().max(2) / 3 + usize::from(wanted.len() < 6)).then_some(*best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_word_is_found_or_none() {
        let known = ["command", "args", "env", "url", "startup_timeout_seconds"];
        for (written, want) in [
            ("comand", Some("command")),
            ("Command", Some("command")),
            ("arg", Some("args")),
            ("startupTimeoutSeconds", Some("startup_timeout_seconds")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(closest(written, &known), want, "{written}");
        }
    }

    #[test]
    fn sizes_with_units_are_understood_for_the_advice() {
        assert_eq!(bytes_of("16MiB"), Some(16 << 20));
        assert_eq!(bytes_of("64 k"), Some(64 << 10));
        assert_eq!(bytes_of("x"), None);
    }
}
