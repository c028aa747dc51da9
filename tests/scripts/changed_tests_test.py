"""scripts/checks/changed_tests.py finds the tests nearest to a file."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts" / "checks"))

import changed_tests  # noqa: E402  (from the folder above)

FILES = {
    "base/fs.h": "",
    "base/fs.cc": '#include "base/fs.h"\n',
    "replay/table.h": '#include "replay/tree.h"\n',
    "replay/table.cc": '#include "replay/table.h"\n',
    "replay/tree.h": "",
    "replay/parts.cc": '#include "replay/table.h"\n',
    "tests/base/fs_test.cc": '#include "base/fs.h"\nTEST(FsTest, A) {}\nTEST_P(ReadTest, B) {}\n',
    "tests/replay/table_test.cc": '#include "replay/table.h"\n',
    "tests/scripts/setup_test.sh": "",
    "tests/replay/writer_test.cc": '#include "base/fs.h"\n',
}


class ChangedTests(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        for path, text in FILES.items():
            pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(path).write_text(text)
        self.users = changed_tests.users_of_units(FILES)

    def found(self, path):
        return sorted(changed_tests.tests_of(path, self.users))

    def test_a_test_stands_for_itself(self):
        self.assertEqual(self.found("tests/base/fs_test.cc"), ["tests/base/fs_test.cc"])

    def test_a_source_has_the_tests_that_include_its_header(self):
        self.assertEqual(self.found("base/fs.cc"),
                         ["tests/base/fs_test.cc", "tests/replay/writer_test.cc"])

    def test_a_source_without_tests_has_those_of_its_users(self):
        self.assertEqual(self.found("replay/tree.h"), ["tests/replay/table_test.cc"])

    def test_a_source_without_users_has_the_tests_of_its_folder(self):
        self.assertEqual(self.found("replay/parts.cc"),
                         ["tests/replay/table_test.cc", "tests/replay/writer_test.cc"])

    def test_of_many_tests_the_nearest_are_taken(self):
        tests = {f"tests/actors/a{i}_test.cc" for i in range(changed_tests.MOST)}
        near = {"tests/env/fs_test.cc", "tests/base/b_test.cc"}
        self.assertLess(near, changed_tests.nearest("base/fs", tests | near))

    def test_pages_recipes_scripts_and_python_have_their_tests(self):
        self.assertEqual(self.found("docs/a.md"), ["tests/docs/docs_test.cc"])
        self.assertEqual(self.found("configs/a.yaml"),
                         ["tests/docs/docs_test.cc", "tests/programs/configs_test.cc"])
        self.assertEqual(self.found("scripts/setup"), ["ScriptsTest.setup"])
        self.assertEqual(self.found("scripts/wheel"), [])
        self.assertEqual(self.found("python/replicant/_train.py"), ["tests/python"])
        self.assertEqual(self.found("LICENSE"), [])

    def test_ctest_runs_the_suites_of_the_files(self):
        self.assertEqual(changed_tests.pattern_of(["tests/base/fs_test.cc", "ScriptsTest.setup"]),
                         r"^ScriptsTest\.setup$|^(.*/)?(FsTest|ReadTest)[./]"
                         r"|^(fs_test)\.(ranks|shard)")

    def test_many_suites_need_no_more_parentheses(self):
        tests = []
        for i in range(40):
            tests.append(f"tests/base/many{i}_test.cc")
            pathlib.Path(tests[-1]).write_text(f"TEST(Many{i}Test, A) {{}}\n")
        self.assertEqual(changed_tests.pattern_of(tests).count("("), 4)


if __name__ == "__main__":
    unittest.main()
