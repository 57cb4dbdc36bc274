//! The files an interpreter needs, as the list that the Linux levels grant: pure apart from looking at the disk.
//!
//! Nothing is granted by folder that a person could have filled: of the interpreter's prefix only the standard library,
//! without site-packages; of system folders only the single libraries that the loader really opened.

use std::{
    ffi::OsStr,
    fs,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::interpreter::Interpreter;

/// Subfolders of a standard library that a program does not get: other people's packages, and CPython's own tests.
const MASKED: [&str; 6] = ["site-packages", "dist-packages", "test", "ensurepip", "idlelib", "turtledemo"];
/// Files below the root that are no one's secret and that programs expect.
const TIME_ZONES: &str = "/usr/share/zoneinfo";
/// Not /dev/zero: mapped shared, it gives memory that no limit counts.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/urandom"];
/// Folders in which every loader looks without being told.
const LOADER_FOLDERS: [&str; 4] = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"];

/// What a child sees, everything read-only but the scratch directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct View {
    /// Files and folders at the place they have outside.
    pub grants: Vec<Grant>,
    /// Folders inside granted ones that appear empty.
    pub masks: Vec<PathBuf>,
    /// Symbolic links: place and target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// What [`masks`](Self::masks) leave of the folders that have some, entry by entry, for a level that cannot mask.
    pub entries: Vec<PathBuf>,
}

/// One granted file or folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grant {
    /// Absolute, without `.` and `..`.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
}

/// What a granted path is, and with it what may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// An executable: the interpreter and its loader.
    Image,
    /// A shared object: mapped as code, never executed.
    Library,
    /// A folder of the standard library, with shared objects in it.
    Modules,
    /// A folder of data.
    Data,
    /// A character device.
    Device,
}

impl View {
    /// The view of an interpreter, or why it cannot have one.
    pub(super) fn of(interpreter: &Interpreter, home: Option<&Path>) -> Result<Self, String> {
        let mut grants = Vec::new();
        let mut push = |path: PathBuf, kind| {
            if !grants.iter().any(|grant: &Grant| grant.path == path) {
                grants.push(Grant { path, kind });
            }
        };
        let folders = folders(interpreter, home)?;
        push(absolute(&interpreter.image)?, Kind::Image);
        if let Some(loader) = &interpreter.loader {
            push(absolute(loader)?, Kind::Image);
        }
        let mut libraries = Vec::new();
        for object in &interpreter.objects {
            // The kernel's own page has a name without a folder.
            if !object.is_absolute() || Some(object) == interpreter.loader.as_ref() {
                continue;
            }
            let object = absolute(object)?;
            if !folders.iter().any(|folder| object.starts_with(folder)) {
                libraries.push(object);
            }
        }
        let links = aliases(&libraries);
        libraries.into_iter().for_each(|library| push(library, Kind::Library));
        let mut masks = Vec::new();
        let mut entries = Vec::new();
        for folder in folders {
            for entry in fs::read_dir(&folder).map_err(|error| format!("`{}`: {error}", folder.display()))? {
                let entry = entry.map_err(|error| format!("`{}`: {error}", folder.display()))?.path();
                let masked = entry.file_name().is_some_and(|name| MASKED.iter().any(|masked| name == *masked));
                // A link of that name leads out of the view, where nothing is.
                let folder = fs::symlink_metadata(&entry).is_ok_and(|data| data.is_dir());
                match (masked, folder) {
                    (true, true) => masks.push(entry),
                    (true, false) => {}
                    (false, _) => entries.push(entry),
                }
            }
            push(folder, Kind::Modules);
        }
        if Path::new(TIME_ZONES).is_dir() {
            push(TIME_ZONES.into(), Kind::Data);
        }
        for device in DEVICES {
            push(device.into(), Kind::Device);
        }
        masks.sort();
        entries.sort();
        Ok(Self { grants, masks, links, entries })
    }
}

/// The standard library's folders, outermost only, each checked to be one.
fn folders(interpreter: &Interpreter, home: Option<&Path>) -> Result<Vec<PathBuf>, String> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut given = interpreter.folders.iter().map(|folder| absolute(folder)).collect::<Result<Vec<_>, _>>()?;
    given.sort();
    for folder in given {
        if folders.iter().any(|outer| folder.starts_with(outer)) {
            continue;
        }
        let standard = folder.join("os.py").is_file() || folder.file_name() == Some(OsStr::new("lib-dynload"));
        if !standard || folder.components().count() < 3 || Some(folder.as_path()) == home {
            return Err(format!("`{}` does not look like a standard library of its own", folder.display()));
        }
        folders.push(folder);
    }
    if folders.is_empty() {
        return Err("it named no standard library".to_owned());
    }
    Ok(folders)
}

