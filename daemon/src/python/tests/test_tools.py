"""Tool functions: what they look like, what they take, and calls that were never awaited."""

import inspect
import unittest

import tests.child  # Makes `ptc` importable.
from tests.child import ECHO, failure, run, run_all, spec
from ptc import tools

FULL = spec(
    "mcp__f__query",
    "ticker",
    ("limit", "int", 10),
    doc="Financial statements of a company.",
    signature="(ticker: str, limit: int = 10) -> dict",
)
RESERVED = {
    "name": "mcp__s__list",
    "server": "s",
    "attr": "list",
    "params": [
        {"name": "from", "type": "str", "required": True, "keyword": True},
        {"name": "user-id", "type": "str", "required": False, "keyword": True},
        {"name": "self", "type": "str", "required": False},
    ],
}


class Looks(unittest.TestCase):
    def setUp(self):
        specs = [FULL, RESERVED, ECHO, spec("mcp__s__none")]
        self.functions = tools.Toolbox(None, specs).functions

    def test_signature(self):
        shown = {name: str(inspect.signature(function)) for name, function in self.functions.items()}
        self.assertEqual(
            shown,
            {
                "mcp__f__query": "(*, ticker: str, limit: int = 10) -> dict",
                "mcp__s__list": "(*, self: str = ..., **reserved)",
                "mcp__s__echo": "(*args, **kwargs)",
                "mcp__s__none": "()",
            },
        )

    def test_counts_as_async(self):
        tools.teach_inspect()
        self.assertTrue(inspect.iscoroutinefunction(self.functions["mcp__f__query"]))
        self.assertFalse(inspect.iscoroutinefunction(len))

    def test_positional_arguments_are_answered_with_the_call_to_write(self):
        cases = [
            ("mcp__f__query", "mcp__f__query() takes keyword arguments only; write mcp__f__query(ticker=..., limit=...)"),
            ("mcp__s__list", "mcp__s__list() takes keyword arguments only; write mcp__s__list(self=..., **{'from': ..., 'user-id': ...})"),
            ("mcp__s__echo", "mcp__s__echo() takes keyword arguments only; write mcp__s__echo(name=value, ...)"),
            ("mcp__s__none", "mcp__s__none() takes keyword arguments only, and this tool has none: write mcp__s__none()"),
        ]
        for name, message in cases:
            with self.assertRaises(TypeError) as caught:
                self.functions[name]("AMZN")
            self.assertEqual(str(caught.exception), message)

    def test_help(self):
        outcome = run("help(mcp__f__query)\nhelp()\nhelp(emit)", tools=[FULL])
        self.assertIsNone(outcome.error)
        self.assertIn("mcp__f__query(*, ticker: str, limit: int = 10) -> dict\n    Financial statements of a company.", outcome.out)
        self.assertIn("help(x) describes x", outcome.out)


class Arguments(unittest.TestCase):
    def test_go_out_verbatim(self):
        programs = [
            "await mcp__s__echo(**{'from':'a','class':'b','user-id':'c','@type':'d','self':'e','tool_name':'f','args':1,'kwargs':2,'name':3})",
            "await mcp__s__echo(a=10**40, b=(1, 2), c={3: None}, d=1.0, e='é\\x00😀')",
            "await mcp__s__echo()",
        ]
        sent = [outcome.calls[0]["args"] for outcome in run_all(programs)]
        names = {"from": "a", "class": "b", "user-id": "c", "@type": "d", "self": "e", "tool_name": "f", "args": 1, "kwargs": 2, "name": 3}
        self.assertEqual(sent, [names, {"a": 10**40, "b": [1, 2], "c": {"3": None}, "d": 1.0, "e": "é\x00😀"}, {}])

    def test_refusals_name_the_argument(self):
        prefix = "arguments to t must be JSON-serializable: "
        cases = [
            ({"x": {1}}, TypeError, prefix + "x is of type set, which is not JSON; use list(...) or sorted(...)"),
            ({"x": [float("nan")]}, ValueError, prefix + "x[0] is nan, which JSON cannot hold; use None or a string"),
            ({"x": {"k": "\ud800"}}, ValueError, prefix + "x['k'] contains half of a surrogate pair, which is no text"),
            ({"x": "a" * 17_000_000}, ValueError, "arguments to t are 17000009 bytes; the limit is 16773120"),
        ]
        for arguments, kind, message in cases:
            with self.assertRaises(kind) as caught:
                tools.encode_arguments("t", arguments)
            self.assertEqual(str(caught.exception), message)

    def test_refused_call_is_not_sent(self):
        outcome = run("try:\n    await mcp__s__echo(x=object())\nexcept TypeError as error:\n    print(error)")
        self.assertEqual((outcome.error, outcome.calls), (None, []))


