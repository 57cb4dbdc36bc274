//! What goes through the wire as text: frames, and requests whose parameters and results no value type ever holds.

use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicBool};

use rmcp::model::{CustomRequest, RequestId};
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};

/// A message on its way out.
#[derive(Debug)]
pub(in crate::supervisor) struct Frame {
    /// One JSON text without line breaks.
    pub(in crate::supervisor) text: String,
    /// The request it is, if it is one.
    pub(in crate::supervisor) request: Option<RequestId>,
    /// Its method; none for answers.
    pub(in crate::supervisor) method: Option<String>,
    /// The request that it gives up, if it does that.
    pub(in crate::supervisor) cancels: Option<RequestId>,
    /// Arguments in it that are to be said beside it, too, where the transport has a place for that.
    pub(in crate::supervisor) mirrored: Vec<(String, String)>,
}

/// How a raw request ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::supervisor) enum ReplyError {
    #[error("{message} ({code})")]
    Rpc { code: i64, message: String },
    #[error("the answer is too large")]
    TooLarge { bytes: Option<u64> },
    #[error("{detail}")]
    Malformed { detail: String },
    #[error("{reason}")]
    Unsent { reason: String },
    #[error("{reason}")]
    Lost { reason: String },
    /// The server did not look at the request: its session is over.
    #[error("{reason}")]
    Expired { reason: String },
    /// The server did not look at the request: it wants to be asked later.
    #[error("{reason}")]
    Busy { reason: String },
}

pub(in crate::supervisor) type Reply = Result<Box<RawValue>, ReplyError>;

/// A request whose parameters and result are JSON text that no value type ever holds; it rides through rmcp in the
/// extensions of a custom request.
#[derive(Debug, Clone)]
pub(in crate::supervisor) struct RawRequest(pub(super) Arc<RawParts>);

#[derive(Debug)]
pub(super) struct RawParts {
    /// The members of `params` but `_meta`, without braces.
    pub(super) params: String,
    /// See [`Frame::mirrored`].
    pub(super) mirrored: Vec<(String, String)>,
    pub(super) reply: Mutex<Option<oneshot::Sender<Reply>>>,
    pub(super) progress: Notify,
    pub(super) abandoned: AtomicBool,
}

impl RawRequest {
    /// A request with these members of `params` (`"name":"t","arguments":{}`), and where its reply will come.
    pub(in crate::supervisor) fn new(
        params: String,
        mirrored: Vec<(String, String)>,
    ) -> (Self, oneshot::Receiver<Reply>) {
        let (reply, receiver) = oneshot::channel();
        let parts = RawParts {
            params,
            mirrored,
            reply: Mutex::new(Some(reply)),
            progress: Notify::new(),
            abandoned: AtomicBool::new(false),
        };
        (Self(Arc::new(parts)), receiver)
    }

    /// The request as rmcp carries it.
    pub(in crate::supervisor) fn custom(&self, method: &str) -> CustomRequest {
        let mut request = CustomRequest::new(method, None);
        request.extensions.insert(self.clone());
        request
    }

    /// Resolves at the next progress notification.
    pub(in crate::supervisor) async fn progress(&self) {
        self.0.progress.notified().await;
    }

    pub(super) fn settle(&self, reply: Reply) {
        let sender = self.0.reply.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A caller that no longer listens has abandoned the request.
        drop(sender.map(|sender| sender.send(reply)));
    }
}
