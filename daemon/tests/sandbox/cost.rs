//! What the sandbox costs: a cold start and a warm program, confined and not, in one run.
//!
//! `cargo test --release -p ptcd --test sandbox -- --ignored --nocapture cost`

use std::{
    path::Path,
    time::{Duration, Instant},
};

use ptcd::{
    config::settings::SandboxChoice,
    guardian::Guardian,
    python,
    sandbox::{Child, ChildLimits, Sandbox},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

const ROUNDS: u32 = 60;

async fn frame(channel: &mut UnixStream) -> Value {
    let length = channel.read_u32().await.unwrap();
    let mut body = vec![0; usize::try_from(length).unwrap()];
    channel.read_exact(&mut body).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// From nothing to the runtime's `ready`.
async fn cold(sandbox: &Sandbox) -> (Duration, Child, UnixStream) {
    let start = Instant::now();
    let mut child = sandbox.spawn().await.unwrap();
    let mut channel = child.take_streams().unwrap().channel;
    assert_eq!(frame(&mut channel).await["t"], "ready");
    (start.elapsed(), child, channel)
}

/// From the program's hand-over to its end.
async fn warm(child: &Child, channel: &mut UnixStream) -> Duration {
    let order = json!({
        "t": "start", "code": "emit(6 * 7)", "tools": [], "servers": [],
        "limits": {"max_output_bytes": 65536, "max_emit_bytes": 65536, "timeout_seconds": 60},
    });
    let body = serde_json::to_vec(&order).unwrap();
    let start = Instant::now();
    child.attest().unwrap();
    channel.write_u32(u32::try_from(body.len()).unwrap()).await.unwrap();
    channel.write_all(&body).await.unwrap();
    let done = frame(channel).await;
    assert_eq!(done["ok"], true, "{done}");
    start.elapsed()
}

/// Processor time of all children that were waited for, and of theirs.
fn children_cpu() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    #[expect(unsafe_code, reason = "getrusage has no safe interface")]
    // SAFETY: the structure is plain and outlives the call, which fills it; all-zero is valid, too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap())
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[expect(clippy::print_stdout, reason = "the figures are the point of this test")]
fn line(what: &str, mut times: Vec<Duration>) -> f64 {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    println!("{what:24} median {:7.2} ms   p10 {:7.2}   p90 {:7.2}", at(50), at(10), at(90));
    at(50)
}

async fn prepared(choice: SandboxChoice, home: &Path) -> Sandbox {
    let mut plan = crate::plan(choice, home, ChildLimits::default());
    plan.bootstrap = python::bootstrap();
    let sandbox = Sandbox::prepare(plan, Guardian::absent()).await;
    assert!(sandbox.refusal().is_none(), "{:?}", sandbox.refusal());
    sandbox
}

#[tokio::test]
#[ignore = "a measurement, to be made on a quiet machine"]
async fn cost_of_the_sandbox() {
    let home = tempfile::tempdir().unwrap();
    let levels = [prepared(SandboxChoice::None, home.path()).await, prepared(SandboxChoice::Auto, home.path()).await];
    let mut times = [(); 2].map(|()| (Vec::new(), Vec::new()));
    let mut cpu = [Duration::ZERO; 2];
    for _ in 0..ROUNDS {
        // One after the other, so that whatever else the machine does meets both.
        for ((sandbox, (colds, warms)), cpu) in levels.iter().zip(&mut times).zip(&mut cpu) {
            let before = children_cpu();
            let (time, mut child, mut channel) = cold(sandbox).await;
            colds.push(time);
            warms.push(warm(&child, &mut channel).await);
            child.kill().await;
            *cpu += children_cpu() - before;
        }
    }
    let [(cold_plain, warm_plain), (cold_confined, warm_confined)] = times;
    let plain = line("cold start, none", cold_plain);
    let confined = line("cold start, sandboxed", cold_confined);
    println!("{:24} {:+.2} ms", "difference", confined - plain);
    let plain = line("warm program, none", warm_plain);
    let confined = line("warm program, sandboxed", warm_confined);
    println!("{:24} {:+.2} ms", "difference", confined - plain);
    // Less moved by whatever else the machine does.
    let [plain, confined] = cpu.map(|cpu| cpu.as_secs_f64() * 1000.0 / f64::from(ROUNDS));
    println!(
        "processor time a child    none {plain:.2} ms   sandboxed {confined:.2} ms   difference {:+.2} ms",
        confined - plain
    );
}
