#!/usr/bin/env python3
"""Checks the dependency direction of the tree from its #include lines.

    layering.py ROOT           prints one line per violation, exits with 1 if any
    layering.py --write ROOT   brings the table of docs/architecture.md up to date

The rule is CMake's: a file may include headers of its own library, and of those
that the library reaches by its DEPS (a .cc also by its PRIVATE_DEPS, as its own
includes are nobody else's). Nothing is written twice: the libraries are read
from the CMakeLists.txt files, without configuring a build.

A source belongs to the library that lists it, a header to that of the .cc of its
name, or else to the first one of the nearest folder that has any.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

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
    (re.compile(r"nlohmann/|png\.h|jpeglib\.h|stb/|tiffio\.h|tinyxml2\.h|webp/"), None),
]
# examples is a project of its own; tests and measurements may put several
# libraries together
SKIPPED = {"build", "examples", ".git"}
FREE = {"tests", "bench"}
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
HEADER_SUFFIXES = (".h", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
PAGE = "docs/architecture.md"
TABLE_BEGIN = "<!-- arrows: written by scripts/checks/layering.py --write -->"
TABLE_END = "<!-- arrows end -->"

# The engine knows one replica; groups of processes and ranks are the replicator's.
# No identifier of the engine contains one of these words, except the rank of a
# shape. Comments and strings are free, and so are the calls between devices that
# a vendor's library makes.
ONE_REPLICA = "engine/"
DEVICE_CALLS = re.compile(r"engine/kernels/(device_collectives\.h"
                          r"|cuda/(collectives|nccl|nccl_library|no_nccl)\.(h|cc))")
RANK_OF_A_SHAPE = {"rank", "rank_", "kMaxRank"}
GROUP_WORDS = {"process", "processes", "rank", "ranks"}
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclasses.dataclass
class Library:
    name: str
    folder: str
    sources: list
    deps: list
    private_deps: list
    is_program: bool


def commands(text):
    """All commands of a CMakeLists.txt, as (name, arguments)."""
    tokens = re.findall(r'#[^\n]*|"(?:\\.|[^"\\])*"|[()]|[^\s()#"]+', text)
    name, depth, arguments = "", 0, []
    for token in tokens:
        if token.startswith("#"):
            continue
        if token == "(":
            depth += 1
        elif token == ")":
            depth -= 1
            if depth == 0:
                yield name, arguments
                arguments = []
        elif depth == 0:
            name = token
        else:
            arguments.append(token.strip('"'))


def sections(arguments, keywords):
    """The arguments behind each keyword."""
    found, current = {keyword: [] for keyword in keywords}, []
    for argument in arguments:
        current = found[argument] if argument in found else current
        if argument not in found:
            current.append(argument)
    return found


def read_libraries(root):
    """The libraries and programs of the tree; the modules of a Python package, which
    share files, are one. A variable has all values that it is given in its file:
    conditions are not looked at."""
    libraries = []
    for path in sorted(root.rglob("CMakeLists.txt")):
        folder = path.parent.relative_to(root).as_posix()
        if folder.split("/")[0] in SKIPPED:
            continue
        variables = {}

        def expand(arguments):
            for argument in arguments:
                match = re.fullmatch(r"\$\{(\w+)\}", argument)
                if match and match[1] in variables:
                    yield from expand(variables[match[1]])
                else:
                    yield argument

        for command, arguments in commands(path.read_text(encoding="utf-8")):
            if command == "set" and arguments:
                variables.setdefault(arguments[0], []).extend(arguments[1:])
            elif re.fullmatch("replicant_(interface_library|library|program|executable"
                              "|python_module)", command):
                parts = sections(arguments[1:], ("SOURCES", "DEPS", "PRIVATE_DEPS"))
                library = Library(
                    arguments[0], folder,
                    [f"{folder}/{source}" for source in expand(parts["SOURCES"])],
                    *([dep.removeprefix("replicant::") for dep in expand(parts[key])
                       if dep.startswith("replicant::")]
                      for key in ("DEPS", "PRIVATE_DEPS")),
                    is_program=command.endswith(("program", "executable")))
                if command == "replicant_python_module":
                    library.name = folder
                    for module in libraries:
                        if module.name == folder:
                            module.sources += library.sources
                            module.deps += library.deps
                            break
                    else:
                        libraries.append(library)
                else:
                    libraries.append(library)
    return libraries


class Tree:
    """The libraries, and which of them a file is of."""

    def __init__(self, libraries):
        self.by_name = {library.name: library for library in libraries}
        self.by_source = {}
        self.by_folder = {}
        for library in libraries:
            if library.folder.split("/")[0] in FREE:
                continue
            for source in library.sources:
                self.by_source.setdefault(source, []).append(library)
            if library.sources:
                self.by_folder.setdefault(library.folder, library)

    def libraries_of(self, path):
        """Those that compile the file. None in a free folder."""
        if path in self.by_source:
            return self.by_source[path]
        stem = path.rsplit(".", 1)[0]
        if path.endswith(HEADER_SUFFIXES) and stem + ".cc" in self.by_source:
            return self.by_source[stem + ".cc"]
        for folder in pathlib.PurePosixPath(path).parents:
            if str(folder) in self.by_folder:
                return [self.by_folder[str(folder)]]
        return []

    def reach(self, names):
        """`names` and what they reach by public DEPS."""
        seen, todo = set(), list(names)
        while todo:
            name = todo.pop()
            if name not in seen and name in self.by_name:
                seen.add(name)
                todo += self.by_name[name].deps
        return seen

    def allowed(self, library, path):
        deps = list(library.deps)
        if not path.endswith(HEADER_SUFFIXES):
            deps += library.private_deps
        return self.reach([library.name, *deps])

    def circles(self):
        """Problems: DEPS that come back to where they began."""
        problems, done = [], set()

        def visit(name, way):
            if name in way:
                circle = [*way[way.index(name):], name]
                problems.append(f"{self.by_name[name].folder}/CMakeLists.txt:1: DEPS "
                                f"run in a circle: {' -> '.join(circle)}")
            elif name in self.by_name and name not in done:
                library = self.by_name[name]
                for dep in library.deps + library.private_deps:
                    visit(dep, [*way, name])
                done.add(name)

        for name in self.by_name:
            visit(name, [])
        return problems

    def place(self, library):
        """How a library is named: its folder, and its name if it is not the only one."""
        shown = self.by_folder.get(library.folder)
        if library is shown or not library.sources:
            return f"`{library.folder}`"
        return f"`{library.folder}` ({library.name})"

    def depth(self, library):
        """The longest way down."""
        deps = library.deps + library.private_deps
        return 1 + max((self.depth(self.by_name[dep]) for dep in deps
                        if dep in self.by_name), default=0)

    def table(self):
        """The arrows as a table of Markdown, lower libraries first."""
        rows = []
        shown = [library for library in self.by_name.values()
                 if library.sources and not library.is_program
                 and library.folder.split("/")[0] not in FREE]
        for library in sorted(shown, key=lambda one: (self.depth(one), one.folder)):
            deps, private_deps = (
                [self.place(self.by_name[dep]) for dep in dict.fromkeys(names)
                 if dep in self.by_name]
                for names in (library.deps, library.private_deps))
            places = deps + [f"({place})" for place in private_deps]
            rows.append(f"| {self.place(library)} | {', '.join(places) or 'nothing'} |")
        return "\n".join(["| folder | may include |", "|---|---|", *rows])


def check_project_include(tree, path, included):
    libraries, targets = tree.libraries_of(path), tree.libraries_of(included)
    if not libraries:
        return None
    if not targets:
        if included.split("/")[0] in FREE:
            return f"a library may not include {included.split('/')[0]}/"
        return None
    for library in libraries:
        allowed = tree.allowed(library, path)
        if not any(target.name in allowed for target in targets):
            below = ", ".join(sorted(allowed - {library.name})) or "nothing else"
            return (f"{library.name} may not include {targets[0].name}; "
                    f"it may use {below}")
    return None


def check_vendor_include(path, included):
    for pattern, owner in VENDOR_HEADERS:
        if not pattern.match(included):
            continue
        is_public_header = (path.endswith(HEADER_SUFFIXES)
                            and path.split("/")[0] not in FREE)
        if is_public_header and (owner is None or not path.startswith(owner + "/")):
            where = f"outside {owner}" if owner else "anywhere"
            return f"<{included}> may not stand in a public header {where}"
    return None


def check_one_replica(path, text):
    """Problems of a file of the engine that names a group of replicas."""
    if not path.startswith(ONE_REPLICA) or DEVICE_CALLS.fullmatch(path):
        return []
    problems = []
    code = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for number, line in enumerate(code.splitlines(), start=1):
        for name in re.findall(r"\w+", line):
            words = {word.lower() for word in WORD.findall(name)}
            if words & GROUP_WORDS and name not in RANK_OF_A_SHAPE:
                problems.append(f"{path}:{number}: {name}: the engine knows one replica; "
                                "processes and ranks are the replicator's")
    return problems


def check_file(root, tree, path):
    problems = []
    if not tree.libraries_of(path) and path.split("/")[0] not in FREE:
        problems.append(f"{path}:1: lies in no library: no CMakeLists.txt of its folders "
                        "has one")
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
                problem = check_project_include(tree, path, included)
        if problem:
            problems.append(f"{path}:{number}: {problem}")
    return problems + check_one_replica(path, text)


def with_table(page, table):
    """The page with this table between its marks; None if it has no marks."""
    begin, end = page.find(TABLE_BEGIN), page.find(TABLE_END)
    if begin < 0 or end < 0:
        return None
    return f"{page[:begin]}{TABLE_BEGIN}\n{table}\n{page[end:]}"


def check_page(root, tree, write):
    file = root / PAGE
    if not file.is_file():
        return []
    page = file.read_text(encoding="utf-8")
    wanted = with_table(page, tree.table())
    if wanted is None:
        return [f"{PAGE}:1: has no '{TABLE_BEGIN}' and '{TABLE_END}'"]
    if wanted == page:
        return []
    if write:
        file.write_text(wanted, encoding="utf-8")
        return []
    return [f"{PAGE}:1: the table of arrows differs from CMake's DEPS; hint: "
            "scripts/checks/layering.py --write ."]


def main(root, write):
    tree = Tree(read_libraries(root))
    paths = sorted(
        p.relative_to(root).as_posix() for p in root.rglob("*")
        if p.suffix in SOURCE_SUFFIXES
        and p.relative_to(root).parts[0] not in SKIPPED)
    problems = tree.circles()
    if not problems:
        problems = check_page(root, tree, write)
    problems += [problem for path in paths
                 for problem in check_file(root, tree, path)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sys.exit(main(options.root.resolve(), options.write))
