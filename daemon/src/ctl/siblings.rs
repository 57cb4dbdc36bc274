//! The other binaries of this installation.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// The binary of this name beside the running one. Symlinks to the running one are not followed where the system tells
/// of them: a package manager keeps the link and moves what is behind it.
pub(super) fn find(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = own.with_file_name(name);
    if !beside.is_file() {
        bail!("there is no `{}`; install {name} beside ptcctl", beside.display());
    }
    Ok(beside)
}
