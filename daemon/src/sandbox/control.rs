//! What the daemon and its launcher say to each other over the control socket: one order down, reports up.
//!
//! A frame is a big-endian `u32` length and that many bytes of JSON. The channel's descriptor travels beside the first
//! length. Both sides are our own code; the program never holds this socket.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    ChildLimits,
    error::{Fault, Level},
    seatbelt::Seatbelt,
    view::View,
};

/// Bounds an order, which holds the bootstrap text and the file view.
const MAX_ORDER: usize = 8 << 20;
/// Bounds a report.
const MAX_REPORT: usize = 64 << 10;

/// What the launcher is to do. Holds no secret and no program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    /// How to confine.
    pub level: Level,
    /// The interpreter's real image.
    pub image: PathBuf,
    /// Its arguments after `argv[0]`.
    pub arguments: Vec<String>,
    /// Limits of the child.
    pub limits: ChildLimits,
    /// The scratch directory on the host's disk; none where the level makes its own.
    pub scratch: Option<PathBuf>,
    /// The files that the Linux levels grant.
    #[serde(default)]
    pub view: Option<View>,
    /// The profile of the macOS level.
    #[serde(default)]
    pub seatbelt: Option<Seatbelt>,
    /// Whether memory that is writable and executable at once is refused.
    #[serde(default)]
    pub write_xor_execute: bool,
}

/// What the launcher reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// All is set; the next thing is `execve` of this very process. The socket closes when it succeeds.
    Executing,
    /// From the confined child to its monitor: all doors but the last are closed, and here is the listener.
    Prepared {
        /// Depth layers that could not be had, with the reason.
        missing: Vec<(String, String)>,
    },
    /// The interpreter runs as this process below the launcher.
    Started {
        /// Its process id as the daemon sees it.
        pid: i32,
        /// Depth layers that could not be had, with the reason.
        missing: Vec<(String, String)>,
    },
    /// Nothing runs.
    Failed(Fault),
    /// The interpreter's process has been reaped; the launcher ends.
    Exited(super::Exit),
}

/// Sends the length of what follows together with the descriptors; never blocks on a fresh socket.
pub(super) fn send_head(socket: BorrowedFd<'_>, length: usize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let length = u32::try_from(length).map_err(io::Error::other)?.to_be_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&length)], &mut ancillary, SendFlags::empty())?;
    if sent == length.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Writes one frame with descriptors beside it.
#[cfg(target_os = "linux")]
pub(super) fn send_with<T: Serialize>(
    socket: &UnixStream,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    send_head(socket.as_fd(), body.len(), descriptors)?;
    (&mut &*socket).write_all(&body)
}

/// Reads one frame and the descriptors that came with it.
pub(super) fn receive<T: DeserializeOwned>(socket: &UnixStream) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut length = [0_u8; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut length)], &mut ancillary, RecvFlags::empty())?;
    if received.bytes != length.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptors = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        })
        .flatten()
        .collect();
    Ok((read_body(&mut &*socket, length)?, descriptors))
}

/// Writes one frame.
pub(super) fn send<T: Serialize>(mut to: impl Write, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    to.write_all(&frame)
}

fn read_body<T: DeserializeOwned>(from: &mut impl Read, length: [u8; 4]) -> io::Result<T> {
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    if length > MAX_ORDER {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "frame over its limit"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Takes one report off the front of the bytes received so far; none while it is incomplete.
pub(super) fn take_report(buffer: &mut Vec<u8>) -> io::Result<Option<Report>> {
    let Some(head) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*head)).map_err(io::Error::other)?;
    if length > MAX_REPORT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "report over its limit"));
    }
    let Some(body) = buffer.get(4..4 + length) else { return Ok(None) };
    let report = serde_json::from_slice(body)?;
    buffer.drain(..4 + length);
    Ok(Some(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_arrives_with_its_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let order = Order {
            level: Level::None,
            image: "/usr/bin/python3".into(),
            arguments: vec!["-c".into(), "pass".into()],
            limits: ChildLimits::default(),
            scratch: Some("/tmp/x".into()),
            view: None,
            seatbelt: None,
            write_xor_execute: true,
        };
        let body = serde_json::to_vec(&order).unwrap();
        let file = tempfile::tempfile().unwrap();
        send_head(ours.as_fd(), body.len(), &[file.as_fd()]).unwrap();
        (&ours).write_all(&body).unwrap();
        let (received, descriptors) = receive::<Order>(&theirs).unwrap();
        assert_eq!(serde_json::to_value(&received).unwrap(), serde_json::to_value(&order).unwrap());
        assert_eq!(descriptors.len(), 1);
    }

    #[test]
    fn reports_are_taken_one_by_one_and_never_half() {
        let mut stream = Vec::new();
        send(&mut stream, &Report::Executing).unwrap();
        send(&mut stream, &Report::Exited(crate::sandbox::Exit::Code(3))).unwrap();
        let mut buffer = Vec::new();
        let mut seen = Vec::new();
        for byte in stream {
            buffer.push(byte);
            seen.extend(take_report(&mut buffer).unwrap());
        }
        assert_eq!(seen, [Report::Executing, Report::Exited(crate::sandbox::Exit::Code(3))]);
        assert!(take_report(&mut vec![0xff; 8]).is_err(), "an absurd length is refused before it is waited for");
    }
}
