//! A child that has done its imports and waits for the one program it will run.

use std::time::{Duration, Instant};

use tokio::{
    io::AsyncReadExt as _,
    net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe::Receiver},
};

use super::channel::{self, ChannelError, FromChild};
use crate::sandbox::{Child, Sandbox, SandboxError, Streams};

/// From spawn to the `ready` message; a cold disk cache makes imports slow.
const READY_DEADLINE: Duration = Duration::from_secs(30);

/// A child that waited longer than this is replaced by a fresh one.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Bytes of a failed child's stderr that are shown.
const STDERR_SHOWN: u64 = 4096;

/// Why a child did not get ready.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sandbox refused or could not be set up.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The child's first message was not `ready`.
    #[error("child failed before start: {reason}{stderr}")]
    NotReady {
        /// What came instead.
        reason: String,
        /// Its last words, on a line of their own, or nothing.
        stderr: String,
    },
}

/// A warm child with its descriptors.
#[derive(Debug)]
pub(super) struct Warm {
    pub(super) child: Child,
    pub(super) reader: OwnedReadHalf,
    pub(super) writer: OwnedWriteHalf,
    pub(super) stdout: Receiver,
    pub(super) stderr: Receiver,
    born: Instant,
}

impl Warm {
    /// Starts a child and waits until it is ready and attested.
    ///
    /// # Errors
    /// The sandbox cannot be had, or the child ended or said something else.
    pub(super) async fn start(sandbox: &Sandbox) -> Result<Self, StartError> {
        let lost = || StartError::NotReady { reason: "its descriptors were taken".into(), stderr: String::new() };
        let mut child = sandbox.spawn().await?;
        let Some(Streams { channel, stdout, mut stderr }) = child.take_streams() else { return Err(lost()) };
        let (mut reader, writer) = channel.into_split();
        let first = tokio::time::timeout(READY_DEADLINE, channel::read(&mut reader, channel::MAX_FROM_CHILD)).await;
        let reason = match first {
            Ok(Ok(Some(FromChild::Ready { python }))) => {
                child.attest()?;
                tracing::debug!(pid = child.pid, python, "child ready");
                return Ok(Self { child, reader, writer, stdout, stderr, born: Instant::now() });
            }
            Ok(Ok(Some(_))) => "its first message was not `ready`".to_owned(),
            Ok(Ok(None)) => "it ended".to_owned(),
            Ok(Err(error)) => describe(&error),
            Err(_) => format!("not ready within {} s", READY_DEADLINE.as_secs()),
        };
        let exit = child.kill().await;
        let mut words = Vec::new();
        let read =
            tokio::time::timeout(Duration::from_millis(200), (&mut stderr).take(STDERR_SHOWN).read_to_end(&mut words))
                .await;
        let stderr = match (read, String::from_utf8_lossy(&words).trim()) {
            (_, "") => String::new(),
            (_, words) => format!("\n{words}"),
        };
        Err(StartError::NotReady { reason: format!("{reason} ({exit})"), stderr })
    }

    /// Whether the child may still be handed a program: young, silent, alive and confined.
    pub(super) fn usable(&self) -> bool {
        let silent = match self.reader.try_read(&mut [0]) {
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            Ok(_) => false,
        };
        silent && self.born.elapsed() < MAX_AGE && self.child.attest().is_ok()
    }
}

/// The error with its cause.
pub(super) fn describe(error: &ChannelError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
