//! The server at the other end of an address: the client that reaches it, what every request to it carries, and which
//! redirects are followed. Knows nothing of sessions or JSON-RPC.

use std::{error::Error as _, net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use reqwest::{Client, Response, redirect};
use tokio::sync::OnceCell;
use url::Url;

use crate::{config::settings::Secret, supervisor::log::cut};

/// What connecting may take, TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Idle connections are dropped before servers do it: many do after five seconds, and a request sent at that moment
/// would be lost.
const IDLE_LIMIT: Duration = Duration::from_secs(4);

/// How soon the kernel asks whether a silent peer is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Redirects followed for one request.
const MAX_REDIRECTS: usize = 5;

/// Longest text of an error, in bytes.
const ERROR_BYTES: usize = 500;

/// A server, with the headers that every request to it carries.
#[derive(Debug)]
pub(in crate::supervisor) struct Remote {
    url: Url,
    headers: HeaderMap,
    client: OnceCell<Client>,
}

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::supervisor) enum SendError {
    /// Nothing was sent.
    #[error("cannot connect to {host}: {cause}")]
    Connect { host: String, cause: String },
    /// It may have been sent.
    #[error("the connection to {host} broke: {cause}")]
    Broke { host: String, cause: String },
    /// It was sent, and nothing came back.
    #[error("the server did not accept the message within {} s", limit.as_secs())]
    Silent { limit: Duration },
    /// The server sent us elsewhere; nothing was sent there.
    #[error("{0}")]
    Redirected(String),
    /// No client could be made.
    #[error("{0}")]
    Setup(String),
}

/// One request.
#[derive(Debug)]
pub(in crate::supervisor) struct Outgoing<'a> {
    pub(in crate::supervisor) method: Method,
    pub(in crate::supervisor) url: &'a Url,
    /// Beside the configured ones.
    pub(in crate::supervisor) headers: HeaderMap,
    pub(in crate::supervisor) body: Option<bytes::Bytes>,
}

impl Remote {
    /// A server at this address.
    pub(in crate::supervisor) fn new<'a>(url: &Url, headers: impl Iterator<Item = (&'a String, &'a Secret)>) -> Self {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            // Both were checked when the configuration was read.
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value.reveal())) {
                value.set_sensitive(true);
                all.insert(name, value);
            }
        }
        Self { url: url.clone(), headers: all, client: OnceCell::new() }
    }

    /// The configured address.
    pub(in crate::supervisor) const fn url(&self) -> &Url {
        &self.url
    }

    /// Whether the configuration holds credentials of the usual kind.
    pub(in crate::supervisor) fn has_credentials(&self) -> bool {
        self.headers.contains_key(header::AUTHORIZATION)
    }

    /// Sends a request and waits for the head of the response. Redirects are followed where nothing can leak or
    /// change: with 307 and 308, on the same origin.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(in crate::supervisor) async fn send(&self, outgoing: Outgoing<'_>) -> Result<Response, SendError> {
        let client = self.client.get_or_try_init(|| make_client(&self.url)).await?;
        let mut url = outgoing.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = client
                .request(outgoing.method.clone(), url.clone())
                .headers(self.headers.clone())
                .headers(outgoing.headers.clone());
            if let Some(body) = &outgoing.body {
                request = request.body(body.clone());
            }
            let response = request.send().await.map_err(|error| send_error(&url, error))?;
            let Some(target) = target(&url, response.status(), response.headers()) else { return Ok(response) };
            url = target.map_err(SendError::Redirected)?;
        }
        let origin = url.origin().ascii_serialization();
        Err(SendError::Redirected(format!("redirected to {origin} over and over; set `url` to the final address")))
    }
}

/// Where a redirect leads; none for any other response.
fn target(from: &Url, status: StatusCode, headers: &HeaderMap) -> Option<Result<Url, String>> {
    let redirects = [301, 302, 303, 307, 308].contains(&status.as_u16());
    let location = headers.get(header::LOCATION).filter(|_| redirects)?;
    let Some(to) = location.to_str().ok().and_then(|location| from.join(location).ok()) else {
        return Some(Err(format!("redirected with {} to an address that cannot be read", status.as_u16())));
    };
    let keeps_method = [307, 308].contains(&status.as_u16());
    if keeps_method && same_origin(from, &to) {
        return Some(Ok(to));
    }
    // Without the query, which may hold a secret.
    let place = format!("{}{}", to.origin().ascii_serialization(), to.path());
    let why = if same_origin(from, &to) {
        format!("which status {} does not allow for messages", status.as_u16())
    } else {
        "which is another origin; nothing was sent there".to_owned()
    };
    Some(Err(format!("redirected to {place}, {why}; set `url` to the final address if that is the right server")))
}

