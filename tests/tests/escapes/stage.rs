//! A daemon with canaries around it, and everything that programs must not reach.

use std::{
    collections::BTreeMap,
    fs,
    net::{TcpListener, UdpSocket},
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use ptc_protocol::{
    api::{Outcome, ProgramEvent, RunRequest},
    client::Client,
};
use ptc_tests::{
    World,
    config::{config, stdio},
    fixtures::{binary, fixture, python},
    process::{Group, descendants},
    until,
    wait::PATIENCE,
};
use serde_json::json;

use crate::catalogue::{Case, catalogue};

/// A user id that nobody has.
const PLAIN: u32 = 65_533;
const SECRET: &str = "the-secret-of-the-canary";
/// Programs at once; the daemon has two cores and half of the cases only wait.
const AT_ONCE: usize = 6;
/// What the daemon may have used at most, after all cases.
const DAEMON_MEMORY_KIB: u64 = 600 << 10;

/// Who runs the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    Plain,
}

impl User {
    pub(crate) fn is_possible(self) -> bool {
        rustix::process::geteuid().is_root() || self == Self::Plain
    }

    /// The user to change to; none where the tests run as a plain user themselves.
    fn change(self) -> Option<u32> {
        (self == Self::Plain && rustix::process::geteuid().is_root()).then_some(PLAIN)
    }
}

/// One case that ran.
pub(crate) struct Ended {
    pub(crate) case: Case,
    pub(crate) outcome: Outcome,
}

