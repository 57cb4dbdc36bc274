"""The joined text itself."""

import unittest

from tests.child import BOOTSTRAP, ROOT, joined


class Bootstrap(unittest.TestCase):
    def test_is_what_the_files_give(self):
        self.assertEqual(BOOTSTRAP, joined())

    def test_every_file_is_a_part(self):
        for path in (ROOT / "ptc").glob("*.py"):
            if path.name != "__init__.py":
                self.assertIn(f'\npart("{path.stem}", ', BOOTSTRAP)

    def test_parts_survive_their_quotes(self):
        for path in (ROOT / "ptc").glob("*.py"):
            self.assertNotIn("'''", path.read_text(encoding="utf-8"), path.name)


if __name__ == "__main__":
    unittest.main()
