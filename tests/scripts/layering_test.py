"""scripts/checks/layering.py finds each kind of violation, and only those."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).parents[2] / "scripts/checks/layering.py"


def check(files):
    """Lays out {path: text}, runs the checker, returns (exit code, output)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            file = pathlib.Path(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        result = subprocess.run([sys.executable, CHECKER, root], text=True,
                                capture_output=True, check=False)
        return result.returncode, result.stdout + result.stderr


class CheckLayeringTest(unittest.TestCase):

    def test_downward_includes_pass(self):
        self.assertEqual(check({
            "base/check.h": "#include <string>\n",
            "engine/graph/graph.h": '#include "base/check.h"\n',
            "env/env.cc": '#include "base/check.h"\n#include <mujoco/mujoco.h>\n',
        }), (0, ""))

    def test_upward_include_names_file_line_and_what_is_allowed(self):
        self.assertEqual(check({
            "base/check.h": '#pragma once\n#include "base/tensor/shape.h"\n',
            "base/tensor/shape.h": "",
        }), (1, "base/check.h:2: base may not include base/tensor; "
                "it may use nothing else\n"))

    def test_sideways_include_of_actors_and_learner_fails(self):
        code, output = check({
            "actors/a.h": '#include "learner/l.h"\n',
            "learner/l.h": '#include "actors/a.h"\n',
        })
        self.assertEqual(code, 1)
        self.assertEqual(len(output.splitlines()), 2)

    def test_replay_and_env_may_not_use_the_graph(self):
        for folder in ("replay/format", "replay/service", "env"):
            code, _ = check({
                f"{folder}/x.cc": '#include "engine/graph/graph.h"\n',
                "engine/graph/graph.h": "",
            })
            self.assertEqual(code, 1)

    def test_a_file_beside_the_rooms_fails(self):
        code, output = check({"replay/x.cc": ""})
        self.assertEqual(code, 1)
        self.assertTrue(output.startswith(
            "replay/x.cc:1: lies in no room; there are replay/format, "), output)

    def test_programs_and_tests_may_put_everything_together(self):
        self.assertEqual(check({
            "programs/lockstep/lockstep_main.cc": '#include "actors/a.h"\n',
            "tests/integration/x_test.cc": '#include "actors/a.h"\n',
            "actors/a.h": "",
        }), (0, ""))

    def test_vendor_header_in_a_public_header_of_another_folder_fails(self):
        self.assertEqual(check({"replay/service/service.h": "#include <zmq.hpp>\n"}),
                         (1, "replay/service/service.h:1: <zmq.hpp> may not stand in a "
                             "public header outside base/rpc\n"))
        self.assertEqual(check({"replay/service/service.cc": "#include <zmq.hpp>\n"}),
                         (0, ""))

    def test_include_that_does_not_start_at_the_root_fails(self):
        code, output = check({"env/a.cc": '#include "b.h"\n', "env/b.h": ""})
        self.assertEqual(code, 1)
        self.assertIn("project includes start at its root", output)

    def test_library_may_not_include_tests(self):
        code, _ = check({
            "env/a.cc": '#include "tests/support/x.h"\n',
            "tests/support/x.h": "",
        })
        self.assertEqual(code, 1)


if __name__ == "__main__":
    unittest.main()
