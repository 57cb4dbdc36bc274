//! Data that is hard to carry arrives as it was, or the program hears of it; nothing changes in silence.

use std::fs;

use ptc_tests::{
    World,
    config::{config, fake},
    world::Ran,
};
use serde_json::json;

fn world() -> World {
    World::ready(&config(vec![fake("s", &json!({}))], &json!({})))
}

#[test]
fn long_integers_keep_their_digits_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("received");
    let world = World::ready(&config(vec![fake("s", &json!({"record": record}))], &json!({})));
    let result = world.session().program(
        "r = await mcp__s__ids()\nprint(r['ids'])\nback = await mcp__s__echo(ids=r['ids'], small=-1, ratio=0.1, exact=1.0)\nassert back['ids'] == r['ids']\nemit(r['ids'])",
    );
    let digits = "[9007199254740993, 18446744073709551615, 18446744073709551616, -9223372036854775809, 123456789012345678901234567890]";
    assert_eq!(result.output(), format!("{digits}\n"));
    assert!(result.text.contains(&format!("--- result ---\n{digits}")), "{}", result.text);
    let received = fs::read_to_string(&record).unwrap();
    assert!(received.replace(' ', "").contains(&digits.replace(' ', "")), "{received}");
    for wide in ["18446744073709551616", "123456789012345678901234567890"] {
        let outcome = result.outcome().to_string();
        assert!(outcome.contains(wide), "{outcome}");
    }
}

#[test]
fn odd_text_passes_in_both_directions() {
    let world = world();
    let result = world.session().program(
        "r = await mcp__s__odd_text()\nprint({k: [hex(ord(c)) for c in v] for k, v in r.items()})\nback = await mcp__s__echo(**{k: v for k, v in r.items() if k != 'lone'})\nprint(back == {k: v for k, v in r.items() if k != 'lone'})\nemit(r['separators'])",
    );
    let output = result.output();
    assert!(output.contains("'nul': ['0x61', '0x0', '0x62']"), "{output}");
    assert!(output.contains("'pair': ['0x1f600']"), "{output}");
    assert!(output.contains("'lone': ['0xd800']") || output.contains("'lone': ['0xfffd']"), "{output}");
    assert!(output.ends_with("True\n"), "{output}");
    assert_eq!(result.outcome()["result"], "\u{2028}\u{85}");
}

#[test]
fn a_lone_surrogate_in_output_argument_result_or_error_is_no_end() {
    let world = world();
    let mut session = world.session();
    let printed = session.program(r"print('a\ud800b')");
    assert!(
        printed.text.starts_with("[Script executed successfully]\na") && printed.text.contains('b'),
        "{}",
        printed.text
    );
    let emitted = session.program(r"emit({'k\udfff': 'v\ud800'})");
    assert!(emitted.text.contains('k') && emitted.text.contains('v'), "{}", emitted.text);
    let raised = session.program(r"raise ValueError('x\ud800y')");
    assert!(raised.failure().contains("ValueError: x"), "{}", raised.text);
    let sent = session.program("try:\n    print(await mcp__s__echo(text='\\ud800'))\nexcept (ToolError, TypeError, ValueError) as e:\n    print('refused', e)");
    assert!(!sent.is_error, "{}", sent.text);
    assert_eq!(session.program("print('alive')").output(), "alive\n");
}

#[test]
fn nan_never_reaches_the_client_as_a_bare_token() {
    let script =
        json!({"results": {"echo": [{"content": [{"type": "text", "text": "{\"mean\": NaN, \"top\": Infinity}"}]}]}});
    let world = World::ready(&config(vec![fake("s", &script)], &json!({})));
    let mut session = world.session();
    let received = session.program("r = await mcp__s__echo()\nprint(type(r).__name__)");
    assert!(["str\n", "dict\n"].contains(&received.output().as_str()), "{}", received.text);
    // The client parses every message strictly, so a bare token would have failed there.
    let emitted = session.program("emit({'x': float('nan'), 'y': [float('-inf')]})");
    assert!(!emitted.text.contains(": NaN") || emitted.is_error, "{}", emitted.text);
    let sent = session.program(
        "try:\n    print(await mcp__s__echo(x=float('nan')))\nexcept Exception as e:\n    print(type(e).__name__, e)",
    );
    assert!(!sent.is_error, "{}", sent.text);
}

#[test]
fn invalid_utf8_nul_and_escapes_in_output_are_shown_not_fatal() {
    let world = world();
    let mut session = world.session();
    let raw = session.program("import os\nos.write(1, b'raw \\xff\\xfe end\\n')\nos.write(2, b'err\\n')\nprint('\\x00\\x1b[31mred', flush=True)");
    let output = raw.output();
    assert!(output.contains("raw ") && output.contains(" end") && output.contains("err"), "{output:?}");
    assert!(output.contains("[31mred"), "{output:?}");
    let code = session.call("execute_program", &json!({"code": "print('é😀', len('\u{0}'))"}));
    assert!(code.text.contains("é😀") || code.is_error, "{}", code.text);
}

#[cfg(target_os = "linux")]
#[test]
fn what_confined_programs_write_to_their_two_streams_keeps_its_order() {
    let world = World::ready(&config(vec![], &json!({"sandbox": "auto"})));
    let code = "import sys\nfor n in range(300): print(n, file=sys.stderr if n % 2 else sys.stdout)";
    let wanted: String = (0..300).map(|n| format!("{n}\n")).collect();
    let mut sessions: Vec<_> = (0..4).map(|_| world.session()).collect();
    let running: Vec<u64> = sessions.iter_mut().map(|session| session.send_program(code)).collect();
    for (session, id) in sessions.iter_mut().zip(running) {
        assert_eq!(session.tool_result(id).output(), wanted);
    }
}

#[test]
fn values_of_every_kind_come_back_as_they_went() {
    let world = world();
    let code = "values = {'i': 0, 'neg': -0.0, 'f': 1e-7, 'big': 1.7976931348623157e308, 't': True, 'n': None, 's': '', 'l': [[]], 'o': {'': {}}, 'digits': '007', 'text': 'true'}\nback = await mcp__s__echo(**values)\nprint(back == values, [type(v).__name__ for v in back.values()] == [type(v).__name__ for v in values.values()])\nemit(values)";
    let result = world.session().program(code);
    assert_eq!(result.output(), "True True\n");
    assert_eq!(
        result.outcome()["result"],
        json!({"i": 0, "neg": -0.0, "f": 1e-7, "big": f64::MAX, "t": true, "n": null, "s": "", "l": [[]], "o": {"": {}}, "digits": "007", "text": "true"})
    );
}

#[test]
fn ptcctl_prints_what_the_program_printed() {
    let world = world();
    let file = world.path("program.py");
    fs::write(&file, "print('é😀')\nemit({'id': 18446744073709551616})\n").unwrap();
    let ran = world.ctl(&["run", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("é😀\n") && ran.stdout.contains("18446744073709551616"), "{}", ran.stdout);
    fs::write(&file, "print('before')\nraise SystemExit('no')\n").unwrap();
    let ran: Ran = world.ctl(&["run", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("before"), "{ran:?}");
}
