//! The conversation with the client: lines of JSON on a reader and a writer, as a transport for rmcp.
//!
//! One task owns the writer, so lines never mix; what the transport sends goes to it through a bounded channel, and a
//! client that does not read makes the senders wait.

use std::{
    collections::VecDeque,
    io::{self, BufRead as _},
};

use rmcp::{
    RoleServer,
    model::ClientJsonRpcMessage,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::decode::{Incoming, Phase, decode};

/// Longest line read, in bytes. Longer ones are skipped and told to the client without an id, which is then unknown.
const MAX_LINE_BYTES: usize = 64 << 20;
/// Memory kept between two lines, in bytes.
const KEPT_LINE_BYTES: usize = 1 << 20;
/// Lines that wait for the writer.
const OUTGOING_LINES: usize = 64;

/// The transport. It ends at the end of the client's input.
#[derive(Debug)]
pub(crate) struct Wire<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// The rest of the present line is skipped, because it was too long.
    skipping: bool,
    phase: Phase,
    messages: VecDeque<ClientJsonRpcMessage>,
    answers: VecDeque<Vec<u8>>,
    outgoing: mpsc::Sender<Vec<u8>>,
    gone: CancellationToken,
}

/// The writer's task.
#[derive(Debug)]
pub(crate) struct LineWriter<W> {
    writer: W,
    lines: mpsc::Receiver<Vec<u8>>,
    gone: CancellationToken,
}

/// Joins reader and writer into a transport. `gone` is cancelled when the client closes either end.
pub(crate) fn wire<R: AsyncRead, W>(reader: R, writer: W, gone: &CancellationToken) -> (Wire<R>, LineWriter<W>) {
    let (outgoing, lines) = mpsc::channel(OUTGOING_LINES);
    let wire = Wire {
        reader: BufReader::with_capacity(64 << 10, reader),
        line: Vec::new(),
        skipping: false,
        phase: Phase::Opening,
        messages: VecDeque::new(),
        answers: VecDeque::new(),
        outgoing,
        gone: gone.clone(),
    };
    (wire, LineWriter { writer, lines, gone: gone.clone() })
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    /// Writes lines until the transport and all its pending sends are gone, or the client no longer reads.
    pub(crate) async fn run(mut self) {
        while let Some(line) = self.lines.recv().await {
            let written = async {
                self.writer.write_all(&line).await?;
                self.writer.flush().await
            };
            if let Err(error) = written.await {
                tracing::debug!(%error, "client no longer reads");
                self.gone.cancel();
                return;
            }
        }
    }
}

impl<R: AsyncRead + Unpin> Wire<R> {
    /// Adds to `self.line` until it is a whole line; false at the end of the input. Loses nothing when dropped.
    async fn read_line(&mut self) -> bool {
        loop {
            let available = match self.reader.fill_buf().await {
                Ok(available) => available,
                Err(error) => {
                    tracing::warn!(%error, "cannot read from the client");
                    return false;
                }
            };
            if available.is_empty() {
                // A last message without a line end is a message still.
                return !self.line.is_empty() && !std::mem::take(&mut self.skipping);
            }
            // Reading from a slice cannot fail; this search is much faster than one byte by byte.
            let taken = { available }.skip_until(b'\n').unwrap_or(available.len());
            let ends = available[..taken].ends_with(b"\n");
            if !self.skipping {
                self.line.extend_from_slice(&available[..taken]);
            }
            self.reader.consume(taken);
            if self.line.len() > MAX_LINE_BYTES {
                self.line = Vec::new();
                self.skipping = !ends;
                let text = format!("a message of more than {MAX_LINE_BYTES} bytes was not read");
                let error = serde_json::json!({"code": -32600, "message": text});
                self.answers.push_back(
                    serde_json::json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string().into_bytes(),
                );
                return true;
            }
            if ends && !std::mem::take(&mut self.skipping) {
                return true;
            }
        }
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> Transport<RoleServer> for Wire<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let line = serde_json::to_vec(&item)?;
            outgoing.send(ended(line)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if !self.answers.is_empty() {
                // Taken out of the queue only once there is a place: this future may be dropped while it waits.
                let place = self.outgoing.reserve().await.ok()?;
                if let Some(answer) = self.answers.pop_front() {
                    place.send(ended(answer));
                }
                continue;
            }
            if let Some(message) = self.messages.pop_front() {
                return Some(message);
            }
            if !self.read_line().await {
                self.gone.cancel();
                return None;
            }
            for incoming in decode(&self.line, &mut self.phase) {
                match incoming {
                    Incoming::Message(message) => self.messages.push_back(*message),
                    Incoming::Answer(answer) => self.answers.push_back(answer.into_bytes()),
                }
            }
            self.line.clear();
            self.line.shrink_to(KEPT_LINE_BYTES);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

fn ended(mut line: Vec<u8>) -> Vec<u8> {
    line.push(b'\n');
    line
}