/// The daemon, its world, and the canaries.
pub(crate) struct Stage {
    world: World,
    daemon: Group,
    victim: Group,
    client: Client,
    replaced: Vec<(&'static str, String)>,
    canary: (PathBuf, fs::Metadata),
    level: &'static str,
    _listeners: (TcpListener, UdpSocket),
    #[cfg(target_os = "linux")]
    _abstract: (std::os::unix::net::UnixListener, std::os::unix::net::UnixDatagram),
    _relay: tokio::task::JoinSet<()>,
}

impl Stage {
    /// Starts a daemon at this level.
    pub(crate) fn set(level: &'static str, user: User) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let world = World::empty();
        let folder = world.path("user");
        fs::create_dir(&folder).unwrap();
        let canary = folder.join("canary");
        fs::write(&canary, SECRET).unwrap();
        fs::write(folder.join("canarymod.py"), "V = 1\n").unwrap();
        // The checkout may lie where a plain user cannot go.
        let server = world.path("fake_server.py");
        fs::copy(fixture("fake_server.py"), &server).unwrap();
        let daemon_image = world.path("ptcd");
        fs::copy(binary("ptcd"), &daemon_image).unwrap();

        // Where a plain user can reach it; Apple's file of this name is none.
        let interpreter = if cfg!(target_os = "linux") { Some("/usr/bin/python3") } else { None };
        let echo = stdio("fake", &interpreter.map_or_else(python, PathBuf::from), vec![json!(server)]);
        let execution = json!({
            "sandbox": level, "python": interpreter, "warm_children": 3, "max_programs": AT_ONCE, "timeout_seconds": 60,
            "max_memory_bytes": 512 << 20,
        });
        world.write_config(&config(vec![echo], &execution).to_string());

        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = format!("ptc-escapes-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        #[cfg(target_os = "linux")]
        let sockets = abstract_sockets(&name);

        let mut victim = Command::new("sleep");
        victim.arg("100000");
        let command = world.command("ptcd");
        let mut start = Command::new(&daemon_image);
        start.arg("run").env_clear().envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        if interpreter.is_some() {
            start.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        start.current_dir(world.dir()).stdin(Stdio::null());
        start.stdout(log(&world, "ptcd.out")).stderr(log(&world, "ptcd.err"));
        if let Some(id) = user.change() {
            for command in [&mut victim, &mut start] {
                command.uid(id).gid(id);
            }
            give(world.dir(), id);
        }
        let victim = Group::spawn(&mut victim);
        let mut daemon = Group::spawn(&mut start);
        until("the daemon's socket", PATIENCE, || {
            assert!(daemon.runs(), "the daemon ended: {}", said(&world));
            std::os::unix::net::UnixStream::connect(world.socket()).ok()
        });
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let replaced = vec![
            ("@CANARYDIR@", text(&folder)),
            ("@CANARY@", text(&canary)),
            ("@SECRET@", SECRET.to_owned()),
            ("@HOME@", text(&world.path("home"))),
            ("@CONFIG@", text(&world.config_path())),
            ("@SOCK@", text(&world.socket())),
            ("@ABSTRACT@", name),
            ("@TCP@", tcp.local_addr().unwrap().port().to_string()),
            ("@UDP@", udp.local_addr().unwrap().port().to_string()),
            ("@VICTIM@", victim.pid().to_string()),
            ("@DAEMON@", daemon.pid().to_string()),
            ("@SITE@", site_packages()),
        ];
        let data = fs::metadata(&canary).unwrap();
        // A client trusts a daemon of its own user only, so root speaks to another user's through a socket of root's.
        let (client, relay) = match user.change() {
            Some(_) => {
                let socket = world.path("relay.sock");
                (Client::connect_lazy(&socket), relay(&socket, world.socket()))
            }
            None => (Client::connect_lazy(world.socket()), tokio::task::JoinSet::new()),
        };
        Self {
            world,
            daemon,
            victim,
            client,
            replaced,
            canary: (canary, data),
            level,
            _listeners: (tcp, udp),
            #[cfg(target_os = "linux")]
            _abstract: sockets,
            _relay: relay,
        }
    }

    /// Runs the cases, several at once, and returns them in the order in which they ended.
    pub(crate) async fn run(&self, cases: &[Case]) -> Vec<Ended> {
        let status = self.wait_ready().await;
        assert_eq!(status, None, "the sandbox is refused: {}", said(&self.world));
        let prelude = catalogue().prelude.join("\n");
        let mut running = tokio::task::JoinSet::new();
        let mut ended = Vec::new();
        let mut left = cases.iter().cloned();
        loop {
            while running.len() < AT_ONCE {
                let Some(case) = left.next() else { break };
                let mut code = format!("{prelude}\n{}\n", case.code.join("\n"));
                for (name, value) in &self.replaced {
                    code = code.replace(name, value);
                }
                let client = self.client.clone();
                running.spawn(async move {
                    let outcome = outcome(&client, &code, case.seconds()).await;
                    Ended { outcome: outcome.unwrap_or_else(|error| panic!("{}: {error}", case.id)), case }
                });
            }
            let Some(one) = running.join_next().await else { break };
            ended.push(one.unwrap());
        }
        ended
    }

    /// One program's outcome.
    pub(crate) async fn outcome(&self, code: &str, seconds: u64) -> Outcome {
        outcome(&self.client, code, seconds).await.unwrap()
    }

    /// Starts a program that is not waited for; dropping the value ends it.
    #[cfg(target_os = "linux")]
    pub(crate) fn start(&self, code: &str) -> tokio::task::JoinSet<()> {
        let (client, code) = (self.client.clone(), code.to_owned());
        let mut program = tokio::task::JoinSet::new();
        program.spawn(async move {
            // Its end is the daemon's end.
            outcome(&client, &code, 600).await.ok();
        });
        program
    }

    /// What the daemon says of itself.
    #[cfg(target_os = "linux")]
    pub(crate) async fn status(&self) -> ptc_protocol::api::Status {
        self.client.status().await.unwrap()
    }

    /// The daemon's process.
    #[cfg(target_os = "linux")]
    pub(crate) fn daemon_pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// Ends the daemon without a chance to clean up.
    #[cfg(target_os = "linux")]
    pub(crate) fn kill_daemon(&mut self) {
        self.daemon.signal(rustix::process::Signal::KILL);
        self.daemon.exit(PATIENCE);
    }

    /// Where the daemon makes scratch directories.
    #[cfg(target_os = "linux")]
    pub(crate) fn scratch_root(&self) -> PathBuf {
        self.world.path("state/scratch")
    }

    /// Waits until the sandbox is prepared; returns why it is refused.
    pub(crate) async fn wait_ready(&self) -> Option<String> {
        let start = SystemTime::now();
        loop {
            let status = self.client.status().await.unwrap();
            if status.sandbox.error.is_some() || status.pool.warm > 0 {
                assert_eq!(status.sandbox.level, self.level);
                return status.sandbox.error;
            }
            assert!(start.elapsed().unwrap() < PATIENCE, "no warm child: {status:?}\n{}", said(&self.world));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// After all cases: the next program works, the canaries are as they were, and nothing is left behind.
    pub(crate) async fn assert_well(&self) {
        let outcome =
            outcome(&self.client, "import os\nprint(sorted(os.listdir('.')), await mcp__fake__echo(a=1))", 60).await;
        let outcome = outcome.unwrap();
        assert!(outcome.ok, "the daemon is not well: {outcome:?}");
        assert_eq!(outcome.output.trim(), "[] {'a': 1}");

        let (path, before) = &self.canary;
        let now = fs::metadata(path).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), SECRET);
        assert_eq!((now.mode(), now.mtime(), now.nlink()), (before.mode(), before.mtime(), before.nlink()));
        let mut beside: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        beside.sort();
        assert_eq!(beside, ["canary", "canarymod.py"]);
        let spill: Vec<_> = fs::read_dir("/tmp")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter(|name| name.starts_with("ptcd-escape-"))
            .collect();
        assert!(spill.is_empty(), "{spill:?}");
        assert!(Path::new(&format!("/proc/{}", self.victim.pid())).exists(), "the victim was killed");

        if cfg!(target_os = "macos") {
            return;
        }
        // Guardian, server, and the warm children with their launchers; nothing of a finished program.
        until("only warm children are left", PATIENCE, || {
            let left = descendants(self.daemon.pid());
            (left.len() <= 2 + 3 * 2).then_some(())
        });
        let peak = status_field(self.daemon.pid(), "VmHWM");
        assert!(peak < DAEMON_MEMORY_KIB, "the daemon used {peak} KiB");
    }
}

/// Sockets without a place in the file system: a stream and a datagram one.
#[cfg(target_os = "linux")]
fn abstract_sockets(name: &str) -> (std::os::unix::net::UnixListener, std::os::unix::net::UnixDatagram) {
    use std::os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram, UnixListener},
    };
    let address = |name: &str| SocketAddr::from_abstract_name(name).unwrap();
    let stream = UnixListener::bind_addr(&address(name)).unwrap();
    (stream, UnixDatagram::bind_addr(&address(&format!("{name}D"))).unwrap())
}

/// Passes on whatever comes to the first socket to the second one.
fn relay(from: &Path, to: PathBuf) -> tokio::task::JoinSet<()> {
    let listener = tokio::net::UnixListener::bind(from).unwrap();
    let mut owner = tokio::task::JoinSet::new();
    owner.spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            let to = to.clone();
            connections.spawn(async move {
                let mut far = tokio::net::UnixStream::connect(to).await.unwrap();
                // Either side may go away at any time, as with one socket.
                tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
            });
        }
    });
    owner
}

