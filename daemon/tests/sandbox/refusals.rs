//! What cannot be had is refused, with the step, the system's error and a remedy, and never replaced by less.

use std::{fs, os::unix::fs::PermissionsExt as _};

use ptc_protocol::api::LayerState;
use ptcd::{
    config::settings::SandboxChoice,
    guardian::Guardian,
    sandbox::{ChildLimits, Sandbox, SandboxError, Step},
};

use crate::plan;

#[tokio::test]
async fn a_system_without_user_namespaces_refuses_and_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    // A launcher that runs where no further user namespace may be made.
    let launcher = home.path().join("launcher");
    let script = format!(
        "#!/bin/sh\nexec unshare --user --map-root-user /bin/sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec {} \"$@\"' sh \"$@\"\n",
        env!("CARGO_BIN_EXE_ptcd")
    );
    fs::write(&launcher, script).unwrap();
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    for choice in [SandboxChoice::Auto, SandboxChoice::Linux] {
        let mut plan = plan(choice, home.path(), ChildLimits::default());
        plan.launcher.clone_from(&launcher);
        let sandbox = Sandbox::prepare(plan, Guardian::absent()).await;
        let refusal = sandbox.refusal().expect("there are no namespaces to be had").clone();
        assert!(matches!(&refusal, SandboxError::Step { fault, .. } if fault.step == Step::Namespaces), "{refusal}");
        let text = refusal.to_string();
        for part in ["`linux`", "creating namespaces failed", "No space left on device", "execution.sandbox: landlock"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(sandbox.spawn().await.unwrap_err().to_string(), text);
        let status = sandbox.status();
        assert_eq!((status.level.as_str(), status.error), ("linux", Some(text)));
        assert_eq!(status.layers.len(), 1);
        assert_eq!(status.layers[0].state, LayerState::MissingMandatory);
    }
}

#[tokio::test]
async fn another_systems_level_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let plan = plan(SandboxChoice::Seatbelt, home.path(), ChildLimits::default());
    let sandbox = Sandbox::prepare(plan, Guardian::absent()).await;
    assert!(sandbox.refusal().unwrap().to_string().contains("set `execution.sandbox: auto`"));
    assert!(sandbox.spawn().await.is_err());
}

#[tokio::test]
async fn status_names_every_layer() {
    let home = tempfile::tempdir().unwrap();
    let names = |sandbox: &Sandbox| sandbox.status().layers.into_iter().map(|layer| layer.name).collect::<Vec<_>>();
    let sandbox = crate::prepared(SandboxChoice::Linux, home.path(), ChildLimits::default()).await;
    let full = [
        "namespaces",
        "file view",
        "privileges",
        "seccomp",
        "limits",
        "landlock",
        "write xor execute",
        "cgroup",
        "self-test",
    ];
    assert_eq!(names(&sandbox), full);
    let sandbox = crate::prepared(SandboxChoice::Landlock, home.path(), ChildLimits::default()).await;
    let status = sandbox.status();
    assert_eq!((status.layers[0].name.as_str(), status.layers[0].state), ("namespaces", LayerState::MissingDepth));
}
