//! What a server writes beside the protocol: its stderr, and noise on its stdout. Bounded in memory (a tail for
//! `status`), on disk (two files of a fixed size) and in rate.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ptc_protocol::names::ServerName;

use super::redact::Redactor;

/// Lines of stderr kept for `status`.
const TAIL_LINES: usize = 10;

/// Longest line kept, in bytes; the rest of it is dropped.
pub(super) const LINE_BYTES: usize = 4096;

/// Longest line in the tail, in bytes.
const TAIL_LINE_BYTES: usize = 500;

/// Size at which the log file is moved to `NAME.log.1`.
const FILE_BYTES: u64 = 2 << 20;

/// Bytes a second that reach the file; a burst of four seconds' worth is let through.
const BYTES_A_SECOND: f64 = 64.0 * 1024.0;

/// Kinds of warnings kept.
const WARNINGS: usize = 20;

/// The log of one server lies here; its older part beside it with `.1` at the end.
#[must_use]
pub fn log_path(directory: &Path, server: &ServerName) -> PathBuf {
    directory.join(format!("server-{server}.log"))
}

/// The log of one server; clones share it.
#[derive(Debug, Clone)]
pub(super) struct ServerLog(Arc<Mutex<Log>>);

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: Option<(File, u64)>,
    redactor: Redactor,
    tail: VecDeque<String>,
    /// Whether the last line of the tail ended with a carriage return and the next one takes its place.
    rewinding: bool,
    strays: u64,
    stray_sample: String,
    warnings: Vec<String>,
    allowance: f64,
    refilled: Instant,
    left_out: u64,
}

impl ServerLog {
    /// A log that appends to [`log_path`]; without the file when that cannot be opened.
    pub(super) fn new(directory: &Path, server: &ServerName, redactor: Redactor) -> Self {
        Self(Arc::new(Mutex::new(Log {
            path: log_path(directory, server),
            file: None,
            redactor,
            tail: VecDeque::new(),
            rewinding: false,
            strays: 0,
            stray_sample: String::new(),
            warnings: Vec::new(),
            allowance: 4.0 * BYTES_A_SECOND,
            refilled: Instant::now(),
            left_out: 0,
        })))
    }

    /// Forgets what the last process wrote, and hides these values from now on.
    pub(super) fn restart(&self, redactor: Redactor) {
        let mut log = self.lock();
        log.redactor = redactor;
        log.tail.clear();
        log.rewinding = false;
        log.strays = 0;
        log.warnings.clear();
    }

    /// Bytes of a line that must be seen at once, so that no secret is cut in two.
    pub(super) fn line_limit(&self) -> usize {
        LINE_BYTES + self.lock().redactor.longest()
    }

    /// A line of stderr, without its end; `rewinds` when that was a carriage return, as in a progress bar.
    pub(super) fn stderr(&self, line: &[u8], rewinds: bool) {
        let mut log = self.lock();
        let line = log.redactor.clean(&String::from_utf8_lossy(line));
        let line = cut(line.trim_end(), LINE_BYTES);
        if line.is_empty() {
            return;
        }
        if log.rewinding {
            log.tail.pop_back();
        }
        log.rewinding = rewinds;
        if log.tail.len() == TAIL_LINES {
            log.tail.pop_front();
        }
        log.tail.push_back(cut(line, TAIL_LINE_BYTES).to_owned());
        if !rewinds {
            log.write("", line);
        }
    }

    /// Something on stdout that is not a message.
    pub(super) fn stray(&self, text: &str) {
        let mut log = self.lock();
        log.strays += 1;
        let text = log.redactor.clean(cut(text, log.redactor.longest() + LINE_BYTES));
        let text = cut(text.trim(), LINE_BYTES);
        if log.strays == 1 {
            log.stray_sample = cut(text, 80).to_owned();
        }
        log.write("[stdout] ", text);
    }

    /// A line of our own about the server.
    pub(super) fn note(&self, text: &str) {
        let mut log = self.lock();
        let text = log.redactor.clean(text);
        log.write("[ptc] ", &text);
    }

    /// Adds a warning for `status` unless it is there already.
    pub(super) fn warn_once(&self, text: &str) {
        let mut log = self.lock();
        let text = log.redactor.clean(text);
        if log.warnings.len() < WARNINGS && !log.warnings.contains(&text) {
            log.write("[ptc] warning: ", &text);
            log.warnings.push(text);
        }
    }

    /// The last lines of stderr.
    pub(super) fn tail(&self) -> Vec<String> {
        self.lock().tail.iter().cloned().collect()
    }

