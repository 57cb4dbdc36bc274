//! Children of the real launcher, one level after the other.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cost;
#[cfg(target_os = "linux")]
mod ends;
#[cfg(target_os = "linux")]
mod refusals;

use std::{path::PathBuf, time::Duration};

use ptcd::{
    config::settings::SandboxChoice,
    guardian::Guardian,
    sandbox::{Child, ChildLimits, Exit, Limit, Sandbox, SandboxPlan, Streams},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Reads Python text from the channel up to its end, runs it, and answers what it left in `answer`.
const BOOTSTRAP: &str = r"
channel = open(3, 'r+b', buffering=0)
text = b''
while not text.endswith(b'\n#end\n'):
    text += channel.read(65536)
space = {}
exec(text, space)
channel.write(repr(space.get('answer')).encode() + b'\n')
";

fn plan(choice: SandboxChoice, home: &std::path::Path, limits: ChildLimits) -> SandboxPlan {
    SandboxPlan {
        choice,
        // As root, programs are nobody, who without a view of his own cannot reach an interpreter below /root.
        python: (choice == SandboxChoice::Landlock).then(|| "/usr/bin/python3".into()),
        limits,
        scratch_root: home.join("scratch"),
        bootstrap: BOOTSTRAP,
        launcher: PathBuf::from(env!("CARGO_BIN_EXE_ptcd")),
    }
}

async fn prepared(choice: SandboxChoice, home: &std::path::Path, limits: ChildLimits) -> Sandbox {
    let sandbox = Sandbox::prepare(plan(choice, home, limits), Guardian::absent()).await;
    if let Some(refusal) = sandbox.refusal() {
        panic!("{refusal}");
    }
    sandbox
}

/// Runs Python in the child and returns the `repr` of what it left in `answer`.
async fn ask(child: &mut Child, code: &str) -> String {
    child.attest().unwrap();
    let Streams { mut channel, mut stderr, .. } = child.take_streams().unwrap();
    channel.write_all(code.as_bytes()).await.unwrap();
    channel.write_all(b"\n#end\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(20), channel.read_to_string(&mut answer)).await.unwrap().unwrap();
    if answer.is_empty() {
        let mut said = String::new();
        stderr.read_to_string(&mut said).await.unwrap();
        panic!("no answer: {said}");
    }
    answer.trim().to_owned()
}

const FDS: &str = "
import os, stat
answer = []
for i in range(1024):
    try: mode = os.fstat(i).st_mode
    except OSError: continue
    answer.append((i, 'S' if stat.S_ISSOCK(mode) else 'P' if stat.S_ISFIFO(mode) else 'C' if stat.S_ISCHR(mode) else mode))
";

async fn child_basics(choice: SandboxChoice) {
    let home = tempfile::tempdir().unwrap();
    let sandbox = prepared(choice, home.path(), ChildLimits::default()).await;
    let mut child = sandbox.spawn().await.unwrap();
    assert_eq!(ask(&mut child, FDS).await, "[(0, 'C'), (1, 'P'), (2, 'P'), (3, 'S')]");
    assert_eq!(child.wait().await, Exit::Code(0));
    child.kill().await;

    let mut child = sandbox.spawn().await.unwrap();
    let answer = ask(&mut child, "import os; answer = (dict(os.environ).keys() - {'LC_CTYPE'}, os.listdir('.'))").await;
    assert_eq!(answer, "(set(), [])");
    child.kill().await;

    // A child that never ends by itself, nor at any signal it can ignore.
    let mut child = sandbox.spawn().await.unwrap();
    let Streams { mut channel, mut stdout, .. } = child.take_streams().unwrap();
    channel
        .write_all(
            b"import os, signal, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
open('left', 'w').write('x')
os.write(1, b'up')
time.sleep(600)
#end
",
        )
        .await
        .unwrap();
    let mut up = [0; 2];
    stdout.read_exact(&mut up).await.unwrap();
    let pid = child.pid;
    assert_eq!(child.kill().await, Exit::Signal(9));
    assert!(!PathBuf::from(format!("/proc/{pid}")).exists());

    // Dropping is enough, too.
    let child = sandbox.spawn().await.unwrap();
    let pid = child.pid;
    drop(child);
    let gone = async {
        while PathBuf::from(format!("/proc/{pid}")).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();

    if choice == SandboxChoice::Landlock && rustix::process::geteuid().is_root() {
        // Its scratch directories are elsewhere, among those of other daemons.
        return;
    }
    let folders: Vec<_> = std::fs::read_dir(home.path().join("scratch")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(folders.len(), 1);
    let left: Vec<_> = std::fs::read_dir(&folders[0]).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "no scratch directory is left");
    drop(sandbox);
    assert!(!folders[0].exists());
}

async fn cpu_limit(choice: SandboxChoice) {
    let home = tempfile::tempdir().unwrap();
    let limits = ChildLimits { cpu_seconds: 1, ..ChildLimits::default() };
    let sandbox = prepared(choice, home.path(), limits).await;
    let mut child = sandbox.spawn().await.unwrap();
    let mut streams = child.take_streams().unwrap();
    streams.channel.write_all(b"while True: pass\n#end\n").await.unwrap();
    let exit = tokio::time::timeout(Duration::from_secs(60), child.wait()).await.unwrap();
    assert_eq!(exit, Exit::Limit(Limit::CpuTime));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn linux_gives_four_descriptors_no_environment_and_an_end() {
    child_basics(SandboxChoice::Linux).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn landlock_gives_four_descriptors_no_environment_and_an_end() {
    child_basics(SandboxChoice::Landlock).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn linux_bounds_cpu_time() {
    cpu_limit(SandboxChoice::Linux).await;
}

#[tokio::test]
async fn none_gives_four_descriptors_no_environment_and_an_end() {
    child_basics(SandboxChoice::None).await;
}

#[tokio::test]
async fn none_bounds_cpu_time() {
    cpu_limit(SandboxChoice::None).await;
}

#[tokio::test]
async fn a_launcher_that_cannot_run_is_a_clear_refusal() {
    let home = tempfile::tempdir().unwrap();
    let mut broken = plan(SandboxChoice::None, home.path(), ChildLimits::default());
    broken.launcher = "/nonexistent/ptcd".into();
    let sandbox = Sandbox::prepare(broken, Guardian::absent()).await;
    let error = sandbox.spawn().await.unwrap_err().to_string();
    assert!(error.contains("/nonexistent/ptcd") && error.contains("No such file"), "{error}");
}
