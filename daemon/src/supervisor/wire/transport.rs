//! rmcp's end of a [`Wire`].

use std::{future, sync::Arc};

use rmcp::{
    RoleClient,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};

use super::{ReplyError, Wire};

/// The one transport that rmcp sees, whatever moves the text.
#[derive(Debug)]
pub(in crate::supervisor) struct WireTransport(Arc<Wire>);

impl WireTransport {
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        Self(wire)
    }
}

impl Transport<RoleClient> for WireTransport {
    type Error = ReplyError;

    /// Never waits: a server that does not read must not hold anyone.
    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), ReplyError>> + Send + 'static {
        future::ready(self.0.outgoing(item))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            {
                let mut inner = self.0.lock();
                if let Some(message) = inner.inbox.pop_front() {
                    return Some(message);
                }
                if inner.end.is_some() {
                    return None;
                }
            }
            self.0.inbox_ready.notified().await;
        }
    }

    /// The owner of the connection closes it; rmcp only lets go.
    fn close(&mut self) -> impl Future<Output = Result<(), ReplyError>> + Send {
        future::ready(Ok(()))
    }
}
