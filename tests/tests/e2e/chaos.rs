//! Everything at once: programs of several sessions while servers are killed, restarted, reconfigured and half saved.
//!
//! A seed decides what happens, not when; a failure prints the seed. `PTC_CHAOS_SEED` and `PTC_CHAOS_SECONDS` set another
//! one and a longer run (`make chaos`).

use std::{
    env, fs,
    path::Path,
    process::Stdio,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ptc_protocol::api::ServerState;
use ptc_tests::{
    World,
    config::{config, fake, remote},
    fixtures::{bare_command, fixture, sdk_python},
    process::{Group, all_gone, descendants},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::http_servers::{free_port, wait_for};

/// Of them, the first [`REMOTE`] are reached over HTTP and the older SSE by turns, the rest over stdio.
const SERVERS: usize = 20;
const REMOTE: usize = 4;
const SESSIONS: usize = 4;

/// The daemon's memory may be larger in the end by so many bytes: what allocators keep, not what grows with the length of
/// the run (6 MiB after ten seconds as after three minutes).
const MEMORY: u64 = 32 << 20;

/// So many more descriptors may be open: connections that idle for a moment.
const DESCRIPTORS: usize = 10;

/// Numbers that look random and are the same for the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

/// A server of the official SDK that is killed and started again where it was.
struct Remote {
    transport: &'static str,
    port: u16,
    process: Option<Group>,
}

impl Remote {
    fn new(n: usize, home: &Path) -> Self {
        let transport = if n.is_multiple_of(2) { "http" } else { "sse" };
        let mut remote = Self { transport, port: free_port(), process: None };
        remote.start(home);
        wait_for(remote.port);
        remote
    }

    fn start(&mut self, home: &Path) {
        // The address must be free before it is taken again.
        self.process = None;
        let mut command = bare_command(&sdk_python(), home);
        command.arg(fixture("remote_server.py")).arg(self.transport).arg(self.port.to_string());
        self.process = Some(Group::spawn(command.stdout(Stdio::null()).stderr(Stdio::null())));
    }

    fn settings(&self, n: usize) -> Value {
        let path = if self.transport == "http" { "mcp" } else { "sse" };
        remote(&format!("s{n}"), self.transport, &format!("http://127.0.0.1:{}/{path}", self.port))
    }
}

fn settings(generation: usize, present: usize, remotes: &[Remote]) -> Value {
    let servers = (0..present).map(|n| {
        if let Some(remote) = remotes.get(n) {
            return remote.settings(n);
        }
        let script = match n % 5 {
            0 => json!({"around": true}),
            1 => json!({"list_changed": 5}),
            2 => json!({"ignore_eof": true, "ignore_term": true}),
            3 => json!({"stderr": {"start": 1000, "call": 5000}}),
            _ => json!({}),
        };
        let mut server = fake(&format!("s{n}"), &script);
        // Every generation changes one server's definition.
        if generation % SERVERS == n {
            server["env"] = json!({"GENERATION": generation.to_string()});
        }
        server
    });
    config(servers.collect(), &json!({"warm_children": 2, "tool_call_timeout_seconds": 10, "timeout_seconds": 30}))
}

/// A program whose output tells whether every answer was right or honestly missing.
fn program(dice: &mut Dice, mark: usize) -> String {
    let first = dice.roll(SERVERS);
    let calls = 1 + dice.roll(8);
    format!(
        "import asyncio\nright = missing = 0\n\
         async def one(server, n):\n    global right, missing\n    name = f'mcp__s{{server}}__echo'\n    tool = globals().get(name)\n    if tool is None:\n        missing += 1\n        return\n    try:\n        r = await tool(mark={mark}, n=n)\n    except ToolError as e:\n        missing += 1\n        assert str(e), 'an error says something'\n        return\n    assert r == {{'mark': {mark}, 'n': n}}, f'wrong answer {{r}}'\n    right += 1\n\
         await asyncio.gather(*(one(({first} + n) % {SERVERS}, n) for n in range({calls})))\n\
         assert right + missing == {calls}\nprint('{mark}', right + missing)"
    )
}

fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn disturb(world: &World, dice: &mut Dice, generation: &mut usize, remotes: &mut [Remote]) {
    match dice.roll(7) {
        0 | 1 => {
            let status = world.status();
            let pids: Vec<u32> = status.servers.iter().filter_map(|server| server.pid).collect();
            if !pids.is_empty() {
                let victim = pids[dice.roll(pids.len())];
                kill_process(Pid::from_raw(victim.try_into().unwrap()).unwrap(), Signal::KILL).ok();
            }
        }
        2 => {
            let name = format!("s{}", dice.roll(SERVERS));
            world.ctl(&["restart", &name]);
        }
        3 => {
            *generation += 1;
            world.write_config(&settings(*generation, SERVERS - dice.roll(3), remotes).to_string());
        }
        4 => {
            let whole = settings(*generation, SERVERS, remotes).to_string();
            fs::write(world.config_path(), &whole[..dice.roll(whole.len())]).unwrap();
            thread::sleep(Duration::from_millis(100));
            world.write_config(&whole);
        }
        5 => remotes[dice.roll(REMOTE)].start(&world.path("home")),
        _ => {
            world.ctl(&["reload"]);
        }
    }
}

fn chaos(seed: u64, length: Duration) {
    let home = tempfile::tempdir().unwrap();
    let mut remotes: Vec<Remote> = (0..REMOTE).map(|n| Remote::new(n, home.path())).collect();
    let mut world = World::ready(&settings(0, SERVERS, &remotes));
    let daemon = world.daemon().pid();
    // A first program, so that what is made once is there before anything is counted.
    assert_eq!(world.session().program("print(1)").output(), "1\n");
    let before = (open_files(daemon), world.status().daemon.rss_bytes);

    let done = AtomicBool::new(false);
    let programs = AtomicU64::new(0);
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for who in 0..SESSIONS {
            let (world, done, programs, wrong) = (&world, &done, &programs, &wrong);
            scope.spawn(move || {
                let mut dice = Dice(seed.wrapping_add(1000 + who as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                let mut session = world.session();
                let mut mark = who * 1_000_000;
                while !done.load(Ordering::Relaxed) {
                    mark += 1;
                    let result = session.program(&program(&mut dice, mark));
                    programs.fetch_add(1, Ordering::Relaxed);
                    if result.is_error || !result.text.contains(&format!("\n{mark} ")) {
                        wrong.lock().unwrap().push(result.text);
                    }
                }
            });
        }
        let mut dice = Dice(seed | 1);
        let mut generation = 0;
        let start = Instant::now();
        while start.elapsed() < length {
            disturb(&world, &mut dice, &mut generation, &mut remotes);
            thread::sleep(Duration::from_millis(100));
        }
        done.store(true, Ordering::Relaxed);
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "seed {seed}: {} programs, wrong: {wrong:#?}", programs.load(Ordering::Relaxed));

    world.write_config(&settings(0, SERVERS, &remotes).to_string());
    world.ctl(&["reload"]);
    // Those that were hit often would come back by themselves, too, in up to a minute.
    for server in world.status().servers.iter().filter(|server| server.state == ServerState::Backoff) {
        world.ctl(&["restart", server.name.as_str()]);
    }
    world.wait_servers("all are back", |servers| {
        servers.len() == SERVERS && servers.iter().all(|server| server.state == ServerState::Ready)
    });
    let after = world.wait_status("everything has settled", |status| {
        status.programs.is_empty()
            && status.sessions.is_empty()
            && status.pool.running == 0
            && open_files(daemon) <= before.0 + DESCRIPTORS
    });
    let grown = after.daemon.rss_bytes.saturating_sub(before.1);
    assert!(grown < MEMORY, "seed {seed}: the daemon grew by {} KiB", grown >> 10);
    let family = descendants(daemon);
    assert!(family.len() < SERVERS + 10, "seed {seed}: strays among {family:#?}");
    assert!(world.stop_daemon().success());
    all_gone(&family, Duration::from_secs(2));
}

#[test]
fn every_program_ends_right_or_with_an_honest_error() {
    let number = |name: &str, default: u64| env::var(name).ok().map_or(default, |text| text.parse().unwrap());
    let length = Duration::from_secs(number("PTC_CHAOS_SECONDS", 10));
    chaos(number("PTC_CHAOS_SEED", 20_260_728), length);
}
