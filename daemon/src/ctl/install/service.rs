//! What the service is, whichever manager runs it: a command line, an environment, a log folder.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use ptc_protocol::paths::{self, Origin};

use super::path;
use crate::ctl::{
    cli::{Common, InstallArgs},
    siblings,
};

/// A value that no definition file can carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// It has a newline or another control character.
    #[error("{what} has a control character in it: {text:?}")]
    Control {
        /// Which value.
        what: String,
        /// The value.
        text: String,
    },
    /// systemd runs no program whose path has such characters.
    #[error("systemd runs no program whose path has quotes or a backslash in it; move `{path}` elsewhere")]
    Executable {
        /// The program.
        path: String,
    },
    /// It is not UTF-8.
    #[error("{what} is not UTF-8: {text}")]
    NotUtf8 {
        /// Which value.
        what: String,
        /// The value, as well as it can be shown.
        text: String,
    },
}

/// The service in words that both managers share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    /// The daemon's binary, absolute.
    pub(super) ptcd: PathBuf,
    /// Options after `run`, with their values.
    pub(super) options: Vec<(&'static str, PathBuf)>,
    /// Environment, in the order it is written.
    pub(super) variables: Vec<(String, String)>,
    /// The person's home folder, where the daemon works.
    pub(super) home: PathBuf,
    /// Where the daemon and its manager log.
    pub(super) log_dir: PathBuf,
}

impl Service {
    /// As this command was called: places that were named by option or variable are named to the service as well.
    pub(super) fn from_here(common: &Common, args: &InstallArgs) -> anyhow::Result<Self> {
        let mut options = Vec::new();
        let config = paths::config_path(common.config.as_deref())?;
        let (socket, socket_origin) = paths::socket_path_in(common.socket.as_deref(), &paths::process_environment)?;
        let (state, state_origin) = paths::state_dir_in(common.state_dir.as_deref(), &paths::process_environment)?;
        let named = [
            ("--config", config.path, config.origin),
            ("--socket", socket, socket_origin),
            ("--state-dir", state, state_origin),
        ];
        options.extend(
            named.into_iter().filter(|(.., origin)| *origin != Origin::Default).map(|(name, path, _)| (name, path)),
        );
        Ok(Self {
            ptcd: siblings::find("ptcd")?,
            options,
            variables: variables(args)?,
            home: super::home()?,
            log_dir: paths::log_dir(common.state_dir.as_deref())?,
        })
    }

    /// The command line, `argv[0]` included.
    pub(super) fn arguments(&self) -> Result<Vec<String>, Refused> {
        let mut arguments = vec![plain("the path of ptcd", &self.ptcd)?, "run".into()];
        for (name, value) in &self.options {
            arguments.extend([(*name).into(), plain(name, value)?]);
        }
        Ok(arguments)
    }

    /// The environment as name and value.
    pub(super) fn environment(&self) -> Result<Vec<(String, String)>, Refused> {
        let checked = self.variables.iter().map(|(name, value)| Ok((name.clone(), plain(name, Path::new(value))?)));
        checked.collect()
    }
}

/// PATH, folders that decide where files are, and the variables that the person asked to be kept.
fn variables(args: &InstallArgs) -> anyhow::Result<Vec<(String, String)>> {
    let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let path = match &args.path {
        Some(path) => path.clone(),
        None => path::service_path(
            text("SHELL").map(PathBuf::from).as_deref(),
            paths::home(&paths::process_environment).as_deref(),
            text("PATH").as_deref(),
        ),
    };
    let mut variables = vec![("PATH".to_owned(), path)];
    // systemd sets XDG_RUNTIME_DIR itself; where it is set under launchd, the daemon must agree with its clients.
    let folders: &[&str] =
        if cfg!(target_os = "macos") { &["XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"] } else { &["XDG_CONFIG_HOME"] };
    variables.extend(folders.iter().filter_map(|name| Some(((*name).to_owned(), text(name)?))));
    for name in &args.env {
        let value = text(name).with_context(|| format!("--env {name}: the variable is not set here"))?;
        variables.push((name.clone(), value));
    }
    Ok(variables)
}

/// The path as text without control characters.
pub(super) fn plain(what: &str, path: &Path) -> Result<String, Refused> {
    let Ok(text) = OsString::from(path).into_string() else {
        return Err(Refused::NotUtf8 { what: what.into(), text: path.display().to_string() });
    };
    if text.chars().any(char::is_control) {
        return Err(Refused::Control { what: what.into(), text });
    }
    Ok(text)
}

/// Puts values in the place of `@NAME@` marks, in one pass: a value that looks like a mark stays as it is.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(template.len() + 1024);
    for line in template.split_inclusive('\n') {
        let mark = values.iter().find_map(|(name, value)| {
            let mark = format!("@{name}@");
            line.split_once(mark.as_str()).map(|(before, after)| [before, value, after])
        });
        match mark {
            Some([before, "", after]) if before.is_empty() && after == "\n" => {}
            Some(parts) => out.extend(parts),
            None => out.push_str(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_filled_once() {
        assert_eq!(fill("a @X@ b\n@Y@\n@Z@\n", &[("X", "@Y@"), ("Y", ""), ("Z", "1\n2")]), "a @Y@ b\n1\n2\n");
    }

    #[test]
    fn values_that_no_file_can_carry_are_refused() {
        use std::os::unix::ffi::OsStringExt as _;
        assert!(matches!(plain("x", Path::new("/a\tb")), Err(Refused::Control { .. })));
        let odd = PathBuf::from(OsString::from_vec(vec![b'/', 0xff]));
        assert!(matches!(plain("x", &odd), Err(Refused::NotUtf8 { .. })));
        assert_eq!(plain("x", Path::new("/a b/é")).unwrap(), "/a b/é");
    }

    #[test]
    fn options_follow_run() {
        let service = Service {
            options: vec![("--config", "/c d.yaml".into()), ("--socket", "/s".into())],
            ..super::super::tests::service("/ptcd")
        };
        assert_eq!(service.arguments().unwrap(), ["/ptcd", "run", "--config", "/c d.yaml", "--socket", "/s"]);
    }
}
