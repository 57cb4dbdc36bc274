//! Decides what installing and uninstalling mean, as data.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::{
    LABEL, UNIT, launchd,
    steps::{Command, Step},
    systemd,
};

/// Who runs services here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ctl) enum Manager {
    /// macOS.
    Launchd,
    /// Linux.
    Systemd,
}

impl Manager {
    /// By operating system.
    pub(in crate::ctl) const fn of_this_system() -> Self {
        if cfg!(target_os = "macos") { Self::Launchd } else { Self::Systemd }
    }

    /// Where the definition belongs.
    pub(super) fn file(self, home: &Path, config_home: Option<OsString>) -> PathBuf {
        match self {
            Self::Launchd => home.join("Library/LaunchAgents").join(format!("{LABEL}.plist")),
            Self::Systemd => config_home
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .unwrap_or_else(|| home.join(".config"))
                .join("systemd/user")
                .join(UNIT),
        }
    }

    /// Exits 0 while the service runs.
    pub(super) fn probe(self, uid: u32) -> Command {
        match self {
            Self::Launchd => launchd::probe(uid),
            Self::Systemd => systemd::probe(),
        }
    }
}

/// Whether the service is started after its files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Yes,
    No,
}

/// Folders, the definition, and the commands that make it run.
pub(super) fn install(manager: Manager, uid: u32, file: &Path, text: &str, log_dir: &Path, start: Start) -> Vec<Step> {
    let mut steps =
        vec![Step::Folder { path: log_dir.to_owned() }, Step::Write { path: file.to_owned(), text: text.to_owned() }];
    if start == Start::Yes {
        let (stop, run) = match manager {
            Manager::Launchd => (launchd::stop(uid), launchd::load(uid, file)),
            Manager::Systemd => (systemd::stop(), systemd::load()),
        };
        steps.push(Step::Run(stop));
        steps.push(Step::StopLooseDaemon);
        steps.extend(run.into_iter().map(Step::Run));
    }
    steps
}

/// The commands that end the service, then its definition.
pub(super) fn uninstall(manager: Manager, uid: u32, file: &Path) -> Vec<Step> {
    let (unload, forget) = match manager {
        Manager::Launchd => (launchd::stop(uid), None),
        Manager::Systemd => (systemd::unload(), Some(systemd::forget())),
    };
    let mut steps = vec![Step::Run(unload), Step::Remove { path: file.to_owned() }];
    steps.extend(forget.map(Step::Run));
    steps
}

/// What the person should know after an installation.
pub(super) fn installed(manager: Manager, file: &Path, log_dir: &Path, start: Start) -> String {
    let state = match start {
        Start::Yes => "installed and started",
        Start::No => "installed, not started",
    };
    let note = match manager {
        Manager::Launchd => "",
        Manager::Systemd => "It runs while you are logged in; `loginctl enable-linger` keeps it running after that.\n",
    };
    format!("{state}: {}\nLogs: {}\n{note}Check with `ptcctl doctor`.\n", file.display(), log_dir.display())
}

#[cfg(test)]
mod tests {
    use super::super::steps::describe;
    use super::*;

    #[test]
    fn definitions_go_where_each_manager_looks() {
        let home = Path::new("/home/me");
        assert_eq!(Manager::Launchd.file(home, None), Path::new("/home/me/Library/LaunchAgents/dev.ptc.ptcd.plist"));
        assert_eq!(Manager::Systemd.file(home, None), Path::new("/home/me/.config/systemd/user/ptcd.service"));
        assert_eq!(Manager::Systemd.file(home, Some("/x".into())), Path::new("/x/systemd/user/ptcd.service"));
        assert_eq!(
            Manager::Systemd.file(home, Some("x".into())),
            Path::new("/home/me/.config/systemd/user/ptcd.service")
        );
    }

    #[test]
    fn a_dry_run_shows_files_and_commands_of_launchd() {
        let steps =
            install(Manager::Launchd, 501, Path::new("/f o.plist"), "<plist/>\n", Path::new("/logs"), Start::Yes);
        insta::assert_snapshot!(describe(&steps), @r#"
        make folder /logs
        write file /f o.plist
            <plist/>
        run launchctl bootout gui/501/dev.ptc.ptcd (may fail)
        stop the ptcd that runs outside the service, if any
        run launchctl enable gui/501/dev.ptc.ptcd
        run launchctl bootstrap gui/501 '/f o.plist'
        "#);
        insta::assert_snapshot!(describe(&uninstall(Manager::Launchd, 501, Path::new("/f o.plist"))), @r#"
        run launchctl bootout gui/501/dev.ptc.ptcd (may fail)
        remove file /f o.plist
        "#);
    }

    #[test]
    fn a_dry_run_shows_files_and_commands_of_systemd() {
        let steps =
            install(Manager::Systemd, 1000, Path::new("/u/ptcd.service"), "[Unit]\n", Path::new("/logs"), Start::Yes);
        insta::assert_snapshot!(describe(&steps), @r#"
        make folder /logs
        write file /u/ptcd.service
            [Unit]
        run systemctl --user stop ptcd.service (may fail)
        stop the ptcd that runs outside the service, if any
        run systemctl --user daemon-reload
        run systemctl --user enable ptcd.service
        run systemctl --user restart ptcd.service
        "#);
        insta::assert_snapshot!(describe(&uninstall(Manager::Systemd, 1000, Path::new("/u/ptcd.service"))), @r#"
        run systemctl --user disable --now ptcd.service (may fail)
        remove file /u/ptcd.service
        run systemctl --user daemon-reload (may fail)
        "#);
    }

    #[test]
    fn without_a_start_nothing_is_run() {
        let steps = install(Manager::Systemd, 1000, Path::new("/u"), "", Path::new("/logs"), Start::No);
        assert!(steps.iter().all(|step| matches!(step, Step::Folder { .. } | Step::Write { .. })), "{steps:?}");
    }
}
