//! Ranks tools for a query in words: BM25 over name, description and parameter names. Pure and deterministic.

use std::collections::HashMap;

/// Weight of a word in the tool's name, in its parameters, in its description.
const NAME_WEIGHT: f64 = 4.0;
const PARAMETER_WEIGHT: f64 = 1.0;
const DESCRIPTION_WEIGHT: f64 = 1.5;
/// The usual constants of BM25: how soon repetition stops to count, and how much length does.
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.6;
/// Shortest query word that also matches as the beginning of a longer word.
const PREFIX_CHARS: usize = 3;
/// What such a match counts, compared with the whole word.
const PREFIX_FACTOR: f64 = 0.5;
/// Of the best score, the share below which a match is left out: it shares a common word with the query and no more.
const WORTH_TELLING: f64 = 0.25;
/// Words of one description that are looked at.
const WORDS_READ: usize = 600;

/// One tool in words.
#[derive(Debug, Clone, Default)]
pub struct Document {
    words: HashMap<String, f64>,
    length: f64,
}

impl Document {
    /// Reads the three texts.
    #[must_use]
    pub fn new<'a>(name: &str, description: &str, parameters: impl IntoIterator<Item = &'a str>) -> Self {
        let mut document = Self::default();
        document.add(name, NAME_WEIGHT);
        document.add(description, DESCRIPTION_WEIGHT);
        for parameter in parameters.into_iter().take(WORDS_READ) {
            document.add(parameter, PARAMETER_WEIGHT);
        }
        document
    }

    fn add(&mut self, text: &str, weight: f64) {
        for word in words(text).into_iter().take(WORDS_READ) {
            self.length += 1.0;
            *self.words.entry(word).or_default() += weight;
        }
    }

    fn frequency(&self, word: &str) -> f64 {
        let whole = self.words.get(word).copied().unwrap_or_default();
        if whole > 0.0 || word.chars().count() < PREFIX_CHARS {
            return whole;
        }
        let longer = self.words.iter().filter(|(known, _)| known.starts_with(word)).map(|(_, weight)| *weight);
        longer.fold(0.0, f64::max) * PREFIX_FACTOR
    }
}

/// Indexes of the documents that match the query nearly as well as the best one, best first; equal ones stay in their
/// order. A query without words matches everything.
#[must_use]
pub(super) fn rank(documents: &[&Document], query: &str) -> Vec<usize> {
    let mut asked = words(query);
    asked.sort();
    asked.dedup();
    asked.truncate(64);
    if asked.is_empty() {
        return (0..documents.len()).collect();
    }
    let count = size(documents.len());
    let average = documents.iter().map(|document| document.length).sum::<f64>() / count.max(1.0);
    let mut scores = vec![0.0_f64; documents.len()];
    for word in &asked {
        let frequencies: Vec<f64> = documents.iter().map(|document| document.frequency(word)).collect();
        let found = size(frequencies.iter().filter(|frequency| **frequency > 0.0).count());
        let rarity = (1.0 + (count - found + 0.5) / (found + 0.5)).ln();
        for ((score, frequency), document) in scores.iter_mut().zip(frequencies).zip(documents) {
            let norm = SATURATION * (1.0 - LENGTH + LENGTH * document.length / average.max(1.0));
            *score += rarity * frequency * (SATURATION + 1.0) / (frequency + norm);
        }
    }
    let least = scores.iter().copied().fold(0.0, f64::max) * WORTH_TELLING;
    let mut found: Vec<usize> = (0..documents.len()).filter(|at| scores[*at] > 0.0 && scores[*at] >= least).collect();
    found.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    found
}

fn size(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Lower-case words of a text: cut at everything that is no letter or digit and where `camelCase` humps, without the
/// words that say nothing, and without the plural `s`.
fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for piece in text.split(|c: char| !c.is_alphanumeric()) {
        let mut word = String::new();
        let mut before: Option<char> = None;
        let mut letters = piece.chars().peekable();
        while let Some(c) = letters.next() {
            let hump = c.is_uppercase()
                && before.is_some_and(|b| !b.is_uppercase() || letters.peek().is_some_and(|next| next.is_lowercase()));
            if hump && !word.is_empty() {
                found.push(std::mem::take(&mut word));
            }
            word.extend(c.to_lowercase());
            before = Some(c);
        }
        if !word.is_empty() {
            found.push(word);
        }
    }
    found.retain(|word| !EMPTY_WORDS.contains(&word.as_str()));
    for word in &mut found {
        if word.chars().count() > 3 && word.ends_with('s') && !word.ends_with("ss") {
            word.pop();
        }
    }
    found
}

/// Words that every description holds.
const EMPTY_WORDS: [&str; 22] = [
    "mcp", "a", "an", "the", "of", "to", "in", "on", "for", "and", "or", "is", "are", "with", "by", "this", "that",
    "from", "it", "be", "as", "at",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_into_their_words() {
        assert_eq!(words("mcp__gitHub__listPullRequests_v2"), ["git", "hub", "list", "pull", "request", "v2"]);
        assert_eq!(words("HTTPServer classes"), ["http", "server", "classe"]);
    }

    fn order(query: &str) -> Vec<usize> {
        let tools = [
            ("mcp__fin__query_financials", "Income statement, balance sheet or cash flow of a company", &["ticker"]),
            ("mcp__ops__check_status", "Health of one endpoint", &["endpoint"]),
            ("mcp__ops__list_endpoints", "All endpoints whose status can be checked", &["filter"]),
        ];
        let documents: Vec<Document> =
            tools.iter().map(|(name, text, params)| Document::new(name, text, params.iter().copied())).collect();
        rank(&documents.iter().collect::<Vec<_>>(), query)
    }

    #[test]
    fn a_word_in_the_name_beats_one_in_the_description() {
        assert_eq!(order("status"), [1, 2]);
        assert_eq!(order("endpoint list"), [2, 1]);
        assert_eq!(order("balance"), [0]);
        assert_eq!(order("TICKER"), [0]);
    }

    #[test]
    fn the_beginning_of_a_word_is_enough() {
        assert_eq!(order("fin"), [0]);
        assert_eq!(order("endp"), [2, 1]);
    }

    #[test]
    fn a_common_word_brings_in_nothing_when_rarer_ones_are_found() {
        let names: Vec<String> = (0..20).map(|n| format!("mcp__s__get_thing{n}")).collect();
        let documents: Vec<Document> = names
            .iter()
            .map(String::as_str)
            .chain(["mcp__s__get_weather"])
            .map(|name| Document::new(name, "Gets it from s", []))
            .collect();
        let documents: Vec<&Document> = documents.iter().collect();
        assert_eq!(rank(&documents, "get weather"), [20]);
        assert_eq!(rank(&documents, "mcp__s__get_weather"), [20]);
        assert_eq!(rank(&documents, "get").len(), 21);
    }

    #[test]
    fn nothing_asked_is_everything_and_nothing_found_is_nothing() {
        assert_eq!(order(" the "), [0, 1, 2]);
        assert_eq!(order("weather"), Vec::<usize>::new());
    }
}
