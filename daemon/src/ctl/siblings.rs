//! The other binaries of this installation.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, path::PathBuf};

use anyhow::{Context as _, bail};

/// The binary of this name beside the running one; what follows `ptcctl` in our own name follows the other's too, so that
/// installations side by side (`ptcctl-0.1`) find their own. Links to us are not followed where the system tells of
/// them: a package manager keeps the link and moves what is behind it.
pub(super) fn find(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let suffix = own.file_name().and_then(|own| own.as_bytes().strip_prefix(b"ptcctl")).unwrap_or_default();
    let mut full = OsString::from(name);
    full.push(std::ffi::OsStr::from_bytes(suffix));
    let beside = own.with_file_name(full);
    if !beside.is_file() {
        bail!("there is no `{}`; install {name} beside ptcctl", beside.display());
    }
    Ok(beside)
}
