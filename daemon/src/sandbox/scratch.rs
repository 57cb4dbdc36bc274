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

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags},
    io::Errno,
};

use super::error::SandboxError;
use crate::guardian::{DirectoryEntry, Guardian};

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

/// Removes a directory tree that hostile code filled: it follows no link, does not recurse and holds two descriptors
/// however deep the tree is, and opens what the program closed to itself with chmod.
///
/// # Errors
/// The system's error for the first thing that could not be removed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = match open_directory(CWD, path, flags) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut moved = 0_u64;
    loop {
        let mut empty = true;
        for entry in Dir::read_from(&top)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            empty = false;
            if rustix::fs::unlinkat(&top, name, AtFlags::empty()).is_ok()
                || rustix::fs::unlinkat(&top, name, AtFlags::REMOVEDIR).is_ok()
            {
                continue;
            }
            let inner = open_directory(&top, name, flags)?;
            for entry in Dir::read_from(&inner)? {
                let entry = entry?;
                let below = entry.file_name();
                if matches!(below.to_bytes(), b"." | b"..")
                    || rustix::fs::unlinkat(&inner, below, AtFlags::empty()).is_ok()
                    || rustix::fs::unlinkat(&inner, below, AtFlags::REMOVEDIR).is_ok()
                {
                    continue;
                }
                // A directory with content moves up beside its parent, so that the depth never matters.
                drop(open_directory(&inner, below, flags)?);
                loop {
                    moved += 1;
                    let up = format!(".up{moved}");
                    if rustix::fs::statat(&top, up.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_err() {
                        rustix::fs::renameat(&inner, below, &top, up.as_str())?;
                        break;
                    }
                }
            }
        }
        if empty {
            break;
        }
    }
    drop(top);
    fs::remove_dir(path)
}

/// Opens a directory with all rights on it for its owner.
fn open_directory<P: rustix::path::Arg + Copy>(
    at: impl std::os::fd::AsFd,
    path: P,
    flags: OFlags,
) -> Result<std::os::fd::OwnedFd, Errno> {
    let directory = match rustix::fs::openat(&at, path, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(&at, path, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(&at, path, flags, Mode::empty())?
        }
        other => other?,
    };
    rustix::fs::fchmod(&directory, Mode::RWXU)?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Whether a directory is closed to everybody but its owner.
    fn is_private(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o077 == 0)
    }

    #[test]
    fn a_tree_deeper_than_the_descriptor_limit_goes_away() {
        let home = tempfile::tempdir().unwrap();
        let tree = home.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut at = File::open(&tree).unwrap().into();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let kept = home.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let tree = home.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        symlink(&kept, tree.join("a/link")).unwrap();
        symlink(&kept, tree.join("link")).unwrap();
        fs::write(tree.join("a/b/f"), "x").unwrap();
        fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && kept.join("file").exists());
        remove_tree(&tree).unwrap();
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
