//! The short verbs: one question to the daemon, one answer on stdout.

use std::{io::IsTerminal as _, path::Path, time::Duration};

use clap::CommandFactory as _;
use clap_complete::Shell;
use ptc_protocol::{
    api::{DaemonStatus, Status},
    client::ToolsQuery,
    exit,
    names::{ProgramId, ServerName},
};
use serde::Serialize;

use super::{
    cli::{Cli, Common, ToolsArgs},
    connect::connect,
    failure,
    output::{print, say},
    render::{self, Look},
};
use crate::stub_folder;

/// Pause between two looks of `status --watch`.
const WATCH_STEP: Duration = Duration::from_millis(500);

/// Files of others in a folder of declarations that are named.
const FOREIGN_SHOWN: usize = 10;

/// Moves a terminal's cursor to the top and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// `ptcctl status`.
pub(super) async fn status(common: &Common, json: bool, watch: bool) -> anyhow::Result<u8> {
    let client = connect(common).await?;
    let show = |status: &Status| if json { to_json(status) } else { Ok(render::status(status, &Look::stdout())) };
    if !watch {
        print(&show(&client.status().await?)?)?;
        return Ok(exit::OK);
    }
    let clear = std::io::stdout().is_terminal() && !json;
    let mut last = None;
    loop {
        let page = match client.status().await {
            // On a terminal the ages are kept going; elsewhere only news is written.
            Ok(status) if clear || last.as_ref() != Some(&steady(&status)) => {
                let page = if json { format!("{}\n", serde_json::to_string(&status)?) } else { show(&status)? };
                last = Some(steady(&status));
                page
            }
            Ok(_) => String::new(),
            Err(error) if error.problem().is_none() => {
                last = None;
                format!("ptcctl: {}\n", failure::text(&error.into()))
            }
            Err(error) => return Err(error.into()),
        };
        if !page.is_empty() {
            let gap = if clear { CLEAR } else { "" };
            print(&format!("{gap}{page}"))?;
        }
        tokio::time::sleep(WATCH_STEP).await;
    }
}

/// The status without what changes by itself.
fn steady(status: &Status) -> Status {
    Status { daemon: DaemonStatus { uptime_seconds: 0, rss_bytes: 0, ..status.daemon.clone() }, ..status.clone() }
}

/// `ptcctl ps`.
pub(super) async fn programs(common: &Common, json: bool) -> anyhow::Result<u8> {
    let programs = connect(common).await?.programs().await?;
    print(&if json { to_json(&programs)? } else { render::programs(&programs, &Look::stdout()) })?;
    Ok(exit::OK)
}

/// `ptcctl kill`: tries all, fails when one failed.
pub(super) async fn kill(common: &Common, ids: &[String]) -> anyhow::Result<u8> {
    let client = connect(common).await?;
    let mut code = exit::OK;
    for id in ids {
        let done = async { anyhow::Ok(client.cancel(&ProgramId::parse(id.as_str())?).await?) }.await;
        code = code.max(report(done, &format!("killed {id}"))?);
    }
    Ok(code)
}

/// `ptcctl restart`: tries all, fails when one failed.
pub(super) async fn restart(common: &Common, servers: &[String]) -> anyhow::Result<u8> {
    let client = connect(common).await?;
    let mut code = exit::OK;
    for server in servers {
        let done = async { anyhow::Ok(client.restart(&ServerName::parse(server.as_str())?).await?) }.await;
        code = code.max(report(done, &format!("restarted {server}"))?);
    }
    Ok(code)
}

/// Prints how one of several wishes ended; its exit code.
fn report(done: anyhow::Result<()>, said: &str) -> anyhow::Result<u8> {
    match done {
        Ok(()) => {
            print(&format!("{said}\n"))?;
            Ok(exit::OK)
        }
        Err(error) => {
            say(&format!("ptcctl: {}\n", failure::text(&error)));
            Ok(failure::exit_code(&error))
        }
    }
}

/// `ptcctl tools`.
pub(super) async fn tools(common: &Common, args: &ToolsArgs) -> anyhow::Result<u8> {
    let client = connect(common).await?;
    let narrow = ToolsQuery { query: args.query.clone(), server: args.server.clone(), glob: args.glob.clone() };
    let answer = client.tools(&narrow).await?;
    if args.json {
        print(&to_json(&answer)?)?;
    } else if args.signatures {
        print(&render::signatures(&answer))?;
    } else {
        print(&render::tools(&answer, &Look::stdout()))?;
    }
    say(&render::unavailable(&answer));
    let asked = narrow != ToolsQuery::default();
    Ok(if asked && answer.tools.is_empty() { exit::FAILED } else { exit::OK })
}

/// `ptcctl inspect`.
pub(super) async fn inspect(common: &Common, tools: &[String], json: bool) -> anyhow::Result<u8> {
    let client = connect(common).await?;
    for (at, tool) in tools.iter().enumerate() {
        let found = client.tool(tool).await?;
        let gap = if at > 0 && !json { "\n" } else { "" };
        print(&format!("{gap}{}", if json { to_json(&found)? } else { render::description(&found) }))?;
    }
    Ok(exit::OK)
}

/// `ptcctl stubs`.
pub(super) async fn stubs(common: &Common, folder: &Path, language: &str) -> anyhow::Result<u8> {
    let stubs = connect(common).await?.stubs(language).await?;
    let done = stub_folder::update(folder, &stubs.language, &stubs.files, &stubs.absent)?;
    for path in done.foreign.iter().take(FOREIGN_SHOWN) {
        say(&format!("ptcctl: left alone, not written by ptc: {}\n", folder.join(path).display()));
    }
    if let Some(more) = done.foreign.len().checked_sub(FOREIGN_SHOWN).filter(|more| *more > 0) {
        say(&format!("ptcctl: and {more} more\n"));
    }
    print(&format!("{} written, {} unchanged, {} removed\n", done.written, done.unchanged, done.removed))?;
    Ok(exit::OK)
}

/// `ptcctl reload`.
pub(super) async fn reload(common: &Common) -> anyhow::Result<u8> {
    let report = connect(common).await?.reload().await?;
    for error in &report.errors {
        say(&format!("ptcctl: {error}\n"));
    }
    print(&render::reload(&report))?;
    Ok(if report.errors.is_empty() { exit::OK } else { exit::BAD_CONFIG })
}

/// `ptcctl completions`.
pub(super) fn completions(shell: Shell) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ptcctl", &mut script);
    print(&String::from_utf8(script)?)?;
    Ok(exit::OK)
}

fn to_json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}
