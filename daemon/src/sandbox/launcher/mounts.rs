//! The child's file view: a private read-only tree that holds the granted files at their usual places and nothing else.
//!
//! Every source is opened first and mounted from its descriptor, made read-only while it is attached nowhere, so that no
//! path is looked up twice and no moment exists in which something writable is visible.

use std::{
    fs::{self, DirBuilder},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt as _, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    },
};

use super::OnStep as _;
use crate::sandbox::{
    ChildLimits,
    error::{Fault, Step},
    sys::linux,
    view::{Kind, View},
};

/// The working directory of every program.
pub(super) const SCRATCH: &str = "/scratch";
/// Files in it at once.
const SCRATCH_FILES: &str = "4096";
/// Where the new tree is attached while it is being built: a folder that exists everywhere this works.
const BUILD_SITE: &str = "/proc";

const READ_ONLY: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY;
const INERT: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
const NO_EXEC: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOEXEC;

/// Opens all sources, in the order of the view's grants, after cutting this namespace off from the host's mounts.
pub(super) fn open(view: &View) -> Result<Vec<OwnedFd>, Fault> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .on(Step::View, "making mounts private")?;
    view.grants
        .iter()
        .map(|grant| {
            rustix::fs::open(&grant.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .on(Step::View, grant.path.to_string_lossy())
        })
        .collect()
}

/// Builds the tree, makes it this process's whole world and enters the scratch directory.
pub(super) fn enter(view: &View, sources: Vec<OwnedFd>, limits: &ChildLimits) -> Result<(), Fault> {
    let root = tmpfs(&[("size", "1m"), ("nr_inodes", "1024"), ("mode", "755")], INERT).on(Step::View, "root")?;
    attach(root.as_fd(), Path::new(BUILD_SITE)).on(Step::View, "root")?;
    rustix::process::fchdir(&root).on(Step::View, "root")?;

    for (grant, source) in view.grants.iter().zip(sources) {
        let named = |error: io::Error| (error, grant.path.clone());
        bind(&source, &grant.path, grant.kind).map_err(named).on_path()?;
    }
    if !view.masks.is_empty() {
        let empty = tmpfs(&[("size", "4k"), ("nr_inodes", "1"), ("mode", "555")], INERT | NO_EXEC | READ_ONLY)
            .on(Step::View, "mask")?;
        for mask in &view.masks {
            let place = relative(mask);
            clone(&empty).and_then(|copy| attach(copy.as_fd(), place)).map_err(|e| (e, mask.clone())).on_path()?;
        }
    }
    for (place, target) in &view.links {
        let make = || -> io::Result<()> {
            if let Some(folder) = relative(place).parent() {
                folders(folder)?;
            }
            symlink(target, relative(place))
        };
        make().map_err(|error| (error, place.clone())).on_path()?;
    }
    let size = limits.scratch_bytes.to_string();
    let scratch = tmpfs(&[("size", size.as_str()), ("nr_inodes", SCRATCH_FILES), ("mode", "700")], INERT | NO_EXEC)
        .on(Step::View, "scratch")?;
    folders(relative(Path::new(SCRATCH))).on(Step::View, "scratch")?;
    attach(scratch.as_fd(), relative(Path::new(SCRATCH))).on(Step::View, "scratch")?;
    symlink("scratch", "tmp").on(Step::View, "/tmp")?;

    rustix::process::pivot_root(".", ".").on(Step::View, "pivot_root")?;
    // The old root lies on top of the new one now.
    rustix::mount::unmount(".", UnmountFlags::DETACH).on(Step::View, "leaving the old root")?;
    linux::set_mount_attributes(root.as_fd(), u64::from((READ_ONLY | INERT | NO_EXEC).bits()), false)
        .on(Step::View, "read-only root")?;
    rustix::process::chdir(SCRATCH).on(Step::Scratch, SCRATCH)
}

/// A fresh in-memory file system, attached nowhere.
fn tmpfs(options: &[(&str, &str)], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// A copy of a mount, or of the place a descriptor names, attached nowhere.
fn clone(source: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(source, "", flags)?)
}

fn attach(mount: BorrowedFd<'_>, place: &Path) -> io::Result<()> {
    Ok(rustix::mount::move_mount(mount, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Shows a source at its place, relative to the new root, which is the working directory.
fn bind(source: &OwnedFd, path: &Path, kind: Kind) -> io::Result<()> {
    let attributes = match kind {
        // Shared objects cannot be mapped as code from a mount that forbids execution.
        Kind::Image | Kind::Library | Kind::Modules => READ_ONLY | INERT,
        Kind::Data => READ_ONLY | INERT | NO_EXEC,
        // Devices are written all the same; their modes and times are not.
        Kind::Device => READ_ONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | NO_EXEC,
    };
    let place = relative(path);
    match kind {
        Kind::Modules | Kind::Data => folders(place)?,
        Kind::Image | Kind::Library | Kind::Device => {
            if let Some(folder) = place.parent() {
                folders(folder)?;
            }
            fs::File::create(place)?;
        }
    }
    let copy = clone(source)?;
    linux::set_mount_attributes(copy.as_fd(), u64::from(attributes.bits()), true)?;
    attach(copy.as_fd(), place)
}

fn folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Names the path that an error is about.
trait OnPath<T> {
    fn on_path(self) -> Result<T, Fault>;
}

impl<T> OnPath<T> for Result<T, (io::Error, PathBuf)> {
    fn on_path(self) -> Result<T, Fault> {
        self.map_err(|(error, path)| Fault {
            step: Step::View,
            errno: error.raw_os_error().unwrap_or(0),
            detail: path.to_string_lossy().into_owned(),
        })
    }
}
