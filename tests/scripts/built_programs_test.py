"""scripts/checks/built_programs.py finds the programs of a check, or says where none are."""

import argparse
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts" / "checks"))

import built_programs  # noqa: E402  (from the folder above)


class BuiltPrograms(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = pathlib.Path(folder.name).resolve()
        source = unittest.mock.patch.object(built_programs, "SOURCE", self.source)
        source.start()
        self.addCleanup(source.stop)
        self.parser = argparse.ArgumentParser(prog="check")
        built_programs.add_options(self.parser)

    def build(self, preset):
        program = self.source / "build" / preset / "bin" / "fleet"
        program.parent.mkdir(parents=True)
        program.touch()
        return program.parent

    def parse(self, *words):
        with unittest.mock.patch.object(sys, "argv", ["check", *words]):
            return built_programs.parse(self.parser).bin

    def refusal(self, *words):
        with contextlib.redirect_stderr(io.StringIO()) as text:
            with self.assertRaises(SystemExit) as end:
                self.parse(*words)
        self.assertEqual(end.exception.code, 2)
        return text.getvalue()

    def test_the_folder_of_a_preset_or_a_named_one(self):
        dev, ci = self.build("dev"), self.build("ci")
        self.assertEqual(self.parse(), dev)
        self.assertEqual(self.parse("--preset", "ci"), ci)
        self.assertEqual(self.parse("--preset", "dev", "--bin", str(ci)), ci)

    def test_a_preset_that_is_not_built_is_refused_with_those_that_are(self):
        self.assertIn("built presets: none;", self.refusal())
        self.build("ci")
        text = self.refusal("--preset", "release")
        self.assertIn(f"{self.source}/build/release/bin: no program 'fleet'", text)
        self.assertIn("built presets: ci;", text)


if __name__ == "__main__":
    unittest.main()
