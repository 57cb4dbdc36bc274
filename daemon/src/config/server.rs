//! One entry of `servers`, in ptc's own spelling or in that of another MCP client.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue};
use ptc_protocol::names::ServerName;
use url::Url;

use super::{
    error::Position,
    file,
    reader::{Field, Fields, Range, Reader, Unset, shown},
    settings::{Protocol, Scope, Secret, ServerSettings, Transport},
};

/// The keys of a server.
pub(super) const KEYS: &[&str] = &[
    "name",
    "transport",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "enabled",
    "startup_timeout_seconds",
    "max_concurrent_calls",
    "scope",
    "protocol",
];

/// Headers that the protocol itself sets.
const OWN_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// Longest time a first start may take.
const MAX_STARTUP_SECONDS: u64 = 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stdio,
    Http,
    Sse,
}

/// Reads one server. The name is given where the file writes it as the key of a mapping. `None` when a fault was found
/// that leaves no usable server.
pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>, named: Option<&str>) -> Option<ServerSettings> {
    let mut fields = reader.mapping(field)?;
    let enabled = enabled(reader, &mut fields);
    // What a disabled server needs may be missing: nobody uses it.
    reader.unset = if enabled { Unset::Error } else { Unset::Warning };
    let server = read_fields(reader, &mut fields, named, enabled);
    reader.unset = Unset::Error;
    file::close(reader, &fields, KEYS);
    server
}

fn read_fields(
    reader: &mut Reader<'_>,
    fields: &mut Fields<'_>,
    named: Option<&str>,
    enabled: bool,
) -> Option<ServerSettings> {
    let name = name(reader, fields, named);
    let transport = transport(reader, fields, enabled);
    let startup_timeout = match fields.take("startup_timeout_seconds") {
        Some(field) => reader.seconds(&field, MAX_STARTUP_SECONDS),
        None => Some(Duration::from_secs(60)),
    };
    let max_concurrent_calls = match fields.take("max_concurrent_calls") {
        Some(field) => reader.count(&field, Range { min: 1, max: 1000 }),
        None => Some(8),
    };
    let scope = match fields.take("scope") {
        Some(field) => reader.choice(&field, &[("shared", Scope::Shared), ("session", Scope::Session)]),
        None => Some(Scope::Shared),
    };
    let protocol = match fields.take("protocol") {
        Some(field) => reader.choice(&field, &[("initialize", Protocol::Initialize), ("auto", Protocol::Auto)]),
        None => Some(Protocol::Initialize),
    };
    Some(ServerSettings {
        name: name?,
        transport: transport?,
        enabled,
        startup_timeout: startup_timeout?,
        max_concurrent_calls: max_concurrent_calls?,
        scope: scope?,
        protocol: protocol?,
    })
}

fn enabled(reader: &mut Reader<'_>, fields: &mut Fields<'_>) -> bool {
    let own = fields.take("enabled");
    let foreign = fields.take("disabled");
    match (own, foreign) {
        (None, None) => true,
        (Some(field), None) => reader.boolean(&field).unwrap_or(true),
        (own, Some(field)) => {
            if own.is_some() {
                reader.fault(fields.key_at("disabled"), &field.path, "`enabled` is given as well; keep one of them");
            }
            let disabled = reader.boolean(&field).unwrap_or(false);
            let advice = format!("read as `enabled: {}`; write it so", !disabled);
            reader.warn(fields.key_at("disabled"), &field.path, advice);
            !disabled
        }
    }
}

fn name(reader: &mut Reader<'_>, fields: &mut Fields<'_>, named: Option<&str>) -> Option<ServerName> {
    let field = fields.take("name");
    let (text, at, path) = match (field, named) {
        (Some(field), Some(key)) => {
            if reader.text(&field)? != key {
                let message = format!("differs from `{}`, the key the server stands under", shown(key));
                reader.fault(field.at(), &field.path, message);
                return None;
            }
            (key.to_owned(), field.at(), field.path)
        }
        (Some(field), None) => (reader.text(&field)?.to_owned(), field.at(), field.path),
        (None, Some(key)) => (key.to_owned(), fields.at, fields.path.clone()),
        (None, None) => {
            reader.fault(fields.at, &fields.path, "a server needs a `name`");
            return None;
        }
    };
    ServerName::parse(text).map_err(|error| reader.fault(at, &path, error.to_string())).ok()
}

/// Takes a key under its own name or under one that other clients use.
fn renamed<'n>(reader: &mut Reader<'_>, fields: &mut Fields<'n>, own: &str, others: &[&str]) -> Option<Field<'n>> {
    let mut found = fields.take(own);
    for other in others {
        let Some(field) = fields.take(other) else { continue };
        let at = fields.key_at(other);
        if found.is_some() {
            reader.fault(
                at,
                &field.path,
                format!("means the same as `{own}`, which is given as well; keep one of them"),
            );
        } else {
            reader.warn(at, &field.path, format!("read as `{own}`; write it so"));
            found = Some(field);
        }
    }
    found
}

