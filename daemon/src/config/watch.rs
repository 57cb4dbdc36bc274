//! Tells when the content of the configuration file changed.
//!
//! One thread owns the watches. It watches folders, never the file itself, because an editor that saves by renaming
//! leaves a watch on the old file deaf; it follows symbolic links by hand, because each may be swapped; and it compares
//! content, because most events mean nothing. A poll covers what no event tells. It never parses.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::watch;

use super::load::{self, ContentHash};
use super::trail;

/// No event for this long ends a save.
const SETTLE: Duration = Duration::from_millis(200);
/// Longest wait for the end of a save.
const SETTLE_AT_MOST: Duration = Duration::from_secs(2);
/// How long a file must be missing or blank before that is news; saving editors leave it so for a moment.
const ABSENT: Duration = Duration::from_secs(1);
/// How often the file is looked at without an event: it is small, and folders far above it may be replaced.
const POLL: Duration = Duration::from_secs(2);

/// Watches one file until dropped.
#[derive(Debug)]
pub struct ConfigWatch {
    /// The last content reported: `None` when the file is missing or cannot be read.
    content: watch::Receiver<Option<ContentHash>>,
    stop: Arc<AtomicBool>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl ConfigWatch {
    /// Starts to watch the file, which need not exist; without a path, nothing ever changes. `known` is the content that
    /// was loaded ([`super::Loaded::hash`]); a different one is reported at once.
    #[must_use]
    pub fn start(path: Option<PathBuf>, known: Option<ContentHash>) -> Self {
        // One place is enough: a wake that is waiting covers every later one.
        let (wake, wakes) = sync_channel(1);
        let (sender, content) = watch::channel(known);
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |path: PathBuf| {
            let watcher = Watcher {
                path: std::path::absolute(path)?,
                stop: Arc::clone(&stop),
                wake: wake.clone(),
                content: sender,
                watched: BTreeMap::new(),
                notify: None,
                absent_since: None,
                failures: 0,
            };
            thread::Builder::new().name(String::from("config-watch")).spawn(move || watcher.run(&wakes))
        };
        let thread = match path.map(spawn).transpose() {
            Ok(thread) => thread,
            Err(error) => {
                tracing::error!(%error, "config file is not watched; reload it by hand");
                None
            }
        };
        Self { content, stop, wake, thread }
    }

    /// Waits for the next change of the content; several in a row come as one. Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        if self.content.changed().await.is_err() {
            // There is no thread: nothing was to be watched, or the reason is in the log.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for ConfigWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        wake_up(&self.wake);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the config watch panicked");
        }
    }
}

struct Watcher {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    wake: SyncSender<()>,
    content: watch::Sender<Option<ContentHash>>,
    /// Watched folders with their identity, which changes when a folder is replaced.
    watched: BTreeMap<PathBuf, (u64, u64)>,
    notify: Option<RecommendedWatcher>,
    absent_since: Option<Instant>,
    /// Attempts to watch that failed in a row.
    failures: u32,
}

impl Watcher {
    fn run(mut self, wakes: &Receiver<()>) {
        while !self.stop.load(Ordering::Acquire) {
            // In this order, so that a save between the two is seen.
            self.watch();
            self.look();
            let pause = if self.absent_since.is_some() { SETTLE } else { POLL };
            if wakes.recv_timeout(pause).is_ok() {
                self.settle(wakes);
            }
        }
    }

