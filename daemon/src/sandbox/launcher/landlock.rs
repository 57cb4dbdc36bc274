//! Landlock rules: a second wall behind the mount view, and the first one where there is none.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, Scope, make_bitflags,
};

use super::fault;
use crate::sandbox::{
    Level,
    error::{Fault, Step},
    sys::linux,
    view::{Grant, Kind, View},
};

/// The newest ABI whose rights are handled; the kernel takes those it knows.
const NEWEST: ABI = ABI::V10;

/// Rules that are ready to be enforced.
pub(super) struct Rules {
    ruleset: RulesetCreated,
    abi: u32,
}

/// Makes the rules: what the view grants may be read, the scratch directory used, and nothing else touched; no network,
/// no signals and no abstract sockets across the border.
pub(super) fn rules(level: Level, view: &View, scratch: &Path) -> Result<Rules, Fault> {
    let plain = |error: landlock::RulesetError| fault(Step::Landlock, 0, error.to_string());
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(plain)?;
    let mut grant = |path: &Path, access: BitFlags<AccessFs>| {
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
        let place = PathFd::new(path).map_err(|error| fault(Step::Landlock, 0, error.to_string()))?;
        (&mut ruleset).add_rule(PathBeneath::new(place, access)).map(drop).map_err(plain)
    };
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    for Grant { path, kind } in &view.grants {
        match kind {
            Kind::Image => grant(path, read | AccessFs::Execute)?,
            Kind::Device => grant(path, read | AccessFs::WriteFile)?,
            Kind::Library | Kind::Data => grant(path, read)?,
            // Without a mount view nothing masks what lies in the folder, so it is granted piece by piece; the names
            // in it, which imports need, can be listed.
            Kind::Modules if level == Level::Landlock => grant(path, AccessFs::ReadDir.into())?,
            Kind::Modules => grant(path, read)?,
        }
    }
    if level == Level::Landlock {
        view.entries.iter().filter(|entry| entry.exists()).try_for_each(|entry| grant(entry, read))?;
    }
    // Not MakeChar, MakeBlock, MakeSock, Execute, IoctlDev.
    let use_scratch = make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | Refer | RemoveFile | RemoveDir | MakeReg | MakeDir | MakeSym | MakeFifo
    });
    grant(scratch, use_scratch)?;
    Ok(Rules { ruleset, abi: linux::landlock_abi() })
}

impl Rules {
    /// The kernel's ABI, 0 when it has no Landlock.
    pub(super) const fn abi(&self) -> u32 {
        self.abi
    }

    /// Puts the rules in force for this process and what it executes.
    pub(super) fn enforce(self) -> Result<(), Fault> {
        match self.ruleset.restrict_self() {
            Ok(status) if status.ruleset != landlock::RulesetStatus::NotEnforced => Ok(()),
            Ok(_) => Err(fault(Step::Landlock, 0, "not enforced")),
            Err(error) => Err(fault(Step::Landlock, 0, error.to_string())),
        }
    }
}
