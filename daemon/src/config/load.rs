//! From a path to settings: finding the file, reading it within limits, and `ptcd check`.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Read,
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use ptc_protocol::{
    exit,
    paths::{self, ConfigPath, Origin, PathError},
};
use sha2::{Digest, Sha256};

use super::{
    error::{ConfigErrors, Fault, Position},
    expand::Env,
    file,
    settings::Settings,
};

/// Largest file accepted, bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// Identifies the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// Which file is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file, whether it exists or not.
    pub path: PathBuf,
    /// Whether somebody named it; then it has to exist.
    pub named: bool,
}

/// The configuration file as [`paths::config_path`] finds it, in the given environment. `None` when nothing is named and
/// there is no home directory.
#[must_use]
pub fn locate(explicit: Option<&Path>, env: Env<'_>) -> Option<Location> {
    match paths::config_path_in(explicit, &|name| env(name).map(OsString::from)) {
        Ok(ConfigPath { path, origin }) => Some(Location { path, named: origin != Origin::Default }),
        // Only a path that somebody named can be relative; reading it will say what is wrong.
        Err(PathError::NoWorkingDirectory { path }) => Some(Location { path, named: true }),
        Err(PathError::NoHome { .. } | PathError::SocketTooLong { .. }) => None,
    }
}

/// What was found at the place of the configuration.
#[derive(Debug)]
pub struct Loaded {
    /// The file that was read, or failed to be; `None` when there is none and none was named.
    pub path: Option<PathBuf>,
    /// The settings, or every error of the file.
    pub settings: Result<Settings, ConfigErrors>,
    /// What was accepted but should be written otherwise; one line each with file, line and column.
    pub warnings: Vec<String>,
    /// Of the bytes that were read; `None` when there were none.
    pub hash: Option<ContentHash>,
}

/// Loads the configuration for a start. No file, or an empty one, means no servers and all defaults.
#[must_use]
pub fn load(explicit: Option<&Path>, env: Env<'_>) -> Loaded {
    let nothing = |path| Loaded { path, settings: Ok(Settings::default()), warnings: Vec::new(), hash: None };
    let Some(location) = locate(explicit, env) else { return nothing(None) };
    match read(&location.path) {
        Err(Unreadable::Missing) if !location.named => nothing(None),
        content => loaded(&location.path, content, env, Empty::MeansDefaults),
    }
}

/// Loads the file again for a running daemon. A missing or an empty file is an error here: it is most likely in the
/// middle of being saved.
#[must_use]
pub fn reload(path: &Path, env: Env<'_>) -> Loaded {
    loaded(path, read(path), env, Empty::IsHalfSaved)
}

/// What an empty file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Empty {
    MeansDefaults,
    IsHalfSaved,
}

fn loaded(path: &Path, content: Result<Vec<u8>, Unreadable>, env: Env<'_>, empty: Empty) -> Loaded {
    let failed = |fault: Fault, hash| Loaded {
        path: Some(path.to_owned()),
        settings: Err(ConfigErrors(vec![fault.in_file(path)])),
        warnings: Vec::new(),
        hash,
    };
    let bytes = match content {
        Ok(bytes) => bytes,
        Err(reason) => return failed(Fault::whole_file(reason.to_string()), None),
    };
    let hash = Some(ContentHash::of(&bytes));
    let text = match decode(&bytes) {
        Ok(text) => text,
        Err(fault) => return failed(fault, hash),
    };
    let parsed = file::parse(text, folder(path), env);
    if parsed.empty && empty == Empty::IsHalfSaved {
        return failed(Fault::whole_file("the file is empty, perhaps in the middle of being saved"), hash);
    }
    let warnings = parsed.warnings.into_iter().map(|fault| fault.in_file(path).to_string()).collect();
    let settings = if parsed.faults.is_empty() {
        Ok(parsed.settings)
    } else {
        Err(ConfigErrors(parsed.faults.into_iter().map(|fault| fault.in_file(path)).collect()))
    };
    Loaded { path: Some(path.to_owned()), settings, warnings, hash }
}

/// The folder of the file, absolute where the working directory is known.
fn folder(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// Why a file gave no bytes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the file does not exist")]
    Missing,
    #[error("is {0}, not a file")]
    NoFile(&'static str),
    #[error("is larger than {MAX_FILE_BYTES} bytes")]
    Large,
    #[error("cannot be read: {0}")]
    Io(std::io::Error),
}

impl From<std::io::Error> for Unreadable {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::Missing,
            std::io::ErrorKind::NotADirectory => Self::Missing,
            _ => Self::Io(error),
        }
    }
}

/// The file's bytes, at most [`MAX_FILE_BYTES`]; never waits for a pipe.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(Unreadable::NoFile("a directory"));
    }
    if kind.is_fifo() || kind.is_socket() {
        return Err(Unreadable::NoFile("a pipe or a socket"));
    }
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(Unreadable::Large);
    }
    Ok(bytes)
}

/// UTF-8 text without a byte order mark.
fn decode(bytes: &[u8]) -> Result<&str, Fault> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Fault::whole_file("is UTF-16; save it as UTF-8"));
    }
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
    let line = valid.matches('\n').count() + 1;
    let column = valid.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Err(Fault::new(Position { line, column }, "", "a byte that is not UTF-8; save the file as UTF-8"))
}

/// The outcome of `ptcd check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// One of [`exit`]'s codes: [`exit::OK`] or [`exit::FAILED`].
    pub code: u8,
    /// What to print, lines with their ends: every error, or a summary; then the warnings.
    pub text: String,
}

/// Loads the configuration as a start would and describes it.
#[must_use]
pub fn check(explicit: Option<&Path>, env: Env<'_>) -> Checked {
    let loaded = load(explicit, env);
    let mut text = String::new();
    let code = match (&loaded.settings, &loaded.path) {
        (Err(errors), _) => {
            let count = errors.0.len();
            let noun = if count == 1 { "error" } else { "errors" };
            text.push_str(&format!("{errors}\n{count} {noun}\n"));
            exit::FAILED
        }
        (Ok(_), None) => {
            let place = locate(None, env).map_or_else(String::new, |at| format!(" at {}", at.path.display()));
            text.push_str(&format!("no configuration file{place}: no servers\n"));
            exit::OK
        }
        (Ok(settings), Some(path)) => {
            let enabled = settings.servers.iter().filter(|server| server.enabled).count();
            let disabled = settings.servers.len() - enabled;
            let noun = if enabled == 1 { "server" } else { "servers" };
            let rest = if disabled > 0 { format!(", {disabled} disabled") } else { String::new() };
            text.push_str(&format!("{}: ok, {enabled} {noun}{rest}\n", path.display()));
            exit::OK
        }
    };
    for warning in &loaded.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    Checked { code, text }
}
