#!/usr/bin/env python3
"""Builds and runs the tests nearest to changed files, in a configured build folder.

    scripts/checks/changed_tests.py PRESET [COMMIT]

Changed are the files that differ from COMMIT, default HEAD, and those that git does
not know yet. A test file stands for itself. Any other source of C++ has the tests that
include its header, or if none does, a header of a source that includes it, and so on;
if there are none, the tests in the folder that mirrors the source's. At most MOST of
them count: first the one with the source's name, then those with the most folders in
common. Pages and recipes have docs_test and configs_test.

Tests of the Python package run in the environment of the last scripts/wheel, which
gets the package's sources of today. Its modules of C++ are those of that wheel.
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

MOST = 12


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True,
                          text=True).stdout.splitlines()


def is_test(path):
    return path.startswith("tests/") and path.endswith("_test.cc")


def unit_of(path):
    """A header and its source are one unit, named by their path without the ending."""
    return path.rsplit(".", 1)[0]


def users_of_units(sources):
    """By unit: the files that include its header."""
    users = collections.defaultdict(set)
    for source in sources:
        for header in re.findall(r'^#include "(.*)"', pathlib.Path(source).read_text(),
                                 re.MULTILINE):
            users[unit_of(header)].add(source)
    return users


def tests_of_unit(unit, users):
    """The tests with the fewest includes between them and the unit."""
    reached, frontier = {unit}, [unit]
    while frontier:
        files = {file for one in frontier for file in users[one]}
        tests = {file for file in files if is_test(file)}
        if tests:
            return nearest(unit, tests)
        frontier = sorted({unit_of(file) for file in files} - reached)
        reached.update(frontier)
    folder = pathlib.Path("tests", unit).parent
    while not list(folder.glob("*_test.cc")) and folder.name:
        folder = folder.parent
    return nearest(unit, {str(test) for test in folder.glob("*_test.cc")})


def nearest(unit, tests):
    """At most MOST of the tests: by their name, then by their folder."""
    folder, _, name = unit.rpartition("/")

    def distance(test):
        shared = 0
        for ours, theirs in zip(folder.split("/"), test.split("/")[1:-1]):
            if ours != theirs:
                break
            shared += 1
        return (not test.endswith(f"/{name}_test.cc"), -shared, test)

    return set(sorted(tests, key=distance)[:MOST])


def tests_of(path, users):
    """The files of tests of one changed file; a test of ctest's by its name."""
    name = pathlib.Path(path).stem
    if is_test(path) or path.startswith("tests/python/test_"):
        return {path}
    if path.startswith("python/") and path.endswith(".py"):
        own = f"tests/python/test_{name.strip('_')}.py"
        return {own if pathlib.Path(own).exists() else "tests/python"}
    if path.startswith(("scripts/", "tests/scripts/")):
        name = name.removesuffix("_test")
        has_test = any(pathlib.Path("tests/scripts").glob(f"{name}_test.*"))
        return {f"ScriptsTest.{name}"} if has_test else set()
    if path.endswith(".md"):
        return {"tests/docs/docs_test.cc"}
    if path.startswith("configs/"):
        return {"tests/docs/docs_test.cc", "tests/programs/configs_test.cc"}
    if path.endswith((".h", ".cc", ".cu", ".cuh")):
        return tests_of_unit(unit_of(path), users)
    return set()


def pattern_of(tests):
    """What ctest's names of the tests of these files match: ctest takes 32 parentheses."""
    suites, names, others = set(), set(), []
    for test in tests:
        if not is_test(test):
            others.append(f"^{re.escape(test)}$")
            continue
        suites.update(re.findall(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+)",
                                 pathlib.Path(test).read_text(), re.MULTILINE))
        names.add(pathlib.Path(test).stem)
    if suites:
        others.append(f"^(.*/)?({'|'.join(sorted(suites))})[./]")
    if names:
        others.append(rf"^({'|'.join(sorted(names))})\.(ranks|shard)")
    return "|".join(others)


def run_cpp(preset, tests):
    """Builds and runs tests of C++ and of scripts; true if all pass."""
    jobs = str(os.cpu_count())
    programs = [pathlib.Path(test).stem for test in tests if is_test(test)]
    if programs and subprocess.run(["ninja", "-C", f"build/{preset}", "-j", jobs,
                                    *programs]).returncode:
        return False
    return subprocess.run(["ctest", "--preset", preset, "-j", jobs, "--no-tests=error",
                           "-R", pattern_of(tests)]).returncode == 0


def run_python(tests):
    """Runs tests of the Python package; true if all pass."""
    environments = sorted(pathlib.Path("build").glob("wheel_venv_*/bin/python"))
    if not environments:
        print("test: no build/wheel_venv_*; hint: scripts/wheel", file=sys.stderr)
        return False
    python = environments[-1].absolute()
    package = next(python.parent.parent.glob("lib/python*/site-packages/replicant"))
    shutil.copytree("python/replicant", package, dirs_exist_ok=True)
    return subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                           *(os.path.abspath(test) for test in tests)],
                          cwd=python.parent.parent).returncode == 0


def main():
    preset = sys.argv[1]
    commit = sys.argv[2] if len(sys.argv) > 2 else "HEAD"
    changed = [path for path in
               git("diff", "--name-only", commit) + git("ls-files", "-o", "--exclude-standard")
               if pathlib.Path(path).exists()]
    sources = [path for path in git("ls-files", "-co", "--exclude-standard", "*.h", "*.cc")
               if pathlib.Path(path).exists()]
    users = users_of_units(sources)
    tests = sorted({test for path in changed for test in tests_of(path, users)})
    print(f"test: {len(changed)} changed files, tests: {' '.join(tests) or 'none'}", flush=True)
    python = [test for test in tests if test.startswith("tests/python")]
    others = [test for test in tests if test not in python]
    passed = (not others or run_cpp(preset, others)) and (not python or run_python(python))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
