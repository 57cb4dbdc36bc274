//! Finds the Python that runs programs and learns, once, which files it needs. Knows nothing of sandboxes.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde::Deserialize;
use tokio::process::Command;

use super::error::SandboxError;

/// The lowest version whose language and asyncio the runtime relies on.
const MINIMUM: [u32; 2] = [3, 11];
/// Names looked for, best first. From 3.14 on, ctypes needs memory that is written and executed, which costs a depth layer.
const NAMES: [&str; 6] = ["python3.13", "python3.12", "python3.11", "python3.14", "python3.15", "python3"];
/// Looked in after `PATH`, which is short under a service manager.
const USUAL_FOLDERS: [&str; 4] = ["/opt/homebrew/bin", "/usr/local/bin", "/usr/bin", "/bin"];
const PROBE: &str = include_str!("probe.py");
/// An interpreter on a cold disk may need seconds.
const PROBE_DEADLINE: Duration = Duration::from_secs(20);
const PROBE_ANSWER_LIMIT: usize = 1 << 20;

/// What one interpreter said about itself.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Interpreter {
    version: Vec<u32>,
    implementation: String,
    /// The interpreter outside any virtual environment, as it is named.
    pub base: PathBuf,
    /// The file that the kernel executes.
    #[serde(default)]
    pub image: PathBuf,
    /// `uname -m` as the image sees it.
    #[serde(default)]
    machine: String,
    /// Folders of the standard library.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// Shared objects under the names the loader used.
    #[serde(default)]
    pub objects: Vec<PathBuf>,
    /// The dynamic loader.
    #[serde(default)]
    pub loader: Option<PathBuf>,
}

impl Interpreter {
    /// `3.12.1`.
    pub(super) fn version(&self) -> String {
        self.version.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
    }

    fn refusal(&self) -> Option<String> {
        if self.implementation != "cpython" {
            return Some(format!("it is {}, and only CPython has been tried", self.implementation));
        }
        if self.version.get(..2).is_none_or(|version| version < &MINIMUM[..]) {
            return Some(format!("it is version {}, and 3.11 is needed", self.version()));
        }
        if cfg!(target_os = "macos") && (self.machine == "arm64") != cfg!(target_arch = "aarch64") {
            return Some(format!(
                "it is a program for {}, which runs translated here; install a native one",
                self.machine
            ));
        }
        None
    }
}

/// Where to look: the configured path, or the folders of `PATH`.
#[derive(Debug, Clone)]
pub(super) struct Search {
    /// `execution.python`.
    pub configured: Option<PathBuf>,
    /// The daemon's `PATH`.
    pub path: Option<OsString>,
    /// The daemon's `HOME`, which shims of version managers need.
    pub home: Option<OsString>,
}

impl Search {
    /// Finds and probes the interpreter.
    pub(super) async fn run(&self) -> Result<Interpreter, SandboxError> {
        if let Some(path) = &self.configured {
            return self.examine(path).await.map_err(|reason| SandboxError::Interpreter { path: path.clone(), reason });
        }
        let mut tried = Vec::new();
        for candidate in self.candidates() {
            match self.examine(&candidate).await {
                Ok(interpreter) => return Ok(interpreter),
                Err(reason) => tried.push(format!("{}: {reason}", candidate.display())),
            }
        }
        if tried.is_empty() {
            tried.push("none is in PATH or the usual folders".to_owned());
        }
        Err(SandboxError::NoInterpreter { tried: tried.join("; ") })
    }