fn transport(reader: &mut Reader<'_>, fields: &mut Fields<'_>, enabled: bool) -> Option<Transport> {
    let kind = renamed(reader, fields, "transport", &["type"]);
    let command = fields.take("command");
    let args = fields.take("args");
    let env = renamed(reader, fields, "env", &["environment"]);
    let cwd = renamed(reader, fields, "cwd", &["working_directory", "workingDirectory"]);
    let url = renamed(reader, fields, "url", &["httpUrl", "serverUrl"]);
    let headers = fields.take("headers");

    let kind = match kind {
        Some(field) => kind_of(reader, &field)?,
        None => guessed_kind(reader, fields, command.as_ref(), url.as_ref())?,
    };
    let foreign = match kind {
        Kind::Stdio => [url.as_ref(), headers.as_ref(), None, None],
        Kind::Http | Kind::Sse => [command.as_ref(), args.as_ref(), env.as_ref(), cwd.as_ref()],
    };
    let word = match kind {
        Kind::Stdio => "stdio",
        Kind::Http => "http",
        Kind::Sse => "sse",
    };
    for field in foreign.into_iter().flatten() {
        reader.warn(field.at(), &field.path, format!("ignored: it has no meaning with `transport: {word}`"));
    }
    match kind {
        Kind::Stdio => stdio(reader, fields, command, [args, env, cwd], enabled),
        Kind::Http | Kind::Sse => {
            let Some(url) = url else {
                reader.fault(fields.at, &fields.path, format!("`transport: {word}` needs a `url`"));
                return None;
            };
            let endpoint = endpoint(reader, &url);
            let headers = headers.map_or_else(|| Some(BTreeMap::new()), |field| read_headers(reader, &field));
            // A disabled server whose address needs a variable that is not set still has its place in the list.
            let url = match endpoint {
                None if !enabled => Url::parse("http://unset.invalid/").ok(),
                other => other,
            }?;
            let headers = headers?;
            Some(match kind {
                Kind::Sse => Transport::Sse { url, headers },
                Kind::Http | Kind::Stdio => Transport::Http { url, headers },
            })
        }
    }
}

