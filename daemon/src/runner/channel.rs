//! The channel between the daemon and a child: length-prefixed JSON frames on descriptor 3.
//!
//! A program shares its process with our runtime, so every byte that arrives here may be hostile: lengths are checked
//! before memory is taken, and anything unknown, malformed or out of place ends the program.

use std::io;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Largest frame a child may send: the arguments of one call, or the emitted value with the error text.
pub(super) const MAX_FROM_CHILD: usize = 17 << 20;

/// Memory taken at once for a frame whose bytes have not arrived yet.
const FIRST_PIECE: usize = 64 << 10;

/// What a child says.
#[derive(Debug)]
pub enum FromChild {
    /// Its imports are done; it waits for a program.
    Ready {
        /// Version of its interpreter.
        python: String,
    },
    /// A tool call. `id` is the child's own and means nothing to the daemon.
    Call {
        /// Echoed in the answer.
        id: u64,
        /// Tool or helper by name.
        tool: String,
        /// JSON text of the arguments; any JSON value.
        args: Box<RawValue>,
    },
    /// The program no longer waits for a call.
    Cancel {
        /// The call's id.
        id: u64,
    },
    /// The final report.
    Done(Done),
}

/// The final report of a child.
#[derive(Debug)]
pub struct Done {
    /// Whether the program ended as its author meant.
    pub ok: bool,
    /// Text for the model when it did not.
    pub error: Option<String>,
    /// The emitted value.
    pub result: Option<Box<RawValue>>,
    /// Sentences for the author of a program that ended well.
    pub warnings: Vec<String>,
}

/// Why a channel can no longer be used.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A frame announces more than 17 MiB.
    #[error("child message too large: {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Announced length.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// A frame is not one of the known messages.
    #[error("malformed message from child: {0}")]
    Malformed(String),
    /// The channel ended inside a frame.
    #[error("the child's channel ended inside a message")]
    Half,
    /// The socket failed.
    #[error("the child's channel failed")]
    Io(#[source] io::Error),
}

/// One object with the members of all messages; `t` says which are meant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    t: String,
    id: Option<u64>,
    python: Option<String>,
    tool: Option<String>,
    args: Option<Box<RawValue>>,
    ok: Option<bool>,
    error: Option<String>,
    emitted: Option<bool>,
    result: Option<Box<RawValue>>,
    warnings: Option<Vec<String>>,
}

/// Decodes one frame's bytes.
///
/// # Errors
/// Not UTF-8, not JSON, an unknown message, or a message with a member missing or one too many.
pub fn decode(bytes: &[u8]) -> Result<FromChild, ChannelError> {
    let malformed = |why: &str| ChannelError::Malformed(why.to_owned());
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("not UTF-8"))?;
    let frame: Frame = serde_json::from_str(text).map_err(|error| malformed(&error.to_string()))?;
    match frame {
        Frame { t, python: Some(python), id: None, tool: None, ok: None, .. } if t == "ready" => {
            Ok(FromChild::Ready { python: python.chars().take(64).collect() })
        }
        Frame { t, id: Some(id), tool: Some(tool), args: Some(args), ok: None, .. } if t == "call" => {
            Ok(FromChild::Call { id, tool, args })
        }
        Frame { t, id: Some(id), tool: None, ok: None, .. } if t == "cancel" => Ok(FromChild::Cancel { id }),
        Frame { t, id: None, tool: None, ok: Some(ok), error, emitted, result, warnings, .. } if t == "done" => {
            // An emitted `null` is a value, and reads as none here.
            let null = || RawValue::from_string("null".to_owned()).ok();
            let result = if emitted == Some(true) { result.or_else(null) } else { None };
            Ok(FromChild::Done(Done { ok, error, result, warnings: warnings.unwrap_or_default() }))
        }
        Frame { t, .. } => {
            let shown: String = t.chars().take(32).collect();
            Err(ChannelError::Malformed(format!("unexpected message `{shown}`")))
        }
    }
}

