//! The Linux levels from inside: the forked child closes one door after the other on itself, then becomes the
//! interpreter. Every door that cannot be closed ends it.

use std::{
    convert::Infallible,
    ffi::CString,
    io::Read as _,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    process::{Gid, Resource, Signal, Uid, set_parent_process_death_signal},
    thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets},
};

use super::{OnStep as _, common_limits, confined, fault, landlock, limit, mounts};
use crate::sandbox::{
    Level,
    control::{self, Order, Report},
    error::{Fault, Step},
    seccomp::{self, Arch, Attributes, Policy},
    sys::linux::{self, Listener},
};

/// Names of the depth layers in reports.
pub(in crate::sandbox) const LANDLOCK: &str = "landlock";
pub(in crate::sandbox) const MEMORY_PROTECTION: &str = "write xor execute";
/// What Landlock must at least offer where it carries the promise: ABI 2 mediates moving files between folders.
const LANDLOCK_ALONE: u32 = 2;
/// The first Landlock ABI that mediates truncating.
const LANDLOCK_TRUNCATE: u32 = 3;

/// Confines this process as ordered and executes the interpreter.
pub(super) fn run(order: &Order, channel: OwnedFd, sync: &UnixStream, root: bool) -> Result<Infallible, Fault> {
    die_with_parent()?;
    // The parent maps the user first; should it be gone already, this ends here.
    (&mut &*sync).read_exact(&mut [0]).on(Step::UserMap, "the monitor is gone")?;
    let view = order.view.as_ref().ok_or_else(|| fault(Step::Order, 0, "no file view"))?;
    let (image, arguments) = command_line(order)?;
    let scratch = match order.level {
        Level::Linux => {
            // What only root can reach is opened while this process still is root.
            let sources = mounts::open(view)?;
            // The mounts need the capabilities of this process's own namespace.
            rustix::thread::set_keep_capabilities(true).on(Step::Identity, "keepcaps")?;
            become_user(confined::INNER_ID)?;
            mounts::enter(view, sources, &order.limits)?;
            std::path::Path::new(mounts::SCRATCH)
        }
        Level::Landlock => {
            let scratch = order.scratch.as_deref().ok_or_else(|| fault(Step::Order, 0, "no scratch directory"))?;
            rustix::process::chdir(scratch).on(Step::Scratch, "chdir")?;
            scratch
        }
        Level::Seatbelt | Level::None => return Err(fault(Step::Order, 0, "not a Linux level")),
    };
    // After the view, so that descriptor 0 is a file of the view, too.
    super::arrange_descriptors(channel)?;
    let mut missing = Vec::new();
    if order.level == Level::Linux {
        // Counted in the user namespace, so that the user's other processes do not matter.
        limit(Resource::Nproc, order.limits.threads)?;
        rustix::system::sethostname(b"sandbox").on(Step::Namespaces, "sethostname")?;
        rustix::system::setdomainname(b"").on(Step::Namespaces, "setdomainname")?;
    }
    common_limits(&order.limits)?;
    for resource in [Resource::Memlock, Resource::Msgqueue, Resource::Nice, Resource::Rtprio] {
        limit(resource, 0)?;
    }
    limit(Resource::Sigpending, 256)?;

    // Landlock's rules name paths that nobody may not reach, so they are made before the user changes.
    let rules = landlock::rules(order.level, view, scratch)?;
    let truncate_by_path = order.level == Level::Linux || rules.abi() >= LANDLOCK_TRUNCATE;
    drop_privileges(order.level, root)?;
    die_with_parent()?;
    rustix::thread::set_no_new_privs(true).on(Step::NoNewPrivileges, "")?;
    if order.write_xor_execute
        && let Err(error) = linux::deny_write_execute()
    {
        missing.push((MEMORY_PROTECTION.to_owned(), error.to_string()));
    }
    match rules.abi() {
        0 if order.level == Level::Linux => missing.push((LANDLOCK.to_owned(), "the kernel offers none".to_owned())),
        abi if abi < LANDLOCK_ALONE && order.level != Level::Linux => {
            return Err(fault(Step::Landlock, 0, format!("ABI {abi} where {LANDLOCK_ALONE} is needed")));
        }
        _ => rules.enforce()?,
    }

    let arch = Arch::native().ok_or_else(|| fault(Step::Seccomp, 0, "unknown architecture"))?;
    let policy = Policy {
        own_pid: rustix::process::getpid().as_raw_nonzero().get().unsigned_abs(),
        attributes: if order.level == Level::Linux { Attributes::Real } else { Attributes::Pretended },
        truncate_by_path,
        write_xor_execute: order.write_xor_execute,
    };
    let once = seccomp::one_exec(arch).assemble();
    let always = seccomp::allowlist(arch, policy).assemble();
    let listener = linux::install_filter(&once, Listener::Wanted).on(Step::Seccomp, "one-shot exec")?;
    let listener = listener.ok_or_else(|| fault(Step::Seccomp, 0, "no listener"))?;
    control::send_with(sync, &Report::Prepared { missing }, &[listener.as_fd()]).on(Step::Seccomp, "listener")?;
    linux::install_filter(&always, Listener::None).on(Step::Seccomp, "allowlist")?;
    let error = linux::execute(&image, &arguments);
    Err(fault(Step::Exec, error.raw_os_error().unwrap_or(0), order.image.to_string_lossy()))
}

/// The image and its arguments as C strings, made while memory may still be asked for.
fn command_line(order: &Order) -> Result<(CString, Vec<CString>), Fault> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| fault(Step::Order, 0, "a NUL in the command line"));
    let image = text(order.image.as_os_str().as_encoded_bytes())?;
    let mut arguments = vec![image.clone()];
    for argument in &order.arguments {
        arguments.push(text(argument.as_bytes())?);
    }
    Ok((image, arguments))
}

/// Has the kernel kill this process when its parent, the monitor, dies. A change of user ids forgets it.
fn die_with_parent() -> Result<(), Fault> {
    set_parent_process_death_signal(Some(Signal::KILL)).on(Step::Fork, "death signal")
}

/// Becomes another user in every respect.
fn become_user(id: u32) -> Result<(), Fault> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_res_gid(gid, gid, gid).on(Step::Identity, "setresgid")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).on(Step::Identity, "setresuid")
}

/// Gives up all powers for good.
fn drop_privileges(level: Level, root: bool) -> Result<(), Fault> {
    let namespaces = level == Level::Linux;
    if namespaces || root {
        linux::drop_bounding_set().on(Step::Capabilities, "bounding set")?;
        let locked = CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
        rustix::thread::set_capabilities_secure_bits(locked).on(Step::Capabilities, "securebits")?;
        if !namespaces {
            rustix::fs::chown(".", Some(Uid::from_raw(confined::NOBODY)), Some(Gid::from_raw(confined::NOBODY)))
                .on(Step::Scratch, "chown")?;
            become_user(confined::NOBODY)?;
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .on(Step::Capabilities, "capset")
}
