//! `ptcctl install` and `uninstall`: ptcd as a service of this user, under launchd or systemd.
//!
//! [`plan`] decides, as data, what is written and run; `--dry-run` prints it and [`steps::carry_out`] does it.

mod launchd;
mod path;
mod plan;
mod service;
mod steps;
mod systemd;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use ptc_protocol::{
    exit,
    launch::{LAUNCHD_LABEL as LABEL, SYSTEMD_UNIT as UNIT},
    paths,
};

pub(in crate::ctl) use self::plan::Manager;
use self::service::Service;
use super::{
    cli::{Common, InstallArgs},
    output::print,
};

/// Writes the service's definition and starts it.
pub(super) async fn install(common: &Common, args: &InstallArgs) -> anyhow::Result<u8> {
    refuse_sudo()?;
    let manager = Manager::of_this_system();
    let file = manager.file(&home()?, std::env::var_os("XDG_CONFIG_HOME"));
    let service = Service::from_here(common, args)?;
    let text = match manager {
        Manager::Launchd => launchd::plist(&service)?,
        Manager::Systemd => systemd::unit(&service)?,
    };
    let socket = paths::socket_path(common.socket.as_deref())?;
    let start = if args.no_start { plan::Start::No } else { plan::Start::Yes };
    let steps = plan::install(manager, uid(), &file, &text, &service.log_dir, start);
    if args.dry_run {
        print(&steps::describe(&steps))?;
        return Ok(exit::OK);
    }
    if steps::is_done(&file, &text) && (args.no_start || steps::is_running(manager, uid())) {
        print(&format!("already installed: {}\n", file.display()))?;
        return Ok(exit::OK);
    }
    steps::carry_out(&steps, &socket).await?;
    print(&plan::installed(manager, &file, &service.log_dir, start))?;
    Ok(exit::OK)
}

/// Stops the service and removes its definition.
pub(super) async fn uninstall(common: &Common, dry_run: bool) -> anyhow::Result<u8> {
    refuse_sudo()?;
    let manager = Manager::of_this_system();
    let file = manager.file(&home()?, std::env::var_os("XDG_CONFIG_HOME"));
    let steps = plan::uninstall(manager, uid(), &file);
    if dry_run {
        print(&steps::describe(&steps))?;
        return Ok(exit::OK);
    }
    if !file.exists() {
        print(&format!("not installed: there is no {}\n", file.display()))?;
        return Ok(exit::OK);
    }
    let socket = paths::socket_path(common.socket.as_deref())?;
    steps::carry_out(&steps, &socket).await?;
    let config = paths::config_path(common.config.as_deref())?;
    let logs = paths::log_dir(common.state_dir.as_deref())?;
    print(&format!("uninstalled; kept: the config {} and the logs in {}\n", config.path.display(), logs.display()))?;
    Ok(exit::OK)
}

/// The definition's file, and whether it is there.
pub(in crate::ctl) fn installed() -> Option<(PathBuf, bool)> {
    let file = Manager::of_this_system().file(&home().ok()?, std::env::var_os("XDG_CONFIG_HOME"));
    let there = file.exists();
    Some((file, there))
}

/// Whether the service manager runs the service now.
pub(in crate::ctl) fn running() -> bool {
    steps::is_running(Manager::of_this_system(), uid())
}

fn home() -> anyhow::Result<PathBuf> {
    paths::home(&paths::process_environment).context("HOME is not set")
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Under sudo the files would belong to root in the person's home, and the service to root's session.
fn refuse_sudo() -> anyhow::Result<()> {
    let person = std::env::var("SUDO_USER").unwrap_or_default();
    if uid() == 0 && !person.is_empty() && person != "root" {
        bail!("ptcd is a service of one user, not of the system: run this as {person}, without sudo");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn service(ptcd: &str) -> Service {
        Service {
            ptcd: ptcd.into(),
            options: vec![],
            variables: vec![("PATH".into(), "/opt/homebrew/bin:/usr/bin".into())],
            home: "/home/me".into(),
            log_dir: "/home/me/logs".into(),
        }
    }
}
