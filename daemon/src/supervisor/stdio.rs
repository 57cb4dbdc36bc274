//! The stdio transport: a child process in a group of its own, one JSON text a line on its stdin and stdout.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::Pid;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

use super::{
    framing::LineFrames,
    link::{Link, StartError, StartErrorKind},
    log::{Lines, ServerLog},
    process::{Process, end_rest, exit_words},
    wire::{Frame, Wire},
};
use crate::{
    config::settings::Secret,
    guardian::Guardian,
    mark::{self, Mark},
};

/// Variables that every server gets from the daemon's own environment.
const BASE_ENVIRONMENT: [&str; 11] = [
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "USER",
    "TMPDIR",
    "TZ",
    "LANG",
    "XDG_RUNTIME_DIR",
    "__CF_USER_TEXT_ENCODING",
];

/// Bytes read from stdout at once.
const READ_BYTES: usize = 64 * 1024;

/// Lines over this are decoded off the event loop.
const SMALL_LINE_BYTES: usize = 256 * 1024;

/// After the process has ended: what its output still gets to be read, while others of its group may hold it open.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// What is started.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) command: &'a str,
    pub(super) args: &'a [String],
    pub(super) env: &'a BTreeMap<String, Secret>,
    pub(super) cwd: Option<&'a Path>,
}

/// Starts the server's process.
///
/// # Errors
/// The command or its directory is missing, or the process could not be started.
pub(super) fn open(program: &Program<'_>, guardian: &Guardian, log: &ServerLog) -> Result<Link, StartError> {
    let broken = |message: String| StartError::new(StartErrorKind::Broken, log.clean(&message));
    if let Some(cwd) = program.cwd.filter(|cwd| !cwd.is_dir()) {
        return Err(broken(format!("its cwd `{}` is not a directory", cwd.display())));
    }
    let mut environment = environment(program.env, std::env::vars_os());
    let path = environment.get(OsStr::new("PATH")).cloned().unwrap_or_default();
    let executable = resolve(program.command, &path, program.cwd).map_err(broken)?;
    if !program.env.contains_key("PATH")
        && let Some(path) = with_neighbours(&path, &executable)
    {
        environment.insert("PATH".into(), path);
    }
    let mark = Mark::fresh();
    let mut command = Command::new(&executable);
    command
        .arg0(program.command)
        .args(program.args)
        .env_clear()
        .envs(&environment)
        .env(mark::VARIABLE, mark.as_str())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(cwd) = program.cwd {
        command.current_dir(cwd);
    }
    let mut child = command.spawn().map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => StartErrorKind::Broken,
            _ => StartErrorKind::Transient,
        };
        StartError::new(kind, log.clean(&format!("cannot run `{}`: {error}", executable.display())))
    })?;
    let group = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let (Some(group), Some(stdin), Some(stdout), Some(stderr)) =
        (group, child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(StartError::new(StartErrorKind::Transient, "the process ended before it could be watched"));
    };
    let roots: Vec<String> =
        program.cwd.and_then(|cwd| url::Url::from_directory_path(cwd).ok()).map(String::from).into_iter().collect();
    let (wire, transport, frames) = Wire::new(log.clone(), &roots);
    let (exit, exit_told) = watch::channel(None);
    let process = Process::new(group, mark, exit_told, guardian);
    let (output_ended, output_end) = oneshot::channel();
    let mut tasks = JoinSet::new();
    let writer = tasks.spawn(write(stdin, frames, Arc::clone(&wire)));
    tasks.spawn(read(stdout, Arc::clone(&wire), log.clone(), output_ended));
    tasks.spawn(read_stderr(stderr, log.clone()));
    tasks.spawn(reap(child, group, exit, output_end, Arc::clone(&wire)));
    Ok(Link {
        wire,
        transport: Some(transport),
        tasks,
        writer,
        process: Some(process),
        session: None,
        needs_pings: false,
    })
}

/// The base environment with the configured one over it.
fn environment(
    configured: &BTreeMap<String, Secret>,
    own: impl Iterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    let base =
        |name: &OsStr| name.to_str().is_some_and(|name| BASE_ENVIRONMENT.contains(&name) || name.starts_with("LC_"));
    let mut environment: BTreeMap<OsString, OsString> = own.filter(|(name, _)| base(name)).collect();
    environment.extend(configured.iter().map(|(name, value)| (name.into(), value.reveal().into())));
    environment.entry("PATH".into()).or_insert_with(|| "/usr/local/bin:/usr/bin:/bin".into());
    environment
}

/// The path with the command's own directory at its end: `npx` by its full path still looks for `node` beside it.
fn with_neighbours(path: &OsStr, executable: &Path) -> Option<OsString> {
    let directory = executable.parent().filter(|directory| directory.is_absolute())?;
    let mut directories: Vec<PathBuf> = std::env::split_paths(path).collect();
    if directories.iter().any(|known| known == directory) {
        return None;
    }
    directories.push(directory.to_owned());
    std::env::join_paths(directories).ok()
}

/// The file that a command names, looked up in `path` when it has no slash.
fn resolve(command: &str, path: &OsStr, cwd: Option<&Path>) -> Result<PathBuf, String> {
    let runnable = |file: &Path| {
        use std::os::unix::fs::PermissionsExt as _;
        file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') {
        let file = cwd.map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
        return match (runnable(&file), file.exists()) {
            (true, _) => Ok(file),
            (false, true) => Err(format!("`{}` is not an executable file", file.display())),
            (false, false) => Err(format!("`{}` does not exist", file.display())),
        };
    }
    std::env::split_paths(path)
        .map(|directory| directory.join(command))
        .find(|file| runnable(file))
        .ok_or_else(|| format!("{command} not found in PATH={}", path.to_string_lossy()))
}