fn kind_of(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Kind> {
    let written = reader.text(field)?;
    match written.to_ascii_lowercase().replace(['_', ' '], "-").as_str() {
        "streamable-http" | "streamablehttp" | "http-streamable" | "http-stream" | "streamable" => {
            reader.warn(field.at(), &field.path, format!("`{}` is read as `http`; write it so", shown(written)));
            return Some(Kind::Http);
        }
        "ws" | "websocket" => {
            reader.fault(field.at(), &field.path, "WebSocket servers are not supported; use `stdio`, `http` or `sse`");
            return None;
        }
        _ => {}
    }
    reader.choice(field, &[("stdio", Kind::Stdio), ("http", Kind::Http), ("sse", Kind::Sse)])
}

fn guessed_kind(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    command: Option<&Field<'_>>,
    url: Option<&Field<'_>>,
) -> Option<Kind> {
    match (command, url) {
        (Some(_), None) => Some(Kind::Stdio),
        (Some(_), Some(url)) => {
            let message =
                "`command` and `url` are both given; say which is meant with `transport: stdio`, `http` or `sse`";
            reader.fault(url.at(), &url.path, message);
            None
        }
        (None, Some(url)) => {
            let written = reader.text(url)?;
            if written.trim_end_matches('/').ends_with("/sse") {
                reader.fault(
                    url.at(),
                    &url.path,
                    "add `transport: sse` (or `transport: http`); the address fits either",
                );
                return None;
            }
            reader.warn(url.at(), &url.path, "no `transport` is given; read as `transport: http`");
            Some(Kind::Http)
        }
        (None, None) => {
            let message = "a server needs a `command` (`transport: stdio`) or a `url` (`transport: http` or `sse`)";
            reader.fault(fields.at, &fields.path, message);
            None
        }
    }
}

fn stdio(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    command: Option<Field<'_>>,
    [args, env, cwd]: [Option<Field<'_>>; 3],
    enabled: bool,
) -> Option<Transport> {
    let cwd = match cwd {
        Some(field) => reader.path(&field).map(Some).or_else(|| (!enabled).then_some(None)),
        None => Some(None),
    };
    let directory = cwd.clone().flatten();
    let command = match command {
        Some(field) => program(reader, &field, args.is_some(), directory).or_else(|| (!enabled).then(String::new)),
        None => {
            reader.fault(fields.at, &fields.path, "`transport: stdio` needs a `command`");
            None
        }
    };
    let args = args.map(|field| reader.list(&field)).unwrap_or_default();
    let args: Vec<_> =
        args.iter().map(|item| reader.expanded_home(item).or_else(|| (!enabled).then(String::new))).collect();
    let env = env.map_or_else(|| Some(BTreeMap::new()), |field| read_env(reader, &field));
    Some(Transport::Stdio { command: command?, args: args.into_iter().collect::<Option<_>>()?, env: env?, cwd: cwd? })
}

fn program(reader: &mut Reader<'_>, field: &Field<'_>, has_args: bool, directory: Option<PathBuf>) -> Option<String> {
    if matches!(field.node.value, super::tree::Value::Sequence(_)) {
        reader.fault(field.at(), &field.path, "must be one program; its arguments go to `args: [first, second]`");
        return None;
    }
    let text = reader.expanded_home(field)?;
    if text.trim().is_empty() {
        reader.fault(field.at(), &field.path, "must not be empty");
        return None;
    }
    if holds_arguments(&text) {
        // The first word is shown only as it was written: an expanded one may be a secret.
        let written = reader.text(field).unwrap_or_default();
        let first = written.split_whitespace().next().map(shown).unwrap_or_default();
        let rest = if has_args { "move the rest to `args`" } else { "`args: [first, second]`" };
        let message = format!("is one program, without arguments: write `command: {first}` and {rest}");
        reader.fault(field.at(), &field.path, message);
        return None;
    }
    if !text.contains('/') || text.starts_with('/') {
        return Some(text);
    }
    let base = directory.unwrap_or_else(|| reader.base.clone());
    let path = base.join(text.strip_prefix("./").unwrap_or(&text));
    Some(path.to_string_lossy().into_owned())
}

/// Whether a command line was written where a program belongs. Paths may hold spaces; options do not belong to a path.
fn holds_arguments(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let Some(first) = words.next() else { return false };
    let mut rest = words.peekable();
    if rest.peek().is_none() {
        return false;
    }
    let option = |word: &str| word.strip_prefix('-').is_some_and(|name| !name.is_empty());
    !first.contains('/') || rest.any(option)
}

fn read_env(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<BTreeMap<String, Secret>> {
    let fields = reader.mapping(field)?;
    let mut all = BTreeMap::new();
    let mut complete = true;
    for (entry, path) in fields.rest() {
        if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
            reader.fault(entry.at, &path, "the name of a variable must not be empty or hold `=`");
            complete = false;
            continue;
        }
        match reader.expanded(&Field { path, node: &entry.value }) {
            Some(value) => drop(all.insert(entry.key.clone(), Secret::new(value))),
            None => complete &= reader.unset == Unset::Warning,
        }
    }
    complete.then_some(all)
}

fn read_headers(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<BTreeMap<String, Secret>> {
    let fields = reader.mapping(field)?;
    let mut all = BTreeMap::new();
    let mut seen: BTreeMap<String, Position> = BTreeMap::new();
    let mut complete = true;
    for (entry, path) in fields.rest() {
        let problem = match HeaderName::from_bytes(entry.key.as_bytes()) {
            Err(_) => Some(String::from("is not the name of an HTTP header")),
            Ok(name) if OWN_HEADERS.contains(&name.as_str()) => {
                Some(String::from("is set by the protocol itself; remove it"))
            }
            Ok(name) => seen
                .insert(name.as_str().to_owned(), entry.at)
                .map(|first| format!("is the same header as in line {}; case makes no difference", first.line)),
        };
        if let Some(problem) = problem {
            reader.fault(entry.at, &path, problem);
            complete = false;
            continue;
        }
        let value = Field { path, node: &entry.value };
        match reader.expanded(&value) {
            Some(text) if HeaderValue::from_str(&text).is_err() || !text.is_ascii() => {
                let message = "a header's value must be printable ASCII on one line (is a line break at its end?)";
                reader.fault(value.at(), &value.path, message);
                complete = false;
            }
            Some(text) => drop(all.insert(entry.key.clone(), Secret::new(text))),
            None => complete &= reader.unset == Unset::Warning,
        }
    }
    complete.then_some(all)
}

fn endpoint(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Url> {
    let text = reader.expanded(field)?;
    let problem = match Url::parse(text.trim()) {
        Err(error) => format!("is not a URL ({error}); write it as `https://host/path`"),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => String::from("must start with `http://` or `https://`"),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            String::from("must not hold a user name or password; send them as `headers: { Authorization: … }`")
        }
        Ok(url) => return Some(url),
    };
    reader.fault(field.at(), &field.path, problem);
    None
}
