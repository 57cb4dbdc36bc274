"""Programs as models write them: what they print, emit and end with."""

import os
import sys
import threading
import time
import unittest
from fcntl import ioctl

from tests.child import Child, ECHO, run, run_all
from ptc import output


class Table(unittest.TestCase):
    def check(self, cases, **start):
        """`cases` are (program, stdout, emitted result or None); all end well."""
        for (code, out, result), outcome in zip(cases, run_all([case[0] for case in cases], **start), strict=True):
            with self.subTest(code):
                self.assertIsNotNone(outcome.done, outcome.stderr)
                self.assertEqual((outcome.error, outcome.out, outcome.done["result"]), (None, out, result))
                self.assertEqual(outcome.done["emitted"], result is not None)
                self.assertTrue(outcome.done["ok"])


class Semantics(Table):
    def test_module_code(self):
        self.check(
            [
                ("print(__name__, __doc__)", "__main__ None\n", None),
                ('"""doc"""\nprint(__doc__)', "doc\n", None),
                ("", "", None),
                ("x: int = 5\ndef f():\n    global y\n    y = x\nf()\nprint(y, [y for _ in range(2)])", "5 [5, 5]\n", None),
                ("x: int = 5\nimport sys\nprint(sys.modules['__main__'].__annotations__)", "{'x': <class 'int'>}\n", None),
                ("from __future__ import annotations\nx: int = await mcp__s__echo(x=1)\nprint(x)", "{'x': 1}\n", None),
                ("async def g():\n    global n\n    n = await mcp__s__echo(x=1)\nawait g()\nprint(n)", "{'x': 1}\n", None),
                ("print([await mcp__s__echo(x=i) for i in range(2)])", "[{'x': 0}, {'x': 1}]\n", None),
                ("print({k: (await mcp__s__echo(x=k))['x'] for k in range(2)})", "{0: 0, 1: 1}\n", None),
                (
                    "async def gen():\n    for i in range(2):\n        yield await mcp__s__echo(x=i)\nasync for v in gen():\n    print(v)\nprint([v async for v in gen()])",
                    "{'x': 0}\n{'x': 1}\n[{'x': 0}, {'x': 1}]\n",
                    None,
                ),
                (
                    "import dataclasses, pickle, typing\n@dataclasses.dataclass\nclass P:\n    x: 'int'\nprint(pickle.loads(pickle.dumps(P(1))), typing.get_type_hints(P))",
                    "P(x=1) {'x': <class 'int'>}\n",
                    None,
                ),
                ("import sys\nprint(sys.modules['__main__'].__dict__ is globals(), sys.stdin.read() == '')", "True True\n", None),
                ("text = '''a\n  b'''\nprint(text)", "a\n  b\n", None),
                ("print('a')\r\nif True:\r\n    print('b')\r\n", "a\nb\n", None),
                ("import ssl, sqlite3, datetime, zoneinfo, decimal, csv\nprint(ssl.HAS_TLSv1_2)", "True\n", None),
            ]
        )

    def test_ends(self):
        self.check(
            [
                ("print('a')\nimport sys\nsys.exit(0)\nprint('b')", "a\n", None),
                ("print('a')\nexit()", "a\n", None),
                ("print('a')\nquit(None)", "a\n", None),
                ("import sys\nemit(1)\nasync def f():\n    sys.exit()\nawait f()", "", 1),
                ("import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\nprint('end')", "end\n", None),
                ("import atexit\natexit.register(print, 'no')\nprint('end')", "end\n", None),
                ("import threading\nt = threading.Thread(target=exit)\nt.start()\nt.join()\nprint('end')", "end\n", None),
                ("class D:\n    def __del__(self):\n        raise ValueError('x')\nD()\nprint('end')", "end\n", None),
            ]
        )

    def test_return_at_top_level_emits(self):
        self.check(
            [
                ("return {'a': [1]}", "", {"a": [1]}),
                ("x = await mcp__s__echo(x=41)\nif x:\n    return x['x'] + 1\nprint('not here')", "", 42),
                ("print('a')\nreturn\nprint('b')", "a\n", None),
                ("emit(1)\nreturn", "", 1),
                ("emit(1)\nreturn 2", "", 2),
                ("def f():\n    return 1\nclass A:\n    def g(self):\n        return 2\nreturn f() + A().g()", "", 3),
                (
                    "for i in range(3):\n    try:\n        if i == 1:\n            return i\n    except BaseException:\n        print('caught')\n    finally:\n        print('finally', i)",
                    "finally 0\nfinally 1\n",
                    1,
                ),
                ("with open('f', 'w') as f:\n    return [1]", "", [1]),
                ("from __future__ import annotations\nreturn 'x'", "", "x"),
            ]
        )

    def test_fences(self):
        self.check(
            [
                ("```python\nprint(1)\n```", "1\n", None),
                ("\n  ```py\nprint(1)\n```\n\n", "1\n", None),
                ("```\nprint(1)", "1\n", None),
                ("~~~python3\r\nprint(1)\r\n~~~", "1\n", None),
                ("\ufeffprint(1)", "1\n", None),
                ("x = '''\n```\ncode\n```'''\nprint(x)", "\n```\ncode\n```\n", None),
            ]
        )
        outcome = run("```python\n\nraise ValueError('third line')\n```")
        self.assertIn('File "<program>", line 3, in <module>', outcome.error)

    def test_emit(self):
        self.check(
            [
                ("emit({'k': [1, 2.5, None, True, 'é']})", "", {"k": [1, 2.5, None, True, "é"]}),
                ("emit(1)\nemit('last')", "", "last"),
                ("for i in range(50000):\n    emit(i)", "", 49999),
                ("emit([9007199254740993, 10**30, -2**64])", "", [9007199254740993, 10**30, -(2**64)]),
                ("emit((1, {2: 'two'}))", "", [1, {"2": "two"}]),
                ("emit('a\\x00b')", "", "a\x00b"),
                ("v = [1]\nemit(v)\nv.append(2)", "", [1]),
            ]
        )
        outcome = run("emit(None)")
        self.assertEqual((outcome.done["emitted"], outcome.done["result"]), (True, None))

    def test_emitted_value_survives_a_failure(self):
        outcome = run("emit(1)\nraise ValueError('late')")
        self.assertEqual((outcome.done["ok"], outcome.done["emitted"], outcome.done["result"]), (False, True, 1))

    def test_lone_surrogate_in_emitted_text_is_replaced_and_said(self):
        outcome = run("emit({'a': 'x\\ud800y'})")
        self.assertEqual(outcome.done["result"], {"a": "x\ufffdy"})
        self.assertIn("line 1", outcome.done["warnings"][0])

    def test_emitted_text_form_is_pythons(self):
        # The daemon passes the text on as it is, so it is the digits and separators of json.dumps.
        child = Child()
        child.wait_ready()
        child.start("emit({'a': [1, 1.0, 'é']})")
        frame = b""
        while not frame.endswith(b"}}"):
            frame += child.channel.recv(65536)
        self.assertTrue(frame.endswith(b'"result": {"a": [1, 1.0, "\\u00e9"]}}'), frame)
        child.follow(lambda message, messages: None)


