//! Answers of the daemon as text for people: pure functions of an answer, a [`Look`] and nothing else.

mod findings;
mod programs;
mod reload;
mod status;
pub(super) mod text;
mod tools;

use std::io::IsTerminal as _;

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use jiff::Timestamp;

pub(super) use self::{
    findings::{Finding, Grade, findings},
    programs::programs,
    reload::reload,
    status::status,
    tools::{description, signatures, tools, unavailable},
};

/// What the text depends on besides the answer.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// Columns of the terminal; none means that nothing is wrapped.
    pub(super) width: Option<u16>,
    /// The present.
    pub(super) now: Timestamp,
    /// Home directory, shown as `~`.
    pub(super) home: Option<String>,
}

impl Look {
    /// For standard output as it is.
    pub(super) fn stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let width = terminal.then(|| Table::new().width()).flatten();
        Self { width, now: Timestamp::now(), home: std::env::var("HOME").ok() }
    }
}

/// A table without lines: one header row, two spaces between columns. Colours are always in the text; they are taken
/// out on its way to anything but a terminal.
fn plain_table(look: &Look, header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty().enforce_styling().style_text_only();
    table.set_header(header.iter().map(|title| Cell::new(title).add_attribute(Attribute::Dim)));
    if let Some(width) = look.width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// The table with a newline after each row and no blanks at the ends of lines.
fn rows(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// What a colour says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tone {
    Good,
    Waiting,
    Bad,
    Quiet,
}

impl Tone {
    const fn color(self) -> Color {
        match self {
            Self::Good => Color::Green,
            Self::Waiting => Color::Yellow,
            Self::Bad => Color::Red,
            Self::Quiet => Color::DarkGrey,
        }
    }

    const fn style(self) -> anstyle::Style {
        let color = match self {
            Self::Good => anstyle::AnsiColor::Green,
            Self::Waiting => anstyle::AnsiColor::Yellow,
            Self::Bad => anstyle::AnsiColor::Red,
            Self::Quiet => anstyle::AnsiColor::BrightBlack,
        };
        color.on_default()
    }

    /// The text in this tone.
    fn paint(self, text: &str) -> String {
        let style = self.style();
        format!("{style}{text}{style:#}")
    }

    fn cell(self, text: &str) -> Cell {
        Cell::new(text).fg(self.color())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn look() -> Look {
        Look { width: None, now: "2026-01-02T12:00:00Z".parse().unwrap(), home: Some("/home/me".into()) }
    }

    /// Text without colours, as a file or pipe gets it.
    pub(super) fn bare(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn colours_are_in_the_text_and_come_out_again() {
        let painted = Tone::Bad.paint("no");
        assert!(painted.contains('\u{1b}'));
        assert_eq!(bare(&painted), "no");
    }
}
