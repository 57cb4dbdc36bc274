//! Where the socket, the state folder, the logs and the config file are. All three binaries ask here, so they agree.
//!
//! An empty environment variable counts as unset. Relative paths are taken from the working directory at once, because a
//! daemon that is started later works elsewhere. A leading `~/` is the home folder: MCP client configs pass it verbatim.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Longest socket path in bytes: `sun_path` without its final NUL.
pub const MAX_SOCKET_PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Why a path cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Neither a flag nor a variable names the path, and there is no home folder to put it under.
    #[error("cannot tell where the {what} is: HOME is not set; name it with {flag} or {variable}")]
    NoHome {
        /// What was looked for.
        what: &'static str,
        /// The flag that names it.
        flag: &'static str,
        /// The variable that names it.
        variable: &'static str,
    },
    /// The system cannot bind or connect a socket at a path this long.
    #[error(
        "the socket path `{}` has {bytes} bytes, and this system allows {MAX_SOCKET_PATH_BYTES}; \
         name a shorter one with --socket or PTC_SOCKET",
        path.display()
    )]
    SocketTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The working directory of this process is gone.
    #[error("cannot make `{}` absolute: the working directory cannot be read", path.display())]
    NoWorkingDirectory {
        /// The relative path.
        path: PathBuf,
    },
}

/// The config file and who named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigPath {
    /// The file, absolute.
    pub path: PathBuf,
    /// Whether a person named it; a file that was named and is missing is an error, a missing default is not.
    pub origin: Origin,
}

/// Who chose a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// An environment variable.
    Variable(&'static str),
    /// Nobody: it is the usual place.
    Default,
}

/// Reads one environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The daemon's socket: `explicit`, else `$PTC_SOCKET`, else `$XDG_RUNTIME_DIR/ptc/ptcd.sock`, else
/// `~/.local/state/ptc/ptcd.sock`. Absolute.
///
/// # Errors
/// Longer than [`MAX_SOCKET_PATH_BYTES`], or no home folder to fall back on.
pub fn socket_path(explicit: Option<&Path>) -> Result<PathBuf, PathError> {
    socket_path_in(explicit, &process_environment).map(|(path, _)| path)
}

/// Folder of logs and run records: `explicit`, else `$PTC_STATE_DIR`, else `~/.local/state/ptc`. Absolute.
///
/// # Errors
/// No home folder to fall back on.
pub fn state_dir(explicit: Option<&Path>) -> Result<PathBuf, PathError> {
    state_dir_in(explicit, &process_environment).map(|(path, _)| path)
}

/// Folder of log files: `logs` in a named state folder; else the platform's own, `~/Library/Logs/ptc` on macOS and
/// `~/.local/state/ptc/logs` elsewhere. Absolute.
///
/// # Errors
/// No home folder to fall back on.
pub fn log_dir(explicit_state: Option<&Path>) -> Result<PathBuf, PathError> {
    let (state, origin) = state_dir_in(explicit_state, &process_environment)?;
    if origin == Origin::Default && cfg!(target_os = "macos") {
        return home(&process_environment).map(|home| home.join("Library/Logs/ptc")).ok_or(PathError::NoHome {
            what: "log folder",
            flag: "--state-dir",
            variable: "PTC_STATE_DIR",
        });
    }
    Ok(state.join("logs"))
}

/// The config file: `explicit`, else `$PTC_CONFIG`, else `$PTC_MCP_CONFIG`, else `$XDG_CONFIG_HOME/ptc/config.yaml`, else
/// `~/.config/ptc/config.yaml`. Absolute; whether it exists is not looked at.
///
/// # Errors
/// No home folder to fall back on.
pub fn config_path(explicit: Option<&Path>) -> Result<ConfigPath, PathError> {
    config_path_in(explicit, &process_environment)
}

/// [`socket_path`] in a given environment, with who chose it.
///
/// # Errors
/// As [`socket_path`].
pub fn socket_path_in(explicit: Option<&Path>, env: Environment<'_>) -> Result<(PathBuf, Origin), PathError> {
    let (path, origin) = if let Some((path, origin)) = named(explicit, &["PTC_SOCKET"], env) {
        (path, origin)
    } else if let Some(runtime) = absolute_variable("XDG_RUNTIME_DIR", env) {
        (runtime.join("ptc/ptcd.sock"), Origin::Default)
    } else {
        let home = home(env).ok_or(PathError::NoHome { what: "socket", flag: "--socket", variable: "PTC_SOCKET" })?;
        (home.join(".local/state/ptc/ptcd.sock"), Origin::Default)
    };
    let path = absolute(&path)?;
    let bytes = path.as_os_str().len();
    if bytes > MAX_SOCKET_PATH_BYTES {
        return Err(PathError::SocketTooLong { path, bytes });
    }
    Ok((path, origin))
}

/// [`state_dir`] in a given environment, with who chose it.
///
/// # Errors
/// As [`state_dir`].
pub fn state_dir_in(explicit: Option<&Path>, env: Environment<'_>) -> Result<(PathBuf, Origin), PathError> {
    if let Some((path, origin)) = named(explicit, &["PTC_STATE_DIR"], env) {
        return Ok((absolute(&path)?, origin));
    }
    let home =
        home(env).ok_or(PathError::NoHome { what: "state folder", flag: "--state-dir", variable: "PTC_STATE_DIR" })?;
    Ok((home.join(".local/state/ptc"), Origin::Default))
}

