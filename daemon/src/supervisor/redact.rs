//! Keeps configured secrets out of everything that people or programs read.

use std::sync::Arc;

use crate::config::settings::{ServerSettings, Transport};

/// What stands in the place of a secret.
const HIDDEN: &str = "[hidden]";

/// Shorter values say too little to be secrets, and hiding them would make logs unreadable.
const SHORTEST: usize = 4;

/// Words that stand in many environments and are nobody's secret.
const PLAIN: [&str; 14] = [
    "true",
    "false",
    "none",
    "null",
    "info",
    "debug",
    "warn",
    "warning",
    "error",
    "trace",
    "production",
    "development",
    "test",
    "utf-8",
];

/// Replaces the secret values of one server; clones share them.
#[derive(Clone, Default)]
pub(super) struct Redactor(Arc<[String]>);

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} values)", self.0.len())
    }
}

impl Redactor {
    /// Hides the values of `env` and `headers` of this server, and those in the query of its address.
    pub(super) fn of(settings: &ServerSettings) -> Self {
        let secrets = match &settings.transport {
            Transport::Stdio { env, .. } => env,
            Transport::Http { headers, .. } | Transport::Sse { headers, .. } => headers,
        };
        let mut values = Vec::new();
        for (_, secret) in secrets.iter().filter(|(name, _)| !is_place(name)) {
            let value = secret.reveal().trim();
            values.push(value.to_owned());
            // `Bearer TOKEN`: the token alone is the secret, and appears alone.
            values.extend(value.split_once(' ').map(|(_, token)| token.trim().to_owned()));
        }
        if let Transport::Http { url, .. } | Transport::Sse { url, .. } = &settings.transport {
            values.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
        }
        Self::hiding(values)
    }

    fn hiding(mut values: Vec<String>) -> Self {
        values.retain(|value| {
            let small_number = value.len() <= 5 && value.bytes().all(|byte| byte.is_ascii_digit());
            value.len() >= SHORTEST && !small_number && !PLAIN.contains(&value.to_ascii_lowercase().as_str())
        });
        // The longest first, so that a value that contains another is hidden whole.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values.into())
    }

    /// The length of the longest secret, in bytes.
    pub(super) fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    /// The text without the secrets.
    pub(super) fn clean(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| {
            if text.contains(secret.as_str()) { text.replace(secret.as_str(), HIDDEN) } else { text }
        })
    }
}

/// Whether a variable of this name says where something is: errors are of no use without it.
fn is_place(name: &str) -> bool {
    ["PATH", "HOME", "_DIR"].iter().any(|end| name.ends_with(end)) || name.starts_with("LC_") || name == "LANG"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_plain_words_stay() {
        let values = ["Bearer abc-123", "abc-123", "8080", "true", "abc-123-long"].map(str::to_owned).to_vec();
        let redactor = Redactor::hiding(values);
        assert_eq!(
            redactor.clean("key abc-123, abc-123-long, port 8080, true"),
            "key [hidden], [hidden], port 8080, true"
        );
        assert_eq!(redactor.longest(), 14);
    }

    #[test]
    fn places_are_no_secrets() {
        assert!(["PATH", "NODE_PATH", "HOME", "CACHE_DIR", "LC_ALL"].into_iter().all(is_place));
        assert!(!["API_KEY", "TOKEN", "PATHS_TOKEN", "Authorization"].into_iter().any(is_place));
    }
}
