//! `ptcctl run`: a program's output as it comes, its result at the end, its failure as exit code. `ptcctl output`: what an
//! ended program printed.

use std::{
    fs,
    io::{self, IsTerminal as _, Read as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use ptc_protocol::{
    api::{CallRecord, CallState, Outcome, ProgramEvent, RunRequest, Stream},
    client::EventStream,
    exit,
    names::ProgramId,
    outcome::STDERR_HEADING,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    cli::{Common, RunArgs},
    connect::connect,
    output::{Target, print, raw, say},
    render::text::{Lines, one_line, visible},
};

/// Largest program read, in bytes.
const MAX_CODE_BYTES: u64 = 8 << 20;

/// Runs the program and prints what it does. The first interrupt ends the program, the second this command.
pub(super) async fn run(common: &Common, args: &RunArgs) -> anyhow::Result<u8> {
    let code = read_code(&args.file)?;
    let client = connect(common).await?;
    let mut interrupts = Interrupts::listen()?;
    let request = RunRequest {
        code,
        session: None,
        timeout_seconds: args.timeout,
        client_request: None,
        stream_output: !args.json,
    };
    let mut events = client.run(&request).await?;
    let mut page = Page::new(args);
    let mut program = None;
    let mut interrupted = false;
    while let Some(event) = next(&mut events, &mut interrupts).await? {
        match event {
            Heard::Program(event) => {
                if let ProgramEvent::Queued { program: id, .. } | ProgramEvent::Started { program: id } = &event {
                    program = Some(id.clone());
                }
                if let Some(code) = page.show(event)? {
                    return Ok(code);
                }
            }
            Heard::Interrupt if interrupted => break,
            Heard::Interrupt => {
                interrupted = true;
                end(&client, program.as_ref()).await;
            }
        }
    }
    if interrupted {
        bail!("interrupted");
    }
    bail!("the daemon ended the stream of the program without its outcome")
}

/// `ptcctl output`: prints what is kept of it, piece by piece.
pub(super) async fn output(common: &Common, id: &str, offset: u64, limit: Option<u64>) -> anyhow::Result<u8> {
    let client = connect(common).await?;
    let terminal = io::stdout().is_terminal();
    let (mut at, mut left) = (offset, limit);
    loop {
        let piece = client.output(id, at, Some(left.unwrap_or(u64::MAX))).await?;
        raw(Target::Stdout, &if terminal { visible(&piece.text, Lines::Keep) } else { piece.text.as_str().into() })?;
        left = left.map(|left| left.saturating_sub(piece.text.len() as u64));
        match piece.next {
            Some(next) if left != Some(0) => at = next,
            Some(_) => return Ok(exit::OK),
            None => {
                if piece.kept < piece.total {
                    say(&format!("ptcctl: only the first {} of {} bytes were kept\n", piece.kept, piece.total));
                }
                return Ok(exit::OK);
            }
        }
    }
}

/// Asks for the program's end; the outcome then says that it was cancelled.
async fn end(client: &ptc_protocol::client::Client, program: Option<&ProgramId>) {
    if let Some(program) = program {
        // A program that is gone already has its outcome on the way.
        let _asked = client.cancel(program).await;
    }
}

/// What happens next.
enum Heard {
    Program(ProgramEvent),
    Interrupt,
}

async fn next(events: &mut EventStream<ProgramEvent>, interrupts: &mut Interrupts) -> anyhow::Result<Option<Heard>> {
    tokio::select! {
        event = events.next() => Ok(event?.map(Heard::Program)),
        () = interrupts.next() => Ok(Some(Heard::Interrupt)),
    }
}

/// Ctrl-C, and the polite kill.
pub(super) struct Interrupts {
    int: Signal,
    term: Signal,
}

impl Interrupts {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())? })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}

