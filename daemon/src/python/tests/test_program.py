"""Programs as models write them, in real children."""

import unittest

from tests.child import run


class Basics(unittest.TestCase):
    def test_prints(self):
        outcome = run("print(1)")
        self.assertEqual(outcome.done, {"t": "done", "ok": True, "error": None, "emitted": False, "warnings": [], "result": None})
        self.assertEqual(outcome.out, "1\n")

    def test_top_level_await(self):
        outcome = run("r = await mcp__s__echo(x=1)\nprint(r)")
        self.assertEqual((outcome.error, outcome.out), (None, "{'x': 1}\n"))


if __name__ == "__main__":
    unittest.main()
