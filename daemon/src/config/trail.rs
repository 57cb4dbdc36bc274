//! The folders in which something may happen that makes a path mean another file.

use std::{
    collections::{BTreeSet, VecDeque},
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
};

/// Links followed before the path counts as broken.
const MAX_LINKS: usize = 40;

/// Where a path leads through.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trail {
    /// Existing folders worth watching: those of the links on the way, the file's own and the one above it. Where the
    /// path breaks off, the folder in which the next part is missing.
    pub(super) folders: BTreeSet<PathBuf>,
    /// The names in these folders that belong to the path.
    pub(super) names: BTreeSet<OsString>,
}

/// Follows an absolute path link by link.
pub(super) fn follow(path: &Path) -> Trail {
    let mut trail = Trail { folders: BTreeSet::new(), names: BTreeSet::new() };
    let mut rest: VecDeque<OsString> = parts(path).collect();
    let mut folder = PathBuf::from("/");
    let mut hops: Vec<(PathBuf, OsString)> = Vec::new();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            folder.pop();
            continue;
        }
        let next = folder.join(&name);
        hops.push((folder.clone(), name.clone()));
        let Ok(found) = fs::symlink_metadata(&next) else { break };
        if !found.is_symlink() {
            folder = next;
            continue;
        }
        links += 1;
        trail.add(&folder, &name);
        let Some(target) = (links <= MAX_LINKS).then(|| fs::read_link(&next).ok()).flatten() else { break };
        if target.is_absolute() {
            folder = PathBuf::from("/");
        }
        for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
            rest.push_front(part);
        }
    }
    // The folder above tells when the folder itself is replaced. On macOS events belong to paths and need no such
    // help, and watching one level higher may mean to hear of every change below the home directory.
    let last = if cfg!(target_os = "macos") { 1 } else { 2 };
    for (folder, name) in hops.iter().rev().take(last) {
        trail.add(folder, name);
    }
    trail
}

impl Trail {
    fn add(&mut self, folder: &Path, name: &OsString) {
        self.folders.insert(folder.to_owned());
        self.names.insert(name.clone());
    }
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_of_files_and_folders_are_followed_one_by_one() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("dots/real")).unwrap();
        fs::create_dir_all(at("home/etc")).unwrap();
        fs::write(at("dots/real/c.yaml"), "").unwrap();
        symlink("../dots", at("home/conf")).unwrap();
        symlink(at("home/conf/real/c.yaml"), at("home/etc/config.yaml")).unwrap();
        let trail = follow(&at("home/etc/config.yaml"));
        let folders: BTreeSet<_> = ["home/etc", "home", "dots", "dots/real"].map(at).into();
        assert_eq!(trail.folders, folders);
        let names: BTreeSet<_> = ["config.yaml", "conf", "real", "c.yaml"].map(OsString::from).into();
        assert_eq!(trail.names, names);
    }

    #[test]
    fn a_missing_folder_is_awaited_in_the_nearest_one_that_exists() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let trail = follow(&root.join("a/b/c.yaml"));
        assert!(trail.folders.contains(&root) && trail.names.contains(&OsString::from("a")));
    }

    #[test]
    fn a_circle_of_links_ends() {
        let root = tempfile::tempdir().unwrap();
        symlink("b", root.path().join("a")).unwrap();
        symlink("a", root.path().join("b")).unwrap();
        assert!(!follow(&root.path().join("a")).folders.is_empty());
    }
}
