"""The virtual package `servers` and imports that mean tools."""

import unittest

from tests.child import ECHO, failure, run, run_all, spec

TOOLS = [ECHO, spec("mcp__financial_data__query_financials", "ticker"), spec("mcp__json__parse", "text")]


class Servers(unittest.TestCase):
    def test_every_form_of_import_works(self):
        code = (
            "from servers import s\nprint(await s.echo(x=1))\n"
            "import servers\nprint(await servers.s.echo(x=2))\n"
            "from servers.s import echo\nprint(await echo(x=3))\n"
            "import servers.s as q\nprint(await q.echo(x=4))\n"
            "from servers.financial_data import *\nprint(await query_financials(ticker='A'))\n"
            "import importlib\nprint(await importlib.import_module('servers.s').echo(x=5))\n"
            "print(s.echo is mcp__s__echo, servers.s is s, 'financial_data' in dir(servers), servers.__all__, s.__all__)\n"
        )
        outcome = run(code, tools=TOOLS)
        self.assertIsNone(outcome.error)
        self.assertEqual(
            outcome.out.splitlines(),
            ["{'x': 1}", "{'x': 2}", "{'x': 3}", "{'x': 4}", "{'ticker': 'A'}", "{'x': 5}", "True True True ['s', 'financial_data', 'json'] ['echo']"],
        )

    def test_modules_of_the_library_come_first(self):
        outcome = run("import json\nprint(json.dumps(1))\nfrom servers import json\nprint(await json.parse(text='t'))", tools=TOOLS)
        self.assertEqual((outcome.error, outcome.out), (None, "1\n{'text': 't'}\n"))

    def test_server_without_tools_can_be_imported(self):
        servers = [{"name": "down-one", "ident": "down_one"}]
        outcome = run("from servers import down_one\nprint(down_one.__all__)\ndown_one.x", tools=[], servers=servers)
        self.assertEqual(outcome.out, "[]\n")
        self.assertIn("AttributeError: servers.down_one has no tool 'x' (there are none)", outcome.error)

    def test_calls_to_a_server_that_is_down_say_so(self):
        servers = [{"name": "down-one", "ident": "down_one", "error": "gone"}, {"name": "s", "ident": "s", "error": "renewed"}]
        calls = [
            "await mcp__down_one__x(a=1)",
            "async def f():\n    return await mcp__down_one__x(1)\nawait f()",
            "from servers import down_one\nawait down_one.x(a=1)",
            "import servers\nawait servers.down_one.x(a=object())",
            "from servers.down_one import x\nawait x()",
        ]
        for code in calls:
            with self.subTest(code):
                outcome = run(code, lambda call: failure("server 'down-one' is not connected (gone)", "unavailable"), tools=TOOLS, servers=servers)
                self.assertIn("ToolError: server 'down-one' is not connected (gone)", outcome.error)
                self.assertEqual([call["tool"] for call in outcome.calls], ["mcp__down_one__x"])
        keyword = [{"name": "class", "ident": "class_", "error": "gone"}]
        outcome = run("from servers import class_\nawait class_.x()", lambda call: failure("gone", "unavailable"), tools=[], servers=keyword)
        self.assertEqual([call["tool"] for call in outcome.calls], ["mcp__class__x"])
        typo = run("await mcp__s__ecko(x=1)", tools=TOOLS, servers=servers)
        self.assertIn("did you mean mcp__s__echo", typo.error)

    def test_help(self):
        outcome = run("from servers import financial_data\nhelp(financial_data)", tools=TOOLS)
        self.assertIsNone(outcome.error)
        self.assertIn("query_financials", outcome.out)

    def test_errors_say_what_there_is(self):
        cases = [
            ("from servers import financial", "ImportError: there is no server 'financial' (similar: financial_data)"),
            ("from servers import nope", "ImportError: there is no server 'nope' (there are: s, financial_data, json)"),
            ("import servers.nope", "ImportError: there is no server 'nope'"),
            ("import servers\nservers.nope", "AttributeError: there is no server 'nope'"),
            ("from servers.s import ecko", "ImportError: servers.s has no tool 'ecko' (similar: echo)"),
            ("from servers import s\ns.ecko(x=1)", "AttributeError: servers.s has no tool 'ecko' (similar: echo)"),
            ("import servers.s.echo", "ImportError: echo is a function: write `from servers.s import echo`"),
            ("import mcp__s__echo", "ImportError: tools need no import: they are functions already, call `await mcp__s__echo(...)`"),
            ("from mcp__s import echo", "ImportError: tools need no import: they are functions already"),
            ("import financial_data", "ImportError: 'financial_data' is a server, not a module: write `from servers import financial_data`"),
            ("from financial_data import query_financials", "ImportError: 'financial_data' is a server"),
            ("import pandas", "ModuleNotFoundError: No module named 'pandas'\nhint: only the Python standard library"),
            ("try:\n    import yaml\nexcept ImportError:\n    import importlib.util\nraise ValueError(importlib.util.find_spec('yaml'))", "ValueError: None"),
        ]
        for (code, text), outcome in zip(cases, run_all([case[0] for case in cases], tools=TOOLS), strict=True):
            with self.subTest(code):
                self.assertIn(text, outcome.error)


if __name__ == "__main__":
    unittest.main()
