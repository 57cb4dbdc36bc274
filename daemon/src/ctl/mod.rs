//! `ptcctl`: its verbs and their rendering. Uses only `config`, `stub_folder` and the protocol crate, so that nothing it does needs the
//! daemon's insides; what it knows of a running daemon it has from the control API.

mod cli;
mod connect;
mod demo;
mod doctor;
mod failure;
mod files;
mod import;
mod install;
mod logs;
mod output;
mod render;
mod run;
mod siblings;
mod verbs;

use std::process::ExitCode;

use clap::Parser as _;

use self::{
    cli::{Cli, Verb},
    output::say,
};

/// The whole of `ptcctl`: reads the command line of this process, does what it says, tells the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            // Help is printed the same way; a closed stdout is no reason for another ending.
            let _printed = usage.print();
            return u8::try_from(usage.exit_code()).unwrap_or(ptc_protocol::exit::USAGE).into();
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("ptcctl: cannot start: {error}\n"));
            return ptc_protocol::exit::FAILED.into();
        }
    };
    match runtime.block_on(perform(&cli)) {
        Ok(code) => code.into(),
        // The reader has what it wanted: `ptcctl tools | head`.
        Err(error) if failure::is_closed_pipe(&error) => ptc_protocol::exit::OK.into(),
        Err(error) => {
            say(&format!("ptcctl: {}\n", failure::text(&error)));
            failure::exit_code(&error).into()
        }
    }
}

async fn perform(cli: &Cli) -> anyhow::Result<u8> {
    let common = &cli.common;
    match &cli.verb {
        Verb::Status { json, watch } => verbs::status(common, *json, *watch).await,
        Verb::Ps { json } => verbs::programs(common, *json).await,
        Verb::Kill { ids } => verbs::kill(common, ids).await,
        Verb::Output { id, offset, limit } => run::output(common, id, *offset, *limit).await,
        Verb::Tools(args) => verbs::tools(common, args).await,
        Verb::Inspect { tools, json } => verbs::inspect(common, tools, *json).await,
        Verb::Stubs { folder, lang } => verbs::stubs(common, folder, lang).await,
        Verb::Run(args) => run::run(common, args).await,
        Verb::Reload => verbs::reload(common).await,
        Verb::Restart { servers } => verbs::restart(common, servers).await,
        Verb::Logs { server, follow, lines } => logs::logs(common, server.as_deref(), *follow, *lines).await,
        Verb::Install(args) => install::install(common, args).await,
        Verb::Uninstall { dry_run } => install::uninstall(common, *dry_run).await,
        Verb::Completions { shell } => verbs::completions(*shell),
        Verb::Demo => demo::demo().await,
        Verb::Import(args) => import::import(common, args),
        Verb::Doctor { apparmor_profile: true } => doctor::apparmor_profile(),
        Verb::Doctor { apparmor_profile: false } => doctor::doctor(common).await,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Writes an executable shell script. A child writes it: a write descriptor of ours could be inherited by a process
    /// that another test starts at that moment, and running the script would then fail with "text file busy".
    pub(super) fn script(path: &Path, body: &str) {
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let status = std::process::Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).arg(body).status();
        assert!(status.unwrap().success(), "cannot write {}", path.display());
    }
}
