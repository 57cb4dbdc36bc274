//! The daemon itself: its binaries, its answer, its socket, its service.

use std::{
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
    time::{Duration, Instant},
};

use ptc_protocol::{
    api::{SandboxStatus, Status},
    launch::{LaunchError, ensure_running},
    version,
};

use crate::ctl::{cli::Common, connect, failure, install, render::Finding, siblings};

/// How long a daemon that was just started may try its sandbox.
const PREPARED_DEADLINE: Duration = Duration::from_secs(30);

/// Pause between two looks at it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Whether the daemon answers, started if need be and allowed.
pub(super) enum Reached {
    Answers { status: Box<Status> },
    Fails { text: String, unreachable: bool },
}

/// Tries to reach the daemon as any verb would.
pub(super) async fn reach(common: &Common) -> Reached {
    let tried = async {
        let launch = connect::launch(common)?;
        ensure_running(&launch).await?;
        let client = launch.client();
        let patience = Instant::now() + PREPARED_DEADLINE;
        loop {
            let status = client.status().await?;
            // Right after its start the daemon still tries its sandbox.
            if status.sandbox.level != SandboxStatus::PREPARING || Instant::now() > patience {
                return anyhow::Ok(status);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    match tried.await {
        Ok(status) => Reached::Answers { status: Box::new(status) },
        Err(error) => Reached::Fails {
            unreachable: matches!(error.downcast_ref(), Some(LaunchError::NotRunning { .. })),
            text: failure::text(&error),
        },
    }
}

/// The other two binaries.
pub(super) fn binaries() -> Finding {
    let missing: Vec<_> = ["ptcd", "ptc-shim"].into_iter().filter_map(|name| siblings::find(name).err()).collect();
    match missing.as_slice() {
        [] => Finding::good("binaries", "ptcd and ptc-shim are beside ptcctl"),
        errors => {
            let text: Vec<_> = errors.iter().map(|error| format!("{error:#}")).collect();
            Finding::broken("binaries", text.join("\n"))
        }
    }
}

/// The daemon's answer and its socket.
pub(super) fn findings(common: &Common, reached: &Reached) -> anyhow::Result<Vec<Finding>> {
    let socket = connect::launch(common)?.socket;
    let mut findings = Vec::new();
    match reached {
        Reached::Answers { status } => {
            let (theirs, ours) = (&status.daemon.version, version::PACKAGE);
            findings.push(Finding::good("daemon", format!("ptcd {theirs}, pid {}, answers", status.daemon.pid)));
            if theirs != ours {
                let text = format!("it is version {theirs}, this is {ours}");
                findings.push(Finding::doubtful("daemon", text).remedy("restart the daemon after an update"));
            }
            findings.extend(socket_finding(&socket));
        }
        Reached::Fails { text, unreachable: true } => findings.push(Finding::broken("daemon", text.clone())),
        Reached::Fails { text, unreachable: false } => {
            findings.push(
                Finding::broken("daemon", text.clone()).remedy("its log may say more: see the state folder's `logs`"),
            );
        }
    }
    Ok(findings)
}

/// The socket and its folder are for their owner alone.
fn socket_finding(socket: &Path) -> Vec<Finding> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let uid = rustix::process::geteuid().as_raw();
    let mut findings = Vec::new();
    for (path, what) in [(folder, "folder"), (socket, "socket")] {
        let problem = match std::fs::symlink_metadata(path) {
            Err(error) => Some(error.to_string()),
            Ok(meta) if what == "socket" && !meta.file_type().is_socket() => Some("is not a socket".into()),
            Ok(meta) if meta.uid() != uid => Some(format!("belongs to user {}", meta.uid())),
            // A sticky folder such as /tmp lets nobody replace the socket.
            Ok(meta) if meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0 => {
                Some(format!("can be written by others (mode {:o})", meta.mode() & 0o7777))
            }
            Ok(_) => None,
        };
        if let Some(problem) = problem {
            findings.push(Finding::broken("socket", format!("{}: {problem}", path.display())));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::good("socket", socket.display().to_string()));
    }
    findings
}

/// Whether ptcd is a service here. Without one it is started when needed, so that is no problem.
pub(super) fn service() -> Option<Finding> {
    let (file, installed) = install::installed()?;
    Some(match (installed, install::running()) {
        (true, true) => Finding::good("service", format!("{} is running", file.display())),
        (true, false) => Finding::doubtful("service", format!("{} is installed and does not run", file.display()))
            .remedy("`ptcctl install` starts it"),
        (false, _) => Finding::doubtful("service", "not installed; ptcd is started when it is needed")
            .remedy("`ptcctl install` keeps it running from login on"),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, os::unix::net::UnixListener};

    use super::*;
    use crate::ctl::render::Grade;

    #[test]
    fn an_open_socket_is_a_problem() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        assert_eq!(socket_finding(&socket)[0].grade, Grade::Broken);
        let _listener = UnixListener::bind(&socket).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&socket, 0o600);
        assert_eq!(socket_finding(&socket)[0].grade, Grade::Good);
        mode(&socket, 0o666);
        assert_eq!(socket_finding(&socket)[0].grade, Grade::Broken);
        mode(&socket, 0o600);
        mode(home.path(), 0o777);
        let found = socket_finding(&socket);
        assert!(found[0].grade == Grade::Broken && found[0].text.contains("777"), "{found:?}");
    }
}
