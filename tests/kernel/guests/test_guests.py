#!/usr/bin/env python3
"""What the runner makes of a guest's words, and the archive that a guest begins with."""
import io
import sys
import unittest

sys.dont_write_bytecode = True

import guest  # noqa: E402
import image  # noqa: E402

WELL = """guest: 6.1.0-57-amd64
running 2 tests
test a::b ... ok
test c ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.14s

guest: not run: hook: this kernel has none
guest: ended 0
"""

BROKEN = """running 2 tests
test a::b ... FAILED
test c ... ok

failures:

---- a::b stdout ----
Error: [
    Some(
]

failures:
    a::b

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.14s

guest: ended 101
"""


class Words(unittest.TestCase):
    def test_a_good_run_is_good_and_names_what_it_could_not_do(self):
        result = guest.read(WELL.replace("\n", "\r\n"))
        self.assertTrue(result.good())
        self.assertEqual((result.passed, result.failed, result.not_run), (2, [], ["hook: this kernel has none"]))

    def test_a_failure_is_named_and_its_output_is_not_taken_for_a_name(self):
        result = guest.read(BROKEN)
        self.assertFalse(result.good())
        self.assertEqual((result.passed, result.failed), (1, ["a::b"]))
        self.assertEqual(result.tail()[0], "failures:")

    def test_what_stops_midway_is_no_success(self):
        for end in range(len(WELL) - 1):
            self.assertFalse(guest.read(WELL[:end]).good(), WELL[:end])

    def test_no_test_is_no_success(self):
        self.assertFalse(guest.read(WELL.replace("2 passed", "0 passed")).good())


class Archive(unittest.TestCase):
    def test_folders_come_before_what_is_in_them_and_all_is_aligned(self):
        file = io.BytesIO()
        archive = image.Archive(file)
        archive.file("/a/b/c", b"xyz", 0o755)
        archive.file("a/b/c", b"again")
        archive.link("l", "a")
        archive.end()
        names, at, data = [], 0, file.getvalue()
        while at < len(data):
            self.assertEqual(data[at:at + 6], b"070701")
            size, length = int(data[at + 54:at + 62], 16), int(data[at + 94:at + 102], 16)
            names.append(data[at + 110:at + 110 + length - 1].decode())
            at += (110 + length + 3) // 4 * 4 + (size + 3) // 4 * 4
        self.assertEqual(names, ["a", "a/b", "a/b/c", "l", "TRAILER!!!"])


if __name__ == "__main__":
    unittest.main()
