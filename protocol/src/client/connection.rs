//! One HTTP/1.1 connection, driven by whoever waits on it.

use std::{
    future::poll_fn,
    io,
    path::Path,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::ClientError;

/// Pause between two tries while the daemon's backlog is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

type Driver = http1::Connection<TokioIo<UnixStream>, Full<Bytes>>;

/// A connection that carries one request at a time. Dropping it closes the socket.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// None once the connection has ended.
    driver: Option<Pin<Box<Driver>>>,
}

/// Why a request has no answer, with what the caller needs to decide on a second try.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// It never left; it can be sent on another connection.
    NotSent { request: Request<Full<Bytes>>, error: hyper::Error },
    /// It may have been carried out.
    Lost(hyper::Error),
    /// It was answered, but the answer could not be read.
    Other(ClientError),
}

impl Unanswered {
    pub(super) fn into_error(self) -> ClientError {
        match self {
            Self::NotSent { error, .. } => ClientError::Lost { maybe_executed: false, source: error },
            Self::Lost(error) => ClientError::Lost { maybe_executed: true, source: error },
            Self::Other(error) => error,
        }
    }
}

impl Connection {
    pub(super) async fn open(socket: &Path) -> Result<Self, ClientError> {
        let unreachable = |source| ClientError::Unreachable { socket: socket.to_owned(), source };
        let stream = loop {
            match UnixStream::connect(socket).await {
                // Linux answers so at once when the backlog is full; the caller's deadline ends the loop.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(BACKLOG_PAUSE).await,
                other => break other.map_err(unreachable)?,
            }
        };
        let uid = stream.peer_cred().map_err(unreachable)?.uid();
        if uid != rustix::process::geteuid().as_raw() && uid != 0 {
            return Err(ClientError::Foreign { socket: socket.to_owned(), uid });
        }
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|source| ClientError::Lost { maybe_executed: false, source })?;
        Ok(Self { sender, driver: Some(Box::pin(driver)) })
    }

    /// Whether the connection can carry another request, as far as can be told without sending one.
    pub(super) async fn is_alive(&mut self) -> bool {
        let Self { sender, driver } = self;
        drive(driver, sender.ready()).await.is_ok() && driver.is_some()
    }

    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Unanswered> {
        let Self { sender, driver } = self;
        drive(driver, sender.try_send_request(request)).await.map_err(|mut error| match error.take_message() {
            Some(request) => Unanswered::NotSent { request, error: error.into_error() },
            None => Unanswered::Lost(error.into_error()),
        })
    }

    /// The next bytes of an answer; none at its end. Loses nothing when dropped.
    pub(super) async fn next_bytes(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, ClientError> {
        loop {
            match drive(&mut self.driver, body.frame()).await {
                None => return Ok(None),
                Some(Err(source)) => return Err(ClientError::Lost { maybe_executed: true, source }),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// A whole answer of at most `limit` bytes.
    pub(super) async fn collect(&mut self, mut body: Incoming, limit: usize) -> Result<Bytes, ClientError> {
        let mut all = BytesMut::new();
        while let Some(bytes) = self.next_bytes(&mut body).await? {
            if all.len() + bytes.len() > limit {
                return Err(ClientError::TooLarge { limit });
            }
            all.extend_from_slice(&bytes);
        }
        Ok(all.freeze())
    }
}

/// Polls the connection beside the work that waits on it.
async fn drive<F: Future>(driver: &mut Option<Pin<Box<Driver>>>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(move |cx| {
        // The end of the connection, with or without an error, reaches the work through its own channel.
        if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
            *driver = None;
        }
        match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
