//! Which paths an interpreter needs on macOS: its real files, and every link and folder on the way to them.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Component, Path, PathBuf},
};

use crate::sandbox::interpreter::Interpreter;

/// Links followed for one path; a loop ends here.
const MAX_HOPS: usize = 40;
/// Dynamic libraries below these come with the system and are granted as a whole.
const SYSTEM: [&str; 2] = ["/usr/lib", "/System"];
const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];
const DYNAMIC_MODULES: &str = "lib-dynload";

/// Paths by what they are for; real paths unless said otherwise, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::sandbox) struct Closure {
    /// What is executed.
    pub image: PathBuf,
    /// The dynamic libraries that do not come with the system.
    pub libraries: BTreeSet<PathBuf>,
    /// Folders of the standard library.
    pub modules: BTreeSet<PathBuf>,
    /// Folders of extension modules.
    pub extensions: BTreeSet<PathBuf>,
    /// Folders inside `modules` that hold other people's packages.
    pub packages: BTreeSet<PathBuf>,
    /// Symbolic links on the way, as they are named.
    pub hops: BTreeSet<PathBuf>,
    /// Folders on the way, as they are named.
    pub ancestors: BTreeSet<PathBuf>,
}

impl Closure {
    /// Looks the interpreter's files up on the disk.
    pub(in crate::sandbox) fn of(interpreter: &Interpreter) -> Result<Self, String> {
        let mut closure = Self::default();
        closure.image = closure.resolve(&interpreter.image)?;
        // Python looks for its prefix from the name it was started by, and so does a person's eye in a traceback.
        closure.resolve(&interpreter.base)?;
        for object in interpreter.objects.iter().filter(|object| !is_system(object)) {
            let real = closure.resolve(object)?;
            if real != closure.image {
                closure.libraries.insert(real);
            }
        }
        for folder in &interpreter.folders {
            let real = closure.resolve(folder)?;
            let dynamic = real.file_name() == Some(OsStr::new(DYNAMIC_MODULES));
            if !dynamic && !real.join("os.py").is_file() {
                return Err(format!("`{}` does not look like a standard library", real.display()));
            }
            let extensions = if dynamic { real.clone() } else { real.join(DYNAMIC_MODULES) };
            if extensions.is_dir() {
                closure.extensions.insert(extensions);
            }
            closure
                .packages
                .extend(PACKAGES.map(|name| real.join(name)).into_iter().filter(|packages| packages.is_dir()));
            closure.modules.insert(real);
        }
        if closure.modules.is_empty() {
            return Err("it named no standard library".to_owned());
        }
        // Modules are read as a whole already.
        let Self { libraries, extensions, .. } = &mut closure;
        libraries.retain(|library| !extensions.iter().any(|folder| library.starts_with(folder)));
        Ok(closure)
    }

    /// Follows a path link by link to the real file, noting every link and every folder that is passed.
    fn resolve(&mut self, path: &Path) -> Result<PathBuf, String> {
        let unusable = |why: &str| format!("`{}` {why}", path.display());
        if !path.is_absolute() {
            return Err(unusable("is not absolute"));
        }
        let mut real = PathBuf::from("/");
        let mut hops = 0;
        let mut pending: Vec<std::ffi::OsString> = path.components().rev().filter_map(name).collect();
        while let Some(next) = pending.pop() {
            if next == ".." {
                real.pop();
                continue;
            }
            let here = real.join(&next);
            match fs::symlink_metadata(&here) {
                Ok(data) if data.is_symlink() => {
                    hops += 1;
                    if hops > MAX_HOPS {
                        return Err(unusable("leads through too many links"));
                    }
                    let target = fs::read_link(&here).map_err(|error| unusable(&error.to_string()))?;
                    self.hops.insert(here);
                    if target.is_absolute() {
                        real = PathBuf::from("/");
                    }
                    pending.extend(target.components().rev().filter_map(name));
                }
                Ok(_) => {
                    if !pending.is_empty() {
                        self.ancestors.insert(here.clone());
                    }
                    real = here;
                }
                Err(error) => return Err(unusable(&error.to_string())),
            }
        }
        Ok(real)
    }

    /// All parameters by the names that the profile uses.
    pub(in crate::sandbox) fn parameters(&self) -> Result<Vec<(String, String)>, String> {
        let mut parameters = vec![("IMAGE".to_owned(), value(&self.image)?)];
        for (list, paths) in self.lists() {
            for (index, path) in paths.iter().enumerate() {
                parameters.push((format!("{list}{index}"), value(path)?));
            }
        }
        Ok(parameters)
    }

    /// The lists of paths by the names of their parameters.
    pub(super) const fn lists(&self) -> [(&'static str, &BTreeSet<PathBuf>); 6] {
        [
            ("LIBRARY", &self.libraries),
            ("MODULES", &self.modules),
            ("EXTENSIONS", &self.extensions),
            ("PACKAGES", &self.packages),
            ("HOP", &self.hops),
            ("ANCESTOR", &self.ancestors),
        ]
    }
}

fn name(component: Component<'_>) -> Option<std::ffi::OsString> {
    match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    }
}

