//! The daemon's side of one child: starting its launcher, checking it from outside, ending it.

use std::{
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{net::UnixStream as StdUnixStream, process::ExitStatusExt as _},
    },
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixStream, unix::pipe},
    process::{Child as Process, Command},
};

use super::{
    Exit, Level, Ready,
    attest::Expected,
    control::{self, Order, Report},
    error::SandboxError,
    launcher::SUBCOMMAND,
    scratch::Scratch,
};
use crate::guardian::GroupEntry;

/// From the launcher's start to the interpreter's `execve`.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// From a kill to the reaped process; the kernel may have a namespace to take down.
const END_DEADLINE: Duration = Duration::from_secs(2);
/// How much of what a failed launcher said is shown.
const STDERR_SHOWN: usize = 2000;

/// The near ends of a child's descriptors.
#[derive(Debug)]
pub struct Streams {
    /// The channel.
    pub channel: UnixStream,
    /// What the child writes to descriptor 1.
    pub stdout: pipe::Receiver,
    /// What the child writes to descriptor 2.
    pub stderr: pipe::Receiver,
}

/// One started child. Dropping it kills it; [`kill`](Self::kill) also waits for the end.
#[derive(Debug)]
pub struct Child {
    /// The interpreter's process.
    pub pid: i32,
    streams: Option<Streams>,
    expected: Arc<Expected>,
    /// Depth layers that could not be had.
    missing: Vec<(String, String)>,
    process: Process,
    /// Process group of the launcher and the child.
    group: i32,
    /// The launcher's socket, while a launcher watches over the child.
    control: Option<UnixStream>,
    reports: Vec<u8>,
    ended: Option<Exit>,
    listed: Option<GroupEntry>,
    scratch: Option<Scratch>,
}

