//! Scratch directories on the host's disk: one a child, gone with it, and the leftovers of daemons that were killed.
//!
//! Each daemon has a folder of its own below the scratch root and holds a lock on it for its life, so that a later
//! daemon can tell a leftover from a neighbour.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::error::SandboxError;
use crate::{
    guardian::{DirectoryEntry, Guardian},
    removal::remove_tree,
};

const LOCK: &str = "lock";

/// This daemon's folder for scratch directories.
#[derive(Debug, Clone)]
pub(super) struct ScratchRoot {
    owned: Arc<Owned>,
}

#[derive(Debug)]
struct Owned {
    path: PathBuf,
    guardian: Guardian,
    _lock: File,
    _entry: DirectoryEntry,
}

/// Whose programs use the directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsedBy {
    /// The daemon's own user.
    Owner,
    /// Nobody, who must be able to get there: without a mount view, root's programs work on the host's disk.
    Nobody,
}

/// Where root's scratch directories are when nobody uses them; root's own folders are closed to him.
const PUBLIC_ROOT: &str = "/tmp/ptcd-scratch";

impl ScratchRoot {
    /// Removes what dead daemons left below `root` and makes a folder for this one. Blocks on the disk.
    pub(super) fn claim(root: &Path, used_by: UsedBy, guardian: Guardian) -> Result<Self, SandboxError> {
        let (root, mode) = match used_by {
            UsedBy::Owner => (root, 0o700),
            UsedBy::Nobody => (Path::new(PUBLIC_ROOT), 0o711),
        };
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| SandboxError::Scratch { path, reason: error.to_string() }
        };
        DirBuilder::new().recursive(true).mode(mode).create(root).map_err(failed(root))?;
        let data = fs::symlink_metadata(root).map_err(failed(root))?;
        if used_by == UsedBy::Nobody && (!data.is_dir() || data.uid() != 0) {
            // Somebody else was here first, below a folder that everybody can write.
            return Err(failed(root)(io::Error::other("it is not a folder of root's")));
        }
        fs::set_permissions(root, fs::Permissions::from_mode(mode)).map_err(failed(root))?;
        let root = fs::canonicalize(root).map_err(failed(root))?;
        remove_leftovers(&root).map_err(failed(&root))?;
        let path = fresh_directory(&root, mode).map_err(failed(&root))?;
        let entry = guardian.directory(&path);
        let lock = OpenOptions::new().create_new(true).write(true).open(path.join(LOCK)).map_err(failed(&path))?;
        lock.try_lock().map_err(|error| failed(&path)(error.into()))?;
        Ok(Self { owned: Arc::new(Owned { path, guardian, _lock: lock, _entry: entry }) })
    }

    /// This daemon's folder.
    pub(super) fn path(&self) -> &Path {
        &self.owned.path
    }

    /// A new empty directory, mode 0700, removed with the value.
    pub(super) fn directory(&self) -> Result<Scratch, SandboxError> {
        let path = fresh_directory(&self.owned.path, 0o700)
            .map_err(|error| SandboxError::Scratch { path: self.owned.path.clone(), reason: error.to_string() })?;
        let entry = self.owned.guardian.directory(&path);
        Ok(Scratch { path, _root: self.clone(), _entry: entry })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.path) {
            tracing::warn!(%error, "scratch folder not removed");
        }
    }
}

/// One child's scratch directory.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    _root: ScratchRoot,
    _entry: DirectoryEntry,
}

impl Scratch {
    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.path) {
            tracing::warn!(%error, "scratch directory not removed");
        }
    }
}

fn fresh_directory(parent: &Path, mode: u32) -> io::Result<PathBuf> {
    loop {
        let path = parent.join(format!("p{:016x}", fastrand::u64(..)));
        match DirBuilder::new().mode(mode).create(&path) {
            // Whatever the daemon's umask is.
            Ok(()) => return fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map(|()| path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes the folders of daemons that no longer hold their lock.
fn remove_leftovers(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        // A folder without a lock file was left between its creation and its lock, or is being created just now; a
        // neighbour in that moment loses an empty folder and says so.
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => lock,
            Err(_) => continue,
        };
        match lock.try_lock() {
            Ok(()) => {
                if let Err(error) = remove_tree(&path) {
                    tracing::warn!(%error, "leftover scratch folder not removed");
                }
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a directory is closed to everybody but its owner.
    fn is_private(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o077 == 0)
    }

    #[test]
    fn a_dead_daemons_folder_is_removed_and_a_living_ones_is_not() {
        let home = tempfile::tempdir().unwrap();
        let living = ScratchRoot::claim(home.path(), UsedBy::Owner, Guardian::absent()).unwrap();
        let dead = home.path().join("p0");
        fs::create_dir_all(dead.join("p1/deep")).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let next = ScratchRoot::claim(home.path(), UsedBy::Owner, Guardian::absent()).unwrap();
        assert!(!dead.exists() && living.path().exists());
        let scratch = next.directory().unwrap();
        assert!(is_private(scratch.path()) && is_private(next.path()));
        let (path, folder) = (scratch.path().to_owned(), next.path().to_owned());
        drop(scratch);
        assert!(!path.exists() && folder.exists());
        drop(next);
        assert!(!folder.exists());
    }
}