/// Libraries outside the folders every loader knows were found through its cache, which does not exist inside, or through
/// a run path, which still works; a link in a known folder serves both.
fn aliases(libraries: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
    let of_libc = libraries
        .iter()
        .find(|library| library.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libc.")));
    let Some(known) = of_libc.and_then(|library| library.parent()) else { return Vec::new() };
    libraries
        .iter()
        .filter_map(|library| {
            let folder = library.parent()?;
            let found = folder == known || LOADER_FOLDERS.iter().any(|usual| folder == Path::new(usual));
            let alias = known.join(library.file_name()?);
            (!found && !libraries.contains(&alias)).then(|| (alias, library.clone()))
        })
        .collect()
}

/// Removes `.` and `..` from an absolute path. What stands before a `..` is a real folder inside, so this is exact there.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                clean.pop();
            }
            Component::Normal(name) => clean.push(name),
        }
    }
    if !path.is_absolute() || clean.to_str().is_none() || clean == Path::new("/") {
        return Err(format!("`{}` is not a usable path", path.display()));
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn interpreter(prefix: &Path) -> Interpreter {
        let stdlib = prefix.join("lib/python3.12");
        for folder in ["asyncio", "lib-dynload", "site-packages/evil", "test"] {
            fs::create_dir_all(stdlib.join(folder)).unwrap();
        }
        fs::write(stdlib.join("os.py"), "").unwrap();
        symlink("/elsewhere", stdlib.join("dist-packages")).unwrap();
        serde_json::from_value(serde_json::json!({
            "version": [3, 12, 1], "implementation": "cpython", "base": prefix.join("bin/python3"),
            "image": prefix.join("bin/python3.12"),
            "folders": [&stdlib, stdlib.join("lib-dynload")],
            "objects": ["linux-vdso.so.1", "/lib64/ld.so", "/lib/gnu/libc.so.6", prefix.join("bin/../lib/libpython3.12.so.1.0"),
                        stdlib.join("lib-dynload/_json.so")],
            "loader": "/lib64/ld.so",
        }))
        .unwrap()
    }

    #[test]
    fn the_view_holds_the_interpreters_own_files_and_no_more() {
        let home = tempfile::tempdir().unwrap();
        let prefix = home.path().join("python");
        let view = View::of(&interpreter(&prefix), Some(home.path())).unwrap();
        let stdlib = prefix.join("lib/python3.12");
        let granted: Vec<_> = view.grants.iter().map(|grant| (grant.path.clone(), grant.kind)).collect();
        let mut expected = vec![
            (prefix.join("bin/python3.12"), Kind::Image),
            ("/lib64/ld.so".into(), Kind::Image),
            ("/lib/gnu/libc.so.6".into(), Kind::Library),
            (prefix.join("lib/libpython3.12.so.1.0"), Kind::Library),
            (stdlib.clone(), Kind::Modules),
        ];
        if Path::new(TIME_ZONES).is_dir() {
            expected.push((TIME_ZONES.into(), Kind::Data));
        }
        expected.extend(DEVICES.map(|device| (PathBuf::from(device), Kind::Device)));
        assert_eq!(granted, expected);
        assert_eq!(view.masks, [stdlib.join("site-packages"), stdlib.join("test")]);
        assert_eq!(view.entries, ["asyncio", "lib-dynload", "os.py"].map(|name| stdlib.join(name)));
        let library = prefix.join("lib/libpython3.12.so.1.0");
        assert_eq!(view.links, [("/lib/gnu/libpython3.12.so.1.0".into(), library)]);
    }

    #[test]
    fn a_prefix_that_would_give_away_more_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let mut odd = interpreter(&home.path().join("python"));
        fs::write(home.path().join("os.py"), "").unwrap();
        odd.folders = vec![home.path().to_owned()];
        assert!(View::of(&odd, Some(home.path())).is_err());
        odd.folders = vec!["/".into()];
        assert!(View::of(&odd, None).is_err());
        odd.folders = vec!["relative".into()];
        assert!(View::of(&odd, None).is_err());
        odd.folders = vec!["/usr/share".into()];
        assert!(View::of(&odd, None).is_err());
    }
}
