//! The command line of `ptcctl`. What it may say, not what is done about it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, builder::Styles};
use clap_complete::Shell;

/// How a failed run of the command ends, for the help text.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed (a program failed, a check found errors), 2 wrong usage, \
                          69 the daemon cannot be reached, 78 bad configuration.";

/// Watches and steers ptcd, the daemon that runs model-written programs over MCP servers.
#[derive(Debug, Parser)]
#[command(name = "ptcctl", version, after_help = EXIT_CODES, styles = Styles::styled(), max_term_width = 100)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// Where things are; the same for every verb.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Common {
    /// The daemon's socket [default: $PTC_SOCKET, $XDG_RUNTIME_DIR/ptc/ptcd.sock, ~/.local/state/ptc/ptcd.sock]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) socket: Option<PathBuf>,
    /// The config file [default: $PTC_CONFIG, $PTC_MCP_CONFIG, ~/.config/ptc/config.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Folder of logs and run records [default: $PTC_STATE_DIR, ~/.local/state/ptc]
    #[arg(long, global = true, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
    /// Fail when the daemon is not running instead of starting it
    #[arg(long, global = true)]
    pub(super) no_autostart: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show servers, programs, pool, sandbox and config
    Status {
        /// Print the daemon's status as JSON
        #[arg(long)]
        json: bool,
        /// Print again each time something changes, until interrupted
        #[arg(long)]
        watch: bool,
    },
    /// List programs that run or wait
    Ps {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// End a running program
    Kill {
        /// Its id, as `ptcctl ps` shows it
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Print what an ended program printed, also what its result left out; kept for an hour
    Output {
        /// Its id, as the truncation notice names it
        #[arg(value_name = "ID")]
        id: String,
        /// First byte
        #[arg(long, value_name = "N", default_value_t = 0)]
        offset: u64,
        /// Bytes [default: all that is kept]
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// List the tools that programs can call
    Tools(ToolsArgs),
    /// Show a tool's description, schemas and Python signature
    Inspect {
        /// Its name, `mcp__<server>__<tool>`
        #[arg(value_name = "TOOL", required = true, value_parser = clap::builder::NonEmptyStringValueParser::new())]
        tools: Vec<String>,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write declarations of all tools into a folder, for editors and for clients that browse files
    Stubs {
        /// The folder; files in it that ptc did not write stay as they are
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// python or ts
        #[arg(long, value_name = "LANGUAGE", default_value = "python")]
        lang: String,
    },
    /// Run a Python program as execute_program would
    Run(RunArgs),
    /// Read the config file again now
    Reload,
    /// Restart a server
    Restart {
        /// Its name in the config
        #[arg(value_name = "SERVER", required = true)]
        servers: Vec<String>,
    },
    /// Print the daemon's log, or a server's
    Logs {
        /// The server; without it the daemon's own log
        #[arg(value_name = "SERVER")]
        server: Option<String>,
        /// Keep printing new lines
        #[arg(short, long)]
        follow: bool,
        /// Lines to begin with
        #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
        lines: usize,
    },
    /// Show the main job with a private daemon and a demo server
    Demo,
    /// Install ptcd as a service of this user (launchd or systemd)
    Install(InstallArgs),
    /// Remove that service; config and logs stay
    Uninstall {
        /// Print what would be done and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Check every layer, from the socket to the sandbox
    Doctor {
        /// Print the AppArmor profile that lets ptcd use namespaces on Ubuntu, and stop
        #[arg(long)]
        apparmor_profile: bool,
    },
    /// Turn MCP servers of Claude Code, Claude Desktop or Cursor into ptc config
    Import(ImportArgs),
    /// Print a completion script
    Completions {
        /// For this shell
        #[arg(value_enum)]
        shell: Shell,
    },
}

/// `ptcctl tools`.
#[derive(Debug, Args)]
pub(super) struct ToolsArgs {
    /// Only names that match, such as 'mcp__github__*'
    #[arg(value_name = "GLOB")]
    pub(super) glob: Option<String>,
    /// Rank by what the tool does
    #[arg(short, long, value_name = "WORDS")]
    pub(super) query: Option<String>,
    /// Only this server's
    #[arg(short, long, value_name = "SERVER")]
    pub(super) server: Option<String>,
    /// Print the Python call of each
    #[arg(long)]
    pub(super) signatures: bool,
    /// Print them as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `ptcctl run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The program's file, or - for standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Lower the configured deadline
    #[arg(long, value_name = "SECONDS")]
    pub(super) timeout: Option<u64>,
    /// Name each tool call on stderr as it ends
    #[arg(long)]
    pub(super) calls: bool,
    /// Print nothing while it runs and the whole outcome as JSON at the end
    #[arg(long)]
    pub(super) json: bool,
}

/// `ptcctl install`.
#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    /// Print the files and commands and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Write the files but do not start the service
    #[arg(long)]
    pub(super) no_start: bool,
    /// PATH of the service [default: the login shell's and the usual folders]
    #[arg(long, value_name = "PATH")]
    pub(super) path: Option<String>,
    /// Keep this variable of the present environment for the service, readable by you alone; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) env: Vec<String>,
}

/// `ptcctl import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// JSON files with `mcpServers` [default: ./.mcp.json, ~/.claude.json and the clients' usual places]
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Add the servers to the config file instead of printing them
    #[arg(long, conflicts_with = "dry_run")]
    pub(super) write: bool,
    /// Print the result and change nothing (the default)
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn common_options_stand_before_or_after_the_verb() {
        for line in [["ptcctl", "--socket", "/s", "status"], ["ptcctl", "status", "--socket", "/s"]] {
            let cli = Cli::try_parse_from(line).unwrap();
            assert_eq!(cli.common.socket.as_deref(), Some(std::path::Path::new("/s")));
        }
    }

    #[test]
    fn wrong_usage_has_the_documented_exit_code() {
        let error = Cli::try_parse_from(["ptcctl", "frobnicate"]).unwrap_err();
        assert_eq!(error.exit_code(), i32::from(ptc_protocol::exit::USAGE));
    }
}
