//! From a plan to a sandbox that has been tried: interpreter, file view, scratch root, self-test, status.

use std::{
    fs, io,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use ptc_protocol::api::{LayerState, SandboxLayer};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

use super::{
    Child, Level, SandboxError, SandboxPlan,
    attest::Expected,
    error::Step,
    interpreter::{Interpreter, Search},
    scratch::{ScratchRoot, UsedBy},
    seatbelt::Seatbelt,
    view::View,
};
use crate::guardian::Guardian;

const SELF_TEST: &str = include_str!("selftest.py");
const SELF_TEST_DEADLINE: Duration = Duration::from_secs(30);
const SELF_TEST_ANSWER_LIMIT: u64 = 64 << 10;
/// Longest text that one argument may hold on Linux, its end included.
const ARGUMENT_LIMIT: usize = 128 << 10;
/// The depth layer that older Pythons cannot have.
const MEMORY_PROTECTION: &str = "write xor execute";

/// All that a spawn needs.
#[derive(Debug)]
pub(super) struct Ready {
    /// What was asked for.
    pub plan: SandboxPlan,
    /// How children are confined.
    pub level: Level,
    /// What they execute.
    pub interpreter: Interpreter,
    /// What they see, on the Linux levels.
    pub view: Option<View>,
    /// Their profile, on macOS.
    pub seatbelt: Option<Seatbelt>,
    /// Whether they are refused memory that is writable and executable.
    pub write_xor_execute: bool,
    /// Where scratch directories are made.
    pub scratch: ScratchRoot,
    /// Told of each child.
    pub guardian: Guardian,
    /// What each child must look like from outside.
    pub expected: Arc<Expected>,
}

impl Ready {
    /// What a child must look like from outside.
    fn expected(interpreter: &Interpreter, plan: &SandboxPlan, level: Level, view: Option<&View>) -> Expected {
        let named = view.into_iter().flat_map(|view| &view.grants).map(|grant| grant.path.clone());
        // Without a view of its own, the child opens what links lead to.
        let real = named.clone().filter_map(|path| fs::canonicalize(path).ok());
        Expected { level, image: interpreter.image.clone(), limits: plan.limits, granted: named.chain(real).collect() }
    }
}

/// Sets a level up and tries it; the layers are for `status`, also when it fails.
pub(super) async fn prepare(
    plan: SandboxPlan,
    level: Level,
    guardian: Guardian,
) -> (Result<Ready, SandboxError>, Vec<SandboxLayer>) {
    let mut ready = match set_up(plan, level, guardian).await {
        Ok(ready) => ready,
        Err(error) => return (Err(error), Vec::new()),
    };
    if level == Level::None {
        return (Ok(ready), vec![layer("limits", LayerState::Ok, "descriptors, memory, CPU time, file size")]);
    }
    let mut tried = self_test(&ready).await;
    let trouble = match &tried {
        // The later ones are the plainer ones: uses, not attempts that lacked a means.
        Ok((answer, _)) => answer.broken.last().cloned(),
        Err(error) => Some(error.to_string()),
    };
    if level != Level::Seatbelt
        && let Some(why) = trouble
    {
        ready.write_xor_execute = false;
        let second = self_test(&ready).await;
        if let Ok((answer, mut missing)) = second
            && answer.broken.is_empty()
        {
            missing.push((MEMORY_PROTECTION.to_owned(), format!("this Python does not work with it: {why}")));
            tried = Ok((answer, missing));
        }
    }
    match tried.and_then(|(answer, missing)| answer.verdict(level).map(|count| (count, missing))) {
        Ok((count, missing)) => {
            let layers = layers(&ready, &missing, count);
            (Ok(ready), layers)
        }
        Err(error) => {
            let name = match &error {
                SandboxError::Step { fault, .. } => layer_of(fault.step),
                _ => "self-test",
            };
            let failed = layer(name, LayerState::MissingMandatory, error.to_string());
            (Err(error), vec![failed])
        }
    }
}

async fn set_up(plan: SandboxPlan, level: Level, guardian: Guardian) -> Result<Ready, SandboxError> {
    let here = match level {
        Level::None => true,
        Level::Linux | Level::Landlock => cfg!(target_os = "linux"),
        Level::Seatbelt => cfg!(target_os = "macos"),
    };
    if !here {
        return Err(SandboxError::OtherSystem { level });
    }
    if plan.bootstrap.len() >= ARGUMENT_LIMIT {
        return Err(SandboxError::Launcher {
            launcher: plan.launcher,
            reason: format!("the runtime's text of {} bytes is longer than an argument may be", plan.bootstrap.len()),
        });
    }
    let home = std::env::var_os("HOME");
    let search = Search { configured: plan.python.clone(), path: std::env::var_os("PATH"), home: home.clone() };
    let interpreter = search.run().await?;
    let root = plan.scratch_root.clone();
    let owner = guardian.clone();
    // Looking through folders blocks.
    let (view, seatbelt, scratch) = tokio::task::spawn_blocking({
        let interpreter = interpreter.clone();
        move || {
            let view = match level {
                Level::Linux | Level::Landlock => View::of(&interpreter, home.as_deref().map(Path::new))
                    .map(Some)
                    .map_err(|reason| SandboxError::Interpreter { path: interpreter.image.clone(), reason })?,
                Level::Seatbelt | Level::None => None,
            };
            let seatbelt = if level == Level::Seatbelt { Some(Seatbelt::of(&interpreter)?) } else { None };
            let root_without_view = level == Level::Landlock && rustix::process::geteuid().is_root();
            let used_by = if root_without_view { UsedBy::Nobody } else { UsedBy::Owner };
            Ok((view, seatbelt, ScratchRoot::claim(&root, used_by, owner)?))
        }
    })
    .await
    .map_err(|error| SandboxError::Scratch { path: plan.scratch_root.clone(), reason: error.to_string() })??;
    let expected = Arc::new(Ready::expected(&interpreter, &plan, level, view.as_ref()));
    let write_xor_execute = level != Level::None;
    Ok(Ready { plan, level, interpreter, view, seatbelt, write_xor_execute, scratch, guardian, expected })
}

/// What the self-test says of itself; trusted only as far as it admits failures, which is why children are also looked
/// at from outside.
#[derive(Debug, Deserialize)]
struct Answer {
    tried: usize,
    through: Vec<String>,
    broken: Vec<String>,
}

impl Answer {
    fn verdict(self, level: Level) -> Result<usize, SandboxError> {
        let mut failed = Vec::new();
        if !self.through.is_empty() {
            failed.push(format!("went through: {}", self.through.join(", ")));
        }
        if !self.broken.is_empty() {
            failed.push(format!("does not work: {}", self.broken.join(", ")));
        }
        if failed.is_empty() {
            Ok(self.tried)
        } else {
            Err(SandboxError::SelfTest { level, failed: failed.join("; ") })
        }
    }
}

/// Runs the self-test in a child like any other; comes back with what it said and the layers it lacked.
async fn self_test(ready: &Ready) -> Result<(Answer, Vec<(String, String)>), SandboxError> {
    let failed = |failed: String| SandboxError::SelfTest { level: ready.level, failed };
    let canary = Canary::place(ready.scratch.path()).map_err(|error| failed(format!("no canary: {error}")))?;
    let text = canary.definitions(ready.level) + SELF_TEST;
    let mut child = Child::start(ready, &text).await?;
    let answer = async {
        child.attest()?;
        let streams = child.take_streams().ok_or_else(|| failed("no streams".to_owned()))?;
        let mut answer = Vec::new();
        let mut channel = streams.channel.take(SELF_TEST_ANSWER_LIMIT);
        let read = tokio::time::timeout(SELF_TEST_DEADLINE, channel.read_to_end(&mut answer)).await;
        read.map_err(|_| failed("no answer in time".to_owned()))?.map_err(|error| failed(error.to_string()))?;
        serde_json::from_slice::<Answer>(&answer).map_err(|_| {
            let mut said = vec![0; 2000];
            let count = streams.stderr.try_read(&mut said).unwrap_or(0);
            failed(format!("the interpreter does not start: {}", String::from_utf8_lossy(&said[..count]).trim()))
        })
    }
    .await;
    let missing = child.missing().to_vec();
    let exit = child.kill().await;
    let answer = answer.map_err(|error| match error {
        SandboxError::SelfTest { level, failed } => {
            SandboxError::SelfTest { level, failed: format!("{failed} ({exit})") }
        }
        other => other,
    })?;
    Ok((answer, missing))
}

/// Things that are reachable outside and must not be inside.
struct Canary {
    folder: tempfile::TempDir,
    _listener: UnixListener,
}

impl Canary {
    /// Makes them and checks that they can be reached from here.
    fn place(root: &Path) -> io::Result<Self> {
        let folder = tempfile::tempdir_in(root)?;
        fs::write(folder.path().join("canary"), "canary")?;
        fs::read(folder.path().join("canary"))?;
        // A socket's path is short by nature; a deep state directory is reached through a descriptor's name.
        let socket = folder.path().join("s");
        let listener = bind_socket(folder.path())?;
        drop(socket);
        Ok(Self { folder, _listener: listener })
    }

    /// Python assignments for the self-test.
    fn definitions(&self, level: Level) -> String {
        let text = |path: &Path| serde_json::Value::from(path.to_string_lossy()).to_string();
        let folder = self.folder.path();
        let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
        format!(
            "CANARY = {}; FOLDER = {}; SOCKET = {}; HOME = {}; DAEMON = {}; LEVEL = \"{level}\"\n",
            text(&folder.join("canary")),
            text(folder),
            text(&folder.join("s")),
            text(Path::new(&home)),
            std::process::id(),
        )
    }
}

/// Binds a socket in the folder and connects to it once.
fn bind_socket(folder: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(folder.join("s"))?;
    UnixStream::connect(folder.join("s"))?;
    Ok(listener)
}

fn layer(name: &str, state: LayerState, detail: impl Into<String>) -> SandboxLayer {
    SandboxLayer { name: name.to_owned(), state, detail: detail.into() }
}

/// The layer that a failed step leaves missing.
const fn layer_of(step: Step) -> &'static str {
    match step {
        Step::Namespaces | Step::UserMap => "namespaces",
        Step::View | Step::Scratch => "file view",
        Step::Identity | Step::Capabilities | Step::NoNewPrivileges => "privileges",
        Step::Landlock => "landlock",
        Step::Seccomp => "seccomp",
        Step::Seatbelt => "seatbelt",
        Step::Limits => "limits",
        Step::Order | Step::Session | Step::Descriptors | Step::Fork | Step::Exec => "launcher",
    }
}

