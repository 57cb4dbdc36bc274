//! The way to the daemon, starting it where that is allowed.

use ptc_protocol::{
    client::Client,
    launch::{Autostart, Launch, ensure_running},
};

use super::cli::Common;

/// A client of a daemon that answers and speaks our API.
pub(super) async fn connect(common: &Common) -> anyhow::Result<Client> {
    let launch = launch(common)?;
    ensure_running(&launch).await?;
    Ok(launch.client())
}

/// How to reach the daemon, from the common options.
pub(super) fn launch(common: &Common) -> anyhow::Result<Launch> {
    let autostart = if common.no_autostart { Autostart::Forbidden } else { Autostart::Allowed };
    let (socket, config) = (common.socket.as_deref(), common.config.as_deref());
    Ok(Launch::new(socket, config, common.state_dir.as_deref(), autostart)?)
}
