//! One program's life in its child, from hand-over to the end.

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use ptc_protocol::{
    api::{ErrorKind, Outcome, ProgramError, ProgramEvent, Stream},
    names::ProgramId,
    outcome::STDERR_HEADING,
};
use serde_json::{json, value::RawValue};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe::Receiver},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;

use super::{
    channel::{self, ChannelError, Done, FromChild},
    output::{Decoders, Output},
    shelf::{PROGRAM_BYTES, Transcript, Whole},
    warm::{Warm, describe},
};
use crate::{config::settings::Execution, gateway::ProgramCalls, sandbox::Exit};

/// Calls and helpers in flight at once; further messages of the child wait in its socket.
const MAX_IN_FLIGHT: usize = 1024;

/// Bytes of calls that have arrived and not ended; further messages wait as well. More than the largest frame.
const MAX_CALL_BYTES: usize = 32 << 20;

/// Warnings kept, and bytes of each.
const WARNINGS_KEPT: usize = 20;
const WARNING_KEPT: usize = 1 << 10;

/// A program that prints more than this is ended, whatever is kept of it.
const MAX_PRINTED: u64 = 1 << 30;

/// Bytes kept of stderr for the error of a failed program.
const STDERR_KEPT: usize = 16 << 10;

/// Bytes kept of an error text.
const ERROR_KEPT: usize = 64 << 10;

/// After the end, how long the last output may take to arrive.
const DRAIN: Duration = Duration::from_millis(300);

/// How often a running program's progress is told.
const PROGRESS: Duration = Duration::from_secs(1);

/// What a program is run with.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: ProgramId,
    pub(super) code: String,
    pub(super) calls: Arc<ProgramCalls>,
    pub(super) execution: Execution,
    pub(super) timeout: Duration,
    pub(super) stream_output: bool,
    /// Full: output and the outcome wait for the client, all else is dropped. Closed: the client is gone.
    pub(super) events: mpsc::Sender<ProgramEvent>,
    pub(super) cancel: CancellationToken,
    pub(super) sandbox: String,
}

/// A message of the child, and its part of [`MAX_CALL_BYTES`].
type Arrival = Result<(FromChild, Option<OwnedSemaphorePermit>), ChannelError>;

/// An answer on its way to the child, and what it holds until it is written.
type Answer = (Vec<u8>, Option<OwnedSemaphorePermit>);

/// Why a program's life ended.
enum End {
    Done(Done),
    Timeout,
    Cancelled,
    ClientGone,
    Flood,
    Channel(ChannelError),
    Closed,
}

/// Runs the program and tells how it ended, with all its output that is kept; the child is gone afterwards.
pub(super) async fn live(warm: Warm, run: &Run) -> (Outcome, Whole) {
    let started = Instant::now();
    let Warm { mut child, reader, writer, stdout, stderr, .. } = warm;
    let mut printed = Printed::new(run);
    let mut tasks = JoinSet::new();
    // Full: the pump waits, and the program with it once its pipe is full.
    let (chunks_in, mut chunks) = mpsc::channel(16);
    tasks.spawn(pump(stdout, stderr, chunks_in));
    // Full: the reader waits, and the program with it once its socket is full.
    let (frames_in, frames) = mpsc::channel(8);
    tasks.spawn(read_frames(reader, frames_in));
    // Full: calls keep their answers until the program reads.
    let (answers, answers_out) = mpsc::channel(32);
    tasks.spawn(write_frames(writer, answers_out));

    // Lives until the account is closed, so that what still runs is recorded as unfinished before it is dropped.
    let mut calls = JoinSet::new();
    let end = match channel::frame(&start_message(run)) {
        Ok(start) => {
            let _closed = answers.send((start, None)).await;
            converse(run, started, &mut calls, frames, &mut chunks, answers, &mut printed).await
        }
        Err(error) => End::Channel(error),
    };
    let exit = match end {
        End::Closed => tokio::time::timeout(Duration::from_secs(1), child.wait()).await.ok(),
        End::Done(_) | End::Timeout | End::Cancelled | End::ClientGone | End::Flood | End::Channel(_) => None,
    };
    let elapsed = started.elapsed();
    child.kill().await;
    run.calls.finish();
    // Dropping the calls cancels them at their servers.
    drop(calls);
    let drained = async {
        while let Some((stream, bytes)) = chunks.recv().await {
            printed.take(stream, &bytes).await;
        }
    };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::debug!(program = %run.id, "output still open after the program ended");
    }
    tasks.shutdown().await;
    outcome(run, end, exit, elapsed, printed)
}

