//! Whether a command can be started with a given PATH, its interpreter line included.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

/// Why a command cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unstartable {
    /// No folder of the PATH has it.
    #[error("{command} not found in PATH={path}")]
    NotFound {
        /// The command.
        command: String,
        /// The PATH.
        path: String,
    },
    /// There is no such file.
    #[error("`{}` does not exist", .0.display())]
    Missing(PathBuf),
    /// The file cannot be executed.
    #[error("`{}` is not executable", .0.display())]
    NotExecutable(PathBuf),
    /// The file is a script whose interpreter cannot be started.
    #[error("`{}` needs {interpreter}, which is not there: {reason}", script.display())]
    Interpreter {
        /// The script.
        script: PathBuf,
        /// What its first line names.
        interpreter: String,
        /// Why that cannot be started.
        reason: Box<Unstartable>,
    },
}

/// The file that would be started.
///
/// # Errors
/// Why none would be.
pub(super) fn resolve(command: &str, path: &str, cwd: Option<&Path>) -> Result<PathBuf, Unstartable> {
    let file = locate(command, path, cwd)?;
    if let Some(interpreter) = interpreter(&file) {
        locate(&interpreter, path, cwd).map_err(|reason| Unstartable::Interpreter {
            script: file.clone(),
            interpreter,
            reason: Box::new(reason),
        })?;
    }
    Ok(file)
}

fn locate(command: &str, path: &str, cwd: Option<&Path>) -> Result<PathBuf, Unstartable> {
    if command.contains('/') {
        let file = cwd.unwrap_or(Path::new("")).join(command);
        return match (file.is_file(), is_executable(&file)) {
            (false, _) => Err(Unstartable::Missing(file)),
            (true, false) => Err(Unstartable::NotExecutable(file)),
            (true, true) => Ok(file),
        };
    }
    let folders = path.split(':').filter(|folder| folder.starts_with('/'));
    let mut files = folders.map(|folder| Path::new(folder).join(command));
    let not_found = || Unstartable::NotFound { command: command.to_owned(), path: path.to_owned() };
    files.find(|file| file.is_file() && is_executable(file)).ok_or_else(not_found)
}

fn is_executable(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The program that a `#!` line asks for; behind `env` the one that `env` looks up.
fn interpreter(file: &Path) -> Option<String> {
    let mut head = Vec::new();
    File::open(file).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let mut behind_env = || words.find(|word| !word.starts_with('-') && !word.contains('='));
    let program = if first.ends_with("/env") { behind_env().unwrap_or(first) } else { first };
    Some(program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(folder: &Path, name: &str, first_line: &str) -> PathBuf {
        let file = folder.join(name);
        std::fs::write(&file, format!("{first_line}\n")).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn a_missing_command_names_the_path_it_was_looked_for_in() {
        let error = resolve("npx", "/usr/nothing:/bin/nothing", None).unwrap_err();
        assert_eq!(error.to_string(), "npx not found in PATH=/usr/nothing:/bin/nothing");
    }

    #[test]
    fn a_script_needs_its_interpreter_in_the_same_path() {
        let home = tempfile::tempdir().unwrap();
        let (bin, other) = (home.path().join("bin"), home.path().join("other"));
        std::fs::create_dir(&bin).unwrap();
        std::fs::create_dir(&other).unwrap();
        let npx = script(&bin, "npx", "#!/usr/bin/env -S node --title");
        let path = bin.to_str().unwrap();
        let error = resolve("npx", path, None).unwrap_err();
        assert!(error.to_string().contains("needs node"), "{error}");
        assert!(resolve(npx.to_str().unwrap(), "/usr/nothing", None).is_err(), "an absolute path needs node as well");
        script(&other, "node", "");
        assert_eq!(resolve("npx", &format!("{path}:{}", other.display()), None), Ok(npx));
    }

    #[test]
    fn paths_are_taken_from_the_servers_folder() {
        let home = tempfile::tempdir().unwrap();
        let run = script(home.path(), "run", "");
        assert_eq!(
            resolve("./run", "", Some(home.path())).unwrap().canonicalize().unwrap(),
            run.canonicalize().unwrap()
        );
        assert!(matches!(resolve("./no", "", Some(home.path())), Err(Unstartable::Missing(_))));
        std::fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(resolve("./run", "", Some(home.path())), Err(Unstartable::NotExecutable(_))));
    }
}
