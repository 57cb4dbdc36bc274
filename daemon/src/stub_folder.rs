//! A folder of generated declarations on disk: written file by file in one step, cleared of what is stale, and never
//! touching a file that is not ours.
//!
//! A manifest in the folder says which files are ours, and the hashes of what they hold. It names a content before that is
//! written, so that an interrupted update leaves no file without an owner. This module knows files and nothing of tools.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Component, Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};

/// Contents that are ours, by path from the folder.
type Manifest = BTreeMap<String, BTreeSet<String>>;

/// What an update did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// Files that are new or changed.
    pub written: usize,
    /// Files that were as they should be.
    pub unchanged: usize,
    /// Files of ours that are no longer wanted.
    pub removed: usize,
    /// Paths that were left alone because something there is not ours.
    pub foreign: Vec<String>,
}

/// Why a folder could not be brought up to date.
#[derive(Debug, thiserror::Error)]
#[error("cannot write declarations at `{}`", path.display())]
pub struct FolderError {
    path: PathBuf,
    source: io::Error,
}

/// Makes the folder hold these files: text by path, with `/`. `kind` names the manifest, so that two sets may share a
/// folder. Stale files of ours go, except below the folders in `absent`, whose content is not known at the moment.
///
/// # Errors
/// The file or folder that could not be read or written.
pub fn update(
    folder: &Path,
    kind: &str,
    files: &BTreeMap<String, String>,
    absent: &[String],
) -> Result<Update, FolderError> {
    fs::create_dir_all(folder).map_err(at(folder))?;
    // Two writers take turns; the lock goes with the descriptor.
    let lock = fs::File::open(folder).map_err(at(folder))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| at(folder)(error.into()))?;
    let manifest_path = folder.join(format!(".ptc-stubs-{kind}.json"));
    let before = read_manifest(&manifest_path)?;
    let mut update = Update::default();
    let mut kept = Manifest::new();
    let mut changes = Vec::new();
    for (path, text) in files {
        let hash = hash(text.as_bytes());
        match look(folder, path, before.get(path))? {
            Found::Foreign => update.foreign.push(path.clone()),
            Found::Ours(present) if present == hash => {
                update.unchanged += 1;
                kept.insert(path.clone(), [hash].into());
            }
            Found::Ours(_) | Found::Nothing => {
                kept.insert(path.clone(), [hash].into());
                changes.push((path, text));
            }
        }
    }
    let mut stale = Vec::new();
    for (path, hashes) in before.iter().filter(|(path, _)| !files.contains_key(*path)) {
        if absent.iter().any(|gone| path.strip_prefix(gone).is_some_and(|rest| rest.starts_with('/'))) {
            kept.insert(path.clone(), hashes.clone());
        } else if let Found::Ours(_) = look(folder, path, Some(hashes))? {
            stale.push(path);
        }
    }
    let mut promised = before.clone();
    for (path, hashes) in &kept {
        promised.entry(path.clone()).or_default().extend(hashes.iter().cloned());
    }
    if promised != before {
        write_manifest(&manifest_path, &promised)?;
    }
    for (path, text) in changes {
        let target = folder.join(path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(at(parent))?;
        }
        replace(&target, text.as_bytes())?;
        update.written += 1;
    }
    for path in stale {
        let target = folder.join(path);
        fs::remove_file(&target).map_err(at(&target))?;
        update.removed += 1;
        // A folder that holds something else is not empty and stays.
        let above = target.ancestors().skip(1).take_while(|parent| *parent != folder);
        for parent in above {
            if fs::remove_dir(parent).is_err() {
                break;
            }
        }
    }
    if kept != promised {
        write_manifest(&manifest_path, &kept)?;
    }
    Ok(update)
}

/// What stands at a path.
enum Found {
    /// Nothing, and nothing in the way.
    Nothing,
    /// A file that we wrote and nobody changed, with its hash.
    Ours(String),
    /// Anything else.
    Foreign,
}

/// Looks without following links: what lies behind one is not ours.
fn look(folder: &Path, path: &str, ours: Option<&BTreeSet<String>>) -> Result<Found, FolderError> {
    let parts: Vec<Component<'_>> = Path::new(path).components().collect();
    if parts.is_empty() || parts.iter().any(|part| !matches!(part, Component::Normal(_))) {
        return Ok(Found::Foreign);
    }
    let mut place = folder.to_owned();
    for (at_part, part) in parts.iter().enumerate() {
        place.push(part);
        let kind = match fs::symlink_metadata(&place) {
            Ok(found) => found.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(at(&place)(error)),
        };
        let last = at_part + 1 == parts.len();
        if if last { !kind.is_file() } else { !kind.is_dir() } {
            return Ok(Found::Foreign);
        }
    }
    let present = hash(&fs::read(&place).map_err(at(&place))?);
    Ok(if ours.is_some_and(|ours| ours.contains(&present)) { Found::Ours(present) } else { Found::Foreign })
}