/// The conversation with the child until something ends it. Calls still running then stay in `calls`.
async fn converse(
    run: &Run,
    started: Instant,
    calls: &mut JoinSet<u64>,
    mut frames: mpsc::Receiver<Arrival>,
    chunks: &mut mpsc::Receiver<(Stream, Vec<u8>)>,
    answers: mpsc::Sender<Answer>,
    printed: &mut Printed<'_>,
) -> End {
    let mut aborts: HashMap<u64, AbortHandle> = HashMap::new();
    let mut progress = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
    progress.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let deadline = tokio::time::sleep(run.timeout);
    tokio::pin!(deadline);
    let mut printing = true;
    loop {
        tokio::select! {
            () = &mut deadline => return End::Timeout,
            () = run.cancel.cancelled() => return End::Cancelled,
            () = run.events.closed() => return End::ClientGone,
            frame = frames.recv(), if calls.len() < MAX_IN_FLIGHT => match frame {
                Some(Ok((FromChild::Call { id, tool, args }, share))) => {
                    let made = answer(id, tool, args, Arc::clone(&run.calls), answers.clone(), run.events.clone(), share);
                    aborts.insert(id, calls.spawn(made));
                }
                Some(Ok((FromChild::Cancel { id }, _))) => {
                    if let Some(handle) = aborts.remove(&id) {
                        handle.abort();
                    }
                }
                Some(Ok((FromChild::Done(done), _))) => return End::Done(done),
                Some(Ok((FromChild::Ready { .. }, _))) => return End::Channel(ChannelError::Malformed("unexpected message `ready`".into())),
                Some(Err(error)) => return End::Channel(error),
                None => return End::Closed,
            },
            chunk = chunks.recv(), if printing => match chunk {
                Some((stream, bytes)) => {
                    // The program waits while its client does, but its deadline does not.
                    tokio::select! {
                        () = printed.take(stream, &bytes) => {}
                        () = &mut deadline => return End::Timeout,
                        () = run.cancel.cancelled() => return End::Cancelled,
                        () = run.events.closed() => return End::ClientGone,
                    }
                    if printed.total() > MAX_PRINTED {
                        return End::Flood;
                    }
                }
                None => printing = false,
            },
            Some(ended) = calls.join_next(), if !calls.is_empty() => match ended {
                Ok(id) => { aborts.remove(&id); }
                Err(error) if error.is_panic() => tracing::error!(program = %run.id, %error, "a call panicked"),
                Err(_) => {}
            },
            _ = progress.tick() => {
                let elapsed_ms = millis(started.elapsed());
                let event = ProgramEvent::Progress { elapsed_ms, calls: run.calls.admitted(), running: run.calls.running() };
                let _full = run.events.try_send(event);
            }
        }
    }
}

/// One call, from its request to its answer on the way to the child.
async fn answer(
    id: u64,
    tool: String,
    args: Box<RawValue>,
    calls: Arc<ProgramCalls>,
    answers: mpsc::Sender<Answer>,
    events: mpsc::Sender<ProgramEvent>,
    share: Option<OwnedSemaphorePermit>,
) -> u64 {
    let begun = events.clone();
    let name = tool.clone();
    let reply = calls
        .call(&tool, args, move |call| {
            let _full = begun.try_send(ProgramEvent::CallStarted { call, tool: name });
        })
        .await;
    drop(share);
    if let Some(record) = reply.record {
        let _full = events.try_send(ProgramEvent::CallFinished(record));
    }
    let text = format!("{{\"t\":\"result\",\"id\":{id},{}}}", reply.frame_body);
    drop(reply.frame_body);
    if let Ok(frame) = channel::frame(&text) {
        let _closed = answers.send((frame, reply.slot)).await;
    }
    id
}