class Output(Table):
    def test_bytes_pass_through(self):
        cases = [
            ("print('\\x00\\x1b[31mred', '\\ud800')", b"\x00\x1b[31mred \\ud800\n"),
            ("import os\nos.write(1, b'raw\\n')\nos.write(1, b'\\xff\\xfe')", b"raw\n\xff\xfe"),
            ("import sys\nsys.stdout.buffer.write(b'\\xe9')\nprint('after', sys.stdout.fileno(), sys.stdout.isatty())", b"\xe9after 1 False\n"),
            ("print('😀' * 100000, end='')", "😀".encode() * 100_000),
            ("import sys\nsys.stdout.write('no newline')", b"no newline"),
            ("import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('wrapped')", b"wrapped\n"),
        ]
        for (code, out), outcome in zip(cases, run_all([case[0] for case in cases]), strict=True):
            with self.subTest(code):
                self.assertEqual((outcome.error, outcome.stdout), (None, out))

    def test_stderr_is_its_own_pipe(self):
        outcome = run("import sys, warnings\nprint('e', file=sys.stderr)\nwarnings.warn('careful')\nprint('o')")
        self.assertEqual(outcome.out, "o\n")
        self.assertEqual(outcome.stderr.decode(), "e\n<program>:3: UserWarning: careful\n  warnings.warn('careful')\n")

    def test_the_other_stream_waits_until_a_busy_daemon_has_read_the_first(self):
        first, second = os.pipe(), os.pipe()
        out, err = output._Pipe(first[1], "wb"), output._Pipe(second[1], "wb")
        self.addCleanup(setattr, output._Pipe, "last", None)
        for end in (out, err):
            self.addCleanup(end.close)
        seen = []

        def busy_daemon():
            time.sleep(0.3)
            seen.append(ioctl(second[0], output.FIONREAD, bytes(4)))
            seen.append(os.read(first[0], 100))

        out.write(b"first")
        daemon = threading.Thread(target=busy_daemon)
        daemon.start()
        err.write(b"second")
        daemon.join()
        self.assertEqual((seen, os.read(second[0], 100)), ([bytes(4), b"first"], b"second"))

    def test_nothing_is_lost_when_the_program_is_killed(self):
        child = Child()
        child.wait_ready()
        child.start("import time\nprint('line')\nprint('half', end='')\ntime.sleep(600)")
        outcome = child.follow(lambda message, messages: None, kill_after=b"half")
        self.assertEqual((outcome.out, outcome.done), ("line\nhalf", None))

    def test_exit_without_report(self):
        for code, status in [("import os\nprint('a')\nos._exit(3)", 3 << 8), ("import os, signal\nprint('a')\nos.kill(os.getpid(), signal.SIGKILL)", 9)]:
            outcome = run(code)
            self.assertEqual((outcome.out, outcome.done, outcome.status), ("a\n", None, status))


class Surroundings(unittest.TestCase):
    def test_environment_and_descriptors(self):
        code = (
            "import os, sys\n"
            "def is_open(fd):\n"
            "    try:\n"
            "        os.fstat(fd)\n"
            "        return True\n"
            "    except OSError:\n"
            "        return False\n"
            "print([fd for fd in range(64) if is_open(fd)], os.listdir('.'), [k for k in os.environ if k != 'LC_CTYPE'], sys.path[0] != '')\n"
        )
        self.assertEqual(run(code).out, "[0, 1, 2, 3] [] [] True\n")

    def test_global_names(self):
        outcome = run("print(sorted(n for n in globals() if not n.startswith('__')))")
        names = ["ToolError", "emit", "inspect_tool", "list_callable_tools", ECHO["name"], "server_status"]
        self.assertEqual(outcome.out, f"{sorted(names)}\n")

    def test_ready_says_the_version(self):
        child = Child()
        message = child.receive()[0]
        child.channel.shutdown(2)
        child.follow(lambda message, messages: None)
        self.assertEqual(message, {"t": "ready", "python": "%d.%d.%d" % sys.version_info[:3]})

    def test_no_thread_runs_before_the_program_needs_one(self):
        outcome = run("import threading\nr = await mcp__s__echo(x=1)\nprint(threading.active_count(), threading.stack_size())")
        self.assertEqual(outcome.out, f"1 {1024 * 1024}\n")


if __name__ == "__main__":
    unittest.main()
