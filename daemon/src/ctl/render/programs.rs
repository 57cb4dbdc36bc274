//! The table of `ptcctl ps`.

use comfy_table::Cell;
use ptc_protocol::api::ProgramStatus;

use super::{
    Look, Tone, plain_table, rows,
    text::{age, one_line},
};

/// One row a program, in the order given; only the header when there is none.
pub(in crate::ctl) fn programs(programs: &[ProgramStatus], look: &Look) -> String {
    let mut table = plain_table(look, &["PROGRAM", "STATE", "PID", "SESSION", "AGE", "CALLS", "NOW"]);
    for program in programs {
        let state = if program.queued { Tone::Waiting.cell("queued") } else { Tone::Good.cell("running") };
        table.add_row([
            Cell::new(program.id.as_str()),
            state,
            Cell::new(program.pid.map_or_else(|| "-".into(), |pid| pid.to_string())),
            Cell::new(program.session.as_ref().map_or("-", |session| session.as_str())),
            Cell::new(age(&program.started, look.now)),
            Cell::new(program.calls),
            Cell::new(program.current.as_deref().map_or_else(String::new, |tool| one_line(tool, 80))),
        ]);
    }
    rows(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::render::tests::{bare, look};

    #[test]
    fn waiting_and_running_programs_differ() {
        let list: Vec<ProgramStatus> = serde_json::from_str(
            r#"[{"id": "p-1", "session": null, "started": "2026-01-02T11:58:00Z", "calls": 7, "current": null, "pid": 9},
                {"id": "p-2", "session": "s-1", "started": "2026-01-02T11:59:59Z", "calls": 0, "current": null, "queued": true}]"#,
        )
        .unwrap();
        insta::assert_snapshot!(bare(&programs(&list, &look())), @r#"
        PROGRAM  STATE    PID  SESSION  AGE    CALLS  NOW
        p-1      running  9    -        2m 0s  7
        p-2      queued   -    s-1      1s     0
        "#);
    }
}