fn read_code(file: &Path) -> anyhow::Result<String> {
    let what = if file == Path::new("-") { "standard input".into() } else { format!("`{}`", file.display()) };
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(MAX_CODE_BYTES + 1).read_to_end(&mut bytes)
    } else {
        fs::File::open(file).and_then(|file| file.take(MAX_CODE_BYTES + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {what}"))?;
    if bytes.len() as u64 > MAX_CODE_BYTES {
        bail!("the program in {what} has more than {MAX_CODE_BYTES} bytes");
    }
    String::from_utf8(bytes).with_context(|| format!("the program in {what} is not UTF-8"))
}

/// Where the program's doings go.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about one output")]
struct Page {
    json: bool,
    calls: bool,
    /// Which outputs are terminals, and must not obey a program.
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    /// Whether stdout stands at the start of a line.
    at_line_start: bool,
}

impl Page {
    fn new(args: &RunArgs) -> Self {
        Self {
            json: args.json,
            calls: args.calls,
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            at_line_start: true,
        }
    }

    /// Shows one event; the exit code when it was the last.
    fn show(&mut self, event: ProgramEvent) -> anyhow::Result<Option<u8>> {
        match event {
            ProgramEvent::Outcome(outcome) => return self.end(&outcome).map(Some),
            ProgramEvent::Output { stream, text } if !self.json => self.output(stream, &text)?,
            ProgramEvent::Queued { ahead, .. } if ahead > 0 && self.stderr_is_terminal => {
                say(&format!("waits for {ahead} programs before it\n"));
            }
            ProgramEvent::CallFinished(call) if self.calls => say(&call_line(&call)),
            ProgramEvent::Output { .. }
            | ProgramEvent::Queued { .. }
            | ProgramEvent::CallFinished(_)
            | ProgramEvent::Started { .. }
            | ProgramEvent::CallStarted { .. }
            | ProgramEvent::Progress { .. } => {}
        }
        Ok(None)
    }

    fn output(&mut self, stream: Stream, text: &str) -> io::Result<()> {
        let (target, terminal) = match stream {
            Stream::Stdout => (Target::Stdout, self.stdout_is_terminal),
            Stream::Stderr => (Target::Stderr, self.stderr_is_terminal),
        };
        if let (Target::Stdout, Some(last)) = (target, text.chars().last()) {
            self.at_line_start = last == '\n';
        }
        raw(target, &if terminal { visible(text, Lines::Keep) } else { text.into() })
    }

    fn end(&mut self, outcome: &Outcome) -> anyhow::Result<u8> {
        let code = if outcome.ok { exit::OK } else { exit::FAILED };
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(outcome)?))?;
            return Ok(code);
        }
        if let Some(result) = &outcome.result {
            let gap = if self.at_line_start { "" } else { "\n" };
            let line = format!("{gap}{}\n", result.get());
            raw(Target::Stdout, &if self.stdout_is_terminal { visible(&line, Lines::Keep) } else { line.into() })?;
        }
        let mut notes = String::new();
        if outcome.output_dropped_bytes > 0 {
            notes.push_str(&format!("ptcctl: {} bytes of output are over the limit\n", outcome.output_dropped_bytes));
        }
        for warning in &outcome.warnings {
            notes.push_str(&format!("ptcctl: warning: {}\n", visible(warning, Lines::Keep)));
        }
        if let Some(error) = &outcome.error {
            // What it wrote to stderr was shown as it came.
            let message = error.message.split(STDERR_HEADING).next().unwrap_or_default().trim_end();
            let shown = if self.stderr_is_terminal { visible(message, Lines::Keep) } else { message.into() };
            notes.push_str(&format!("{shown}\n"));
        }
        say(&notes);
        Ok(code)
    }
}

fn call_line(call: &CallRecord) -> String {
    let state = match call.state {
        CallState::Ok => "ok",
        CallState::Failed => "failed",
        CallState::Unfinished => "unfinished",
    };
    let error = call.error.as_deref().map_or_else(String::new, |error| format!(": {}", one_line(error, 200)));
    format!("[{}] {} {} {} ms{error}\n", call.call, one_line(&call.tool, 120), state, call.ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_must_be_readable_text() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("p.py");
        assert!(format!("{:#}", read_code(&path).unwrap_err()).contains("p.py"), "the missing file is named");
        fs::write(&path, b"print('\xff')").unwrap();
        assert!(format!("{:#}", read_code(&path).unwrap_err()).contains("not UTF-8"));
        fs::write(&path, "print(1)").unwrap();
        assert_eq!(read_code(&path).unwrap(), "print(1)");
    }

    #[test]
    fn a_call_has_one_line() {
        let call = CallRecord {
            call: 2,
            tool: "mcp__a__b".into(),
            args: "{}".into(),
            state: CallState::Failed,
            ms: 12,
            error: Some("two\nlines".into()),
        };
        assert_eq!(call_line(&call), "[2] mcp__a__b failed 12 ms: two lines\n");
    }
}