class Failures(unittest.TestCase):
    def test_tool_error_has_tool_code_and_message(self):
        code = (
            "import pickle\n"
            "try:\n    await mcp__s__echo()\n"
            "except ToolError as error:\n    copy = pickle.loads(pickle.dumps(error))\n    print(copy.tool, copy.code, copy.message, str(copy))\n"
        )
        outcome = run(code, lambda call: failure("'mcp__s__echo' timed out after 60s", "timeout"))
        message = "'mcp__s__echo' timed out after 60s"
        self.assertEqual((outcome.error, outcome.out), (None, f"mcp__s__echo timeout {message} {message}\n"))

    def test_uncaught_one_points_at_the_programs_line(self):
        message = "'mcp__s__echo' returned an error: Unexpected keyword argument kind"
        outcome = run("x = 1\nr = await mcp__s__echo(q='x', kind='repos')\nprint('after')", lambda call: failure(message))
        lines = [line for line in outcome.error.splitlines() if line.strip("~^ ")]
        self.assertEqual(
            lines,
            [
                "Traceback (most recent call last):",
                '  File "<program>", line 2, in <module>',
                "    r = await mcp__s__echo(q='x', kind='repos')",
                f"ToolError: {message}",
            ],
        )
        self.assertEqual(outcome.out, "")


class NeverAwaited(unittest.TestCase):
    """Forgotten awaits fail the program with the tool and the line."""

    ECHO = "mcp__s__echo(...) on line {} was never awaited{}, so the tool did not run; write `await mcp__s__echo(...)`\n"

    def test_program_that_seems_to_work(self):
        cases = [
            ("r = mcp__s__echo(x=1)\nprint(r)", 1, ""),
            ("\nmcp__s__echo(x=1)", 2, ""),
            ("rs = [mcp__s__echo(x=i) for i in range(3)]\nprint(len(rs))", 1, " (3 calls)"),
            ("def f():\n    mcp__s__echo(x=1)\nf()", 2, ""),
            ("try:\n    mcp__s__echo(x=1)['a']\nexcept TypeError:\n    pass", 2, ""),
            ("await inspect_tool(tool_name='t')\nmcp__s__echo(x=1)\nreturn 1", 2, ""),
        ]
        for (code, line, count), outcome in zip(cases, run_all([case[0] for case in cases]), strict=True):
            with self.subTest(code):
                source = code.split("\n")[line - 1].strip()
                text = f'  File "<program>", line {line}\n    {source}\nRuntimeError: ' + self.ECHO.format(line, count)
                self.assertEqual((outcome.error, outcome.done["ok"]), (text, False))
                self.assertEqual([call for call in outcome.calls if call["tool"] == "mcp__s__echo"], [])

    def test_repr_says_what_to_write(self):
        outcome = run("print(mcp__s__echo(x=1))")
        self.assertEqual(outcome.out, "<call of mcp__s__echo, not awaited yet: write `await mcp__s__echo(...)`>\n")

    def test_use_as_a_value_says_await(self):
        uses = ["r['a']", "r.get('a')", "for q in r: print(q)", "len(r)", "1 in r", "r + 1", "r < 2", "int(r)", "json.dumps(r)", "'a' + r", "emit(r)", "emit([r])", "return r"]
        outcomes = run_all([f"import json\nr = mcp__s__echo(x=1)\n{use}" for use in uses])
        for use, outcome in zip(uses, outcomes, strict=True):
            with self.subTest(use):
                self.assertRegex(outcome.error, r"line 3, in <module>(.|\n)*Error: .*(await|ToolCall|coroutine)")
                self.assertIn("hint: " + self.ECHO.format(2, ""), outcome.error)

    def test_closed_or_cancelled_calls_are_not_forgotten(self):
        code = (
            "import asyncio\n"
            "mcp__s__echo(x=1).close()\n"
            "task = asyncio.create_task(mcp__s__echo(x=2))\n"
            "task.cancel()\n"
            "await asyncio.wait([task])\n"
            "try:\n    await asyncio.wait_for(mcp__s__echo(x=3), 0)\nexcept TimeoutError:\n    print('late')"
        )
        outcome = run(code, lambda call: None)
        self.assertEqual((outcome.error, outcome.out), (None, "late\n"))

    def test_calls_in_tasks_are_no_hint_for_another_failure(self):
        code = "import asyncio\nawait asyncio.sleep(0)\ntask = asyncio.create_task(mcp__s__echo(x=1))\nraise ValueError('other')"
        outcome = run(code)
        self.assertIn("ValueError: other", outcome.error)
        self.assertNotIn("hint", outcome.error)

    def test_calls_handed_to_asyncio_and_left_there(self):
        for hand in ("asyncio.gather(*(mcp__s__echo(x=i) for i in range(2)))", "[asyncio.ensure_future(mcp__s__echo(x=i), loop=loop) for i in range(2)]"):
            with self.subTest(hand):
                outcome = run(f"import asyncio\nloop = asyncio.get_event_loop()\nr = {hand}\nprint(r)")
                self.assertIn("mcp__s__echo(...) on line 3 was handed to asyncio but never awaited (2 calls), so the tool did not run", outcome.error)
                self.assertIn("write `await` before asyncio.gather(...)", outcome.error)

    def test_second_await_is_explained(self):
        outcome = run("r = mcp__s__echo(x=1)\nawait r\nawait r")
        self.assertIn("RuntimeError: this call of mcp__s__echo was awaited already", outcome.error)

    def test_own_coroutine_at_top_level(self):
        main = "async def main():\n    print('ran')\n"
        cases = [main + "main()", main + "x = main()", main + "x = [main(), 1]"]
        for code, outcome in zip(cases, run_all(cases), strict=True):
            with self.subTest(code):
                self.assertIn("RuntimeError: main(...) on line 3 was never awaited, so it did not run; write `await main(...)`", outcome.error)
                self.assertEqual(outcome.out, "")

    def test_own_coroutine_elsewhere_is_a_warning_as_in_python(self):
        outcome = run("async def a():\n    pass\ndef f():\n    a()\nf()\nprint('end')")
        self.assertEqual((outcome.error, outcome.out), (None, "end\n"))
        self.assertEqual(outcome.stderr.decode(), "<program>:4: RuntimeWarning: coroutine 'a' was never awaited\n")

    def test_helpers_too(self):
        outcome = run("print(list_callable_tools())")
        self.assertIn("list_callable_tools(...) on line 1 was never awaited", outcome.error)