impl Child {
    /// Starts a launcher and waits until the interpreter is being executed.
    pub(super) async fn start(ready: &Ready, text: &str) -> Result<Self, SandboxError> {
        let failed = |reason: String| SandboxError::Launcher { launcher: ready.plan.launcher.clone(), reason };
        let plain = |error: io::Error| failed(error.to_string());
        let scratch = match ready.level {
            // Its scratch directory is in memory and goes with its namespaces.
            Level::Linux => None,
            Level::Landlock | Level::Seatbelt | Level::None => Some(ready.scratch.directory()?),
        };

        let (control, theirs_control) = StdUnixStream::pair().map_err(plain)?;
        let (channel, theirs_channel) = StdUnixStream::pair().map_err(plain)?;
        let (stdout, theirs_stdout) = io::pipe().map_err(plain)?;
        let (stderr, theirs_stderr) = io::pipe().map_err(plain)?;
        let order = Order {
            level: ready.level,
            image: ready.interpreter.image.clone(),
            arguments: ["-I", "-S", "-B", "-c", text].map(str::to_owned).to_vec(),
            limits: ready.plan.limits,
            scratch: scratch.as_ref().map(|scratch| scratch.path().to_owned()),
            view: ready.view.clone(),
            seatbelt: ready.seatbelt.clone(),
            write_xor_execute: ready.write_xor_execute,
        };
        let body = serde_json::to_vec(&order).map_err(|error| failed(error.to_string()))?;

        let mut command = Command::new(&ready.plan.launcher);
        command
            .arg(SUBCOMMAND)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs_control)))
            .stdout(Stdio::from(theirs_stdout))
            .stderr(Stdio::from(theirs_stderr))
            .kill_on_drop(ready.level == Level::None);
        let process = command.spawn().map_err(plain)?;
        drop(command);
        let group =
            process.id().and_then(|pid| i32::try_from(pid).ok()).ok_or_else(|| failed("it has no pid".into()))?;

        control.set_nonblocking(true).map_err(plain)?;
        channel.set_nonblocking(true).map_err(plain)?;
        let streams = Streams {
            channel: UnixStream::from_std(channel).map_err(plain)?,
            stdout: pipe::Receiver::from_owned_fd(stdout.into()).map_err(plain)?,
            stderr: pipe::Receiver::from_owned_fd(stderr.into()).map_err(plain)?,
        };
        let mut child = Self {
            pid: group,
            streams: Some(streams),
            expected: Arc::clone(&ready.expected),
            missing: Vec::new(),
            process,
            group,
            control: Some(UnixStream::from_std(control).map_err(plain)?),
            reports: Vec::new(),
            ended: None,
            listed: Some(ready.guardian.group(group)),
            scratch,
        };
        let started = tokio::time::timeout(START_DEADLINE, child.launch(body, &theirs_channel)).await;
        drop(theirs_channel);
        let reason = match started {
            Ok(Ok(())) => return Ok(child),
            Ok(Err(Refused::Step(fault))) => return Err(SandboxError::Step { level: ready.level, fault }),
            Ok(Err(Refused::Io(error))) => error.to_string(),
            Err(_) => format!("it was not done within {} s", START_DEADLINE.as_secs()),
        };
        let said = child.last_words();
        let exit = child.kill().await;
        Err(failed(format!("{reason} (ended with {exit:?}){said}")))
    }

    /// Hands over order and channel and waits for the report that the interpreter is being executed.
    async fn launch(&mut self, body: Vec<u8>, channel: &StdUnixStream) -> Result<(), Refused> {
        let Some(control) = self.control.as_mut() else { return Err(io::Error::other("no control socket").into()) };
        control::send_head(control.as_fd(), body.len(), &[channel.as_fd()])?;
        control.write_all(&body).await?;
        let mut executing = false;
        loop {
            while let Some(report) = control::take_report(&mut self.reports)? {
                match report {
                    Report::Executing => executing = true,
                    Report::Started { pid, missing } => {
                        self.pid = pid;
                        self.missing = missing;
                        return Ok(());
                    }
                    Report::Failed(fault) => return Err(Refused::Step(fault)),
                    other @ Report::Prepared { .. } => {
                        return Err(io::Error::other(format!("unexpected report {other:?}")).into());
                    }
                    Report::Exited(exit) => return Err(io::Error::other(format!("it ended early: {exit:?}")).into()),
                }
            }
            if control.read_buf(&mut self.reports).await? == 0 {
                if executing {
                    // The socket closed at execve: the launcher has become the interpreter.
                    self.control = None;
                    return Ok(());
                }
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// The near ends of its descriptors; `None` the second time.
    pub fn take_streams(&mut self) -> Option<Streams> {
        self.streams.take()
    }

    /// Verifies from outside, without trusting anything the child said, that it is confined as configured. To be called
    /// right before the program is handed over.
    ///
    /// # Errors
    /// [`SandboxError::Attestation`] with what differs; the child must then be killed.
    pub fn attest(&self) -> Result<(), SandboxError> {
        match self.expected.mismatch(self.pid) {
            None => Ok(()),
            Some(mismatch) => Err(SandboxError::Attestation { pid: self.pid, mismatch }),
        }
    }

    /// Depth layers that could not be had, each with the reason.
    pub(super) fn missing(&self) -> &[(String, String)] {
        &self.missing
    }

    /// Kills the child and everything in its group, waits for the end and removes its scratch directory.
    pub async fn kill(&mut self) -> Exit {
        if self.ended.is_none() {
            match &mut self.control {
                // The launcher answers the end of its socket by killing the child and reaping it.
                Some(control) => {
                    if control.shutdown().await.is_err() {
                        self.kill_group();
                    }
                }
                None => self.kill_group(),
            }
            if tokio::time::timeout(END_DEADLINE, self.wait()).await.is_err() {
                self.kill_group();
                if tokio::time::timeout(END_DEADLINE, self.wait()).await.is_err() {
                    tracing::error!(pid = self.pid, "child does not end after SIGKILL");
                }
            }
        }
        self.clean().await;
        self.ended.unwrap_or(Exit::Lost)
    }

    /// Waits for the child's end. Dropping the future changes nothing.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = self.ended {
            return exit;
        }
        let status = self.process.wait().await;
        let exit = match status {
            Ok(status) => self.exit(status),
            Err(error) => {
                tracing::error!(%error, pid = self.pid, "child cannot be waited for");
                Exit::Lost
            }
        };
        // Whatever the program left running in its group goes with it.
        self.kill_group();
        self.listed = None;
        self.ended = Some(exit);
        exit
    }

    fn exit(&mut self, status: ExitStatus) -> Exit {
        let Some(control) = &self.control else { return direct(status) };
        // The launcher is gone, so all that it said is in the socket.
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = control.try_read(&mut chunk) {
            self.reports.extend_from_slice(&chunk[..count]);
        }
        while let Ok(Some(report)) = control::take_report(&mut self.reports) {
            if let Report::Exited(exit) = report {
                return exit;
            }
        }
        Exit::Lost
    }

    fn kill_group(&self) {
        // ESRCH is the aim.
        if let Some(group) = Pid::from_raw(self.group) {
            let _gone = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }

    /// Removes the scratch directory off the async threads, since a program may have filled it.
    async fn clean(&mut self) {
        if let Some(scratch) = self.scratch.take()
            && let Err(error) = tokio::task::spawn_blocking(move || drop(scratch)).await
        {
            tracing::warn!(%error, "scratch directory not removed");
        }
    }

    /// What the launcher wrote to its stderr before it failed.
    fn last_words(&self) -> String {
        let mut said = vec![0; STDERR_SHOWN];
        let count = self.streams.as_ref().and_then(|streams| streams.stderr.try_read(&mut said).ok()).unwrap_or(0);
        match String::from_utf8_lossy(&said[..count]).trim() {
            "" => String::new(),
            text => format!(", saying: {text}"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // With a launcher, the closing control socket is enough, and the launcher must live to reap the child.
        if self.ended.is_none() && self.control.is_none() {
            self.kill_group();
        }
    }
}

/// Why a launch did not come about.
enum Refused {
    Step(super::error::Fault),
    Io(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn direct(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (_, Some(libc::SIGXCPU)) => Exit::Limit(super::Limit::CpuTime),
        (_, Some(signal)) => Exit::Signal(signal),
        (Some(code), None) => Exit::Code(code),
        (None, None) => Exit::Lost,
    }
}