fn read_manifest(path: &Path) -> Result<Manifest, FolderError> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| at(path)(error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Manifest::new()),
        Err(error) => Err(at(path)(error)),
    }
}

fn write_manifest(path: &Path, manifest: &Manifest) -> Result<(), FolderError> {
    let text = serde_json::to_vec(manifest).map_err(|error| at(path)(error.into()))?;
    replace(path, &text)
}

/// Writes beside the file and renames, so that nobody reads half of it.
fn replace(target: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".ptc-new");
    let beside = target.with_file_name(name);
    fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, target)).map_err(|error| {
        // The error that is reported is the first one.
        let _kept = fs::remove_file(&beside);
        at(target)(error)
    })
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn at(path: &Path) -> impl Fn(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn put(folder: &Path, list: &[(&str, &str)], absent: &[&str]) -> Update {
        let absent: Vec<String> = absent.iter().map(|path| (*path).to_owned()).collect();
        update(folder, "python", &files(list), &absent).unwrap()
    }

    #[test]
    fn files_are_written_changed_and_removed_with_their_folders() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("new");
        assert_eq!(put(&folder, &[("s/a/x.pyi", "1"), ("s/b/y.pyi", "1")], &[]).written, 2);
        let update = put(&folder, &[("s/a/x.pyi", "2")], &[]);
        assert_eq!((update.written, update.removed, update.unchanged), (1, 1, 0));
        assert_eq!(fs::read_to_string(folder.join("s/a/x.pyi")).unwrap(), "2");
        assert!(!folder.join("s/b").exists());
        assert_eq!(put(&folder, &[("s/a/x.pyi", "2")], &[]), Update { unchanged: 1, ..Update::default() });
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        fs::create_dir(folder.join("s")).unwrap();
        fs::write(folder.join("s/theirs.pyi"), "theirs").unwrap();
        let update = put(folder, &[("s/theirs.pyi", "1"), ("s/ours.pyi", "1")], &[]);
        assert_eq!((update.written, update.foreign), (1, vec!["s/theirs.pyi".to_owned()]));
        // One of ours that somebody changed is theirs from then on, also when it is stale.
        fs::write(folder.join("s/ours.pyi"), "edited").unwrap();
        assert_eq!(put(folder, &[("s/ours.pyi", "2")], &[]).foreign, ["s/ours.pyi"]);
        assert_eq!(put(folder, &[], &[]).removed, 0);
        for (path, text) in [("s/theirs.pyi", "theirs"), ("s/ours.pyi", "edited")] {
            assert_eq!(fs::read_to_string(folder.join(path)).unwrap(), text);
        }
    }

    #[test]
    fn links_and_odd_paths_lead_nowhere() {
        let home = tempfile::tempdir().unwrap();
        let (folder, outside) = (home.path().join("f"), home.path().join("outside"));
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("s")).unwrap();
        let update = put(&folder, &[("s/a.pyi", "1"), ("../b.pyi", "1"), ("/c.pyi", "1")], &[]);
        assert_eq!((update.written, update.foreign.len()), (0, 3));
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn files_of_absent_servers_stay() {
        let home = tempfile::tempdir().unwrap();
        put(home.path(), &[("s/a/x.pyi", "1"), ("s/ab/y.pyi", "1")], &[]);
        assert_eq!(put(home.path(), &[], &["s/a"]).removed, 1);
        assert!(home.path().join("s/a/x.pyi").exists() && !home.path().join("s/ab").exists());
        assert_eq!(put(home.path(), &[], &[]).removed, 1, "it is still ours");
    }

    #[test]
    fn a_file_that_an_interrupted_update_wrote_is_ours() {
        let home = tempfile::tempdir().unwrap();
        let promised = Manifest::from([("x.pyi".to_owned(), [hash(b"0"), hash(b"1")].into())]);
        write_manifest(&home.path().join(".ptc-stubs-python.json"), &promised).unwrap();
        fs::write(home.path().join("x.pyi"), "1").unwrap();
        assert_eq!(put(home.path(), &[("x.pyi", "2")], &[]).written, 1);
    }

    #[test]
    fn both_languages_may_share_a_folder() {
        let home = tempfile::tempdir().unwrap();
        put(home.path(), &[("s/x.pyi", "1")], &[]);
        update(home.path(), "typescript", &files(&[("s/x.d.ts", "1")]), &[]).unwrap();
        assert!(home.path().join("s/x.pyi").exists() && home.path().join("s/x.d.ts").exists());
    }
}
