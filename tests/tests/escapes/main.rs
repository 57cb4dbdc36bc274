//! The escape catalogue `fixtures/escapes.json`, every case as a program on the real daemon: as root and as a plain
//! user, at the full level and at the reduced one, and without a sandbox to prove that the canaries can be reached.

#[cfg(target_os = "linux")]
mod catalogue;
#[cfg(target_os = "linux")]
mod stage;

#[cfg(target_os = "linux")]
mod linux {
    use crate::{
        catalogue::{Case, Expect, catalogue},
        stage::{Stage, User},
    };

    /// Runs all cases and returns those that did not end as they should, with what happened.
    async fn run_all(stage: &Stage, cases: &[Case]) -> Vec<String> {
        let mut wrong = Vec::new();
        for ended in stage.run(cases).await {
            if let Some(reason) = ended.case.complaint(&ended.outcome) {
                wrong.push(format!("{}: {reason}", ended.case.id));
            }
        }
        stage.assert_well().await;
        wrong
    }

    async fn full_level(user: User) {
        let stage = Stage::set("linux", user);
        let wrong = run_all(&stage, &catalogue().cases).await;
        assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[tokio::test]
    async fn nothing_gets_out_when_the_daemon_is_root() {
        if User::Root.is_possible() {
            full_level(User::Root).await;
        }
    }

    #[tokio::test]
    async fn nothing_gets_out_when_the_daemon_is_a_plain_user() {
        full_level(User::Plain).await;
    }

    /// The reduced level lets through exactly what the catalogue says it does.
    #[tokio::test]
    async fn the_reduced_level_lets_through_what_is_documented() {
        let stage = Stage::set("landlock", User::Plain);
        let cases: Vec<_> = catalogue().cases.into_iter().filter(|case| !case.depends_on_the_daemon()).collect();
        let wrong = run_all(&stage, &cases).await;
        let named = |case: &&Case| wrong.iter().any(|line| line.starts_with(&format!("{}:", case.id)));
        let undocumented: Vec<_> =
            cases.iter().filter(named).filter(|case| !case.open_in_landlock).map(|c| &c.id).collect();
        assert!(undocumented.is_empty(), "{}", wrong.join("\n"));
        let closed: Vec<_> =
            cases.iter().filter(|case| case.open_in_landlock).filter(|case| !named(case)).map(|c| &c.id).collect();
        assert!(closed.is_empty(), "said to be open, but blocked: {closed:?}");
    }

    /// What reaches out to a canary gets there when there is no sandbox: a blocked case was blocked by the sandbox.
    #[tokio::test]
    async fn canaries_can_be_reached_without_a_sandbox() {
        const REACHABLE: &[&str] = &[
            "read_etc_passwd",
            "read_canary",
            "read_home_listing",
            "read_root_listing",
            "read_dotdot",
            "read_import_from_host",
            "read_symlink_in_scratch",
            "read_sendfile_copy",
            "read_link_chain",
            "read_fileinput_url",
            "read_proc_environ",
            "read_opath_dup",
            "exist_stat",
            "exist_open",
            "exist_access",
            "write_new_next_to_canary",
            "write_symlink_dir",
            "write_rename_out",
            "write_hardlink_in",
            "write_otmpfile_link",
            "net_tcp_loopback",
            "net_udp_loopback",
            "net_unix_path",
            "net_unix_abstract",
            "net_dgram_pair_sendto",
            "proc_fork",
            "proc_subprocess",
            "proc_exec_sh",
            "proc_kill_daemon",
            "proc_tgkill_victim",
            "proc_prlimit_victim",
            "proc_signal_everyone",
            "kernel_keyctl",
            "kernel_inotify",
            "kernel_raw_machine_code",
            "kernel_shared_anonymous",
            "kernel_personality",
            "leak_host_pids",
            "leak_hostname",
            "net_peercred",
        ];
        let stage = Stage::set("none", User::Plain);
        let cases: Vec<_> =
            catalogue().cases.into_iter().filter(|case| REACHABLE.contains(&case.id.as_str())).collect();
        let mut blocked = Vec::new();
        for ended in stage.run(&cases).await {
            assert_eq!(ended.case.expect, Expect::Blocked, "{}", ended.case.id);
            if !ended.outcome.output.contains("ESCAPED") {
                blocked.push(format!("{}: {}", ended.case.id, ended.outcome.output));
            }
        }
        assert!(blocked.is_empty(), "not reachable without a sandbox:\n{}", blocked.join("\n"));
        assert_eq!(cases.len(), REACHABLE.len());
    }
}
