"""JSON text of arguments and emitted values: what is refused, and where it stands."""

import datetime
import enum
import unittest
from dataclasses import dataclass

import tests.child  # Makes `ptc` importable.
from ptc import jsontext


@dataclass
class Point:
    x: int


class Level(enum.IntEnum):
    HIGH = 3


class Encode(unittest.TestCase):
    def test_text_is_pythons_own(self):
        value = {"b": [1, 2.5, None, True], "a": ("é", 10**40), 1: "one", None: 0}
        self.assertEqual(
            jsontext.encode(value, "v"),
            '{"b": [1, 2.5, null, true], "a": ["\\u00e9", 1' + "0" * 40 + '], "1": "one", "null": 0}',
        )
        self.assertEqual(jsontext.encode(Level.HIGH, "v"), "3")

    def test_refusals_name_the_place(self):
        loop = []
        loop.append(loop)
        deep = 1
        for _ in range(100_000):
            deep = [deep]
        cases = [
            ({"a": [1, float("nan")]}, ValueError, "v['a'][1] is nan"),
            (float("-inf"), ValueError, "v is -inf"),
            ({"s": {1}}, TypeError, "v['s'] is of type set, which is not JSON; use list(...) or sorted(...)"),
            ([b"x"], TypeError, "v[0] is of type bytes"),
            (datetime.date(2026, 1, 2), TypeError, "use .isoformat()"),
            ([Point(1)], TypeError, "v[0] is of type Point, which is not JSON; use dataclasses.asdict(...)"),
            ({(1, 2): 3}, TypeError, "v has the key (1, 2); keys must be strings, not tuple"),
            (loop, ValueError, "v[0] contains itself"),
            (deep, ValueError, "v is nested too deeply"),
        ]
        for value, kind, text in cases:
            with self.subTest(text):
                with self.assertRaises(jsontext.Unencodable) as caught:
                    jsontext.encode(value, "v")
                self.assertIs(caught.exception.kind, kind)
                self.assertIn(text, caught.exception.reason)


class Surrogates(unittest.TestCase):
    def test_only_lone_halves_are_replaced(self):
        cases = [("a\ud800b", "a\ufffdb"), ("\udc00", "\ufffd"), ("😀", "😀"), ("\\ud800", "\\ud800"), ("\ud800😀\udfff", "\ufffd😀\ufffd")]
        for text, expected in cases:
            encoded = jsontext.encode(text, "v")
            self.assertEqual(jsontext.replace_lone_surrogates(encoded), jsontext.encode(expected, "v"))
            self.assertEqual(jsontext.has_lone_surrogates(encoded), text != expected)

    def test_place(self):
        self.assertEqual(jsontext.find_surrogate({"a": ["x", "\ud800"]}, "v"), "v['a'][1]")
        self.assertEqual(jsontext.find_surrogate({"\ud800": 1}, "v"), "a key of v")
        self.assertIsNone(jsontext.find_surrogate({"a": [1]}, "v"))


if __name__ == "__main__":
    unittest.main()
