//! What is wrong with a configuration, for people: file, line, column, key and what to write instead.
//!
//! A message never holds an expanded value, nor the text of a value that may be a secret (`env`, `headers`, `args`,
//! `url`): only keys, names and words that ptc itself defines.

use std::{fmt, path::PathBuf};

/// A place in the file, both from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// One thing to correct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as it was named.
    pub path: PathBuf,
    /// Where in the file; none when the file as a whole is the trouble.
    pub at: Option<Position>,
    /// The key, as in `servers[1].headers.Authorization`; empty when no key is concerned.
    pub key: String,
    /// What is wrong and what to write instead, one line.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.as_os_str().is_empty() {
            write!(f, "{}:", self.path.display())?;
            if let Some(at) = self.at {
                write!(f, "{}:{}:", at.line, at.column)?;
            }
            f.write_str(" ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Every error of a file, in the order of their lines; one line each when displayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

/// One finding while reading, before it is tied to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: Option<Position>,
    pub(super) key: String,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(at: Position, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { at: Some(at), key: key.into(), message: message.into() }
    }

    pub(super) fn whole_file(message: impl Into<String>) -> Self {
        Self { at: None, key: String::new(), message: message.into() }
    }

    pub(super) fn in_file(self, path: &std::path::Path) -> ConfigError {
        ConfigError { path: path.to_owned(), at: self.at, key: self.key, message: self.message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_is_one_line_with_file_place_key_and_message() {
        let at = Position { line: 3, column: 5 };
        let errors = ConfigErrors(vec![
            Fault::whole_file("is a directory").in_file("c.yaml".as_ref()),
            Fault::new(at, "servers[0].comand", "unknown key").in_file("c.yaml".as_ref()),
            Fault::new(at, "", "a tab").in_file("c.yaml".as_ref()),
        ]);
        assert_eq!(
            errors.to_string(),
            "c.yaml: is a directory\nc.yaml:3:5: servers[0].comand: unknown key\nc.yaml:3:5: a tab"
        );
    }
}
