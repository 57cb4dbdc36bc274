//! The catalogue's cases and what counts as their proper end.

use ptc_protocol::api::{ErrorKind, Outcome};
use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
pub(crate) struct Catalogue {
    pub(crate) prelude: Vec<String>,
    pub(crate) cases: Vec<Case>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    category: String,
    platform: String,
    pub(crate) expect: Expect,
    #[serde(default, rename = "landlock", deserialize_with = "is_open")]
    pub(crate) open_in_landlock: bool,
    pub(crate) code: Vec<String>,
}

/// How a case must end; the file says what the words mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Expect {
    Blocked,
    Ok,
    Error,
    Killed,
    Contained,
    Scope,
}

fn is_open<'de, D: serde::Deserializer<'de>>(field: D) -> Result<bool, D::Error> {
    Ok(String::deserialize(field)? == "open")
}

/// The cases that can run on this system.
pub(crate) fn catalogue() -> Catalogue {
    let mut catalogue: Catalogue =
        serde_json::from_str(include_str!("../../fixtures/escapes.json")).expect("the catalogue can be read");
    let elsewhere = if cfg!(target_os = "macos") { "linux" } else { "macos" };
    catalogue.cases.retain(|case| case.platform != elsewhere && case.expect != Expect::Scope);
    assert!(catalogue.cases.len() > 200, "{} cases", catalogue.cases.len());
    catalogue
}

impl Case {
    /// Seconds the program may take. Those that never end by themselves get little.
    pub(crate) fn seconds(&self) -> u64 {
        match self.expect {
            Expect::Killed => 3,
            Expect::Contained | Expect::Error => 12,
            Expect::Blocked | Expect::Ok | Expect::Scope => 60,
        }
    }

    /// Whether the daemon rather than the level decides the end.
    pub(crate) fn depends_on_the_daemon(&self) -> bool {
        matches!(self.category.as_str(), "channel" | "life" | "data")
    }

    /// What is wrong with this end of the case.
    pub(crate) fn complaint(&self, outcome: &Outcome) -> Option<String> {
        let shown = || {
            let error = outcome.error.as_ref().map(|error| format!("{:?} {}", error.kind, tail(&error.message)));
            format!("ok {} {}; output {}", outcome.ok, error.unwrap_or_default(), tail(&outcome.output))
        };
        let kind = outcome.error.as_ref().map(|error| error.kind);
        if outcome.output.contains("ESCAPED") {
            return Some(format!("escaped: {}", shown()));
        }
        if matches!(kind, Some(ErrorKind::Internal | ErrorKind::Sandbox | ErrorKind::Refused)) {
            return Some(format!("the daemon's own failure: {}", shown()));
        }
        let fine = match self.expect {
            Expect::Blocked => outcome.ok && outcome.output.contains("BLOCKED"),
            Expect::Ok => outcome.ok && outcome.output.contains("OK"),
            Expect::Error => !outcome.ok && outcome.error.as_ref().is_some_and(|error| error.message.len() < 300_000),
            Expect::Killed => {
                !outcome.ok
                    && matches!(
                        kind,
                        Some(ErrorKind::Timeout | ErrorKind::Limit | ErrorKind::Died | ErrorKind::Protocol)
                    )
            }
            Expect::Contained | Expect::Scope => true,
        };
        (!fine).then(|| format!("not {:?}: {}", self.expect, shown()))
    }
}

fn tail(text: &str) -> String {
    let from = text.char_indices().rev().nth(300).map_or(0, |(at, _)| at);
    text[from..].trim().to_owned()
}
