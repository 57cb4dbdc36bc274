//! The escape catalogue `fixtures/escapes.json`, every case as a program on the real daemon: as root and as a plain
//! user, at the full level and at the reduced one, and without a sandbox to prove that the canaries can be reached.
//! On a Mac, `make test-macos` runs what applies there.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the macOS suite uses a part of the stage"))]

mod catalogue;
mod stage;

use catalogue::Case;
use stage::Stage;

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

#[cfg(target_os = "linux")]
mod linux {
    use std::{fs, time::Duration};

    use ptc_tests::{
        process::{Witness, all_gone, descendants},
        until,
        wait::PATIENCE,
    };

    use crate::{
        catalogue::{Case, Expect, catalogue},
        run_all,
        stage::{Stage, User},
    };

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

    /// Bounded at the reduced level, but by other means and not at once: the launcher's watch over the scratch directory
    /// ends the program a moment later, and threads are bounded by their memory.
    const BOUNDED_LATER: &[&str] = &["limit_inodes", "limit_shared_scratch", "limit_deep_dirs", "limit_threads"];

    /// The reduced level lets through exactly what the catalogue says it does.
    #[tokio::test]
    async fn the_reduced_level_lets_through_what_is_documented() {
        let stage = Stage::set("landlock", User::Plain);
        let cases: Vec<_> = catalogue()
            .cases
            .into_iter()
            .filter(|case| !case.depends_on_the_daemon() && !BOUNDED_LATER.contains(&case.id.as_str()))
            .collect();
        let wrong = run_all(&stage, &cases).await;
        let named = |case: &&Case| wrong.iter().any(|line| line.starts_with(&format!("{}:", case.id)));
        let undocumented: Vec<_> =
            cases.iter().filter(named).filter(|case| !case.open_in_landlock).map(|c| &c.id).collect();
        assert!(undocumented.is_empty(), "{}", wrong.join("\n"));
        let closed: Vec<_> =
            cases.iter().filter(|case| case.open_in_landlock).filter(|case| !named(case)).map(|c| &c.id).collect();
        assert!(closed.is_empty(), "said to be open, but blocked: {closed:?}");
    }

    /// What the reduced level bounds later, it does bound.
    #[tokio::test]
    async fn the_reduced_level_watches_threads_and_scratch() {
        const THREADS: &str = "import threading, time\nthreading.stack_size(32768)\n\
            for i in range(300): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\ntime.sleep(60)";
        const FILES: &str = "import time\nfor i in range(5000): open(f'f{i}', 'x')\ntime.sleep(60)";
        let stage = Stage::set("landlock", User::Plain);
        assert_eq!(stage.wait_ready().await, None);
        for (code, limit) in [(THREADS, "over its limit of threads"), (FILES, "over its scratch space limit")] {
            let error = stage.outcome(code, 30).await.error.map(|error| error.message).unwrap_or_default();
            assert!(error.contains(limit), "{error}");
        }
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

    /// The daemon is killed without a word while a program runs: no process and no scratch directory is left.
    #[tokio::test]
    async fn a_killed_daemon_takes_its_programs_along() {
        for level in ["linux", "landlock"] {
            let mut stage = Stage::set(level, User::Plain);
            stage.wait_ready().await;
            let program = stage.start("import time\nopen('file', 'w').write('x')\ntime.sleep(600)");
            let runs = |witness: &Witness| witness.command.contains(" -I -S -B -c ");
            let family = loop {
                let status = stage.status().await;
                let family = descendants(stage.daemon_pid());
                if status.pool.running > 0 && family.iter().any(runs) {
                    break family;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            stage.kill_daemon();
            all_gone(&family, PATIENCE);
            let scratch = stage.scratch_root();
            until("no scratch directory", PATIENCE, || {
                fs::read_dir(&scratch).map_or(true, |mut entries| entries.next().is_none()).then_some(())
            });
            drop(program);
        }
    }
}

/// For a person with a Mac: nothing of this has ever run there.
#[cfg(target_os = "macos")]
mod macos {
    use crate::{
        catalogue::catalogue,
        run_all,
        stage::{Stage, User},
    };

    /// Its loader needs the listing of `/`, whose names are the same on every Mac.
    const KNOWN: &[&str] = &["read_root_listing"];

    #[tokio::test]
    #[ignore = "needs a Mac: make test-macos"]
    async fn nothing_gets_out() {
        let stage = Stage::set("seatbelt", User::Plain);
        let mut wrong = run_all(&stage, &catalogue().cases).await;
        wrong.retain(|line| !KNOWN.iter().any(|id| line.starts_with(&format!("{id}:"))));
        assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[tokio::test]
    #[ignore = "needs a Mac: make test-macos"]
    async fn memory_and_scratch_are_bounded_by_the_launcher() {
        let stage = Stage::set("seatbelt", User::Plain);
        let memory = stage.outcome("x = []\nwhile True: x.append(bytearray(16 << 20))", 60).await;
        assert!(!memory.ok && memory.error.is_some_and(|error| error.message.contains("memory")), "no limit on memory");
        let code = "import time\nfor i in range(40): open(f'f{i}', 'wb').write(bytes([1]) * (4 << 20))\ntime.sleep(30)";
        let scratch = stage.outcome(code, 60).await;
        assert!(
            !scratch.ok && scratch.error.is_some_and(|error| error.message.contains("scratch")),
            "no limit on scratch"
        );
    }
}
