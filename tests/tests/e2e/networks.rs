//! Networks as they are: certificates of private authorities, proxies, names that resolve late, HTTP/2.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use ptc_protocol::api::ServerState;
use ptc_tests::{
    World,
    config::{config, remote},
    fixtures::{bare_command, fixture, sdk_python},
    process::Group,
    until,
    wait::PATIENCE,
};
use serde_json::{Value, json};

use crate::http_servers::{everything, free_port, wait_for};

fn openssl(dir: &Path, line: &str) {
    let mut command = Command::new("openssl");
    let ran = command.current_dir(dir).args(line.split_whitespace()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

/// An authority of our own, the certificate it gave to localhost and mcp.test, and its key.
fn certificates(dir: &Path) {
    let new = "-newkey rsa:2048 -nodes";
    openssl(dir, &format!("req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    openssl(dir, &format!("req {new} -keyout leaf.key -out leaf.csr -subj /CN=localhost"));
    fs::write(dir.join("names"), "subjectAltName=DNS:localhost,DNS:mcp.test\n").unwrap();
    let sign = "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out leaf.pem";
    openssl(dir, sign);
}

/// A server from PyPI that has this certificate.
fn https(home: &Path, port: u16) -> Group {
    let mut command = bare_command(&sdk_python(), home);
    command.arg(fixture("https_server.py")).arg(port.to_string()).args([home.join("leaf.pem"), home.join("leaf.key")]);
    let server = Group::spawn(&mut command);
    wait_for(port);
    server
}

/// A server that speaks HTTP/2 and has this certificate.
fn http2(home: &Path, port: u16) -> Group {
    let mut command = bare_command("node".as_ref(), home);
    command.arg(fixture("http2_server.mjs")).arg(port.to_string()).args([home.join("leaf.pem"), home.join("leaf.key")]);
    let server = Group::spawn(&mut command);
    wait_for(port);
    server
}

/// A daemon with these servers and these variables in its environment. It ends before the world.
fn daemon(world: &World, servers: Vec<Value>, variables: &[(&str, &str)]) -> Group {
    world.write_config(&config(servers, &json!({})).to_string());
    let mut command = world.command("ptcd");
    command.arg("run").envs(variables.iter().copied()).stdout(Stdio::null());
    start(world, &mut command)
}

fn start(world: &World, command: &mut Command) -> Group {
    let daemon = Group::spawn(command);
    until("the daemon's socket", PATIENCE, || std::os::unix::net::UnixStream::connect(world.socket()).ok());
    daemon
}

/// The system's trust decides, which a variable extends; without it the error names the certificate. Variables for
/// proxies do not lead astray what runs on this machine.
#[test]
fn a_private_authority_is_trusted_where_the_system_trusts_it() {
    let home = tempfile::tempdir().unwrap();
    certificates(home.path());
    let port = free_port();
    let _server = https(home.path(), port);
    let mut settings = remote("https", "http", &format!("https://localhost:{port}/mcp"));
    settings["protocol"] = json!("auto");

    let world = World::empty();
    let authority = home.path().join("ca.pem");
    let variables = [("SSL_CERT_FILE", authority.to_str().unwrap()), ("HTTPS_PROXY", "http://127.0.0.1:9")];
    let _daemon = daemon(&world, vec![settings.clone()], &variables);
    let ready = world.wait_servers("it is ready", |servers| servers[0].state == ServerState::Ready);
    assert_eq!(ready[0].protocol.as_deref(), Some("2026-07-28"));
    let program = world.session().program("from servers import https\nprint(await https.double(number=21))");
    assert_eq!(program.output(), "42\n");

    let distrusting = World::started(&config(vec![settings], &json!({})));
    let down = distrusting.wait_servers("it says why", |servers| servers[0].last_error.is_some());
    let error = down[0].last_error.clone().unwrap();
    assert!(error.contains("invalid peer certificate: UnknownIssuer"), "{error}");
}

#[test]
fn a_server_that_offers_http2_is_spoken_to_in_it() {
    let home = tempfile::tempdir().unwrap();
    certificates(home.path());
    let port = free_port();
    let _server = http2(home.path(), port);
    let world = World::empty();
    let authority = home.path().join("ca.pem");
    let server = remote("modern", "http", &format!("https://localhost:{port}/mcp"));
    let _daemon = daemon(&world, vec![server], &[("SSL_CERT_FILE", authority.to_str().unwrap())]);
    let program = "import asyncio\nfrom servers import modern\nprint(set(await asyncio.gather(*(modern.version() for _ in range(20)))))";
    assert_eq!(world.session().program(program).output(), "{2.0}\n");
}

/// A forward proxy that alone knows where `mcp.test` is: on this machine.
struct Proxy {
    port: u16,
    /// First lines of what it was asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::default();
        let seen = Arc::clone(&asked);
        // Both threads end with the test's process; nothing waits for them.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&seen);
                thread::spawn(move || Self::serve(client, &seen));
            }
        });
        Self { port, asked }
    }

    fn url(&self) -> String {
        format!("http://user:pass-word@127.0.0.1:{}", self.port)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Either a tunnel or a single exchange, after which the connection ends.
    fn serve(client: TcpStream, seen: &Mutex<Vec<String>>) -> Option<()> {
        let mut reader = BufReader::new(client.try_clone().ok()?);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
            head.push(line);
        }
        let lower = head.concat().to_ascii_lowercase();
        let signed = lower.contains("\nproxy-authorization: basic ");
        seen.lock().unwrap().push(format!("{}{}", head[0].trim(), if signed { " signed" } else { "" }));
        let mut words = head[0].split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let place = target.trim_start_matches("http://").split('/').next()?;
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let port: u16 = place.strip_prefix("mcp.test:")?.parse().ok()?;
        let mut server = TcpStream::connect(("127.0.0.1", port)).ok()?;
        if method == "CONNECT" {
            (&client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
        } else {
            head[0] = head[0].replacen(&format!("http://{place}"), "", 1);
            head.retain(|line| !line.to_ascii_lowercase().starts_with("proxy-"));
            server.write_all((head.concat() + "connection: close\r\n\r\n").as_bytes()).ok()?;
        }
        let (mut up, mut down) = (server.try_clone().ok()?, client);
        let sent = if method == "CONNECT" { u64::MAX } else { length.unwrap_or(0) };
        thread::spawn(move || std::io::copy(&mut reader.take(sent), &mut up));
        std::io::copy(&mut server, &mut down).ok()?;
        down.shutdown(Shutdown::Both).ok()
    }
}

#[test]
fn proxies_of_the_environment_are_gone_through_unless_it_excepts_the_server() {
    let home = tempfile::tempdir().unwrap();
    certificates(home.path());
    let (plain_port, tls_port) = (free_port(), free_port());
    let _plain = everything("streamableHttp", plain_port, home.path());
    let _tls = http2(home.path(), tls_port);
    let proxy = Proxy::new();
    let servers = vec![
        remote("plain", "http", &format!("http://mcp.test:{plain_port}/mcp")),
        remote("tls", "http", &format!("https://mcp.test:{tls_port}/mcp")),
    ];
    let authority = home.path().join("ca.pem");
    let url = proxy.url();
    let variables = [("SSL_CERT_FILE", authority.to_str().unwrap()), ("HTTP_PROXY", &url), ("HTTPS_PROXY", &url)];

    let world = World::empty();
    let through = daemon(&world, servers.clone(), &variables);
    world.wait_servers("both are ready", |servers| servers.iter().all(|server| server.state == ServerState::Ready));
    let program = "from servers import plain, tls\nprint(await plain.get_sum(a=2, b=3), await tls.version())";
    assert_eq!(world.session().program(program).output(), "The sum of 2 and 3 is 5. 2.0\n");
    let asked = proxy.asked();
    let has = |wanted: &str| asked.iter().any(|line| line == wanted);
    assert!(has(&format!("POST http://mcp.test:{plain_port}/mcp HTTP/1.1 signed")), "{asked:#?}");
    assert!(has(&format!("CONNECT mcp.test:{tls_port} HTTP/1.1 signed")), "{asked:#?}");
    drop(through);
    let log = world.daemon_log();
    assert!(!log.contains("pass-word") && !log.contains("refused a notification"), "{log}");

    let world = World::empty();
    let before = proxy.asked().len();
    let direct = [&variables[..], &[("NO_PROXY", "example.com,.test")]].concat();
    let _direct = daemon(&world, servers, &direct);
    let down = world.wait_servers("both cannot be found", |servers| {
        servers.iter().all(|server| server.state == ServerState::Backoff)
    });
    assert!(down[0].last_error.as_ref().unwrap().starts_with("cannot connect to mcp.test:"), "{down:#?}");
    assert_eq!(proxy.asked().len(), before);
}

/// After a start or a wake the network comes late: that is no failure of a server's configuration.
#[test]
#[cfg(target_os = "linux")]
fn a_name_that_resolves_late_is_tried_again_until_it_does() {
    let home = tempfile::tempdir().unwrap();
    let port = free_port();
    let _server = everything("streamableHttp", port, home.path());
    let world = World::empty();
    let url = format!("http://late.test:{port}/mcp");
    let servers: Vec<Value> = (0..8).map(|n| remote(&format!("s{n}"), "http", &url)).collect();
    world.write_config(&config(servers, &json!({})).to_string());
    let hosts = home.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();

    // A table of names of its own, without changing this machine's.
    let ptcd = world.command("ptcd");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.arg("mount --bind \"$1\" /etc/hosts && exec \"$2\" run").arg("sh").arg(&hosts).arg(ptcd.get_program());
    command.env_clear().envs(ptcd.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let _daemon = start(&world, command.current_dir(world.dir()).stdin(Stdio::null()));
    let down = world.wait_servers("no name is known", |servers| {
        servers.len() == 8 && servers.iter().all(|server| server.state == ServerState::Backoff && server.starts > 1)
    });
    for server in &down {
        assert!(server.last_error.as_ref().unwrap().starts_with("cannot connect to late.test:"), "{server:#?}");
    }
    assert!(world.daemon_log().lines().filter(|line| line.contains("server is down")).count() < 100);

    fs::write(&hosts, "127.0.0.1 localhost late.test\n").unwrap();
    world.wait_servers("all are up", |servers| servers.iter().all(|server| server.state == ServerState::Ready));
}
