#!/usr/bin/env bash
# MuJoCo 3.17.0 and 4.0.0: a mesh file that is written anew within the second of
# its last version compiles to the old mesh, without a word.
#
# Behaviour: the compiler keeps decoded assets in a global cache of the process
# and compares the time of the file's last change in whole seconds. A program that
# generates meshes under one name, such as a randomised object, gets the vertices
# of the first version. The same holds for height fields. After the next full
# second, or mj_clearCache in C, the new file is read.
#
# Output seen (Debian 12, CPython 3.11, for each version):
#   mujoco 3.17.0: largest vertex 0.8165, rewritten at once 0.8165, a second later 1.6330
#   mujoco 4.0.0: largest vertex 0.8165, rewritten at once 0.8165, a second later 1.6330
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/rewrite.py" <<'PY'
import pathlib
import sys
import time

import mujoco

folder = pathlib.Path(sys.argv[1])
(folder / "model.xml").write_text(
    "<mujoco><asset><mesh name='m' file='m.obj'/></asset>"
    "<worldbody><geom type='mesh' mesh='m'/></worldbody></mujoco>")


def largest_vertex(size):
    """Of the model whose mesh is a tetrahedron of this size."""
    (folder / "m.obj").write_text(
        f"v 0 0 0\nv {size} 0 0\nv 0 {size} 0\nv 0 0 {size}\n"
        "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    model = mujoco.MjModel.from_xml_path(str(folder / "model.xml"))
    return abs(model.mesh_vert).max()


while time.time() % 1 > 0.3:  # both writes within one second
    time.sleep(0.05)
first, at_once = largest_vertex(1), largest_vertex(2)
time.sleep(1.5)
later = largest_vertex(2)
print(f"mujoco {mujoco.__version__}: largest vertex {first:.4f}, rewritten at once "
      f"{at_once:.4f}, a second later {later:.4f}")
sys.exit(0 if at_once == first and later == 2 * first else 1)
PY
for version in 3.17.0 4.0.0; do
  python3 -m venv "$folder/venv-$version"
  "$folder/venv-$version/bin/pip" install -q "mujoco==$version"
  mkdir "$folder/$version"
  "$folder/venv-$version/bin/python" "$folder/rewrite.py" "$folder/$version"
done