/// A path as the value of a parameter. An empty one would match everything, and `/` is everything.
pub(in crate::sandbox) fn value(path: &Path) -> Result<String, String> {
    let text = path.to_str().ok_or_else(|| format!("`{}` is not UTF-8", path.display()))?;
    if !path.is_absolute() || path == Path::new("/") || text.contains(['\0', '\n', '"', '\\']) {
        return Err(format!("`{text}` cannot be a parameter of a profile"));
    }
    Ok(text.to_owned())
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree as uv and Homebrew lay it out: a link for each version, a link for each library.
    fn tree(root: &Path) -> Interpreter {
        let uv = root.join("share/uv/python");
        let stdlib = uv.join("cpython-3.12.13-macos/lib/python3.12");
        for folder in ["lib-dynload", "site-packages/pip", "asyncio"] {
            fs::create_dir_all(stdlib.join(folder)).unwrap();
        }
        fs::create_dir_all(uv.join("cpython-3.12.13-macos/bin")).unwrap();
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("homebrew/Cellar/openssl/3.4/lib")).unwrap();
        fs::create_dir_all(root.join("homebrew/opt")).unwrap();
        for file in [
            stdlib.join("os.py"),
            stdlib.join("lib-dynload/_ssl.so"),
            uv.join("cpython-3.12.13-macos/bin/python3.12"),
            uv.join("cpython-3.12.13-macos/lib/libpython3.12.dylib"),
            root.join("homebrew/Cellar/openssl/3.4/lib/libssl.3.dylib"),
        ] {
            fs::write(file, "").unwrap();
        }
        symlink("cpython-3.12.13-macos", uv.join("cpython-3.12-macos")).unwrap();
        symlink(uv.join("cpython-3.12-macos/bin/python3.12"), root.join("bin/python")).unwrap();
        symlink("../Cellar/openssl/3.4", root.join("homebrew/opt/openssl@3")).unwrap();
        serde_json::from_value(serde_json::json!({
            "version": [3, 12, 13], "implementation": "cpython", "base": root.join("bin/python"),
            "image": uv.join("cpython-3.12.13-macos/bin/python3.12"),
            "folders": [uv.join("cpython-3.12-macos/lib/python3.12"), stdlib.join("lib-dynload")],
            "objects": ["/usr/lib/libSystem.B.dylib", "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation",
                        uv.join("cpython-3.12-macos/bin/../lib/libpython3.12.dylib"),
                        root.join("homebrew/opt/openssl@3/lib/libssl.3.dylib"), stdlib.join("lib-dynload/_ssl.so")],
        }))
        .unwrap()
    }

    #[test]
    fn every_link_and_folder_on_the_way_is_noted_and_files_are_real() {
        let home = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(home.path()).unwrap();
        let closure = Closure::of(&tree(&root)).unwrap();
        let uv = root.join("share/uv/python");
        let real = uv.join("cpython-3.12.13-macos");
        let set = |paths: &[PathBuf]| paths.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(closure.image, real.join("bin/python3.12"));
        let libraries =
            [real.join("lib/libpython3.12.dylib"), root.join("homebrew/Cellar/openssl/3.4/lib/libssl.3.dylib")];
        assert_eq!(closure.libraries, set(&libraries));
        let stdlib = real.join("lib/python3.12");
        assert_eq!(closure.modules, set(&[stdlib.clone(), stdlib.join("lib-dynload")]));
        assert_eq!(closure.extensions, set(&[stdlib.join("lib-dynload")]));
        assert_eq!(closure.packages, set(&[stdlib.join("site-packages")]));
        let hops = [uv.join("cpython-3.12-macos"), root.join("bin/python"), root.join("homebrew/opt/openssl@3")];
        assert_eq!(closure.hops, set(&hops));
        for folder in [&root, &uv, &real, &real.join("lib"), &root.join("homebrew/opt"), &root.join("homebrew/Cellar")]
        {
            assert!(closure.ancestors.contains(folder), "{}", folder.display());
        }
        assert!(!closure.ancestors.contains(Path::new("/")), "the root has a rule of its own");
    }

    #[test]
    fn loops_and_odd_values_are_refused() {
        let home = tempfile::tempdir().unwrap();
        symlink("b", home.path().join("a")).unwrap();
        symlink("a", home.path().join("b")).unwrap();
        let mut interpreter = tree(home.path());
        interpreter.image = home.path().join("a");
        assert!(Closure::of(&interpreter).unwrap_err().contains("too many links"));
        for odd in ["", "/", "relative", "/with\nnewline", "/with\"quote"] {
            assert!(value(Path::new(odd)).is_err(), "{odd:?}");
        }
        assert_eq!(value(Path::new("/with space/ü")).unwrap(), "/with space/ü");
    }

    #[test]
    fn a_folder_that_is_no_standard_library_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let mut interpreter = tree(home.path());
        interpreter.folders = vec![home.path().to_owned()];
        assert!(Closure::of(&interpreter).unwrap_err().contains("standard library"));
    }
}
