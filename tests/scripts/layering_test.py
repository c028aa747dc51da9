"""scripts/checks/layering.py finds each kind of violation, and only those."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).parents[2] / "scripts" / "checks" / "layering.py"
PAGE = "docs/architecture.md"
MARKS = ("<!-- arrows: written by scripts/checks/layering.py --write -->\n",
         "<!-- arrows end -->\n")


def library(name, deps="", private_deps="", sources="x.cc"):
    """The text of a CMakeLists.txt with one library."""
    return (f"# a ( in a comment\nreplicant_library({name}\n  SOURCES {sources}\n"
            f"  DEPS fmt::fmt {deps}\n  PRIVATE_DEPS {private_deps})\n")


# base below tensor and config, and two rooms above
LIBRARIES = {
    "base/CMakeLists.txt": library("base"),
    "base/tensor/CMakeLists.txt": library("tensor", "replicant::base"),
    "engine/graph/CMakeLists.txt": library("graph", "replicant::tensor"),
    "env/CMakeLists.txt": library("env", "replicant::base", "replicant::tensor"),
    "actors/CMakeLists.txt": library("actors", "replicant::env"),
}


def run(root, *options):
    result = subprocess.run([sys.executable, CHECKER, *options, root], text=True,
                            capture_output=True, check=False)
    return result.returncode, result.stdout + result.stderr


def lay_out(root, files):
    for path, text in files.items():
        file = pathlib.Path(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def check(files):
    """Lays out {path: text} among LIBRARIES, runs the checker, returns (exit code,
    output)."""
    with tempfile.TemporaryDirectory() as root:
        lay_out(root, LIBRARIES | files)
        return run(root)


class LayeringTest(unittest.TestCase):

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
        }), (1, "base/check.h:2: base may not include tensor; "
                "it may use nothing else\n"))

    def test_sideways_include_of_actors_and_learner_fails(self):
        code, output = check({
            "learner/CMakeLists.txt": library("learner", "replicant::base"),
            "actors/a.h": '#include "learner/l.h"\n',
            "learner/l.h": '#include "actors/a.h"\n',
        })
        self.assertEqual(code, 1)
        self.assertEqual(len(output.splitlines()), 2)

    def test_replay_env_and_fleet_do_not_know_the_engine(self):
        sys.path.insert(0, str(CHECKER.parent))
        from layering import Tree, read_libraries
        tree = Tree(read_libraries(CHECKER.parents[2]))
        for library in tree.by_name.values():
            if library.folder.split("/")[0] not in ("base", "env", "replay", "fleet"):
                continue
            rooms = {tree.by_name[name].folder.split("/")[0]
                     for name in tree.allowed(library, library.folder + "/x.cc")}
            self.assertLessEqual(rooms, {"base", library.folder.split("/")[0]})

    def test_a_private_dependency_is_for_sources_alone(self):
        include = '#include "base/tensor/shape.h"\n'
        self.assertEqual(check({"env/env.cc": include, "base/tensor/shape.h": ""}),
                         (0, ""))
        for user in ("env/env.h", "actors/actor.cc"):
            code, output = check({user: include, "base/tensor/shape.h": ""})
            self.assertEqual(code, 1)
            self.assertIn("may not include tensor", output)

    def test_each_library_of_a_folder_has_its_files(self):
        code, output = check({
            "engine/kernels/CMakeLists.txt":
                library("kernels", "replicant::graph")
                + "if(HAS_MORE)\n  set(more a.cc replicant::more)\nendif()\n"
                + library("backends", "replicant::kernels ${more}", sources="make.cc"),
            "engine/kernels/backend.h": "",
            "engine/kernels/make.h": "",
            "engine/kernels/make.cc": '#include "engine/kernels/backend.h"\n'
                                      '#include "engine/more/more.h"\n',
            "engine/kernels/x.cc": '#include "engine/kernels/make.h"\n',
            "engine/more/CMakeLists.txt": library("more", "replicant::base"),
            "engine/more/more.h": "",
        })
        self.assertEqual((code, output), (
            1, "engine/kernels/x.cc:1: kernels may not include backends; it may use "
               "base, graph, tensor\n"))

    def test_a_circle_of_dependencies_fails(self):
        code, output = check({"base/CMakeLists.txt": library("base", "", "replicant::env")})
        self.assertEqual(code, 1)
        self.assertIn("DEPS run in a circle: env -> base -> env\n", output)

    def test_a_file_of_no_library_fails(self):
        code, output = check({"replay/x.cc": ""})
        self.assertEqual(code, 1)
        self.assertTrue(output.startswith("replay/x.cc:1: lies in no library"), output)

    def test_tests_and_measurements_may_put_everything_together(self):
        self.assertEqual(check({
            "bench/programs/x_main.cc": '#include "actors/a.h"\n',
            "tests/integration/x_test.cc": '#include "actors/a.h"\n',
            "actors/a.h": "",
        }), (0, ""))

    def test_vendor_header_in_a_public_header_of_another_folder_fails(self):
        self.assertEqual(check({"actors/service.h": "#include <zmq.hpp>\n"}),
                         (1, "actors/service.h:1: <zmq.hpp> may not stand in a "
                             "public header outside base/rpc\n"))
        self.assertEqual(check({"actors/service.cc": "#include <zmq.hpp>\n"}), (0, ""))

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

    def test_the_engine_names_no_processes_and_no_ranks_of_a_group(self):
        self.assertEqual(check({
            "engine/graph/shape_op.cc":
                '// for all processes\nint rank = x.rank(); Fail("a rank"); Processor p;\n',
            "engine/kernels/CMakeLists.txt": library("kernels", "replicant::graph"),
            "engine/kernels/device_collectives.h": "class DeviceRank;\n",
            "base/process.h": "class Process;\n",
        }), (0, ""))
        code, output = check({"engine/graph/x.cc": "int n;\nint num_processes = RankOf(n);\n"})
        self.assertEqual(code, 1)
        self.assertEqual([line.split(":")[:3] for line in output.splitlines()],
                         [["engine/graph/x.cc", "2", " num_processes"],
                          ["engine/graph/x.cc", "2", " RankOf"]])

    def test_the_page_has_the_table_of_the_libraries(self):
        with tempfile.TemporaryDirectory() as root:
            lay_out(root, LIBRARIES | {PAGE: "before\n" + "".join(MARKS) + "after\n"})
            code, output = run(root)
            self.assertEqual(code, 1)
            self.assertIn("differs from CMake's DEPS", output)
            self.assertEqual(run(root, "--write"), (0, ""))
            self.assertEqual(run(root), (0, ""))
            page = pathlib.Path(root, PAGE).read_text()
        self.assertEqual(page, "before\n" + MARKS[0] + """\
| folder | may include |
|---|---|
| `base` | nothing |
| `base/tensor` | `base` |
| `engine/graph` | `base/tensor` |
| `env` | `base`, (`base/tensor`) |
| `actors` | `env` |
""" + MARKS[1] + "after\n")


if __name__ == "__main__":
    unittest.main()