/// Runs one program to its outcome.
async fn outcome(client: &Client, code: &str, seconds: u64) -> Result<Outcome, String> {
    let request = RunRequest {
        code: code.to_owned(),
        session: None,
        timeout_seconds: Some(seconds),
        stream_output: false,
        client_request: None,
    };
    let wait = async {
        let mut events = client.run(&request).await.map_err(|error| error.to_string())?;
        while let Some(event) = events.next().await.map_err(|error| error.to_string())? {
            if let ProgramEvent::Outcome(outcome) = event {
                return Ok(*outcome);
            }
        }
        Err("no outcome".to_owned())
    };
    tokio::time::timeout(PATIENCE * 3, wait).await.map_err(|_| "the daemon gave no outcome".to_owned())?
}

fn site_packages() -> String {
    ["/usr/lib/python3/dist-packages", "/usr/lib/python3/site-packages", "/usr/share"]
        .into_iter()
        .find(|path| Path::new(path).is_dir())
        .unwrap_or("/usr")
        .to_owned()
}

fn log(world: &World, name: &str) -> fs::File {
    fs::File::create(world.path(name)).unwrap()
}

fn said(world: &World) -> String {
    fs::read_to_string(world.path("ptcd.err")).unwrap_or_default()
}

/// Gives a folder and all in it to another user.
fn give(path: &Path, id: u32) {
    std::os::unix::fs::lchown(path, Some(id), Some(id)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), id));
    }
}

/// A number of `/proc/PID/status`.
fn status_field(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let fields: BTreeMap<_, _> = text.lines().filter_map(|line| line.split_once(':')).collect();
    fields[name].split_whitespace().next().unwrap().parse().unwrap()
}
