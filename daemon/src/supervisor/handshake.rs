//! From an open link to a connection that is up: the lifecycle handshake (rmcp's) and the list of tools.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::{ClientCapabilities, ClientConfig, ErrorCode, Implementation, ProtocolVersion},
    service::{ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, RunningService},
};
use tokio::time::Instant;

use super::{
    catalog::listing::{Listing, Page},
    line::{Line, RequestError},
    link::{StartError, StartErrorKind},
    log::cut,
    wire::{ReplyError, Wire, WireTransport},
};
use crate::config::settings::{ServerSettings, Transport};

/// Pages of `tools/list` that are read.
const MAX_PAGES: usize = 500;

/// Pages in a row that bring nothing new.
const MAX_EMPTY_PAGES: usize = 10;

/// All pages together take no longer.
const PAGES_LIMIT: Duration = Duration::from_secs(30);

/// What a reason may hold, in bytes.
const REASON_BYTES: usize = 500;

/// rmcp's side of a connection.
#[derive(Debug)]
pub(super) struct Client(RunningService<RoleClient, ClientConfig>);

impl Client {
    /// Ends it; its wire has ended before.
    pub(super) async fn end(mut self) {
        if let Err(error) = self.0.close_with_timeout(Duration::from_millis(500)).await {
            tracing::error!(%error, "client task failed");
        }
    }
}

/// A connection that is up.
#[derive(Debug)]
pub(super) struct Handshake {
    pub(super) client: Client,
    pub(super) line: Arc<Line>,
    pub(super) listing: Listing,
    /// Whether the list is known to lack something.
    pub(super) list_again: bool,
}

/// How a connection is initialized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Negotiation {
    /// `initialize` with this version.
    Initialize(&'static ProtocolVersion),
    /// `server/discover`, and `initialize` where that is unknown or takes over ten seconds.
    Auto,
    /// `server/discover` alone.
    Discover,
}

impl Negotiation {
    /// `initialize`, with the newest version that has it.
    pub(super) const INITIALIZE: Self = Self::Initialize(&ProtocolVersion::LATEST_WITH_INITIALIZE);

    /// What a start that failed in this way has taught for the next one, beside what earlier ones have. Discovery alone is
    /// tried once: the server may be another one by then.
    pub(super) fn taught(kind: StartErrorKind, before: Option<Self>) -> Option<Self> {
        match kind {
            StartErrorKind::Modern => Some(Self::Discover),
            StartErrorKind::Version(version) if version.has_initialize() => Some(Self::Initialize(version)),
            StartErrorKind::Version(_) => Some(Self::Discover),
            StartErrorKind::Transient
            | StartErrorKind::Wait(_)
            | StartErrorKind::Expired
            | StartErrorKind::TooSlow
            | StartErrorKind::Broken
            | StartErrorKind::SignIn => before.filter(|taught| *taught != Self::Discover),
        }
    }

    /// The version that `initialize` asks for.
    const fn version(self) -> &'static ProtocolVersion {
        match self {
            Self::Initialize(version) => version,
            Self::Auto | Self::Discover => &ProtocolVersion::LATEST_WITH_INITIALIZE,
        }
    }
}

/// Code with which a server that has been discovered refuses `initialize`.
const ALREADY_DISCOVERED: i32 = -32022;

/// Initializes the connection and lists the tools, all within `limit`.
///
/// # Errors
/// The server refused, went away, or took too long.
pub(super) async fn shake(
    settings: ServerSettings,
    negotiation: Negotiation,
    transport: WireTransport,
    wire: Arc<Wire>,
    limit: Duration,
) -> Result<Handshake, StartError> {
    let deadline = Instant::now() + limit;
    let late = |what: &str| StartError::new(StartErrorKind::TooSlow, format!("did not {what} within {limit:?}"));
    let config =
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("ptc", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(negotiation.version().clone());
    let preferred_versions = vec![ProtocolVersion::LATEST];
    let mode = match negotiation {
        Negotiation::Initialize(_) => ClientLifecycleMode::Initialize,
        Negotiation::Auto => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
        Negotiation::Discover => ClientLifecycleMode::Discover { preferred_versions },
    };
    let served = tokio::time::timeout_at(deadline, config.serve_with_lifecycle(transport, mode)).await;
    let client = served.map_err(|_| late("answer initialize"))?.map_err(|error| refused(&error, &wire, negotiation))?;
    client.set_response_cache_config(ClientCacheConfig::disabled()).await;
    let peer = client.peer().clone();
    let over_http = matches!(settings.transport, Transport::Http { .. });
    let line = Arc::new(Line::new(settings.name, peer, Arc::clone(&wire), settings.max_concurrent_calls, over_http));
    let client = Client(client);
    let left = deadline.saturating_duration_since(Instant::now());
    match list_tools(&line, left).await {
        Ok(listing) => Ok(Handshake { client, line, listing, list_again: false }),
        Err(RequestError::Timeout { .. }) => Err(late("list its tools")),
        Err(RequestError::Reply(
            ReplyError::Lost { reason }
            | ReplyError::Unsent { reason }
            | ReplyError::Expired { reason }
            | ReplyError::Busy { reason },
        )) => Err(gone(&wire, reason)),
        // Bad data from a server that lives is no reason to start it again.
        Err(RequestError::Reply(error)) => {
            let mut listing = Listing::default();
            let unknown =
                matches!(error, ReplyError::Rpc { code, .. } if code == i64::from(ErrorCode::METHOD_NOT_FOUND.0));
            if unknown {
                listing.warn("offers no tools".into());
            } else {
                listing.warn(format!("could not list its tools: {}", cut(&error.to_string(), REASON_BYTES)));
            }
            Ok(Handshake { client, line, listing, list_again: !unknown })
        }
    }
}

fn refused(error: &ClientInitializeError, wire: &Wire, negotiation: Negotiation) -> StartError {
    match error {
        ClientInitializeError::JsonRpcError(error) => {
            let said = format!("refused to initialize: {} ({})", cut(&error.message, REASON_BYTES), error.code.0);
            let supported = wire.supported();
            if negotiation == Negotiation::Auto && error.code.0 == ALREADY_DISCOVERED {
                return StartError::new(StartErrorKind::Modern, said);
            }
            let asked = negotiation.version();
            match newest_of(&supported).filter(|version| *version != asked) {
                Some(version) => StartError::new(StartErrorKind::Version(version), said),
                None if supported.is_empty() => StartError::new(StartErrorKind::Transient, said),
                None => {
                    let list = supported.join(", ");
                    let said = format!("{said}; it speaks only {}", cut(&list, REASON_BYTES));
                    StartError::new(StartErrorKind::Transient, said)
                }
            }
        }
        other => gone(wire, cut(&other.to_string(), REASON_BYTES).to_owned()),
    }
}

/// The newest version in the list that we speak; one that has `initialize` before one that has not.
fn newest_of(supported: &[String]) -> Option<&'static ProtocolVersion> {
    let listed = |version: &&ProtocolVersion| supported.iter().any(|text| text.trim() == version.as_str());
    let known = || ProtocolVersion::KNOWN_VERSIONS.iter().rev().filter(listed);
    known().find(|version| version.has_initialize()).or_else(|| known().next())
}

