"""Error texts: the program's own frames, and hints that say what is valid instead."""

import errno
import re
import sys
import unittest

from tests.child import failure, run, run_all, spec
from ptc import errors, hints, program
from ptc.forgotten import PROGRAM_FILE

TOOLS = {tool["name"]: tool for tool in [spec("mcp__financial_data__query_financials", "ticker"), spec("mcp__s__echo")]}


def fail(code, **names):
    """The exception of a synchronous program, run in this process."""
    source = program.source_of(code)
    try:
        exec(program.compile_program(source), {"__name__": "__main__", **names})
    except BaseException as error:
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code.co_filename != PROGRAM_FILE:
            step = step.tb_next
        return error.with_traceback(step), source
    raise AssertionError(f"no error: {code}")


def hint_of(code, **names):
    error, source = fail(code, **names)
    found = hints.hints(error, hints.Situation(source, TOOLS, ["financial_data", "s"], []))
    return found[0] if found else None


class Frames(unittest.TestCase):
    def render(self, code, **names):
        return "".join(line for line in errors.render(fail(code, **names)[0]).splitlines(True) if line.strip("~^ \n") or not line.strip())

    def test_library_and_runtime_frames_are_left_out(self):
        self.assertEqual(
            self.render("import json\ndef f():\n    return json.loads('{bad')\nf()"),
            'Traceback (most recent call last):\n  File "<program>", line 4, in <module>\n    f()\n'
            '  File "<program>", line 3, in f\n    return json.loads(\'{bad\')\n'
            "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n",
        )

    def test_chains(self):
        text = self.render("def f():\n    try:\n        1 / 0\n    except ZeroDivisionError as e:\n        raise KeyError('k') from e\nf()")
        self.assertIn('File "<program>", line 3, in f\n    1 / 0\nZeroDivisionError: division by zero\n', text)
        self.assertIn("The above exception was the direct cause of the following exception:", text)
        self.assertTrue(text.endswith("KeyError: 'k'\n"))

    def test_what_the_library_handled_inside_itself_is_left_out(self):
        code = "import ast\ndef f():\n    raise LookupError('shown') from handled\nf()"
        self.assertIn("ValueError: handed on\n\nThe above exception", self.render(code, handled=ValueError("handed on")))
        code = "import encodings.idna\nfrom importlib.metadata import distribution\ndistribution('no-such')"
        self.assertTrue(self.render(code).startswith("Traceback (most recent call last):\n  File \"<program>\", line 3"), self.render(code))

    def test_syntax_errors_have_their_line(self):
        cases = [
            ("def foo(", '  File "<program>", line 1\n    def foo(\nSyntaxError: \'(\' was never closed\n'),
            ("x = 1\ndef f():\n    return await g()", '  File "<program>", line 3\n    return await g()\nSyntaxError: \'await\' outside async function\n'),
            ("class A:\n    return 2", '  File "<program>", line 2\n    return 2\nSyntaxError: \'return\' outside function\n'),
            ("return 1\nyield 2", '  File "<program>", line 2\n    yield 2\nSyntaxError: \'yield\' outside function\n'),
        ]
        for code, expected in cases:
            self.assertEqual(self.render(code), expected)

    def test_recursion_is_folded(self):
        text = self.render("def f():\n    f()\nf()")
        self.assertIn("[Previous line repeated 9", text)
        self.assertLess(len(text), 1000)
        self.assertIn("RecursionError: maximum recursion depth exceeded", text)

    def test_long_text_loses_its_middle(self):
        text = self.render("raise ValueError('a' * 50000 + 'z' * 50000)")
        self.assertLess(len(text), 17_000)
        self.assertRegex(text, r"aaa\n\.\.\. \(\d+ characters left out\) \.\.\.\nzzz")

    def test_of_long_source_lines_a_part_is_shown(self):
        text = self.render("x = [" + "1, " * 5000 + "]; 1 / 0")
        self.assertLess(len(text), 600)
        self.assertIn("    x = [1, 1, ", text)
        self.assertTrue(text.endswith(" ...\nZeroDivisionError: division by zero\n"), text)
        text = errors.render(fail("x = [" + "1, " * 5000 + "$" + ", 2" * 5000 + "]")[0])
        self.assertLess(len(text), 900)
        lines = text.splitlines()
        self.assertEqual(lines[1][lines[2].index("^")], "$", text)
        self.assertTrue(lines[1].startswith("    ... 1, 1") or "1, $" in lines[1], text)

    def test_text_that_cannot_be_made_or_said(self):
        self.assertIn("E: <exception str() failed>", self.render("class E(Exception):\n    def __str__(self):\n        1 / 0\nraise E()"))
        self.assertIn("ValueError: \\ud800", self.render("raise ValueError('\\ud800')"))

    def test_own_modules_are_kept(self):
        self.assertTrue(errors.is_program_file("/scratch/helper.py"))
        self.assertTrue(errors.is_program_file("helper.py"))
        self.assertFalse(errors.is_program_file(unittest.__file__))
        self.assertFalse(errors.is_program_file("<frozen importlib._bootstrap>"))
        self.assertFalse(errors.is_program_file("<ptc/tools.py>"))


