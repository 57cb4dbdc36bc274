//! `ptcctl logs`.

use std::io::IsTerminal as _;

use ptc_protocol::{client::LogsQuery, exit};

use super::{
    cli::Common,
    connect::connect,
    output::{Target, raw},
    render::text::{Lines, visible},
};

/// Prints the last lines, then new ones as they come when asked to follow.
pub(super) async fn logs(common: &Common, server: Option<&str>, follow: bool, lines: usize) -> anyhow::Result<u8> {
    let client = connect(common).await?;
    let narrow = LogsQuery { server: server.map(str::to_owned), lines: Some(lines), follow };
    let mut stream = client.logs(&narrow).await?;
    let terminal = std::io::stdout().is_terminal();
    while let Some(line) = stream.next().await? {
        let text = format!("{}\n", line.line);
        raw(Target::Stdout, &if terminal { visible(&text, Lines::Keep) } else { text.into() })?;
    }
    Ok(exit::OK)
}
