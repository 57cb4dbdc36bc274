//! The control socket: its folder, its lock, and who may speak on it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::{
        fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use axum::extract::connect_info::Connected;
use tokio::net::UnixListener;

/// Why the socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon serves there.
    #[error("another ptcd already serves `{}`; stop it, or name another socket with --socket", .0.display())]
    Live(PathBuf),
    /// Something that is not a socket stands at the path.
    #[error("`{}` exists and is not a socket; move it away, or name another socket with --socket", .0.display())]
    NotASocket(PathBuf),
    /// A step failed.
    #[error("cannot {step} `{}`", path.display())]
    Io {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// An open control socket; the file is removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    // Held for as long as the socket is ours.
    _lock: File,
}

impl Socket {
    /// Opens the socket at `path` with mode 0600; its folder is made with mode 0700 where it is missing, and gets it where
    /// it is ours and anyone could put a socket of theirs in place.
    ///
    /// A lock file beside it keeps two daemons that start together apart. A socket nobody listens on is replaced.
    ///
    /// # Errors
    /// Another daemon serves there, something else stands at the path, or the file system refuses.
    pub fn open(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        let fail = |step, path: &Path| {
            let path = path.to_owned();
            move |source| SocketError::Io { step, path, source }
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            match fs::metadata(folder) {
                Ok(found) if is_open_to_anyone(&found) => {
                    tracing::warn!(folder = %folder.display(), "folder of the socket could be written by anyone; closed it");
                    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(fail("close", folder))?;
                }
                Ok(_) => {}
                Err(_) => DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(folder)
                    .map_err(fail("create the folder", folder))?,
            }
        }
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(fail("open the lock file", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SocketError::Live(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(fail("lock", &lock_path)(error)),
        }
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotASocket(path.to_owned())),
            // A daemon that does not know the lock may serve there.
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(SocketError::Live(path.to_owned())),
            Ok(_) => fs::remove_file(path).map_err(fail("replace the stale socket", path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail("look at", path)(error)),
        }
        let listener = UnixListener::bind(path).map_err(fail("bind the socket", path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(fail("set the mode of", path))?;
        Ok((Self { path: path.to_owned(), _lock: lock }, listener))
    }
}

/// Whether the folder is ours and anyone may remove and make files in it.
fn is_open_to_anyone(folder: &fs::Metadata) -> bool {
    const BY_ANYONE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let mode = folder.mode();
    folder.is_dir()
        && folder.uid() == rustix::process::geteuid().as_raw()
        && mode & BY_ANYONE != 0
        && mode & STICKY == 0
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, "socket not removed");
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    /// Its user, or none where the system does not tell.
    uid: Option<u32>,
}

impl Peer {
    /// Whether it is our own user, or root.
    pub(super) fn may_speak(self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.uid.is_some_and(|uid| uid == own || uid == 0)
    }
}

impl Connected<axum::serve::IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: axum::serve::IncomingStream<'_, UnixListener>) -> Self {
        Self { uid: stream.io().peer_cred().ok().map(|cred| cred.uid()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_modes_are_private() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run").join("ptcd.sock");
        fs::create_dir(home.path().join("run")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (socket, _listener) = Socket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_folder_is_made_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a").join("ptcd.sock");
        let _open = Socket::open(&path).unwrap();
        assert_eq!(fs::metadata(home.path().join("a")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[tokio::test]
    async fn a_folder_that_anyone_can_write_is_closed_and_others_are_left_as_they_are() {
        let home = tempfile::tempdir().unwrap();
        for (mode, then) in [(0o777, 0o700), (0o703, 0o700), (0o775, 0o775), (0o755, 0o755), (0o1777, 0o1777)] {
            let folder = home.path().join(format!("{mode:o}"));
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let _open = Socket::open(&folder.join("ptcd.sock")).unwrap();
            assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o7777, then, "{mode:o}");
        }
    }

    #[tokio::test]
    async fn a_live_daemon_is_never_displaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ptcd.sock");
        let _first = Socket::open(&path).unwrap();
        assert!(matches!(Socket::open(&path), Err(SocketError::Live(_))));
        // Nor one without a lock file.
        let other = home.path().join("other.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&other).unwrap();
        assert!(matches!(Socket::open(&other), Err(SocketError::Live(_))));
    }

    #[tokio::test]
    async fn a_file_at_the_path_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ptcd.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Socket::open(&path), Err(SocketError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
