#!/usr/bin/env python3
"""scripts/checks/compile_commands.py on a build of four compilations, one of two files, one
of two joined tests and one with a precompiled header."""
import json
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/checks/compile_commands.py"


def main():
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder) / "build"
        unity = build / "base.dir" / "Unity" / "unity_0_cxx.cxx"
        unity.parent.mkdir(parents=True)
        unity.write_text('/* generated */\n\n#include "/src/a.cc"\n\n#include "/src/b.cc"\n')
        joined = build / "joined" / "tests_0.cc"
        joined.parent.mkdir()
        joined.write_text('#line 1 "/src/c_test.cc"\n#include "c.h"\n#line 1 "/src/d_test.cc"\n')

        def entry(file, options):
            return {"directory": str(build), "command": f"c++ {options} -c {file}", "file": file}

        header = f"-Winvalid-pch -include {build}/tests/x.dir/cmake_pch.hxx"
        (build / "compile_commands.json").write_text(json.dumps(
            [entry(str(unity), "-O1"), entry(str(joined), "-O0"), entry("/src/alone.cc", "-O2"),
             entry("/src/a_test.cc", f"-O2 {header}")]))
        output = build / "lint"
        subprocess.run([sys.executable, SCRIPT, build, output], check=True)
        got = json.loads((output / "compile_commands.json").read_text())
        want = [entry("/src/a.cc", "-O1"), entry("/src/b.cc", "-O1"),
                entry("/src/c_test.cc", "-O0"), entry("/src/d_test.cc", "-O0"),
                entry("/src/alone.cc", "-O2"), entry("/src/a_test.cc", "-O2")]
        if got != want:
            sys.exit(f"compile_commands_test: got {got}, want {want}")


if __name__ == "__main__":
    main()
