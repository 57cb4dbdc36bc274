//! Small pieces of text for people: ages, sizes, control characters made visible.

use std::{borrow::Cow, fmt::Write as _};

use jiff::Timestamp;

/// Makes control characters and direction overrides of foreign text visible, so that a terminal does not obey them;
/// newline and tab stay when `lines` is [`Lines::Keep`].
pub(in crate::ctl) fn visible(text: &str, lines: Lines) -> Cow<'_, str> {
    let harmless = |c: char| lines == Lines::Keep && matches!(c, '\n' | '\t');
    if !text.chars().any(|c| obeyed(c) && !harmless(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if !obeyed(c) || harmless(c) {
            out.push(c);
        } else if c.is_ascii() {
            out.extend(c.escape_default());
        } else {
            let _written = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
    }
    Cow::Owned(out)
}

/// Whether newline and tab count as control characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ctl) enum Lines {
    /// They are part of the text.
    Keep,
    /// The text must stay on one line.
    Escape,
}

/// Characters that move the cursor, change colours or reorder text on a terminal.
fn obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// One line of at most `width` characters, made visible, cut with `…`.
pub(in crate::ctl) fn one_line(text: &str, width: usize) -> String {
    let first = text.trim().lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let shown = visible(&first, Lines::Escape);
    if shown.chars().count() <= width {
        return shown.into_owned();
    }
    shown.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// `4s`, `3m 10s`, `2h 5m`, `3d 4h`.
pub(in crate::ctl) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        (_, _, _) => format!("{days}d {hours}h"),
    }
}

/// How long ago an RFC 3339 time was, as [`duration`]; the text itself when it is not a time. A time ahead of `now`
/// counts as now.
pub(in crate::ctl) fn age(since: &str, now: Timestamp) -> String {
    match since.parse::<Timestamp>() {
        Ok(then) => duration(u64::try_from(now.as_second() - then.as_second()).unwrap_or(0)),
        Err(_) => one_line(since, 32),
    }
}

/// How far ahead an RFC 3339 time is, as [`duration`]; `now` when it has passed.
pub(in crate::ctl) fn until(then: &str, now: Timestamp) -> String {
    match then.parse::<Timestamp>() {
        Ok(then) => match u64::try_from(then.as_second() - now.as_second()) {
            Ok(ahead) if ahead > 0 => format!("in {}", duration(ahead)),
            Ok(_) | Err(_) => "now".into(),
        },
        Err(_) => one_line(then, 32),
    }
}

/// `512 B`, `3.4 kB`, `20 MB`, in powers of 1000.
pub(in crate::ctl) fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut tenths, mut unit) = (u128::from(count) * 10, 0);
    while tenths >= 10_000 && unit + 1 < units.len() {
        tenths = (tenths + 500) / 1000;
        unit += 1;
    }
    if unit == 0 || tenths >= 100 {
        format!("{} {}", (tenths + 5) / 10, units[unit])
    } else {
        format!("{}.{} {}", tenths / 10, tenths % 10, units[unit])
    }
}

/// `1 tool`, `2 tools`.
pub(in crate::ctl) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// `/home/me/x` as `~/x` when `home` is given and above it.
pub(in crate::ctl) fn tilde(path: &str, home: Option<&str>) -> String {
    let shown = visible(path, Lines::Escape).into_owned();
    match home.filter(|home| home.len() > 1).and_then(|home| path.strip_prefix(home.trim_end_matches('/'))) {
        Some("") => "~".into(),
        Some(rest) if rest.starts_with('/') => format!("~{}", visible(rest, Lines::Escape)),
        Some(_) | None => shown,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        assert_eq!(visible("a\u{1b}[2Jb\r\n\tc", Lines::Keep), "a\\u{1b}[2Jb\\r\n\tc");
        assert_eq!(visible("a\nb\u{202e}\u{9b}", Lines::Escape), "a\\nb\\u{202e}\\u{9b}");
        assert!(matches!(visible("grün → 日本\n", Lines::Keep), Cow::Borrowed(_)));
    }

    #[test]
    fn durations_show_the_two_largest_units() {
        let shown: Vec<_> = [0, 59, 190, 7_500, 273_600].into_iter().map(duration).collect();
        assert_eq!(shown, ["0s", "59s", "3m 10s", "2h 5m", "3d 4h"]);
    }

    #[test]
    fn times_are_told_from_now() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        assert_eq!(age("2026-01-01T23:59:00Z", now), "1m 0s");
        assert_eq!(age("2026-01-02T00:01:00Z", now), "0s");
        assert_eq!(age("yesterday", now), "yesterday");
        assert_eq!(until("2026-01-02T00:00:12+00:00", now), "in 12s");
        assert_eq!(until("2026-01-01T00:00:00Z", now), "now");
    }

    #[test]
    fn sizes_are_rounded_not_cut() {
        let shown: Vec<_> = [0, 999, 1_000, 3_449, 9_990, 20_000_000, u64::MAX].into_iter().map(bytes).collect();
        assert_eq!(shown, ["0 B", "999 B", "1.0 kB", "3.4 kB", "10 kB", "20 MB", "18446744 TB"]);
    }

    #[test]
    fn home_is_a_tilde_only_at_a_border() {
        assert_eq!(tilde("/home/me/x", Some("/home/me")), "~/x");
        assert_eq!(tilde("/home/mean/x", Some("/home/me")), "/home/mean/x");
        assert_eq!(tilde("/etc/x", None), "/etc/x");
    }

    #[test]
    fn long_text_is_cut_to_its_width() {
        assert_eq!(one_line("  first\n second ", 40), "first second");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }

    proptest! {
        #[test]
        fn visible_text_holds_no_control_character(text: String) {
            prop_assert!(!visible(&text, Lines::Escape).chars().any(obeyed));
        }
    }
}
