//! Where the binaries, the scripted servers and the installed public programs are.

use std::{
    env, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// A file under `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// One of the binaries under test: `ptcd`, `ptc-shim` or `ptcctl`.
///
/// They are this package's own `…-under-test` bins, since cargo builds no others for its tests, under the names and in
/// the one folder in which they look for each other.
///
/// # Panics
/// When cargo has not built it.
pub fn binary(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let test = env::current_exe().expect("a running test has a path");
        // target/debug/deps/e2e-0123 stands below target/debug/ptcd-under-test.
        let has_bins = |dir: &&Path| dir.join("ptcd-under-test").is_file();
        let built = test.ancestors().skip(1).take(2).find(has_bins);
        let built = built.expect("the bins are built; else run `cargo build -p ptc-tests --bins`");
        let folder = built.join("under-test");
        for name in ["ptcd", "ptc-shim", "ptcctl"] {
            link(&built.join(format!("{name}-under-test")), &folder.join(name)).expect("a writable target directory");
        }
        folder
    });
    folder.join(name)
}

/// Makes `to` a hard link of `from`, also while other test processes do the same.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    let inode = |path: &Path| fs::metadata(path).map(|found| found.ino());
    if inode(to).is_ok_and(|linked| inode(from).is_ok_and(|wanted| linked == wanted)) {
        return Ok(());
    }
    let folder = to.parent().expect("a file in a folder");
    fs::create_dir_all(folder)?;
    let draft = tempfile::tempdir_in(folder)?;
    fs::hard_link(from, draft.path().join("draft"))?;
    fs::rename(draft.path().join("draft"), to)
}

/// The Python that the tests' own scripts run with.
pub fn python() -> PathBuf {
    PathBuf::from(env::var_os("PTC_TESTS_PYTHON").unwrap_or_else(|| "python3".into()))
}

/// The Python of the environment that has the official SDK and the public Python servers.
///
/// # Panics
/// When `tests/setup` has not been run.
pub fn sdk_python() -> PathBuf {
    installed("python/bin/python")
}

/// A command that `tests/setup` installed from PyPI.
pub fn python_command(name: &str) -> PathBuf {
    installed(&format!("python/bin/{name}"))
}

/// A command that `tests/setup` installed from npm.
pub fn node_command(name: &str) -> PathBuf {
    installed(&format!("npm/node_modules/.bin/{name}"))
}

/// The folder of the npm packages.
pub fn node_modules() -> PathBuf {
    installed("npm/node_modules")
}

/// A command with the environment that a test's processes get: nothing but a home, a PATH and what is named.
pub fn bare_command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("HOME", home)
        .env("TMPDIR", home)
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .env("LANG", "C.UTF-8");
    command
}

fn installed(name: &str) -> PathBuf {
    let path = fixture(".installed").join(name);
    assert!(path.exists(), "{} is missing; run tests/setup", path.display());
    path
}
