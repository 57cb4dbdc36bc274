//! Removal of folders that hostile code may have filled. Knows nothing of whose they are.

use std::{fs, io, path::Path};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags},
    io::Errno,
};

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
    use std::{
        fs::File,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

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
}
