//! `ptcctl import`: MCP servers of other clients' configuration as ptc's.
//!
//! Reading, translating and merging are pure and in the modules below; this one finds files and writes the result.

mod merge;
mod source;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use ptc_protocol::{exit, paths};

use self::source::{Found, Imported};
use super::{
    cli::{Common, ImportArgs},
    output::{print, say},
    render::text::{count, one_line},
};

/// Prints the servers as YAML, or adds them to the config file.
pub(super) fn import(common: &Common, args: &ImportArgs) -> anyhow::Result<u8> {
    let here = std::env::current_dir().context("the working directory cannot be read")?;
    let home = paths::home(&paths::process_environment);
    let config = paths::config_path(common.config.as_deref())?.path;
    let (sources, named) = match args.files.as_slice() {
        [] => (usual_places(&here, home.as_deref()), false),
        files => (files.to_vec(), true),
    };
    let mut found = Found::default();
    let mut read = Vec::new();
    for path in sources {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if !named && error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        };
        let shown = path.display().to_string();
        match source::read(&text, &here, &shown, &mut found) {
            Ok(()) => read.push(shown),
            Err(error) if named => return Err(error).with_context(|| shown),
            Err(error) => found.notes.push(format!("{shown}: {error:#}")),
        }
    }
    for note in &found.notes {
        say(&format!("ptcctl: {}\n", one_line(note, 400)));
    }
    if read.is_empty() && !named {
        bail!("found no MCP configuration in the usual places; name a file");
    }
    if args.write {
        return write(&config, &found.servers);
    }
    print(&merge::whole(&found.servers))?;
    let servers = count(found.servers.len(), "server");
    say(&format!("ptcctl: {servers} from {}; --write adds them to {}\n", read.join(", "), config.display()));
    Ok(exit::OK)
}

fn write(config: &Path, servers: &[Imported]) -> anyhow::Result<u8> {
    let present = match fs::read_to_string(config) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", config.display())),
    };
    let merged = merge::merged(&present, servers).with_context(|| format!("cannot add to `{}`", config.display()))?;
    for name in &merged.kept {
        say(&format!("ptcctl: `{name}` is in the config already and stays as it is\n"));
    }
    if merged.added.is_empty() {
        print("nothing to add\n")?;
        return Ok(exit::OK);
    }
    let parent = config.parent().context("the config file has a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make the folder `{}`", parent.display()))?;
    super::files::replace(config, &merged.text).with_context(|| format!("cannot write `{}`", config.display()))?;
    print(&format!("added to {}: {}\n", config.display(), merged.added.join(", ")))?;
    say("ptcctl: take them out of the other client (`claude mcp remove NAME`), or their tools are there twice\n");
    Ok(exit::OK)
}

/// Where Claude Code, Claude Desktop, Cursor and Windsurf keep their servers, nearest first.
fn usual_places(here: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut places = vec![here.join(".mcp.json"), here.join(".cursor/mcp.json")];
    if let Some(home) = home {
        let desktop = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".config" };
        places.extend([
            home.join(".claude.json"),
            home.join(desktop).join("Claude/claude_desktop_config.json"),
            home.join(".cursor/mcp.json"),
            home.join(".codeium/windsurf/mcp_config.json"),
        ]);
    }
    places
}