class LeftBehind(unittest.TestCase):
    def test_functions_that_nobody_called_are_said(self):
        silent = ["async def main():\n    print(await mcp__s__echo(x=1))", "1\nimport json\nclass A: pass\ndef main():\n    print(1)"]
        values = ["x = 5\nx", "rows = [{}]\nrows[0]", "x = 1\nx + 1"]
        for code, outcome in zip(values, run_all(values), strict=True):
            with self.subTest(code):
                self.assertEqual(outcome.done["warnings"], ["the value of the last line 2 is not shown by itself; print() or emit() it"])
        other = ["import json", "", "async def main():\n    pass\nawait main()", "def main():\n    print(1)\nmain()", "def f():\n    return 1\nreturn f()", "await mcp__s__echo(x=1)", "x = 5\nprint(x)\nx"]
        for code, outcome in zip(silent + other, run_all(silent + other), strict=True):
            with self.subTest(code):
                said = "the program defines functions but calls none of them; end it with a call, such as `await main()`"
                self.assertEqual(outcome.done["warnings"], [said] if code in silent else [])
                self.assertTrue(outcome.done["ok"])

    def test_unfinished_and_failed_tasks_are_said(self):
        code = (
            "import asyncio\n"
            "async def slow():\n    await asyncio.sleep(600)\n"
            "async def bad():\n    raise ValueError('boom')\n"
            "tasks = [asyncio.create_task(c) for c in (slow(), bad(), mcp__s__echo(x=1))]\n"
            "await asyncio.sleep(0.01)\n"
        )
        outcome = run(code, lambda call: None)
        self.assertEqual(
            outcome.done["warnings"],
            [
                "the task slow(...) had not finished when the program ended; await it to get its result",
                "the task bad(...) failed and was never awaited: ValueError: boom",
                "tool calls still running when the program ended, so their results are lost: mcp__s__echo",
            ],
        )
        self.assertTrue(outcome.done["ok"])

    def test_odd_failures_of_tasks_do_not_break_the_report(self):
        code = (
            "import asyncio\n"
            "class E(Exception):\n    def __str__(self):\n        1 / 0\n"
            "async def bad(e):\n    raise e\n"
            "tasks = [asyncio.create_task(bad(e)) for e in (E(), ValueError('\\ud800'))]\n"
            "await asyncio.sleep(0.01)\n"
        )
        outcome = run(code)
        self.assertEqual(
            outcome.done["warnings"],
            ["the task bad(...) failed and was never awaited: E", "the task bad(...) failed and was never awaited: ValueError: \\ud800"],
        )


if __name__ == "__main__":
    unittest.main()
