#!/usr/bin/env python3
"""Checks the dependency direction of the tree from its #include lines.

    scripts/checks/layering.py ROOT

Prints one line per violation (file:line: what is wrong) and exits with 1 if
there is any. The tables below are the rule; docs/architecture.md explains them.
"""

import pathlib
import re
import sys

# What each library folder may include: itself, the folders of its row, and
# what those may include.
MAY_USE = {
    "base": [],
    "base/config": ["base"],
    "base/tensor": ["base"],
    "engine/pjrt": ["base/tensor"],
    "base/rpc": ["base"],
    "base/metrics": ["base"],
    "engine/graph": ["base/tensor"],
    "engine/export": ["engine/graph"],
    "replicator/comm": ["base/tensor", "base/rpc"],
    "engine/kernels": ["engine/graph"],
    "engine/nn": ["engine/graph"],
    "engine/runtime": ["engine/kernels"],
    "replicator": ["engine/runtime", "replicator/comm", "base/config", "base/rpc",
                   "engine/export"],
    "replicator/calls": ["replicator"],
    "replicator/strategies": ["replicator/calls"],
    "replicator/pjrt": ["replicator/strategies", "engine/pjrt"],
    "replicator/parameter_server": ["replicator/strategies"],
    "env": ["base/tensor", "base/config"],
    "replay/format": ["base/tensor", "base/rpc"],
    "replay/store": ["replay/format"],
    "replay/table": ["replay/store"],
    "replay/checkpoint": ["replay/table", "base/config"],
    "replay/client": ["replay/table"],
    "replay/service": ["replay/checkpoint", "base/metrics"],
    "models": ["engine/nn", "base/config"],
    "agents": ["engine/nn", "base/config", "env"],
    "actors": ["agents", "env", "engine/runtime", "replay/client", "base/metrics"],
    "evaluation": ["actors"],
    "learner/data": ["replicator", "env"],
    "learner/scores": ["base"],
    "learner": ["agents", "models", "learner/data", "learner/scores",
                "replay/client", "base/metrics"],
    "fleet/protocol": ["base/rpc"],
    "fleet": ["fleet/protocol", "base/config", "base/metrics"],
    "programs": ["evaluation", "engine/export", "learner", "fleet", "replay/service"],
    "tools": ["programs", "engine/pjrt"],
    "python": ["programs"],
}
# The files that know every implementation of their part, so that they may
# include the rooms above their own.
REGISTRIES = {
    "replicator/replicator.cc",
    "replicator/strategy.cc",
}
# A vendor's headers, and the folder whose public headers alone may show them.
VENDOR_HEADERS = [
    (re.compile(r"(oneapi/)?dnnl"), "engine/kernels/cpu"),
    (re.compile(r"cuda|cudnn|cublas|nccl\.h"), "engine/kernels/cuda"),
    (re.compile(r"mpi\.h"), "replicator/comm"),
    (re.compile(r"pjrt_c_api"), "engine/pjrt"),
    (re.compile(r"zmq"), "base/rpc"),
    (re.compile(r"mujoco/"), "env"),
    (re.compile(r"yaml-cpp/"), "base/config"),
    (re.compile(r"prometheus/"), "base/metrics"),
    (re.compile(r"nanobind/"), "python"),
    (re.compile(r"Eigen/"), "learner/scores"),
    (re.compile(r"nlohmann/|zip\.h|png\.h|jpeglib\.h|tinyxml2\.h"), None),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def closure(folder):
    """All folders that `folder` may include, itself among them."""
    seen, todo = set(), [folder]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo += MAY_USE[current]
    return seen


def library_of(path):
    """The row of MAY_USE that `path` lies in, or None."""
    rows = [row for row in MAY_USE if path.startswith(row + "/")]
    return max(rows, key=len) if rows else None


def check_project_include(path, included):
    source, target = library_of(path), library_of(included)
    if target is None:
        if source is not None and included.startswith("tests/"):
            return "a library may not include tests/"
        return None
    # tests may put several libraries together
    if source is None or path in REGISTRIES:
        return None
    if target not in closure(source):
        allowed = ", ".join(sorted(closure(source) - {source})) or "nothing else"
        return f"{source} may not include {target}; it may use {allowed}"
    return None


def check_vendor_include(path, included):
    for pattern, owner in VENDOR_HEADERS:
        if not pattern.match(included):
            continue
        is_public_header = path.endswith((".h", ".cuh")) and library_of(path)
        if is_public_header and (owner is None or not path.startswith(owner + "/")):
            where = f"outside {owner}" if owner else "anywhere"
            return f"<{included}> may not stand in a public header {where}"
    return None


def find_room(path):
    """A problem if `path` lies in a folder whose rooms alone have rows."""
    top = path.split("/")[0] + "/"
    rooms = [row for row in MAY_USE if row.startswith(top)]
    if rooms and not library_of(path):
        return f"{path}:1: lies in no room; there are {', '.join(rooms)}"
    return None


def check_file(root, path):
    problem = find_room(path)
    problems = [problem] if problem else []
    text = (root / path).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, included = match.groups()
        problem = check_vendor_include(path, included)
        if quote == '"':
            if not (root / included).is_file():
                problem = (f'"{included}" is not a file of this project; project '
                           "includes start at its root, others stand in <>")
            else:
                problem = check_project_include(path, included)
        if problem:
            problems.append(f"{path}:{number}: {problem}")
    return problems


def main(root):
    # examples is a project of its own
    skipped = {"build", "examples", ".git"}
    paths = sorted(
        p.relative_to(root).as_posix() for p in root.rglob("*")
        if p.suffix in SOURCE_SUFFIXES
        and p.relative_to(root).parts[0] not in skipped)
    problems = [problem for path in paths for problem in check_file(root, path)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