/// Reads one frame; `None` when the channel ended between frames.
///
/// # Errors
/// A frame over `limit`, a half frame, a malformed one, or a failed socket.
pub(super) async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<FromChild>, ChannelError> {
    let mut head = [0_u8; 4];
    let mut filled = 0;
    while filled < head.len() {
        let rest = head.get_mut(filled..).unwrap_or_default();
        match reader.read(rest).await {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(ChannelError::Half),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && filled == 0 => return Ok(None),
            Err(error) => return Err(ChannelError::Io(error)),
        }
    }
    let announced = u32::from_be_bytes(head);
    let length = usize::try_from(announced).unwrap_or(usize::MAX);
    if length > limit {
        return Err(ChannelError::TooLarge { bytes: u64::from(announced), limit });
    }
    let mut body = Vec::with_capacity(length.min(FIRST_PIECE));
    let mut left = reader.take(u64::from(announced));
    left.read_to_end(&mut body).await.map_err(ChannelError::Io)?;
    if body.len() < length {
        return Err(ChannelError::Half);
    }
    decode(&body).map(Some)
}

/// The bytes of a frame.
///
/// # Errors
/// The text is over 4 GiB.
pub(super) fn frame(text: &str) -> Result<Vec<u8>, ChannelError> {
    let length = u32::try_from(text.len())
        .map_err(|_| ChannelError::Malformed(format!("an answer of {} bytes does not fit a frame", text.len())))?;
    let mut bytes = Vec::with_capacity(text.len() + 4);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn malformed(text: &str) -> String {
        match decode(text.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(message) => panic!("{message:?} was accepted"),
        }
    }

    #[test]
    fn the_four_messages_are_understood() {
        assert!(
            matches!(decode(br#"{"t":"ready","python":"3.11.7"}"#), Ok(FromChild::Ready { python }) if python == "3.11.7")
        );
        let Ok(FromChild::Call { id, tool, args }) =
            decode(br#"{"t":"call","id":7,"tool":"a","args":{"n":123456789012345678901234567890}}"#)
        else {
            panic!("no call")
        };
        assert_eq!((id, tool.as_str(), args.get()), (7, "a", r#"{"n":123456789012345678901234567890}"#));
        assert!(matches!(decode(br#"{"t":"cancel","id":7}"#), Ok(FromChild::Cancel { id: 7 })));
        let Ok(FromChild::Done(done)) =
            decode(br#"{"t":"done","ok":true,"error":null,"emitted":true,"result":null,"warnings":[]}"#)
        else {
            panic!("no report")
        };
        assert_eq!((done.ok, done.result.as_deref().map(RawValue::get)), (true, Some("null")));
    }

    #[test]
    fn unknown_or_incomplete_messages_are_refused() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"t":"call","id":1}"#,
            r#"{"t":"call","id":-1,"tool":"a","args":{}}"#,
            r#"{"t":"done"}"#,
            r#"{"t":"x"}"#,
            r#"{"t":"ready","python":"3","extra":1}"#,
            r#"{"t":"done","ok":true,"id":1}"#,
            r#"{"t":"call","id":1,"tool":"a","args":NaN}"#,
            r#"{"t":"cancel","id":1}x"#,
        ] {
            assert!(malformed(text).starts_with("malformed message from child"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_huge_length_is_refused_before_memory_is_taken() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, b'{'];
        assert!(matches!(
            read(&mut bytes, MAX_FROM_CHILD).await,
            Err(ChannelError::TooLarge { bytes: 0xffff_ffff, .. })
        ));
    }

    #[tokio::test]
    async fn half_frames_and_clean_ends_differ() {
        let mut none: &[u8] = &[];
        assert!(matches!(read(&mut none, 100).await, Ok(None)));
        for half in [&[0_u8, 0][..], &[0, 0, 0, 9, b'{'][..]] {
            let mut half = half;
            assert!(matches!(read(&mut half, 100).await, Err(ChannelError::Half)));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _either = decode(&bytes);
        }
    }
}