class Hints(unittest.TestCase):
    def test_table(self):
        cases = [
            ("def f():\n    return await g()", "make the function around this line `async def`"),
            ("sorted([1], key=lambda v: await g(v))", "a lambda cannot await"),
            ("print(“hello”)", "typographic quotes"),
            ("x = ‘a’", "typographic quotes"),
            ("x = 5 – 3", "a typographic dash is not a minus sign"),
            ("x =\u00a01", "a space must be a plain space"),
            ("r = f(from='a')", "pass it as **{'from': ...}"),
            ("r = f(x=1, class='b')", "pass it as **{'class': ...}"),
            ("r = f(user-id='a')", "pass such an argument as **{'user-id': ...}"),
            ("r = f(1st='a')", "pass such an argument as **{'1st': ...}"),
            ("r = f(@type='a')", "pass such an argument as **{'@type': ...}"),
            ("Here is the code:\n```python\nprint(1)\n```", "no prose around it"),
            ("```python\nprint(1)\n```\nThis prints 1.", "no prose around it"),
            ("text = '''\n```\n'''\nx = = 1\ny = '''\n```\n'''", None),
            ("print(1)\n```\nmore", "no ``` fences"),
            ("if 1 &lt; 2:\n    print(&quot;x&quot;)", "HTML-escaped"),
            ("!pip install pandas", "notebook commands"),
            ("%time f()", "notebook commands"),
            ("for x in xs:\n    yield x", "`yield` works inside a function"),
            ("def f():\n\tif True:\n        return 1", "indent with spaces only"),
            ("exec('await f()')", "write the code into the program itself"),
            ("exec('1 +')", None),
            ("print(1)\\nprint(2)", "send real line breaks"),
            ("    print(1)\n    print(2)", "remove the common indentation"),
            ("mcp__financial_data__query_financial(ticker='A')", "did you mean mcp__financial_data__query_financials?"),
            ("mcp__nothing__like_it()", "there is no tool mcp__nothing__like_it"),
            ("query_financials(ticker='A')", "the function is called mcp__financial_data__query_financials"),
            ("financial_data.query_financials()", "write `from servers import financial_data` first"),
            ("servers.s.echo()", "write `import servers` first"),
            ("x = [true]", "in Python it is True"),
            ("x = null", "in Python it is None"),
            ("json.dumps(1)", "write `import json` first"),
            ("some_name", None),
            ("mcp.s.echo(x=1)", "tools are plain functions here: `await mcp__financial_data__query_financials(...)`"),
            ("open(__file__)", "a program is no file"),
            ("raise missing(name='mcp.client')", "tools need no client and no import"),
            ("raise missing(name='pandas')", "only the Python standard library is available; csv, statistics"),
            ("raise missing(name='requests')", "only the Python standard library is available; there is no network"),
            ("raise missing(name='yaml.reader')", "only the Python standard library is available; use json"),
            ("raise missing(name='bs4')", "; use html.parser"),
            ("raise missing(name='no_such')", "only the Python standard library is available"),
            ("raise missing(name='json.nope')", None),
            ("raise missing(name='nest_asyncio')", "leave it out"),
            ("{'a': 1}.a", "use ['a'] or .get('a')"),
            ("[].foo", "use ['foo']"),
            ("(1).foo", None),
            ("{'a': 1}.content[0].text", "a tool's result is the value itself, here of type dict, with no .content"),
            ("'words'.text", "here of type str"),
            ("'words'.items()", "the value is of type str; print(repr(value)[:300])"),
            ("None.get('a')", "the value is of type NoneType"),
            ("'words'.foo", None),
            ("{'a': 1}['content']", "with no 'content' around it"),
            ("{'a': 1}['b']", None),
            ("x = {'a': 1, 'b c': 2}\nx['é']", "the value is a dict with the keys 'a', 'b c'"),
            ("x = {'rows': [{'n': 1}]}\nfor i in [0]:\n    s = 'é'; x['rows'][i]['m']", "the value is a dict with the keys 'n'"),
            ("def f(row):\n    return row['price']\nf({})", "the value is an empty dict"),
            ("x = dict.fromkeys(range(50))\nx['a']", "19 and 30 more"),
            ("x = {'a': 1}\nx['content']", "with no 'content' around it; this one is a dict with the keys 'a'"),
            ("x = [1, 2]\nx[2]", "the value is a list of 2 items, the first is 1"),
            ("x = [1, 2]\nx['a']", "the value is a list of 2 items, the first is 1"),
            ("x = {'a': None}\nx['a']['b']", "the value is None, of type NoneType"),
            ("for x in None:\n    pass", "the value is None"),
            ("raise KeyError('a')", None),
            ("class D(dict):\n    def __missing__(self, key):\n        raise KeyError(key)\nx = D()\nx['a']", None),
            ("x = 'words'\nx['a']", "the value is the string 'words'"),
            ("import os\nos.environ['API_KEY']", "a program's environment is empty"),
            ("import json\njson.loads('words')  # await", "text is not JSON"),
            ("import json\njson.dumps({1, 2})", "use list(...)"),
            ("import json\njson.dumps(object())", "default=str"),
            ("import json, datetime\njson.dumps(datetime.date(2024, 1, 1))", ".isoformat()"),
            ("import os, pathlib\nraise RuntimeError('Could not determine home directory.')", "a program has no home"),
            ("raise TypeError('inspect_tool() got an unexpected keyword argument')", "inspect_tool(tool_name=...)"),
            ("raise TypeError('f() got an unexpected keyword argument')", None),
            ("import urllib.error\nraise urllib.error.URLError('x')", "programs have no network"),
            ("raise TimeoutError", "the time that the program itself gave"),
            ("raise TimeoutError('mine')", None),
            ("import json\njson.loads({})", "tool results are Python values already"),
            ("async def g():\n    yield 1\nlist(g())", "use a list: [await f(x) for x in xs]"),
            ("import asyncio\nasyncio.get_running_loop()", "write `await ...` at the top level"),
            ("open('/nonexistent/passwd')", "the sandbox has no files but the program's own working directory"),
            ("open('nonexistent.csv')", "the working directory starts empty"),
            ("raise e", "the sandbox has no files"),
            ("raise p", "the sandbox allows no network, no other processes"),
            ("raise MemoryError", "memory limit"),
            ("x = " + "-" * 100_000 + "1", "nested too deeply"),
            ("print(1)\nx = '\0'", "line 2 holds a NUL character"),
            ("raise ExceptionGroup('g', [NameError(name='json')])", "write `import json` first"),
            ("raise ValueError('x')", None),
        ]
        names = {
            "e": PermissionError(errno.EACCES, "Permission denied", "/etc/passwd"),
            "missing": ModuleNotFoundError,
            "p": PermissionError(errno.EPERM, "Operation not permitted"),
        }
        for code, expected in cases:
            with self.subTest(code):
                hint = hint_of(code, **names)
                if expected is None:
                    self.assertIsNone(hint)
                else:
                    self.assertIn(expected, hint or "")

    def test_quotes_inside_of_f_strings(self):
        if sys.version_info < (3, 12):
            for code in ("d = {}\nprint(f\"{d[\"a\"]}\")", "xs = []\nprint(f\"{'\\n'.join(xs)}\")"):
                self.assertIn("takes neither its own quotes nor a backslash", hint_of(code) or "")

    def test_asyncio_used_wrongly(self):
        cases = [
            ("import asyncio\nasync def f():\n    return 1\nawait asyncio.run(f())", "only tool calls and other coroutines are awaited"),
            ("await mcp__s__echo", "a function is awaited by calling it"),
            ("import asyncio\nasync def main():\n    pass\nasyncio.run(main)", "asyncio.run() takes one coroutine, made by a call"),
            ("import asyncio\nasyncio.run(asyncio.gather(*[mcp__s__echo(x=1)]))", "at the top level write `await asyncio.gather(*calls)`"),
            ("import asyncio\nawait asyncio.gather([mcp__s__echo(x=1)])", "write asyncio.gather(*calls)"),
            ("import asyncio\nawait asyncio.wait([mcp__s__echo(x=1)])", "write `await asyncio.gather(*calls)`"),
            ("import asyncio\nfor r in asyncio.gather(mcp__s__echo(x=1)): pass", "write `await` before asyncio.gather(...)"),
            ("async for r in await mcp__s__echo(x=1):\n    print(r)", "use a plain `for`"),
            ("async for r in mcp__s__echo(x=1):\n    print(r)", "use a plain `for item in await tool(...)`"),
            ("await emit(1)", "plain functions give their value directly"),
            ("emit(1, 2)", "it is called as emit(value)"),
            ("await inspect_tool(name='x')", "it is called as inspect_tool(tool_name=...)"),
        ]
        for (code, hint), outcome in zip(cases, run_all([case[0] for case in cases]), strict=True):
            with self.subTest(code):
                self.assertRegex(outcome.error, r"Error: .*\nhint: .*" + re.escape(hint))
                self.assertEqual(outcome.error.count("hint: "), 1, outcome.error)

    def test_a_timeout_of_the_program_shows_nothing_of_asyncio(self):
        outcome = run("import asyncio\nawait asyncio.wait_for(asyncio.sleep(9), 0.01)")
        self.assertTrue(outcome.error.startswith('Traceback (most recent call last):\n  File "<program>", line 2'), outcome.error)
        self.assertNotIn("CancelledError", outcome.error)
        self.assertIn("TimeoutError\nhint: the time that the program itself gave", outcome.error)

    def test_foreign_loop(self):
        code = "import asyncio\nasync def f():\n    return 1\ntask = asyncio.create_task(f())\nawait asyncio.sleep(0)\ntask2 = asyncio.create_task(asyncio.sleep(5))\nasync def g():\n    await task2\nasyncio.run(g())"
        outcome = run(code)
        self.assertRegex(outcome.error, r"RuntimeError: .*different loop(.|\n)*\nhint: it belongs to another event loop")


