#!/usr/bin/env python3
"""Lists the compilation of each source file of a build, for clang-tidy.

    scripts/checks/compile_commands.py BUILD_FOLDER OUTPUT_FOLDER

With REPLICANT_UNITY a build compiles files that include several sources each, and files
that are the text of several tests (cmake/JoinTests.cmake).
OUTPUT_FOLDER/compile_commands.json has every source with the command of the file
that includes it, without g++'s precompiled headers, which clang cannot read and in
which a file finds what it does not include, and without g++'s parameters.
"""
import json
import pathlib
import re
import sys


def entries_of(entry):
    """The entries of the sources that the entry's file stands for."""
    file = entry["file"]
    command = re.sub(r" (-Winvalid-pch )?-include \S+/cmake_pch\.hxx| --param=\S+", "",
                     entry["command"])
    entry = {**entry, "command": command}
    if "/Unity/unity_" in file:
        line = "#include"
    elif "/joined/" in file:
        line = "#line 1"
    else:
        return [entry]
    sources = re.findall(rf'^{line} "(.*)"$', pathlib.Path(file).read_text(), re.MULTILINE)
    return [
        {**entry, "file": source, "command": command.replace(file, source)}
        for source in sources
    ]


def main():
    build, output = map(pathlib.Path, sys.argv[1:])
    entries = json.loads((build / "compile_commands.json").read_text())
    unfolded = [one for entry in entries for one in entries_of(entry)]
    output.mkdir(parents=True, exist_ok=True)
    (output / "compile_commands.json").write_text(json.dumps(unfolded, indent=1))


if __name__ == "__main__":
    main()