    /// Executable files of the right names, best name first; each real file once.
    fn candidates(&self) -> Vec<PathBuf> {
        let named = self.path.iter().flat_map(std::env::split_paths);
        let folders: Vec<_> = named.chain(USUAL_FOLDERS.map(PathBuf::from)).filter(|f| f.is_absolute()).collect();
        let mut seen = Vec::new();
        let mut found = Vec::new();
        for path in NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))) {
            let Ok(real) = fs::canonicalize(&path) else { continue };
            let executable =
                fs::metadata(&real).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
            // Links of different names may be told apart by what they run (version managers), so the name counts too.
            let key = (real, path.file_name().map(ToOwned::to_owned));
            if executable && !seen.contains(&key) {
                seen.push(key);
                found.push(path);
            }
        }
        found
    }

    async fn examine(&self, path: &Path) -> Result<Interpreter, String> {
        if !path.is_absolute() {
            return Err("the path must be absolute".to_owned());
        }
        if cfg!(target_os = "macos") && is_xcode_shim(path) {
            return Err(
                "Apple's stub, which starts Xcode's Python 3.9; install Python from python.org, Homebrew or uv \
                        and name it in `execution.python`"
                    .to_owned(),
            );
        }
        // Out of a virtual environment, whose files are not the interpreter's own, to its base.
        let first = self.probe(path, "version").await?;
        if let Some(reason) = first.refusal() {
            return Err(reason);
        }
        let interpreter = self.probe(&first.base, "closure").await?;
        if let Some(reason) = interpreter.refusal() {
            return Err(reason);
        }
        if interpreter.image.as_os_str().is_empty() || !interpreter.image.is_absolute() {
            return Err("its real image could not be found".to_owned());
        }
        Ok(interpreter)
    }

    async fn probe(&self, path: &Path, what: &str) -> Result<Interpreter, String> {
        let mut command = Command::new(path);
        command
            .args(["-I", "-S", "-B", "-c", PROBE, what])
            .env_clear()
            .envs(self.path.iter().map(|path| ("PATH", path)))
            .envs(self.home.iter().map(|home| ("HOME", home)))
            .current_dir("/")
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let output = tokio::time::timeout(PROBE_DEADLINE, command.output())
            .await
            .map_err(|_| format!("it gave no answer within {} s", PROBE_DEADLINE.as_secs()))?
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let last = stderr.trim().lines().last().unwrap_or("no message").chars().take(200).collect::<String>();
            return Err(format!("it ended with {}: {last}", output.status));
        }
        if output.stdout.len() > PROBE_ANSWER_LIMIT {
            return Err("its answer is too long".to_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("its answer makes no sense: {error}"))
    }
}

/// Whether the path is the stub that Apple ships for a Python that may not be installed.
fn is_xcode_shim(path: &Path) -> bool {
    path == Path::new("/usr/bin/python3")
        || fs::canonicalize(path).is_ok_and(|real| real == Path::new("/usr/bin/python3"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn search(configured: Option<PathBuf>) -> Search {
        Search { configured, path: std::env::var_os("PATH"), home: std::env::var_os("HOME") }
    }

    #[tokio::test]
    async fn an_interpreter_is_found_with_its_files() {
        let found = search(None).run().await.unwrap();
        assert!(found.image.is_file(), "{found:?}");
        assert!(found.folders.iter().any(|folder| folder.join("asyncio/__init__.py").is_file()), "{found:?}");
        #[cfg(target_os = "linux")]
        assert!(found.objects.iter().any(|object| object.to_string_lossy().contains("libc.so")), "{found:?}");
    }

    #[tokio::test]
    async fn a_virtual_environment_is_left_for_its_base() {
        let base = search(None).run().await.unwrap();
        let home = tempfile::tempdir().unwrap();
        let bin = home.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(&base.base, bin.join("python3")).unwrap();
        fs::write(home.path().join("pyvenv.cfg"), format!("home = {}\n", base.base.parent().unwrap().display()))
            .unwrap();
        let found = search(Some(bin.join("python3"))).run().await.unwrap();
        assert_eq!(found.image, base.image);
    }

    #[tokio::test]
    async fn a_configured_path_that_cannot_run_says_why() {
        let missing = search(Some("/nonexistent/python3".into())).run().await.unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/python3") && missing.contains("No such file"), "{missing}");
        let home = tempfile::tempdir().unwrap();
        let old = home.path().join("python3");
        let answer = r#"{"version":[3,10,1],"implementation":"cpython","base":"/x","prefix":"/","machine":"m"}"#;
        fs::write(&old, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = search(Some(old)).run().await.unwrap_err().to_string();
        assert!(refused.contains("it is version 3.10.1, and 3.11 is needed"), "{refused}");
    }

    #[test]
    fn apples_stub_is_known_by_its_path() {
        assert!(is_xcode_shim(Path::new("/usr/bin/python3")));
        assert!(!is_xcode_shim(Path::new("/nonexistent/python3")));
    }
}
