#!/usr/bin/env python3
"""Checks the dependency direction of the tree from its #include lines.

    check_layering.py ROOT

Prints one line per violation (file:line: what is wrong) and exits with 1 if
there is any. The tables below are the rule; docs/architecture.md explains them.
"""

import pathlib
import re
import sys

# What each library folder may include: itself, the folders of its row, and
# what those may include.
MAY_USE = {
    "core/base": [],
    "core/config": ["core/base"],
    "core/tensor": ["core/base"],
    "core/pjrt": ["core/tensor"],
    "core/rpc": ["core/base"],
    "core/metrics": ["core/base"],
    "core/graph": ["core/tensor"],
    "core/export": ["core/graph"],
    "core/comm": ["core/tensor", "core/rpc"],
    "core/kernels": ["core/graph"],
    "core/nn": ["core/graph"],
    "core/runtime": ["core/kernels"],
    "core/replicator": ["core/runtime", "core/comm", "core/config", "core/rpc",
                        "core/export"],
    "core/replicator/graph": ["core/replicator"],
    "core/replicator/strategies": ["core/replicator/graph"],
    "core/replicator/pjrt": ["core/replicator/strategies", "core/pjrt"],
    "core/replicator/parameter_server": ["core/replicator/strategies"],
    "env": ["core/tensor", "core/config"],
    "replay/format": ["core/tensor", "core/rpc"],
    "replay/store": ["replay/format"],
    "replay/table": ["replay/store"],
    "replay/checkpoint": ["replay/table", "core/config"],
    "replay/client": ["replay/table"],
    "replay/service": ["replay/checkpoint", "core/metrics"],
    "models": ["core/nn", "core/config"],
    "agents": ["core/nn", "core/config", "env"],
    "actors": ["agents", "env", "core/runtime", "replay/client", "core/metrics"],
    "learner/data": ["core/replicator"],
    "learner/scores": ["core/base"],
    "learner": ["agents", "models", "learner/data", "learner/scores",
                "replay/client", "core/metrics"],
    "fleet": ["core/config", "core/rpc", "core/metrics"],
    "programs": ["actors", "core/export", "learner", "fleet", "replay/service"],
    "tools": ["programs", "core/pjrt"],
    "python": ["programs"],
}
# The files that know every implementation of their part, so that they may
# include the rooms above their own.
REGISTRIES = {
    "core/replicator/replicator.cc",
    "core/replicator/strategy.cc",
}
# A vendor's headers, and the folder whose public headers alone may show them.
VENDOR_HEADERS = [
    (re.compile(r"(oneapi/)?dnnl"), "core/kernels/cpu"),
    (re.compile(r"cuda|cudnn|cublas|nccl\.h"), "core/kernels/cuda"),
    (re.compile(r"mpi\.h"), "core/comm"),
    (re.compile(r"pjrt_c_api"), "core/pjrt"),
    (re.compile(r"zmq"), "core/rpc"),
    (re.compile(r"mujoco/"), "env"),
    (re.compile(r"yaml-cpp/"), "core/config"),
    (re.compile(r"prometheus/"), "core/metrics"),
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
