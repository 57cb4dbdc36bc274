//! The client sessions that are open now.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use ptc_protocol::{
    api::{SessionRequest, SessionStatus},
    names::SessionId,
};

/// Longest client name kept, in characters.
const CLIENT_SHOWN: usize = 100;

/// Plain data behind a short lock; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<BTreeMap<SessionId, SessionStatus>>>);

impl Sessions {
    /// Enters a session; it is struck out when the value is dropped.
    pub(super) fn begin(&self, request: &SessionRequest) -> Option<Session> {
        let id = SessionId::parse(format!("s-{:012x}", fastrand::u64(..1 << 48))).ok()?;
        let client = request.client.chars().filter(|c| !c.is_control()).take(CLIENT_SHOWN).collect();
        let status =
            SessionStatus { id: id.clone(), client, pid: request.pid, since: jiff::Timestamp::now().to_string() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), status);
        Some(Session { sessions: self.clone(), id })
    }

    /// Whether the session is open.
    pub(super) fn knows(&self, id: &SessionId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }

    /// Open sessions, by id.
    pub(super) fn list(&self) -> Vec<SessionStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// An open session.
#[derive(Debug)]
pub(super) struct Session {
    sessions: Sessions,
    pub(super) id: SessionId,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sessions.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_listed_until_it_is_dropped() {
        let sessions = Sessions::default();
        let request = SessionRequest { client: "claude\u{1b}[0m".into(), pid: 7, version: "1".into() };
        let session = sessions.begin(&request).unwrap();
        assert_eq!(sessions.list()[0].client, "claude[0m");
        let id = session.id.clone();
        assert!(sessions.knows(&id));
        drop(session);
        assert!(sessions.list().is_empty() && !sessions.knows(&id));
    }
}
