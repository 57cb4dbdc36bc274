//! The last lines of a log file, and those that follow.

use std::{
    io::SeekFrom,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::{Stream, stream};
use ptc_protocol::{api::LogLine, names::ServerName};
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncSeekExt as _},
};

/// Bytes looked at, from the end, for the last lines.
const TAIL_BYTES: u64 = 1 << 20;

/// How often a followed file is looked at.
const POLL: Duration = Duration::from_millis(250);

/// The log file to read: the newest of the daemon's own daily files, or the server's.
pub(super) fn file(log_dir: &Path, server: Option<&ServerName>) -> PathBuf {
    match server {
        Some(server) => crate::supervisor::log_path(log_dir, server),
        None => log_dir.join(crate::logging::LATEST),
    }
}

/// What the stream remembers between two lines.
struct Follow {
    file: PathBuf,
    server: Option<ServerName>,
    at: u64,
    rest: Vec<u8>,
    ready: std::vec::IntoIter<String>,
    follow: bool,
}

/// The last `lines` lines of `file`, then, when `follow`, each new one as it comes. A file that is replaced or cut is
/// read from its beginning. A file that does not exist has no lines.
pub(super) async fn lines(
    file: PathBuf,
    server: Option<ServerName>,
    lines: usize,
    follow: bool,
) -> impl Stream<Item = LogLine> {
    let (last, at) = tail(&file, lines).await;
    let state = Follow { file, server, at, rest: Vec::new(), ready: last.into_iter(), follow };
    stream::unfold(state, |mut state| async move {
        loop {
            if let Some(line) = state.ready.next() {
                return Some((LogLine { server: state.server.clone(), line }, state));
            }
            if !state.follow {
                return None;
            }
            tokio::time::sleep(POLL).await;
            state.ready = state.grown().await.into_iter();
        }
    })
}

impl Follow {
    /// Whole lines that were added since the last look.
    async fn grown(&mut self) -> Vec<String> {
        let Ok(mut file) = File::open(&self.file).await else { return Vec::new() };
        let length = file.metadata().await.map_or(0, |meta| meta.len());
        if length < self.at {
            self.at = 0;
            self.rest.clear();
        }
        let mut added = Vec::new();
        if file.seek(SeekFrom::Start(self.at)).await.is_err()
            || file.take(TAIL_BYTES).read_to_end(&mut added).await.is_err()
        {
            return Vec::new();
        }
        self.at += u64::try_from(added.len()).unwrap_or(0);
        self.rest.extend(added);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
    }
}

/// The last lines and the length they were read at.
async fn tail(file: &Path, lines: usize) -> (Vec<String>, u64) {
    let Ok(mut file) = File::open(file).await else { return (Vec::new(), 0) };
    let length = file.metadata().await.map_or(0, |meta| meta.len());
    let from = length.saturating_sub(TAIL_BYTES);
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(from)).await.is_err() || file.take(TAIL_BYTES).read_to_end(&mut bytes).await.is_err() {
        return (Vec::new(), length);
    }
    let at = from + u64::try_from(bytes.len()).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes);
    let mut all: Vec<&str> = text.lines().collect();
    if from > 0 && !all.is_empty() {
        all.remove(0);
    }
    let first = all.len().saturating_sub(lines);
    (all.get(first..).unwrap_or_default().iter().map(|line| (*line).to_owned()).collect(), at)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn last_lines_then_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        std::fs::write(&path, "1\n2\n3\n").unwrap();
        let stream = lines(path.clone(), None, 2, true).await;
        tokio::pin!(stream);
        assert_eq!(stream.next().await.unwrap().line, "2");
        assert_eq!(stream.next().await.unwrap().line, "3");
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"4\nhalf").unwrap();
        assert_eq!(stream.next().await.unwrap().line, "4");
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(stream.next().await.unwrap().line, "new");
    }

    #[tokio::test]
    async fn a_missing_file_has_no_lines() {
        let stream = lines(PathBuf::from("/nonexistent/x.log"), None, 5, false).await;
        assert_eq!(stream.count().await, 0);
    }
}