/// Reads both streams in one task: a piece is on its way before the next is read, so their order is kept. The runtime in
/// the child waits for that before it writes to the other stream.
async fn pump(mut stdout: Receiver, mut stderr: Receiver, chunks: mpsc::Sender<(Stream, Vec<u8>)>) {
    let (mut out, mut err) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        let (stream, read) = tokio::select! {
            read = stdout.read(&mut out), if out_open => (Stream::Stdout, read),
            read = stderr.read(&mut err), if err_open => (Stream::Stderr, read),
        };
        let (buffer, open) = match stream {
            Stream::Stdout => (&out, &mut out_open),
            Stream::Stderr => (&err, &mut err_open),
        };
        match read {
            Ok(0) | Err(_) => *open = false,
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                if chunks.send((stream, bytes)).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn read_frames(reader: OwnedReadHalf, frames: mpsc::Sender<Arrival>) {
    let mut reader = BufReader::with_capacity(16 << 10, reader);
    let room = Arc::new(Semaphore::new(MAX_CALL_BYTES));
    loop {
        let frame = channel::read(&mut reader, channel::MAX_FROM_CHILD).await;
        let last = !matches!(frame, Ok(Some(_)));
        if let Some(frame) = frame.transpose() {
            let arrival = match frame {
                Ok(message) => {
                    let share = share(&room, &message).await;
                    Ok((message, share))
                }
                Err(error) => Err(error),
            };
            if frames.send(arrival).await.is_err() {
                return;
            }
        }
        if last {
            return;
        }
    }
}

/// Waits until there is room for a call.
async fn share(room: &Arc<Semaphore>, message: &FromChild) -> Option<OwnedSemaphorePermit> {
    let FromChild::Call { tool, args, .. } = message else { return None };
    let bytes = u32::try_from((tool.len() + args.get().len()).min(MAX_CALL_BYTES)).ok()?;
    // The semaphore is never closed.
    Arc::clone(room).acquire_many_owned(bytes).await.ok()
}

async fn write_frames(mut writer: OwnedWriteHalf, mut answers: mpsc::Receiver<Answer>) -> () {
    while let Some((frame, _slot)) = answers.recv().await {
        let written: io::Result<()> = writer.write_all(&frame).await;
        if written.is_err() {
            return;
        }
    }
}

fn start_message(run: &Run) -> String {
    let limits = json!({
        "max_output_bytes": run.execution.max_output_bytes,
        "max_emit_bytes": run.execution.max_output_bytes,
        "timeout_seconds": run.timeout.as_secs_f64(),
    });
    let code = serde_json::Value::String(run.code.clone());
    format!("{{\"t\":\"start\",\"code\":{code},\"limits\":{limits},{}}}", run.calls.start_members())
}

/// What the program printed, and its way to the client.
struct Printed<'a> {
    run: &'a Run,
    both: Output,
    stdout: Output,
    stderr: Output,
    whole: Transcript,
    decoders: Decoders,
}

impl<'a> Printed<'a> {
    fn new(run: &'a Run) -> Self {
        let limit = run.execution.max_output_bytes;
        Self {
            run,
            both: Output::new(limit),
            stdout: Output::new(limit),
            stderr: Output::new(STDERR_KEPT),
            whole: Transcript::default(),
            decoders: Decoders::default(),
        }
    }

    const fn total(&self) -> u64 {
        self.both.total()
    }

    async fn take(&mut self, stream: Stream, bytes: &[u8]) {
        self.both.push(bytes);
        self.whole.push(stream, bytes);
        match stream {
            Stream::Stdout => self.stdout.push(bytes),
            Stream::Stderr => self.stderr.push(bytes),
        }
        if self.run.stream_output {
            let text = self.decoders.of(stream).push(bytes);
            let _closed = self.run.events.send(ProgramEvent::Output { stream, text }).await;
        }
    }
}

fn outcome(run: &Run, end: End, exit: Option<Exit>, elapsed: Duration, printed: Printed<'_>) -> (Outcome, Whole) {
    let error = |kind, message: String| Some(ProgramError { kind, message });
    let limit = run.execution.max_output_bytes;
    let mut result = None;
    let mut warnings = Vec::new();
    let mut error = match end {
        End::Done(done) => {
            let too_large = done.result.as_ref().map(|emitted| emitted.get().len()).filter(|bytes| *bytes > limit);
            result = done.result.filter(|_| too_large.is_none());
            warnings = done.warnings;
            match (done.ok, done.error) {
                // Our runtime refuses it earlier; this one came past it.
                _ if let Some(bytes) = too_large => {
                    let message = format!("OutputLimitError: the emitted value is {bytes} bytes; the limit is {limit}");
                    error(ErrorKind::Limit, message)
                }
                (true, _) => None,
                (false, message) => {
                    error(ErrorKind::Program, message.unwrap_or_else(|| "the program failed without a message".into()))
                }
            }
        }
        End::Timeout => {
            error(ErrorKind::Timeout, format!("TimeoutError: Execution exceeded {}s limit", run.timeout.as_secs_f64()))
        }
        End::Cancelled => error(ErrorKind::Cancelled, "CancelledError: the program was cancelled".into()),
        End::ClientGone => error(ErrorKind::Cancelled, "CancelledError: the client went away".into()),
        End::Flood => error(
            ErrorKind::Limit,
            format!("OutputLimitError: the program printed more than {MAX_PRINTED} bytes and was ended"),
        ),
        End::Channel(failure) => error(ErrorKind::Protocol, format!("ExecutionError: {}", describe(&failure))),
        End::Closed => {
            let how = exit.map_or_else(
                || "its channel closed while it went on running".to_owned(),
                |exit| format!("child {exit}"),
            );
            let kind = if matches!(exit, Some(Exit::Limit(_))) { ErrorKind::Limit } else { ErrorKind::Died };
            error(kind, format!("ExecutionError: child exited without reporting a result\n({how})"))
        }
    };
    let (shown, whole) = match &mut error {
        None => {
            let whole = Whole::new(&printed.whole.both(), printed.both.total());
            (printed.both, whole)
        }
        Some(error) => {
            error.message = cut_middle(&error.message, ERROR_KEPT);
            let (stderr, _) = printed.stderr.finish(|_| String::new());
            if !stderr.trim().is_empty() {
                error.message.truncate(error.message.trim_end().len());
                error.message.push_str(STDERR_HEADING);
                error.message.push_str(&stderr);
            }
            let whole = Whole::new(&printed.whole.stdout(), printed.stdout.total());
            (printed.stdout, whole)
        }
    };
    let (output, output_dropped_bytes) = shown.finish(|offset| rest_hint(run, offset));
    warnings.truncate(WARNINGS_KEPT);
    warnings.iter_mut().for_each(|warning| *warning = cut_middle(warning, WARNING_KEPT));
    let outcome = Outcome {
        program: run.id.clone(),
        ok: error.is_none(),
        output,
        output_dropped_bytes,
        result,
        error,
        warnings,
        tool_calls: run.calls.records(),
        elapsed_ms: millis(elapsed),
        tool_result_bytes: run.calls.result_bytes(),
        trace: run.execution.trace,
        structured_content: run.execution.structured_content,
        sandbox: run.sandbox.clone(),
    };
    (outcome, whole)
}

/// Where the output that was left out can be read.
fn rest_hint(run: &Run, offset: usize) -> String {
    let id = &run.id;
    let command = format!("`ptcctl output {id} --offset {offset}`");
    // Beyond what is kept there is nothing to read.
    match (offset < PROGRAM_BYTES, run.execution.read_output) {
        (false, _) => String::new(),
        (true, false) => format!("; {command} shows it"),
        (true, true) => format!("; read_output(program_id=\"{id}\", offset={offset}) or {command} shows it"),
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// At most `limit` bytes and a notice; beginning and end are kept.
fn cut_middle(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut output = Output::new(limit);
    output.push(text.as_bytes());
    output.finish(|_| String::new()).0
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_call_waits_until_there_is_room_for_its_arguments() {
        let call = |bytes: usize| FromChild::Call {
            id: 1,
            tool: String::new(),
            args: RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap(),
        };
        let room = Arc::new(Semaphore::new(MAX_CALL_BYTES));
        let first = share(&room, &call(channel::MAX_FROM_CHILD)).now_or_never().flatten().expect("the largest fits");
        assert!(share(&room, &call(channel::MAX_FROM_CHILD)).now_or_never().is_none(), "a second one waits");
        assert!(share(&room, &call(1000)).now_or_never().flatten().is_some(), "a small one does not");
        assert!(share(&room, &FromChild::Cancel { id: 1 }).now_or_never().is_some(), "nor does what is no call");
        drop(first);
        assert!(share(&room, &call(channel::MAX_FROM_CHILD)).now_or_never().flatten().is_some());
    }
}