/// Whether two addresses share scheme, host and port.
pub(in crate::supervisor) fn same_origin(one: &Url, other: &Url) -> bool {
    one.origin().is_tuple() && one.origin() == other.origin()
}

/// `host:port`, as people know the server.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or("the server");
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn send_error(url: &Url, error: reqwest::Error) -> SendError {
    let cause = cause(error.is_connect() && error.is_timeout(), &error);
    if error.is_connect() || error.is_builder() {
        SendError::Connect { host: host(url), cause }
    } else {
        SendError::Broke { host: host(url), cause }
    }
}

/// The text of an error while a body was read.
pub(in crate::supervisor) fn body_error(error: &reqwest::Error) -> String {
    cause(false, error)
}

/// The causes of an error, outermost first, without the address and without words that only say that there was one.
fn cause(slow: bool, error: &reqwest::Error) -> String {
    if slow {
        return format!("no answer within {} s", CONNECT_LIMIT.as_secs());
    }
    let mut texts: Vec<String> = Vec::new();
    // The outermost text holds the address; its cause does not.
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        let says_nothing = text.starts_with("client error (") || text.is_empty();
        if !says_nothing && !texts.last().is_some_and(|last| last.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    if texts.is_empty() {
        texts.push("the request failed".to_owned());
    }
    cut(&texts.join(": "), ERROR_BYTES).to_owned()
}

async fn make_client(url: &Url) -> Result<Client, SendError> {
    let url = url.clone();
    // Reading the system's certificates takes a while; they are read anew with each connection to a server.
    let built = tokio::task::spawn_blocking(move || build(&url)).await;
    match built {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error)) => Err(SendError::Setup(format!("cannot set up HTTP: {}", cause(false, &error)))),
        Err(error) => Err(SendError::Setup(format!("cannot set up HTTP: {error}"))),
    }
}

fn build(url: &Url) -> Result<Client, reqwest::Error> {
    // Whoever is first installs it for the process; all install the same.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut builder = Client::builder()
        .user_agent(concat!("ptc/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        .pool_idle_timeout(IDLE_LIMIT)
        .tcp_keepalive(KEEP_ALIVE)
        .tcp_keepalive_interval(KEEP_ALIVE)
        .tcp_keepalive_retries(3)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(CONNECT_LIMIT)
        .http2_keep_alive_while_idle(true);
    if url.scheme() == "http" {
        // No redirect leads to another scheme, so that certificates are never needed.
        builder = builder.tls_certs_only([]);
    }
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    builder.build()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(url::Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(from: &str, status: u16, to: &str) -> Option<Result<String, String>> {
        let headers = HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_str(to).unwrap())]);
        let status = StatusCode::from_u16(status).unwrap();
        target(&Url::parse(from).unwrap(), status, &headers).map(|result| result.map(String::from))
    }

    #[test]
    fn only_harmless_redirects_are_followed() {
        let at = "https://h.test/mcp";
        for status in [307, 308] {
            assert_eq!(redirect(at, status, "/mcp/"), Some(Ok("https://h.test/mcp/".into())));
            assert_eq!(redirect(at, status, "https://h.test:443/x"), Some(Ok("https://h.test/x".into())));
            for other in ["http://h.test/mcp", "https://evil.test/mcp", "//evil.test/mcp", "https://h.test:444/mcp"] {
                let text = redirect(at, status, other).unwrap().unwrap_err();
                assert!(text.contains("nothing was sent there"), "{text}");
            }
        }
        for status in [301, 302, 303] {
            let text = redirect(at, status, "/login?token=abc").unwrap().unwrap_err();
            assert!(text.starts_with("redirected to https://h.test/login, which status"), "{text}");
        }
        assert_eq!(redirect(at, 200, "/x"), None);
        assert_eq!(redirect(at, 304, "/x"), None);
    }

    #[test]
    fn loopback_is_recognised() {
        for url in ["http://localhost:1/x", "http://127.9.9.9/", "http://[::1]:8/"] {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        assert!(!is_loopback(&Url::parse("http://localhost.example.com/").unwrap()));
    }

    #[tokio::test]
    async fn a_refused_connection_says_so_without_the_address() {
        let remote = Remote::new(&Url::parse("http://127.0.0.1:1/mcp?key=abcdef").unwrap(), std::iter::empty());
        let outgoing = Outgoing { method: Method::GET, url: remote.url(), headers: HeaderMap::new(), body: None };
        let text = remote.send(outgoing).await.unwrap_err().to_string();
        assert!(text.starts_with("cannot connect to 127.0.0.1:1: ") && text.contains("refused"), "{text}");
        assert!(!text.contains("abcdef"), "{text}");
    }
}
