//! Nothing outlives anything, whatever is killed when.

use std::{path::PathBuf, time::Duration};

use ptcd::{
    config::settings::SandboxChoice,
    sandbox::{Child, ChildLimits, Exit},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::prepared;

const BUSY: &[u8] = b"
import os, time
open('file', 'w').write('x')
os.write(1, b'up')
time.sleep(600)
#end
";

async fn busy(child: &mut Child) -> i32 {
    let mut streams = child.take_streams().unwrap();
    streams.channel.write_all(BUSY).await.unwrap();
    let mut up = [0; 2];
    streams.stdout.read_exact(&mut up).await.unwrap();
    // The streams stay open: the child must end although nobody hangs up.
    std::mem::forget(streams);
    child.pid
}

fn status_field(pid: i32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name).map(|value| value.trim().to_owned()))
}

/// Not there, or dead and waiting for somebody to ask: who that is differs between systems.
async fn is_gone(pid: i32) {
    let gone = async {
        while status_field(pid, "State:").is_some_and(|state| !state.starts_with('Z')) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_killed_launcher_takes_its_child_along() {
    let home = tempfile::tempdir().unwrap();
    for choice in [SandboxChoice::Linux, SandboxChoice::Landlock] {
        let sandbox = prepared(choice, home.path(), ChildLimits::default()).await;
        let mut child = sandbox.spawn().await.unwrap();
        let pid = busy(&mut child).await;
        let launcher: i32 = status_field(pid, "PPid:").unwrap().parse().unwrap();
        assert_ne!(launcher, i32::try_from(std::process::id()).unwrap());
        kill(launcher);
        is_gone(pid).await;
        let exit = tokio::time::timeout(Duration::from_secs(10), child.kill()).await.unwrap();
        assert_eq!(exit, Exit::Lost);
    }
}

#[tokio::test]
async fn a_killed_child_takes_its_launcher_along() {
    let home = tempfile::tempdir().unwrap();
    for choice in [SandboxChoice::Linux, SandboxChoice::Landlock, SandboxChoice::None] {
        let sandbox = prepared(choice, home.path(), ChildLimits::default()).await;
        let mut child = sandbox.spawn().await.unwrap();
        let pid = busy(&mut child).await;
        let launcher: i32 = status_field(pid, "PPid:").unwrap().parse().unwrap();
        kill(pid);
        let exit = tokio::time::timeout(Duration::from_secs(10), child.wait()).await.unwrap();
        assert_eq!(exit, Exit::Signal(9));
        if choice != SandboxChoice::None {
            assert!(!PathBuf::from(format!("/proc/{launcher}")).exists());
        }
    }
}

/// A program that stopped itself, or fills its memory, still ends at once.
#[tokio::test]
async fn a_stopped_child_is_killed_and_a_greedy_one_gets_no_more_than_its_limit() {
    let home = tempfile::tempdir().unwrap();
    let limits = ChildLimits { memory_bytes: 256 << 20, ..ChildLimits::default() };
    for choice in [SandboxChoice::Linux, SandboxChoice::Landlock] {
        let sandbox = prepared(choice, home.path(), limits).await;
        let mut child = sandbox.spawn().await.unwrap();
        let mut streams = child.take_streams().unwrap();
        let code = b"import os, signal, time\nos.write(1, b'up')\nos.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(600)\n#end\n";
        streams.channel.write_all(code).await.unwrap();
        let mut up = [0; 2];
        streams.stdout.read_exact(&mut up).await.unwrap();
        assert_eq!(child.kill().await, Exit::Signal(9));

        let mut child = sandbox.spawn().await.unwrap();
        let answer = crate::ask(
            &mut child,
            "
blocks = []
try:
    while len(blocks) < 40: blocks.append(bytearray(16 << 20))
    answer = 'no limit'
except MemoryError:
    answer = len(blocks)
",
        )
        .await;
        assert!(answer.parse::<u32>().is_ok_and(|blocks| blocks < 16), "{choice:?} {answer}");
        child.kill().await;
    }
}

/// Without a file system of its own to bound it, the launcher watches the scratch directory.
#[tokio::test]
async fn a_scratch_directory_on_the_hosts_disk_is_bounded_as_a_whole() {
    let home = tempfile::tempdir().unwrap();
    let limits = ChildLimits { scratch_bytes: 4 << 20, ..ChildLimits::default() };
    let sandbox = prepared(SandboxChoice::Landlock, home.path(), limits).await;
    let mut child = sandbox.spawn().await.unwrap();
    let mut streams = child.take_streams().unwrap();
    let code = "
import time
for i in range(4): open(f'f{i}', 'wb').write(bytes([1]) * (3 << 20))
time.sleep(600)
#end
";
    streams.channel.write_all(code.as_bytes()).await.unwrap();
    let exit = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.unwrap();
    assert_eq!(exit, Exit::Limit(ptcd::sandbox::Limit::Scratch));
    child.kill().await;
}
