//! Where the binaries, the scripted servers and the installed public programs are.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// A file under `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// One of this package's own binaries, for example `ptcd-under-test`.
///
/// # Panics
/// When cargo has not built it.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    // target/debug/deps/e2e-0123 stands beside target/debug/NAME.
    let found = test.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not built; run `cargo build -p ptc-tests --bins`"))
}

/// The Python that the tests' own scripts run with.
pub fn python() -> PathBuf {
    PathBuf::from(std::env::var_os("PTC_TESTS_PYTHON").unwrap_or_else(|| "python3".into()))
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
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LANG", "C.UTF-8");
    command
}

fn installed(name: &str) -> PathBuf {
    let path = fixture(".installed").join(name);
    assert!(path.exists(), "{} is missing; run tests/setup", path.display());
    path
}
