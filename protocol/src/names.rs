//! Names as parsed types: a value of one of these has the shape its doc states.

use std::{borrow::Borrow, fmt};

use serde::{Deserialize, Serialize};

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text was empty.
    #[error("a {what} must not be empty")]
    Empty {
        /// Which kind of name was parsed.
        what: &'static str,
    },
    /// The text holds a character that the kind of name does not allow.
    #[error("`{text}` is not a {what}: `{found}` is not allowed, only {allowed}")]
    Character {
        /// Which kind of name was parsed.
        what: &'static str,
        /// The refused text.
        text: String,
        /// The first character that is not allowed.
        found: char,
        /// The characters that are.
        allowed: &'static str,
    },
    /// The text is longer than [`MAX_NAME_BYTES`].
    #[error("a {what} of {bytes} bytes is too long; the limit is {MAX_NAME_BYTES}")]
    Long {
        /// Which kind of name was parsed.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
}

/// Longest name accepted, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 256;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $allowed:literal, |$c:ident| $ok:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses the text; see the type for the allowed characters.
            ///
            /// # Errors
            /// Empty, too long, or a character that is not allowed.
            pub fn parse(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                if text.is_empty() {
                    return Err(NameError::Empty { what: $what });
                }
                if text.len() > MAX_NAME_BYTES {
                    return Err(NameError::Long { what: $what, bytes: text.len() });
                }
                match text.chars().find(|&$c| !($ok)) {
                    Some(found) => Err(NameError::Character { what: $what, text, found, allowed: $allowed }),
                    None => Ok(Self(text)),
                }
            }

            /// The name as written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type! {
    /// A downstream server's name as the config writes it: `[A-Za-z0-9_-]+`.
    ServerName, "server name", "letters, digits, `_` and `-`", |c| c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

name_type! {
    /// A tool's name as programs use it: `mcp__<server>__<tool>`, a Python identifier. The catalog makes these; the
    /// server's own spelling is kept beside it and is what goes over the wire.
    ToolName, "tool name", "letters, digits and `_`", |c| c.is_alphanumeric() || c == '_'
}

name_type! {
    /// One client session of a shim, `s-` and hexadecimal digits. Made by the daemon.
    SessionId, "session id", "letters, digits and `-`", |c| c.is_ascii_alphanumeric() || c == '-'
}

name_type! {
    /// One run of a program, `p-` and hexadecimal digits. Made by the daemon.
    ProgramId, "program id", "letters, digits and `-`", |c| c.is_ascii_alphanumeric() || c == '-'
}

impl ServerName {
    /// The part that stands in tool names and in the `servers` package: `-` becomes `_`.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.0.replace('-', "_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_names_keep_their_spelling_and_map_dashes_for_python() {
        let name = ServerName::parse("financial-data").unwrap();
        assert_eq!((name.as_str(), name.namespace().as_str()), ("financial-data", "financial_data"));
    }

    #[test]
    fn a_refused_name_says_which_character() {
        let error = ServerName::parse("a b").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`a b` is not a server name: ` ` is not allowed, only letters, digits, `_` and `-`"
        );
        assert_eq!(ServerName::parse("").unwrap_err(), NameError::Empty { what: "server name" });
    }

    #[test]
    fn names_are_checked_when_they_arrive_as_json() {
        assert!(serde_json::from_str::<ProgramId>("\"p-1f\"").is_ok());
        assert!(serde_json::from_str::<ProgramId>("\"../x\"").is_err());
    }
}
