//! The page of `ptcctl doctor`.

use std::fmt::Write as _;

use super::{
    Look, Tone,
    text::{count, tilde},
};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::ctl) struct Finding {
    /// The layer, one or two words.
    pub(in crate::ctl) layer: String,
    /// How it is.
    pub(in crate::ctl) grade: Grade,
    /// What was found; may have several lines.
    pub(in crate::ctl) text: String,
    /// What to do about it.
    pub(in crate::ctl) remedy: Option<String>,
}

/// How a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ctl) enum Grade {
    /// As it should be.
    Good,
    /// It works, but a person should know.
    Doubtful,
    /// It keeps programs or a server from working.
    Broken,
}

impl Finding {
    pub(in crate::ctl) fn good(layer: impl Into<String>, text: impl Into<String>) -> Self {
        Self { layer: layer.into(), grade: Grade::Good, text: text.into(), remedy: None }
    }

    pub(in crate::ctl) fn doubtful(layer: impl Into<String>, text: impl Into<String>) -> Self {
        Self { grade: Grade::Doubtful, ..Self::good(layer, text) }
    }

    pub(in crate::ctl) fn broken(layer: impl Into<String>, text: impl Into<String>) -> Self {
        Self { grade: Grade::Broken, ..Self::good(layer, text) }
    }

    pub(in crate::ctl) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// One finding a line, remedies below, a summary at the end.
pub(in crate::ctl) fn findings(findings: &[Finding], look: &Look) -> String {
    let width = findings.iter().map(|finding| finding.layer.chars().count()).max().unwrap_or(0);
    let mut page = String::new();
    for finding in findings {
        let (tone, word) = match finding.grade {
            Grade::Good => (Tone::Good, "ok     "),
            Grade::Doubtful => (Tone::Waiting, "warning"),
            Grade::Broken => (Tone::Bad, "problem"),
        };
        let mut lines = finding.text.lines();
        let first = tilde(lines.next().unwrap_or_default(), look.home.as_deref());
        let _written = writeln!(page, "{}  {:width$}  {first}", tone.paint(word), finding.layer);
        let indent = " ".repeat("problem".len() + 2 + width + 2);
        for line in lines {
            let _written = writeln!(page, "{indent}{line}");
        }
        if let Some(remedy) = &finding.remedy {
            let _written = writeln!(page, "{indent}→ {remedy}");
        }
    }
    let number = |grade| findings.iter().filter(|finding| finding.grade == grade).count();
    let summary = match (number(Grade::Broken), number(Grade::Doubtful)) {
        (0, 0) => Tone::Good.paint("Everything is in order."),
        (0, warnings) => Tone::Waiting.paint(&format!("No problems, {}.", count(warnings, "warning"))),
        (problems, warnings) => {
            Tone::Bad.paint(&format!("{}, {}.", count(problems, "problem"), count(warnings, "warning")))
        }
    };
    let _written = writeln!(page, "\n{summary}");
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::render::tests::{bare, look};

    #[test]
    fn each_finding_has_its_remedy_below() {
        let list = [
            Finding::good("daemon", "answers"),
            Finding::doubtful("service", "not installed").remedy("`ptcctl install`"),
            Finding::broken("server github", "npx not found\nin PATH=/bin"),
        ];
        insta::assert_snapshot!(bare(&findings(&list, &look())), @r#"
        ok       daemon         answers
        warning  service        not installed
                                → `ptcctl install`
        problem  server github  npx not found
                                in PATH=/bin

        1 problem, 1 warning.
        "#);
        assert!(bare(&findings(&list[..1], &look())).ends_with("Everything is in order.\n"));
    }
}