/// [`config_path`] in a given environment.
///
/// # Errors
/// As [`config_path`].
pub fn config_path_in(explicit: Option<&Path>, env: Environment<'_>) -> Result<ConfigPath, PathError> {
    if let Some((path, origin)) = named(explicit, &["PTC_CONFIG", "PTC_MCP_CONFIG"], env) {
        return Ok(ConfigPath { path: absolute(&path)?, origin });
    }
    let folder = match absolute_variable("XDG_CONFIG_HOME", env) {
        Some(folder) => folder,
        None => home(env)
            .ok_or(PathError::NoHome { what: "config file", flag: "--config", variable: "PTC_CONFIG" })?
            .join(".config"),
    };
    Ok(ConfigPath { path: folder.join("ptc/config.yaml"), origin: Origin::Default })
}

/// The person's home folder: `$HOME`, else what the system's user database says.
#[must_use]
pub fn home(env: Environment<'_>) -> Option<PathBuf> {
    absolute_variable("HOME", env).or_else(|| {
        // The database is asked only for the process's own environment: tests pass one without HOME on purpose.
        let real = env("HOME") == std::env::var_os("HOME");
        real.then(std::env::home_dir).flatten().filter(|path| path.is_absolute())
    })
}

/// The environment of this process.
#[must_use]
pub fn process_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn named(
    explicit: Option<&Path>,
    variables: &'static [&'static str],
    env: Environment<'_>,
) -> Option<(PathBuf, Origin)> {
    if let Some(path) = explicit {
        return Some((from_home(path, env), Origin::Flag));
    }
    variables.iter().find_map(|&name| {
        let value = env(name).filter(|value| !value.is_empty())?;
        Some((from_home(Path::new(&value), env), Origin::Variable(name)))
    })
}

fn absolute_variable(name: &str, env: Environment<'_>) -> Option<PathBuf> {
    env(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn from_home(path: &Path, env: Environment<'_>) -> PathBuf {
    match (path.strip_prefix("~"), home(env)) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, PathError> {
    std::path::absolute(path).map_err(|_| PathError::NoWorkingDirectory { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
    }

    #[test]
    fn the_socket_goes_by_flag_then_variable_then_runtime_then_home() {
        let all = env(&[("PTC_SOCKET", "/s"), ("XDG_RUNTIME_DIR", "/run/1"), ("HOME", "/h")]);
        assert_eq!(socket_path_in(Some(Path::new("/f")), &all).unwrap(), ("/f".into(), Origin::Flag));
        assert_eq!(socket_path_in(None, &all).unwrap(), ("/s".into(), Origin::Variable("PTC_SOCKET")));
        let runtime = env(&[("PTC_SOCKET", ""), ("XDG_RUNTIME_DIR", "/run/1"), ("HOME", "/h")]);
        assert_eq!(socket_path_in(None, &runtime).unwrap(), ("/run/1/ptc/ptcd.sock".into(), Origin::Default));
        let relative = env(&[("XDG_RUNTIME_DIR", "run"), ("HOME", "/h")]);
        assert_eq!(socket_path_in(None, &relative).unwrap().0, Path::new("/h/.local/state/ptc/ptcd.sock"));
    }

    #[test]
    fn a_socket_path_over_the_limit_names_path_and_limit() {
        let long = format!("/{}", "x".repeat(MAX_SOCKET_PATH_BYTES));
        let error = socket_path_in(Some(Path::new(&long)), &env(&[])).unwrap_err().to_string();
        assert!(error.contains(&long) && error.contains(&MAX_SOCKET_PATH_BYTES.to_string()), "{error}");
        assert!(socket_path_in(Some(Path::new(&long[..MAX_SOCKET_PATH_BYTES])), &env(&[])).is_ok());
    }

    #[test]
    fn the_config_goes_by_flag_then_both_variables_then_xdg_then_home() {
        let both = env(&[("PTC_CONFIG", "/a"), ("PTC_MCP_CONFIG", "/b"), ("HOME", "/h")]);
        assert_eq!(config_path_in(None, &both).unwrap().path, Path::new("/a"));
        let old = env(&[("PTC_MCP_CONFIG", "~/b.yaml"), ("HOME", "/h")]);
        let path = config_path_in(None, &old).unwrap();
        assert_eq!(path, ConfigPath { path: "/h/b.yaml".into(), origin: Origin::Variable("PTC_MCP_CONFIG") });
        let xdg = env(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]);
        assert_eq!(config_path_in(None, &xdg).unwrap().path, Path::new("/x/ptc/config.yaml"));
        let home = env(&[("HOME", "/h")]);
        assert_eq!(config_path_in(None, &home).unwrap().path, Path::new("/h/.config/ptc/config.yaml"));
    }

    #[test]
    fn relative_flags_become_absolute() {
        let (path, _) = socket_path_in(Some(Path::new("d.sock")), &env(&[])).unwrap();
        assert_eq!(path, std::env::current_dir().unwrap().join("d.sock"));
    }

    #[test]
    fn the_state_folder_goes_by_flag_then_variable_then_home() {
        let all = env(&[("PTC_STATE_DIR", "/v"), ("HOME", "/h")]);
        assert_eq!(state_dir_in(Some(Path::new("/f")), &all).unwrap().0, Path::new("/f"));
        assert_eq!(state_dir_in(None, &all).unwrap().0, Path::new("/v"));
        assert_eq!(state_dir_in(None, &env(&[("HOME", "/h")])).unwrap().0, Path::new("/h/.local/state/ptc"));
    }
}
