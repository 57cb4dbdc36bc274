//! Programs that fail: what the model gets to read, and that nothing else suffers.

use std::time::{Duration, Instant};

use ptc_tests::{
    World,
    config::{config, fake},
    until,
    wait::PATIENCE,
};
use serde_json::{Value, json};

fn world(execution: &Value) -> World {
    World::ready(&config(vec![fake("s", &json!({}))], execution))
}

#[test]
fn a_syntax_error_names_the_line() {
    let world = world(&json!({}));
    let result = world.session().program("x = 1\ndef broken(\n");
    let text = result.failure();
    assert!(text.starts_with("[Script execution failed]\n  File \"<program>\", line 2"), "{text}");
    assert!(text.contains("SyntaxError"), "{text}");
}

#[test]
fn an_exception_shows_the_programs_own_frames() {
    let world = world(&json!({}));
    let code = "print('so far')\ndef outer():\n    inner()\ndef inner():\n    return {}['missing']\nouter()\n";
    let result = world.session().program(code);
    let text = result.failure();
    for part in [
        "Traceback (most recent call last):\n  File \"<program>\", line 6, in <module>\n    outer()",
        "line 3, in outer\n    inner()",
        "line 5, in inner\n    return {}['missing']",
        "KeyError: 'missing'\n\n--- output before the error ---\nso far",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(text.matches("  File ").count(), 3, "{text}");
    assert_eq!(result.outcome()["output"], "so far\n");
}

#[test]
fn an_endless_loop_is_killed_at_its_deadline_and_its_output_kept() {
    let world = world(&json!({"timeout_seconds": 1}));
    let mut session = world.session();
    let start = Instant::now();
    let result = session.program("print('working')\nwhile True:\n    pass");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let text = result.failure();
    assert!(text.contains("TimeoutError: Execution exceeded 1s limit"), "{text}");
    assert!(text.contains("--- output before the error ---\nworking"), "{text}");
    assert_eq!(session.program("print('next')").output(), "next\n");
}

#[test]
fn a_call_that_outlives_its_program_is_listed_as_unfinished() {
    let world = world(&json!({"timeout_seconds": 1}));
    let result = world.session().program("await mcp__s__hang()");
    let text = result.failure();
    assert!(text.contains("TimeoutError"), "{text}");
    assert!(text.contains("[tool calls: 1, 1 unfinished; "), "{text}");
    assert_eq!(result.outcome()["tool_calls"][0]["unfinished"], true);
}

#[test]
fn a_flood_of_output_is_cut_and_says_so() {
    let world = world(&json!({"max_output_bytes": 1000, "timeout_seconds": 20}));
    let mut session = world.session();
    for code in ["for _ in range(200000): print('é' * 10)", "print('😀' * 1000000)"] {
        let result = session.program(code);
        assert!(!result.is_error, "{}", result.text);
        assert!(result.text.starts_with("[Script executed successfully]\n"), "{}", result.text);
        assert!(result.text.contains("truncated"), "{}", result.text);
        assert!(result.text.len() < 1500, "{} bytes", result.text.len());
        assert!(!result.text.contains('\u{fffd}'), "no character is cut in two: {}", result.text);
    }
    let endless = session.call("execute_program", &json!({"code": "while True: print('x')"}));
    assert!(endless.is_error && endless.text.len() < 3000, "{} bytes", endless.text.len());
}

#[test]
fn what_a_result_left_out_can_be_read_afterwards() {
    let world = world(&json!({"max_output_bytes": 1000, "read_output": true}));
    let mut session = world.session();
    let tools = session.request("tools/list", &json!({}));
    assert_eq!(tools["tools"][3]["name"], "read_output", "{tools}");
    let cut = session.program("for n in range(1000): print('é', n)");
    let id = cut.outcome()["program"].as_str().unwrap().to_owned();
    let offset = cut.text.split("offset=").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
    assert!(cut.text.contains(&format!("read_output(program_id=\"{id}\", offset={offset})")), "{}", cut.text);
    assert!(cut.text.contains(&format!("`ptcctl output {id} --offset {offset}`")), "{}", cut.text);

    let all: String = (0..1000).map(|n| format!("é {n}\n")).collect();
    assert_eq!(world.ctl(&["output", &id]).stdout, all);
    let printed = cut.outcome()["output"].as_str().unwrap().to_owned();
    let head = printed.split("\n... (truncated").next().unwrap();
    assert_eq!(head.len().to_string(), offset, "the gap begins where the notice says");
    assert_eq!(world.ctl(&["output", &id, "--offset", offset]).stdout, all[head.len()..]);
    assert_eq!(world.ctl(&["output", &id, "--offset", "1", "--limit", "5"]).stdout, "é 0\n", "borders of characters");

    let piece = session.call("read_output", &json!({"program_id": id, "offset": head.len(), "limit": 30}));
    let (line, text) = piece.text.split_once('\n').unwrap();
    assert!(all[head.len()..].starts_with(text) && text.len() > 25, "{}", piece.text);
    assert!(line.contains(&format!("of {} that {id} printed; go on with offset=", all.len())), "{line}");
    let unknown = session.call("read_output", &json!({"program_id": "p-0"}));
    assert!(unknown.failure().contains("`p-0`"), "{}", unknown.text);
    assert_eq!(world.ctl(&["output", "p-0"]).code, Some(1));

    let failed =
        session.program("import sys\nprint('x' * 3000)\nprint('no', file=sys.stderr)\nraise ValueError('late')");
    let id = failed.outcome()["program"].as_str().unwrap().to_owned();
    assert_eq!(world.ctl(&["output", &id]).stdout, format!("{}\n", "x".repeat(3000)), "stdout alone, as in the result");
}

#[test]
fn without_the_setting_there_is_no_tool_for_output_and_the_notice_names_the_command() {
    let world = world(&json!({"max_output_bytes": 1000}));
    let mut session = world.session();
    assert_eq!(session.request("tools/list", &json!({}))["tools"].as_array().unwrap().len(), 3);
    let cut = session.program("print('x' * 5000)");
    assert!(cut.text.contains("; `ptcctl output p-") && !cut.text.contains("read_output"), "{}", cut.text);
    assert!(session.call("read_output", &json!({"program_id": "p-1"})).failure().contains("Unknown tool"));
    let mut changed = config(vec![fake("s", &json!({}))], &json!({"max_output_bytes": 1000}));
    changed["execution"]["read_output"] = json!(true);
    world.write_config(&changed.to_string());
    // The first news may still be of the server that came up.
    until("the fourth tool", PATIENCE, || {
        session.notification("notifications/tools/list_changed");
        (session.request("tools/list", &json!({}))["tools"].as_array().unwrap().len() == 4).then_some(())
    });
}

#[test]
fn a_tool_error_is_a_tool_error_with_its_tool_code_and_message() {
    let world = world(&json!({}));
    let mut session = world.session();
    let caught = session.program(
        "try:\n    await mcp__s__fail(message='no such repository')\nexcept ToolError as e:\n    print(e.tool, '|', e)\nprint('after')",
    );
    assert_eq!(caught.output(), "mcp__s__fail | 'mcp__s__fail' returned an error: no such repository\nafter\n");
    assert!(caught.text.contains("[tool calls: 1, 1 failed; "), "{}", caught.text);
    assert!(caught.text.contains("\n  failed: mcp__s__fail: "), "{}", caught.text);

    let raised = session.program("r = 1\nawait mcp__s__fail(message='boom')\nprint('never')");
    let text = raised.failure();
    assert!(text.contains("File \"<program>\", line 2, in <module>"), "{text}");
    assert!(text.contains("ToolError: 'mcp__s__fail' returned an error: boom"), "{text}");
    assert_eq!(raised.outcome()["tool_calls"][0]["ok"], false);

    let rpc = session.program(
        "try:\n    await mcp__s__rpc_error(code=-32000, message='overloaded')\nexcept ToolError as e:\n    print(e)",
    );
    assert_eq!(rpc.output(), "'mcp__s__rpc_error' failed: overloaded\n");
}

#[test]
fn an_unknown_tool_and_a_wrong_argument_say_what_is_valid() {
    let world = world(&json!({}));
    let mut session = world.session();
    let unknown = session.program("await mcp__s__ecko(a=1)");
    let text = unknown.failure();
    assert!(text.contains("mcp__s__ecko") && text.contains("mcp__s__echo"), "{text}");
    for code in ["await mcp__s__add(a=1, c=2)", "await mcp__s__add(1, 2)", "await mcp__s__add(a='x', b=2)"] {
        let wrong = session.program(code);
        let text = wrong.failure();
        assert!(text.contains("a: int") || (text.contains('a') && text.contains('b')), "{code}: {text}");
        assert!(text.contains("line 1"), "{code}: {text}");
    }
}

#[test]
fn the_budget_ends_the_calls_not_the_program() {
    let world = world(&json!({"max_tool_calls": 3}));
    let result = world.session().program(
        "done = refused = 0\nfor n in range(5):\n    try:\n        await mcp__s__echo(n=n)\n        done += 1\n    except ToolError as e:\n        refused += 1\nprint(done, refused, e.code if refused == 0 else '')",
    );
    assert_eq!(result.output(), "3 2 \n");
    assert!(result.text.contains("[tool calls: 5, 2 failed; "), "{}", result.text);
}

#[test]
fn a_call_that_takes_too_long_fails_and_is_cancelled_at_the_server() {
    let world = world(&json!({"tool_call_timeout_seconds": 1}));
    let result = world.session().program(
        "import asyncio\ntry:\n    await mcp__s__hang()\nexcept ToolError as e:\n    print(e.code, '|', e)\n\
         while (await mcp__s__cancelled())['requests'] == 0:\n    await asyncio.sleep(0.01)\nprint('cancelled')",
    );
    assert_eq!(result.output(), "timeout | 'mcp__s__hang' timed out after 1s\ncancelled\n");
}

#[test]
fn a_hundred_calls_overlap_up_to_the_limit() {
    let world = world(&json!({"max_concurrent_calls": 100}));
    let mut unlimited = config(vec![fake("s", &json!({}))], &json!({"max_concurrent_calls": 100}));
    unlimited["servers"][0]["max_concurrent_calls"] = json!(100);
    world.write_config(&unlimited.to_string());
    assert_eq!(world.ctl(&["reload"]).code, Some(0));
    world.wait_servers("ready", |servers| servers[0].state == ptc_protocol::api::ServerState::Ready);
    let start = Instant::now();
    let result = world.session().program(
        "import asyncio\nawait asyncio.gather(*(mcp__s__sleep(seconds=0.3) for _ in range(99)))\nprint((await mcp__s__peak())['peak'])",
    );
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let peak: u32 = result.output().trim().parse().unwrap();
    assert!(peak > 50, "{peak} calls at once");
}

#[test]
fn ways_out_of_a_program_that_are_not_its_end() {
    let world = world(&json!({}));
    let mut session = world.session();
    for code in [
        "print('a')\nexit()",
        "print('a')\nimport sys\nsys.exit(0)",
        "print('a')\nquit()",
        "print('a')\nraise SystemExit",
    ] {
        assert_eq!(session.program(code).output(), "a\n", "{code}");
    }
    for (code, part) in [
        ("print('a')\nimport sys\nsys.exit('bad luck')", "bad luck"),
        ("print('a')\nraise SystemExit(3)", "3"),
        ("print('a')\nimport os\nos._exit(7)", "7"),
        ("print('a')\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "killed by SIG"),
        ("print('a')\nraise KeyboardInterrupt", "KeyboardInterrupt"),
        ("print('a')\ninput('name? ')", "EOFError"),
        ("print('a')\ndef f(): f()\nf()", "RecursionError"),
    ] {
        let result = session.program(code);
        let text = result.failure();
        assert!(text.contains(part), "{code}: {text}");
        assert!(text.contains("--- output before the error ---\na"), "{code}: {text}");
    }
    let late = session.program("emit({'kept': 1})\nraise ValueError('late')");
    assert!(late.failure().contains("ValueError: late"), "{}", late.text);
    assert_eq!(late.outcome()["result"], json!({"kept": 1}));
}

#[test]
fn a_call_without_await_is_named_with_its_line() {
    let world = world(&json!({}));
    let mut session = world.session();
    for (code, line) in [
        ("r = mcp__s__echo(x=1)\nprint(r)", 1),
        ("import json\nmcp__s__echo(x=1)", 2),
        ("rs = [mcp__s__echo(x=i) for i in range(3)]\nprint(len(rs))", 1),
        ("for row in mcp__s__rows(count=1): print(row)", 1),
        ("\nprint(mcp__s__echo(x=1)['x'])", 2),
    ] {
        let result = session.program(code);
        assert!(result.text.contains("await"), "{code}: {}", result.text);
        assert!(result.text.contains("mcp__s__"), "{code}: {}", result.text);
        assert!(result.text.contains(&format!("line {line}")), "{code}: {}", result.text);
        assert_eq!(result.outcome()["tool_calls"], json!([]), "{code}");
    }
}

#[test]
fn arguments_of_our_own_tools_are_checked() {
    let world = world(&json!({}));
    let mut session = world.session();
    for (tool, arguments, part) in [
        ("execute_program", json!({}), "code"),
        ("execute_program", json!({"code": 5}), "code"),
        ("execute_program", json!({"code": "print(1)", "timeout": 3}), "timeout"),
        ("inspect_tool", json!({}), "tool_name"),
        ("inspect_tool", json!({"tool_name": "mcp__s__ecko"}), "mcp__s__echo"),
        ("no_such_tool", json!({}), "no_such_tool"),
        ("list_callable_tools", json!({"server": "t"}), "\"no server `t` is configured; there are: s\""),
        ("mcp__s__echo", json!({}), "execute_program with `print(await mcp__s__echo(...))`"),
    ] {
        let id = session.send_call(tool, &arguments);
        let answer = session.answer(id);
        let text = answer.to_string();
        assert!(answer.get("error").is_some() || answer["result"]["isError"] == true, "{tool} {arguments}: {text}");
        assert!(text.contains(part), "{tool} {arguments}: {text}");
    }
    assert_eq!(session.program("print('fine')").output(), "fine\n");
}