    /// Oddities of the running process, one sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let log = self.lock();
        let mut warnings = log.warnings.clone();
        if log.strays > 0 {
            warnings.push(format!(
                "wrote {} line{} to stdout that {} no MCP message, such as `{}`",
                log.strays,
                if log.strays == 1 { "" } else { "s" },
                if log.strays == 1 { "is" } else { "are" },
                log.stray_sample
            ));
        }
        warnings
    }

    /// The text without the server's secrets.
    pub(super) fn clean(&self, text: &str) -> String {
        self.lock().redactor.clean(text)
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn write(&mut self, prefix: &str, line: &str) {
        let now = Instant::now();
        let since = now.saturating_duration_since(self.refilled);
        if since > Duration::from_millis(50) {
            self.allowance = (self.allowance + since.as_secs_f64() * BYTES_A_SECOND).min(4.0 * BYTES_A_SECOND);
            self.refilled = now;
        }
        #[expect(clippy::cast_precision_loss, reason = "a line is far shorter than 2^52 bytes")]
        let cost = line.len() as f64;
        if self.allowance < cost {
            self.left_out += 1;
            return;
        }
        self.allowance -= cost;
        let stamp = jiff::Timestamp::now();
        let mut text = String::new();
        if self.left_out > 0 {
            text = format!("{stamp:.3} [ptc] {} lines left out: too many at once\n", self.left_out);
            self.left_out = 0;
        }
        // A terminal's control characters have no business in a file that people page through.
        let shown = line.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}");
        text.push_str(&format!("{stamp:.3} {prefix}{shown}\n"));
        self.append(&text);
    }

    /// Appends to the file; a disk that is full or read-only costs the log and nothing else.
    fn append(&mut self, text: &str) {
        if self.file.is_none() {
            self.file = open(&self.path);
        }
        let Some((file, bytes)) = &mut self.file else { return };
        if file.write_all(text.as_bytes()).is_err() {
            self.file = None;
            return;
        }
        *bytes += text.len() as u64;
        if *bytes > FILE_BYTES {
            self.file = None;
            let mut older = self.path.clone().into_os_string();
            older.push(".1");
            drop(std::fs::rename(&self.path, older));
        }
    }
}

fn open(path: &Path) -> Option<(File, u64)> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    Some((file, bytes))
}

/// At most so many bytes, cut at a character border.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

/// Splits a stream into lines at newlines and carriage returns. Bytes of a line over the limit are dropped.
#[derive(Debug, Default)]
pub(super) struct Lines {
    held: Vec<u8>,
}

impl Lines {
    /// Feeds a piece; calls `line` with each line and whether it ended with a carriage return.
    pub(super) fn feed(&mut self, piece: &[u8], limit: usize, mut line: impl FnMut(&[u8], bool)) {
        let mut rest = piece;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (head, tail) = rest.split_at(at);
            self.keep(head, limit);
            line(&self.held, tail[0] == b'\r' && tail.get(1) != Some(&b'\n'));
            self.held.clear();
            rest = &tail[1..];
        }
        self.keep(rest, limit);
    }

    /// The end of the stream: hands over a last line without an end.
    pub(super) fn finish(&mut self, mut line: impl FnMut(&[u8], bool)) {
        if !self.held.is_empty() {
            line(&self.held, false);
            self.held.clear();
        }
    }

    fn keep(&mut self, piece: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.held.len()).min(piece.len());
        self.held.extend_from_slice(&piece[..room]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (tempfile::TempDir, ServerLog) {
        let directory = tempfile::tempdir().unwrap();
        let name = ServerName::parse("a").unwrap();
        let log = ServerLog::new(directory.path(), &name, Redactor::default());
        (directory, log)
    }

    #[test]
    fn the_tail_keeps_the_last_lines_and_the_last_state_of_a_progress_bar() {
        let (directory, log) = log();
        for number in 0..30 {
            log.stderr(format!("line {number}").as_bytes(), false);
        }
        for percent in 0..50 {
            log.stderr(format!("{percent}%").as_bytes(), true);
        }
        log.stderr(b"done", false);
        let tail = log.tail();
        assert_eq!(tail.len(), TAIL_LINES);
        assert_eq!(tail[TAIL_LINES - 2..], ["line 29".to_owned(), "done".to_owned()]);
        let text = std::fs::read_to_string(directory.path().join("server-a.log")).unwrap();
        assert!(text.contains(" line 0\n") && text.ends_with(" done\n") && !text.contains('%'), "{text}");
    }

    #[test]
    fn a_flood_is_bounded_on_disk() {
        let (directory, log) = log();
        for _ in 0..3000 {
            log.stderr(&[b'x'; 3000], false);
        }
        let bytes = std::fs::metadata(directory.path().join("server-a.log")).unwrap().len();
        assert!(bytes < 600_000, "{bytes}");
    }

    #[test]
    fn long_lines_are_cut_and_memory_stays_bounded() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        lines.feed(&vec![b'a'; 1 << 20], 100, |line, _| seen.push(line.to_vec()));
        assert!(seen.is_empty());
        assert!(lines.held.capacity() < 1000);
        lines.feed(b"b\r\n5%\r6%\rend", 100, |line, rewinds| seen.push([line, &[b'0' + u8::from(rewinds)]].concat()));
        lines.finish(|line, _| seen.push(line.to_vec()));
        assert_eq!(seen[0], [vec![b'a'; 100], b"0".to_vec()].concat());
        assert_eq!(seen[1..], [b"0".to_vec(), b"5%1".to_vec(), b"6%1".to_vec(), b"end".to_vec()]);
    }

    #[test]
    fn noise_on_stdout_is_counted_with_a_sample() {
        let (_directory, log) = log();
        log.stray("✨ ready");
        log.stray("[INFO] x");
        log.warn_once("odd");
        log.warn_once("odd");
        assert_eq!(
            log.warnings(),
            ["odd", "wrote 2 lines to stdout that are no MCP message, such as `✨ ready`"].map(str::to_owned)
        );
    }
}
