//! A stream of JSON lines.

use std::{io::BufRead as _, marker::PhantomData};

use bytes::BytesMut;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use super::{ClientError, MAX_ANSWER_BYTES, connection::Connection};

/// Events of one request, in order. Dropping it closes the connection, which the daemon takes as "no longer wanted".
#[derive(Debug)]
pub struct EventStream<T> {
    what: String,
    connection: Connection,
    body: Incoming,
    buffer: BytesMut,
    /// Bytes of the buffer that are known to hold no line end.
    scanned: usize,
    ended: bool,
    events: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> EventStream<T> {
    pub(super) fn new(what: String, connection: Connection, body: Incoming) -> Self {
        Self { what, connection, body, buffer: BytesMut::new(), scanned: 0, ended: false, events: PhantomData }
    }

    /// The next event; none when the daemon ended the stream in good order. Loses nothing when dropped.
    ///
    /// # Errors
    /// [`ClientError::Lost`] when the connection ended early, [`ClientError::TooLarge`] for a line over
    /// [`MAX_ANSWER_BYTES`], [`ClientError::Malformed`] for a line that is no event.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            while let Some(line) = self.take_line() {
                // Empty lines keep a quiet connection alive.
                if !line.trim_ascii().is_empty() {
                    return self.decode(&line).map(Some);
                }
            }
            if self.ended {
                return Ok(None);
            }
            match self.connection.next_bytes(&mut self.body).await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => {
                    self.ended = true;
                    self.buffer.extend_from_slice(b"\n");
                }
            }
            if self.buffer.len() > MAX_ANSWER_BYTES {
                return Err(ClientError::TooLarge { limit: MAX_ANSWER_BYTES });
            }
        }
    }

    fn take_line(&mut self) -> Option<BytesMut> {
        let fresh = &self.buffer[self.scanned..];
        // Reading from a slice cannot fail; this search is much faster than one byte by byte.
        let length = { fresh }.skip_until(b'\n').unwrap_or(fresh.len());
        if !fresh[..length].ends_with(b"\n") {
            self.scanned = self.buffer.len();
            return None;
        }
        let line = self.buffer.split_to(self.scanned + length);
        self.scanned = 0;
        Some(line)
    }

    fn decode(&self, line: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(line)
            .map_err(|error| ClientError::Malformed { what: self.what.clone(), detail: error.to_string() })
    }
}
