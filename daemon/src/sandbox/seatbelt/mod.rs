//! The macOS level: a Seatbelt profile ([`profile`]) and the paths that go into it ([`closure`]).
//!
//! The profile's text is made by typed code from counts alone; every path reaches it as a parameter, as data that is never
//! parsed. Nothing here calls macOS, so all of it is tested on any system; the launcher applies it.

mod closure;
mod profile;

use serde::{Deserialize, Serialize};

use super::{error::SandboxError, interpreter::Interpreter};

use self::closure::Closure;

/// The profile of one interpreter, ready to be handed to `sandbox-exec`; the scratch directory is added for each child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seatbelt {
    /// The profile's text.
    pub text: String,
    /// Names and values of its parameters but [`SCRATCH`].
    pub parameters: Vec<(String, String)>,
}

/// The parameter that holds a child's scratch directory.
pub(super) const SCRATCH: &str = "SCRATCH";

impl Seatbelt {
    /// Looks up the interpreter's files on the disk.
    pub(super) fn of(interpreter: &Interpreter) -> Result<Self, SandboxError> {
        let refused = |reason| SandboxError::Interpreter { path: interpreter.image.clone(), reason };
        let closure = Closure::of(interpreter).map_err(refused)?;
        let parameters = closure.parameters().map_err(refused)?;
        Ok(Self { text: profile::profile(&closure).text(), parameters })
    }
}