/// The wire knows better why it ended than whoever noticed it.
fn gone(wire: &Wire, noticed: String) -> StartError {
    StartError::new(wire.end_kind(), wire.end_reason().unwrap_or(noticed))
}

/// Reads all pages of the tools; each page has to come within `limit`.
///
/// # Errors
/// The first page did not come. A later one that does not leaves the list short, with a warning.
pub(super) async fn list_tools(line: &Line, limit: Duration) -> Result<Listing, RequestError> {
    let mut listing = Listing::new(line.mirrors());
    let mut seen = BTreeSet::new();
    let mut params = String::new();
    let mut empty = 0;
    let started = Instant::now();
    for number in 1.. {
        let raw = match line.request("tools/list", params, limit, limit).await {
            Ok(raw) => raw,
            Err(error) if number == 1 => return Err(error),
            Err(error) => {
                listing
                    .warn(format!("page {number} of its tools is missing: {}", cut(&error.to_string(), REASON_BYTES)));
                break;
            }
        };
        let page = match Page::read(&raw) {
            Ok(page) => page,
            Err(detail) if number == 1 => return Err(ReplyError::Malformed { detail }.into()),
            Err(detail) => {
                listing.warn(format!("page {number} of its tools is malformed: {detail}"));
                break;
            }
        };
        let added = page.tools.iter().filter(|tool| listing.add(tool)).count();
        empty = if added == 0 { empty + 1 } else { 0 };
        let Some(cursor) = page.cursor else { break };
        params = format!(r#""cursor":{}"#, serde_json::Value::from(cursor.as_str()));
        if !seen.insert(cursor) {
            listing.warn(format!("its list of tools repeats from page {number} on; the rest is left out"));
            break;
        }
        if number >= MAX_PAGES || empty >= MAX_EMPTY_PAGES || started.elapsed() >= PAGES_LIMIT {
            listing.warn(format!("its list of tools does not end; stopped after page {number}"));
            break;
        }
    }
    listing.finish();
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_start_teaches_how_the_next_one_begins() {
        let old = Negotiation::Initialize(&ProtocolVersion::V_2024_11_05);
        let taught = Negotiation::taught;
        assert_eq!(taught(StartErrorKind::Version(&ProtocolVersion::V_2024_11_05), None), Some(old));
        assert_eq!(taught(StartErrorKind::Version(&ProtocolVersion::LATEST), None), Some(Negotiation::Discover));
        assert_eq!(taught(StartErrorKind::Modern, Some(old)), Some(Negotiation::Discover));
        assert_eq!(taught(StartErrorKind::Transient, Some(old)), Some(old), "a version stays");
        assert_eq!(taught(StartErrorKind::Transient, Some(Negotiation::Discover)), None, "discovery is tried once");
    }

    #[test]
    fn the_newest_version_that_both_speak_is_taken() {
        let newest = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|&text| text.to_owned()).collect();
            newest_of(&list).map(ProtocolVersion::as_str)
        };
        assert_eq!(newest(&["2024-11-05", "2025-03-26", "2099-01-01"]), Some("2025-03-26"));
        assert_eq!(newest(&["2026-07-28", "2024-11-05"]), Some("2024-11-05"));
        assert_eq!(newest(&["2026-07-28"]), Some("2026-07-28"));
        assert_eq!(newest(&["1.0"]), None);
    }
}