async fn write(mut stdin: ChildStdin, mut frames: mpsc::Receiver<Frame>, wire: Arc<Wire>) {
    let mut unsaid = HashSet::new();
    while let Some(frame) = frames.recv().await {
        let bytes = frame.text.len();
        // A request that was given up while the server did not read must not be done after all.
        let moot = match (&frame.request, &frame.cancels) {
            (Some(id), _) if !wire.waits_for(id) => unsaid.insert(id.clone()),
            (_, Some(id)) => unsaid.remove(id),
            (_, None) => false,
        };
        if moot {
            wire.written(bytes);
            continue;
        }
        let mut text = frame.text.into_bytes();
        text.push(b'\n');
        // A server that closed its input may still answer what it has read; its output tells when it is gone.
        let written = stdin.write_all(&text).await;
        wire.written(bytes);
        if written.is_err() {
            let reason = "the server closed its input";
            if let Some(id) = &frame.request {
                wire.fail(id, super::wire::ReplyError::Unsent { reason: reason.into() });
            }
        }
    }
}

async fn read(mut stdout: ChildStdout, wire: Arc<Wire>, log: ServerLog, ended: oneshot::Sender<()>) {
    let mut buffer = vec![0; READ_BYTES];
    let mut frames = LineFrames::default();
    loop {
        let count = match stdout.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let mut rest = &buffer[..count];
        while let Some((line, tail)) = frames.next(rest, &wire, &log) {
            rest = tail;
            if line.len() <= SMALL_LINE_BYTES {
                wire.incoming(&line, None);
                frames.reuse(line);
            } else {
                let wire = Arc::clone(&wire);
                let decoded = tokio::task::spawn_blocking(move || wire.incoming(&line, None));
                if let Err(error) = decoded.await {
                    tracing::error!(%error, "decoding panicked");
                }
            }
        }
    }
    // Without an end of line it may be a message all the same.
    wire.incoming(&frames.finish(), None);
    if ended.send(()).is_err() {
        tracing::debug!("output ended after its process");
    }
}

async fn read_stderr(mut stderr: ChildStderr, log: ServerLog) {
    let mut buffer = vec![0; 16 * 1024];
    let mut lines = Lines::default();
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        lines.feed(&buffer[..count], log.line_limit(), |line, rewinds| log.stderr(line, rewinds));
    }
    lines.finish(|line, rewinds| log.stderr(line, rewinds));
}

/// Waits for the end of the process or of its output, and ends the wire with the truth about it.
async fn reap(
    mut child: Child,
    group: Pid,
    exit: watch::Sender<Option<ExitStatus>>,
    mut output_end: oneshot::Receiver<()>,
    wire: Arc<Wire>,
) {
    let mut output_open = true;
    let status = tokio::select! {
        status = child.wait() => status,
        _ = &mut output_end => {
            output_open = false;
            match tokio::time::timeout(LAST_WORDS, child.wait()).await {
                Ok(status) => status,
                Err(_) => {
                    wire.end("closed its stdout");
                    child.wait().await
                }
            }
        }
    };
    if output_open && tokio::time::timeout(LAST_WORDS, &mut output_end).await.is_err() {
        // Others of the group hold the output open. They are nothing without their leader.
        end_rest(group).await;
        drop(tokio::time::timeout(LAST_WORDS, &mut output_end).await);
    }
    let reason = match &status {
        Ok(status) => format!("exited with {}", exit_words(*status)),
        Err(error) => format!("cannot be waited for: {error}"),
    };
    // Told first, so that whoever hears of the end can say how the process ended.
    exit.send_replace(status.ok());
    wire.end(&reason);
    // Kept to the end of the connection: a closed channel would mean that nobody watches the process.
    exit.closed().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_small_and_the_configured_part_wins() {
        let own = [("HOME", "/h"), ("SECRET", "x"), ("LC_ALL", "C"), ("PATH", "/bin")];
        let own = own.into_iter().map(|(name, value)| (name.into(), value.into()));
        let configured = BTreeMap::from([("PATH".to_owned(), Secret::new("/opt")), ("K".into(), Secret::new("v"))]);
        let expected = [("HOME", "/h"), ("K", "v"), ("LC_ALL", "C"), ("PATH", "/opt")];
        let expected: BTreeMap<OsString, OsString> =
            expected.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        assert_eq!(environment(&configured, own), expected);
    }

    #[test]
    fn what_lies_beside_a_command_is_found_last() {
        let path = OsStr::new("/usr/bin:/bin");
        assert_eq!(with_neighbours(path, Path::new("/opt/n/npx")), Some("/usr/bin:/bin:/opt/n".into()));
        assert_eq!(with_neighbours(path, Path::new("/bin/sh")), None);
        assert_eq!(with_neighbours(path, Path::new("x/npx")), None);
    }

    #[test]
    fn a_missing_command_names_the_path_that_was_searched() {
        let found = resolve("no-such-command", OsStr::new("/usr/bin:/bin"), None);
        assert_eq!(found, Err("no-such-command not found in PATH=/usr/bin:/bin".into()));
        assert_eq!(resolve("./x", OsStr::new(""), Some(Path::new("/no"))), Err("`/no/./x` does not exist".into()));
        assert_eq!(resolve("/etc/passwd", OsStr::new(""), None), Err("`/etc/passwd` is not an executable file".into()));
        assert!(resolve("sh", OsStr::new("/usr/bin:/bin"), None).is_ok());
    }
}
