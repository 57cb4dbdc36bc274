//! What can go wrong between a client and the daemon, told apart by what the caller may do next.

use std::path::PathBuf;

use crate::{api::Problem, version::Incompatible};

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at the socket. Nothing was sent.
    #[error("cannot connect to ptcd at `{}`; start it with `ptcd run` or `ptcctl install`", socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The listener at the socket belongs to another user. Nothing was sent.
    #[error("the process that listens at `{}` belongs to user {uid}, not to you; nothing was sent to it", socket.display())]
    Foreign {
        /// The socket.
        socket: PathBuf,
        /// The listener's user id.
        uid: u32,
    },
    /// The connection ended before the answer did.
    #[error("the connection to ptcd was lost{}", if *maybe_executed { "; whether the request was carried out is not known" } else { " before the request was sent" })]
    Lost {
        /// Whether the daemon may have acted on the request.
        maybe_executed: bool,
        /// What the HTTP library said.
        #[source]
        source: hyper::Error,
    },
    /// The daemon answered that it cannot or will not.
    #[error("{}", .0.message)]
    Problem(Problem),
    /// The daemon speaks no API version of ours.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    /// No answer in time.
    #[error("ptcd at `{}` did not answer within {seconds} s", socket.display())]
    Deadline {
        /// The socket.
        socket: PathBuf,
        /// The time allowed.
        seconds: f64,
    },
    /// An answer or event over the limit.
    #[error("ptcd sent more than {limit} bytes in one answer")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// Bytes that are not what the API promises.
    #[error("{what}: {detail}")]
    Malformed {
        /// Method and path.
        what: String,
        /// What is wrong.
        detail: String,
    },
}

impl ClientError {
    /// Whether no daemon was there at all, so that starting one may help.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// The daemon's refusal, when it is one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}