class Reported(unittest.TestCase):
    """Failures in real children."""

    def test_outcomes(self):
        cases = [
            ("import sys\nprint('a')\nsys.exit('bad')", 'line 3, in <module>\n    sys.exit(\'bad\')\n', "SystemExit: bad\n"),
            ("raise SystemExit(3)", "line 1, in <module>", "SystemExit: 3\n"),
            ("exit(True)", "line 1, in <module>", "SystemExit: True\n"),
            ("raise KeyboardInterrupt", "line 1, in <module>", "KeyboardInterrupt\n"),
            ("await mcp__s__echo()\nraise KeyboardInterrupt", "line 2, in <module>", "KeyboardInterrupt\n"),
            ("import asyncio\nraise asyncio.CancelledError", "line 2, in <module>", "asyncio.exceptions.CancelledError\n"),
            ("input('name? ')", "line 1, in <module>\n    input('name? ')\n", "EOFError: input() is not available: a program has no stdin. Put the values into the code\n"),
            ("x = [0] * 10**12", "line 1, in <module>", "keep less data at a time\n"),
            ("emit({'a': [1, float('inf')]})", "line 1", "result['a'][1] is inf, which JSON cannot hold; use None or a string\n"),
            ("emit('x' * 70000)", "line 1", "ValueError: emit() value is 70002 bytes; the limit is 65536\n"),
            ("return {1, 2}", "return {1, 2}\n", "result is of type set, which is not JSON; use list(...) or sorted(...)\n"),
            ("exec('x = (')", "line 1, in <module>\n    exec('x = (')\n", "SyntaxError: '(' was never closed\n"),
            ("x = '\x00'", "null bytes", ""),
            ("async def f():\n    await mcp__s__echo()\n    raise ValueError('deep')\nawait f()", "line 4, in <module>\n    await f()\n", "line 3, in f\n    raise ValueError('deep')\nValueError: deep\n"),
        ]
        for (code, part, end), outcome in zip(cases, run_all([case[0] for case in cases]), strict=True):
            with self.subTest(code):
                self.assertIsNotNone(outcome.done)
                self.assertFalse(outcome.done["ok"])
                error = "".join(line for line in outcome.error.splitlines(True) if line.strip("~^ \n"))
                self.assertIn(part, error)
                self.assertTrue(error.endswith(end), error)
                self.assertNotIn("ptc", error)
                self.assertNotIn("asyncio/", error)

    @unittest.skipUnless(sys.platform == "linux", "measures itself in /proc")
    def test_full_memory_is_reported(self):
        code = (
            "import resource\n"
            "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
            "resource.setrlimit(resource.RLIMIT_AS, (used + 50_000_000,) * 2)\n"
            "held = []\n"
            "async def f():\n    while True:\n        held.append(['x'] * 100)\n"
            "await f()\n"
        )
        outcome = run(code)
        self.assertRegex(outcome.error, r"line 7, in f\n(.|\n)*MemoryError\nhint: the program reached its memory limit")

    def test_names_that_a_program_replaces_do_not_break_the_report(self):
        code = (
            "import json, os, sys, builtins, asyncio\n"
            "json.dumps = json.loads = lambda *a, **k: 1 / 0\n"
            "os._exit = None\nsys.stdout = sys.stderr = None\n"
            "r = await mcp__s__echo(x=1)\n"
            "raise ValueError(r['x'])\n"
        )
        outcome = run(code)
        self.assertTrue(outcome.error.endswith("ValueError: 1\n"), outcome.error)
        self.assertEqual(outcome.status, 0)

    def test_exception_group(self):
        code = (
            "import asyncio\n"
            "async def one(i):\n    await mcp__s__echo(x=i)\n    if i == 2:\n        raise ValueError('boom')\n"
            "async with asyncio.TaskGroup() as group:\n    for i in range(4):\n        group.create_task(one(i))\n"
        )
        error = run(code).error
        self.assertIn('File "<program>", line 6, in <module>', error)
        self.assertIn('| Traceback (most recent call last):\n    |   File "<program>", line 5, in one\n    |     raise ValueError(\'boom\')\n', error)
        self.assertNotIn("taskgroups.py", error)

    def test_what_only_gets_reported_shows_no_harness(self):
        code = (
            "import asyncio, threading, traceback\n"
            "def f():\n    raise ValueError('in a thread')\n"
            "t = threading.Thread(target=f)\nt.start()\nt.join()\n"
            "async def g():\n    raise ValueError('in a task')\n"
            "asyncio.create_task(g())\nawait asyncio.sleep(0.01)\n"
            "try:\n    await mcp__s__echo(x=1)\nexcept ToolError:\n    traceback.print_exc()\n"
        )
        outcome = run(code, lambda call: failure("no"))
        self.assertIsNone(outcome.error)
        text = outcome.stderr.decode()
        self.assertIn('Exception in thread Thread-1 (f):\nTraceback (most recent call last):\n  File "<program>", line 3, in f\n', text)
        self.assertIn("Task exception was never retrieved\n", text)
        self.assertIn('  File "<program>", line 8, in g\n', text)
        self.assertIn('  File "<program>", line 12, in <module>\n', text)
        self.assertNotIn("ptc/", text)
        self.assertNotIn("threading.py", text)


if __name__ == "__main__":
    unittest.main()
