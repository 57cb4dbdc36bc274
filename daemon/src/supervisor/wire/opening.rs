//! The answers that open a connection, made into what rmcp accepts: whatever the server left out or wrote in its own way
//! must not end the handshake.

use rmcp::model::{DiscoverResult, ErrorCode, ErrorData, InitializeResult, ProtocolVersion};
use serde_json::{Value, value::RawValue};

/// Reads a `server/discover` result, of which only the versions matter here.
pub(super) fn discover_result(raw: &RawValue) -> Result<DiscoverResult, ErrorData> {
    // Whoever answers without them does not mean what we asked: it is spoken to as an older server.
    let unknown = |text: &str| ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text.to_owned(), None);
    let value: Value = serde_json::from_str(raw.get()).map_err(|error| unknown(&error.to_string()))?;
    let versions = value.get("supportedVersions").and_then(Value::as_array);
    let versions = versions.ok_or_else(|| unknown("the answer to server/discover names no versions"))?;
    let patched = serde_json::json!({
        "resultType": "complete",
        "supportedVersions": versions,
        "capabilities": {},
        "ttlMs": 0,
        "cacheScope": "private",
    });
    serde_json::from_value(patched).map_err(|error| unknown(&error.to_string()))
}

/// Reads an `initialize` result, filling what the server left out. Returns it with the version the server wrote.
pub(super) fn initialize_result(raw: &RawValue) -> Result<(InitializeResult, String), ErrorData> {
    let malformed = |text: String| ErrorData::new(ErrorCode::INTERNAL_ERROR, text, None);
    let mut value: Value = serde_json::from_str(raw.get()).map_err(|error| malformed(error.to_string()))?;
    let Some(object) = value.as_object_mut() else {
        return Err(malformed("the answer to initialize is not an object".into()));
    };
    let version = object.get("protocolVersion").and_then(Value::as_str).unwrap_or("2024-11-05").to_owned();
    let known = ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.as_str() == version && known.has_initialize());
    // An unknown version is tried as the newest that has this handshake; so is a later one that a server only echoes.
    let spoken = if known { version.as_str() } else { ProtocolVersion::LATEST_WITH_INITIALIZE.as_str() };
    let patched = serde_json::json!({
        "protocolVersion": spoken,
        "capabilities": {},
        "serverInfo": { "name": "unknown", "version": "unknown" },
    });
    let result = serde_json::from_value(patched).map_err(|error| malformed(error.to_string()))?;
    Ok((result, version))
}