/// All layers of a level that works.
fn layers(ready: &Ready, missing: &[(String, String)], tried: usize) -> Vec<SandboxLayer> {
    let ok = |name: &str, detail: String| layer(name, LayerState::Ok, detail);
    let paths = ready.view.as_ref().map_or(0, |view| view.grants.len());
    let mut layers = Vec::new();
    match ready.level {
        Level::Linux => {
            layers.push(ok("namespaces", "user, mount, pid, net, ipc, uts, cgroup".to_owned()));
            layers.push(ok("file view", format!("{paths} paths of the interpreter, read-only; scratch in memory")));
        }
        Level::Landlock => {
            let losses = "existence, size and times of files and the host's name and processes can be seen; \
                          scratch is on the host's disk; it and threads are watched and not bounded at once";
            layers.push(layer("namespaces", LayerState::MissingDepth, losses));
        }
        Level::Seatbelt => layers.push(ok("seatbelt", "deny by default".to_owned())),
        Level::None => {}
    }
    layers.push(ok("privileges", "no capabilities, no_new_privs".to_owned()));
    if ready.level != Level::Seatbelt {
        layers.push(ok("seccomp", "allowlist, one execve".to_owned()));
    }
    let limits = ready.plan.limits;
    layers.push(ok(
        "limits",
        format!(
            "memory {} MiB, files {}, threads {}, CPU {} s, scratch {} MiB",
            limits.memory_bytes >> 20,
            limits.open_files,
            limits.threads,
            limits.cpu_seconds,
            limits.scratch_bytes >> 20
        ),
    ));
    if ready.level != Level::Seatbelt {
        for name in ["landlock", MEMORY_PROTECTION] {
            let lacking = missing.iter().find(|(missing, _)| missing == name);
            layers.push(match lacking {
                Some((_, reason)) => layer(name, LayerState::MissingDepth, reason.as_str()),
                None => ok(name, depth_detail(name)),
            });
        }
        layers.push(layer("cgroup", LayerState::MissingDepth, "not used; limits bound memory and threads"));
    }
    layers.push(ok("self-test", format!("{tried} of {tried} as they should be")));
    layers
}

fn depth_detail(name: &str) -> String {
    match name {
        #[cfg(target_os = "linux")]
        "landlock" => format!("ABI {}", super::sys::linux::landlock_abi()),
        MEMORY_PROTECTION => "no machine code can be made at run time; ctypes callbacks are not to be had".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_self_test_that_admits_anything_is_a_refusal() {
        let answer = |through: &[&str], broken: &[&str]| Answer {
            tried: 3,
            through: through.iter().map(ToString::to_string).collect(),
            broken: broken.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(answer(&[], &[]).verdict(Level::Linux).unwrap(), 3);
        let error = answer(&["a file"], &["threads: no"]).verdict(Level::Linux).unwrap_err().to_string();
        assert!(error.contains("went through: a file; does not work: threads: no"), "{error}");
    }
}
