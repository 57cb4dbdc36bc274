"""The rules of result conversion, by number."""

import json
import math
import unittest

import tests.child  # Makes `ptc` importable.
from ptc.convert import value_of


def convert(*texts, notes=(), keep_text=False, **structured):
    return value_of({"texts": list(texts), "notes": list(notes), "keep_text": keep_text, **structured})


class StructuredContent(unittest.TestCase):
    def test_object_alone_is_the_value(self):
        self.assertEqual(convert(structured={"a": 1}), {"a": 1})
        self.assertEqual(convert(structured={"result": 1, "more": 2}), {"result": 1, "more": 2})

    def test_text_that_repeats_it_is_no_note(self):
        self.assertEqual(convert('{"a": 1}', structured={"a": 1}), {"a": 1})
        self.assertEqual(convert('{"a":1}', "seen", structured={"a": 1}), {"a": 1, "_notes": ["seen"]})

    def test_prose_becomes_a_note(self):
        self.assertEqual(convert("page 1 of 3", structured={"a": 1}), {"a": 1, "_notes": ["page 1 of 3"]})

    def test_wrapper_is_unwrapped(self):
        self.assertEqual(convert("5", structured={"result": 5}), 5)
        self.assertEqual(convert("hello", structured={"result": "hello"}), "hello")
        self.assertEqual(convert("[1, 2]", structured={"result": [1, 2]}), [1, 2])
        self.assertEqual(convert("more", structured={"result": [1]}), {"data": [1], "_notes": ["more"]})

    def test_wrapped_json_string_is_decoded_unless_the_server_declares_a_string(self):
        text = '{"x": [1]}'
        self.assertEqual(convert(text, structured={"result": text}), {"x": [1]})
        self.assertEqual(convert("12", structured={"result": "12"}), 12)
        self.assertEqual(convert("12", structured={"result": "12"}, keep_text=True), "12")
        self.assertEqual(convert("12", keep_text=True), "12")
        self.assertEqual(convert("1", "2", keep_text=True), "1\n2")

    def test_genuine_result_key_that_a_text_repeats_stays(self):
        self.assertEqual(convert('{"result": 5}', structured={"result": 5}), {"result": 5})

    def test_other_than_an_object(self):
        self.assertEqual(convert(structured=[1, 2]), [1, 2])
        self.assertEqual(convert("[1, 2]", structured=[1, 2]), [1, 2])
        self.assertIsNone(convert(structured=None))
        self.assertEqual(convert("t", structured=None), "t")


class Texts(unittest.TestCase):
    def test_nothing_is_none(self):
        self.assertIsNone(convert())
        self.assertIsNone(value_of({}))

    def test_one_text_is_decoded_where_it_is_json(self):
        cases = [
            ('[{"id":1}]', [{"id": 1}]),
            ("plain words", "plain words"),
            ("007", "007"),
            ("", ""),
            (" ", " "),
            ("true", True),
            ("null", None),
            ("-1.5e3", -1500.0),
            ('"quoted"', "quoted"),
            ("[not json", "[not json"),
            ("nothing found", "nothing found"),
            ("True", "True"),
            ("\ufeff{}", "\ufeff{}"),
        ]
        for text, expected in cases:
            with self.subTest(text):
                value = convert(text)
                self.assertEqual((type(value), value), (type(expected), expected))

    def test_several_json_texts_come_as_one_string_that_holds_all(self):
        self.assertEqual(convert('{"a":1}', '{"b":2}'), '{"a":1}\n{"b":2}')

    def test_one_json_text_among_prose_is_the_value(self):
        self.assertEqual(convert("note", '{"a":1}', "other"), {"a": 1, "_notes": ["note", "other"]})
        self.assertEqual(convert("note", "[1]"), {"data": [1], "_notes": ["note"]})

    def test_prose_is_joined(self):
        self.assertEqual(convert("one", "two"), "one\ntwo")

    def test_split_json_is_put_together(self):
        self.assertEqual(convert("[1,", "2]"), [1, 2])

    def test_non_finite_tokens_are_floats(self):
        value = convert('{"mean": NaN, "max": Infinity}')
        self.assertTrue(math.isnan(value["mean"]))
        self.assertEqual(value["max"], math.inf)

    def test_digits_are_exact(self):
        numbers = [9007199254740993, 18446744073709551616, -9223372036854775809, 123456789012345678901234567890]
        self.assertEqual(convert(json.dumps(numbers)), numbers)

    def test_depth_beyond_python_stays_text(self):
        text = "[" * 100_000
        self.assertEqual(convert(text), text)


class Notes(unittest.TestCase):
    def test_omitted_blocks(self):
        image = "[non-text content omitted: image (image/png)]"
        self.assertEqual(convert(notes=[image]), {"data": None, "_notes": [image]})
        self.assertEqual(convert(" ", structured={"a": 1}), {"a": 1})
        self.assertEqual(convert("t", notes=[image]), {"data": "t", "_notes": [image]})
        self.assertEqual(convert('{"a": 1}', notes=[image]), {"a": 1, "_notes": [image]})

    def test_an_existing_key_is_replaced(self):
        self.assertEqual(convert("n", structured={"_notes": 1, "a": 2}), {"_notes": ["n"], "a": 2})


if __name__ == "__main__":
    unittest.main()