    /// Waits for a pause between events.
    fn settle(&self, wakes: &Receiver<()>) {
        let end = Instant::now() + SETTLE_AT_MOST;
        while !self.stop.load(Ordering::Acquire) && Instant::now() < end {
            match wakes.recv_timeout(SETTLE) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Renews the watches when the path leads through other folders than before.
    fn watch(&mut self) {
        let trail = trail::follow(&self.path);
        let folders: BTreeMap<_, _> = trail
            .folders
            .into_iter()
            .filter_map(|folder| {
                let found = std::fs::metadata(&folder).ok()?;
                Some((folder, (found.dev(), found.ino())))
            })
            .collect();
        if self.notify.is_some() && folders == self.watched {
            return;
        }
        self.notify = None;
        self.watched.clear();
        match start_notify(self.wake.clone(), trail.names, folders.keys()) {
            Ok(notify) => {
                self.notify = Some(notify);
                self.watched = folders;
                self.failures = 0;
            }
            Err(error) => {
                // Once may be a folder that vanished just now; the next turn tries again.
                self.failures = self.failures.saturating_add(1);
                if self.failures == 2 {
                    tracing::warn!(%error, "config file is polled, its folder cannot be watched");
                }
            }
        }
    }

    /// Reads the file and reports content that is new.
    fn look(&mut self) {
        let bytes = load::read(&self.path).ok();
        let hash = bytes.as_deref().map(ContentHash::of);
        if hash == *self.content.borrow() {
            self.absent_since = None;
            return;
        }
        if bytes.is_none_or(|bytes| bytes.trim_ascii().is_empty()) {
            let since = *self.absent_since.get_or_insert_with(Instant::now);
            if since.elapsed() < ABSENT {
                return;
            }
        }
        self.absent_since = None;
        self.content.send_replace(hash);
    }
}

fn wake_up(wake: &SyncSender<()>) {
    match wake.try_send(()) {
        // Full means that a wake is waiting already; disconnected, that nobody is left to wake.
        Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
    }
}

fn start_notify<'f>(
    wake: SyncSender<()>,
    names: BTreeSet<OsString>,
    folders: impl Iterator<Item = &'f PathBuf>,
) -> notify::Result<RecommendedWatcher> {
    let mut notify = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let relevant = match event {
            // Reading the file makes access events, which would wake us for ever.
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => false,
            Ok(event) => {
                event.paths.is_empty()
                    || event.paths.iter().any(|path| path.file_name().is_some_and(|name| names.contains(name)))
            }
            Err(_) => true,
        };
        if relevant {
            wake_up(&wake);
        }
    })?;
    for folder in folders {
        notify.watch(folder, RecursiveMode::NonRecursive)?;
    }
    Ok(notify)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use tempfile::TempDir;

    use super::*;

    /// A watched file in a folder of its own.
    struct Bench {
        root: TempDir,
        watch: ConfigWatch,
    }

    impl Bench {
        /// Prepares the folder, then watches `conf/config.yaml` in it.
        fn new(prepare: impl FnOnce(&Path)) -> Self {
            let root = tempfile::tempdir().unwrap();
            prepare(root.path());
            let path = root.path().join("conf/config.yaml");
            let known = fs::read(&path).ok().map(|bytes| ContentHash::of(&bytes));
            Self { watch: ConfigWatch::start(Some(path), known), root }
        }

        fn with_file() -> Self {
            Self::new(|root| {
                fs::create_dir(root.join("conf")).unwrap();
                fs::write(root.join("conf/config.yaml"), "first").unwrap();
            })
        }

        fn at(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.at(name), text).unwrap();
        }

        /// Saves as editors do.
        fn rename_over(&self, text: &str) {
            self.write("conf/config.yaml~", text);
            fs::rename(self.at("conf/config.yaml~"), self.at("conf/config.yaml")).unwrap();
        }

        async fn next(&mut self) -> Option<ContentHash> {
            let changed = tokio::time::timeout(Duration::from_secs(15), self.watch.changed()).await;
            changed.expect("a change in time");
            *self.watch.content.borrow()
        }

        /// The very next change must be this text.
        async fn expect(&mut self, text: &str) {
            assert_eq!(self.next().await, Some(ContentHash::of(text.as_bytes())), "{text}");
        }
    }

    #[tokio::test]
    async fn each_save_by_renaming_is_seen_once() {
        let mut bench = Bench::with_file();
        for text in ["second", "third", "fourth"] {
            bench.rename_over(text);
            bench.expect(text).await;
        }
    }

    #[tokio::test]
    async fn writing_in_place_is_seen_and_touching_is_not() {
        let mut bench = Bench::with_file();
        bench.write("conf/config.yaml", "second");
        bench.expect("second").await;
        bench.write("conf/config.yaml", "second");
        fs::File::options()
            .write(true)
            .open(bench.at("conf/config.yaml"))
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        bench.write("conf/other.yaml", "x");
        thread::sleep(SETTLE * 3);
        bench.rename_over("third");
        bench.expect("third").await;
    }

    #[tokio::test]
    async fn a_save_that_unlinks_or_empties_first_is_one_change() {
        let mut bench = Bench::with_file();
        fs::remove_file(bench.at("conf/config.yaml")).unwrap();
        thread::sleep(SETTLE);
        bench.write("conf/config.yaml", "second");
        bench.expect("second").await;
        bench.write("conf/config.yaml", "");
        thread::sleep(SETTLE);
        bench.write("conf/config.yaml", "third");
        bench.expect("third").await;
    }

    #[tokio::test]
    async fn a_file_that_stays_away_or_blank_is_reported() {
        let mut bench = Bench::with_file();
        fs::remove_file(bench.at("conf/config.yaml")).unwrap();
        assert_eq!(bench.next().await, None);
        bench.write("conf/config.yaml", "first");
        bench.expect("first").await;
        bench.write("conf/config.yaml", "\n");
        bench.expect("\n").await;
    }

    #[tokio::test]
    async fn links_may_change_their_target_and_targets_their_content() {
        let mut bench = Bench::new(|root| {
            for folder in ["conf", "dots-a", "dots-b"] {
                fs::create_dir(root.join(folder)).unwrap();
            }
            fs::write(root.join("dots-a/ptc.yaml"), "a").unwrap();
            fs::write(root.join("dots-b/ptc.yaml"), "b").unwrap();
            symlink("dots-a", root.join("dots")).unwrap();
            symlink("../dots/ptc.yaml", root.join("conf/config.yaml")).unwrap();
        });
        bench.write("dots-a/ptc.yaml", "a2");
        bench.expect("a2").await;
        symlink("dots-b", bench.at("new")).unwrap();
        fs::rename(bench.at("new"), bench.at("dots")).unwrap();
        bench.expect("b").await;
        bench.write("dots-b/ptc.yaml", "b2");
        bench.expect("b2").await;
        symlink("../dots-a/ptc.yaml", bench.at("conf/new")).unwrap();
        fs::rename(bench.at("conf/new"), bench.at("conf/config.yaml")).unwrap();
        bench.expect("a2").await;
        bench.write("dots-a/ptc.yaml", "a3");
        bench.expect("a3").await;
    }

    #[tokio::test]
    async fn a_replaced_folder_is_watched_again() {
        let mut bench = Bench::with_file();
        for text in ["second", "third"] {
            fs::rename(bench.at("conf"), bench.at(&format!("before-{text}"))).unwrap();
            fs::create_dir(bench.at("conf")).unwrap();
            bench.write("conf/config.yaml", text);
            bench.expect(text).await;
        }
        bench.rename_over("fourth");
        bench.expect("fourth").await;
    }

    /// Nothing is watched that far away.
    #[tokio::test]
    async fn a_folder_far_above_may_be_replaced() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let make = |name: &str, text: &str| {
            fs::create_dir_all(at(name).join("a/b/c")).unwrap();
            fs::write(at(name).join("a/b/c/config.yaml"), text).unwrap();
        };
        make("now", "first");
        let watch = ConfigWatch::start(Some(at("now/a/b/c/config.yaml")), Some(ContentHash::of(b"first")));
        let mut bench = Bench { root: tempfile::tempdir().unwrap(), watch };
        make("next", "second");
        fs::rename(at("now"), at("before")).unwrap();
        fs::rename(at("next"), at("now")).unwrap();
        bench.expect("second").await;
    }

    #[tokio::test]
    async fn a_file_that_comes_later_is_seen_with_its_folder() {
        let mut bench = Bench::new(|_| {});
        fs::create_dir(bench.at("conf")).unwrap();
        bench.write("conf/config.yaml", "first");
        bench.expect("first").await;
    }

    #[tokio::test]
    async fn a_burst_of_saves_comes_as_few_changes_that_end_with_the_last() {
        let mut bench = Bench::with_file();
        for number in 0..20 {
            bench.rename_over(&format!("save {number}"));
            thread::sleep(Duration::from_millis(50));
        }
        let last = Some(ContentHash::of(b"save 19"));
        let mut seen = 1;
        while bench.next().await != last {
            seen += 1;
        }
        assert!(seen <= 3, "{seen} changes for 20 saves");
    }

    #[tokio::test]
    async fn content_that_changed_before_the_start_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("c.yaml");
        fs::write(&path, "new").unwrap();
        let mut watch = ConfigWatch::start(Some(path), Some(ContentHash::of(b"old")));
        watch.changed().await;
        assert_eq!(*watch.content.borrow(), Some(ContentHash::of(b"new")));
    }
}
