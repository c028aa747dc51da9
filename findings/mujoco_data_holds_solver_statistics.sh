#!/usr/bin/env bash
# MuJoCo 3.17.0: every mjData takes 160 kB of memory for statistics of its solver,
# whatever the model: 20 times as much as the arrays of a cart-pole.
#
# Behaviour: mjData has an array of mjNISLAND * mjNSOLVER = 20 * 200 mjSolverStat of
# 40 bytes each, as part of the structure. mj_makeData() and mj_resetData() fill it
# with zeros, so that all its pages are in memory, though a step writes a few entries
# for each island of constraints, and none without constraints. A thousand
# environments hold 160 MB of zeros.
#
# Output seen (Debian 12, CPython 3.11):
#   mujoco 3.17.0: 4000 statistics of 40 bytes in each mjData
#   an mjData of a model without bodies takes 163 kB; its arrays 1 kB
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mujoco==3.17.0
cat >"$folder/memory.py" <<'PY'
import ctypes
import pathlib

import mujoco


def anonymous_kb():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))


library = ctypes.CDLL(next(pathlib.Path(mujoco.__file__).parent.glob("libmujoco.so*")))
library.mj_makeData.restype = ctypes.c_void_p
model = mujoco.MjModel.from_xml_string("<mujoco/>")
arrays = mujoco.MjData(model).nbuffer
size = mujoco.mjNISLAND * mujoco.mjNSOLVER
print(f"mujoco {mujoco.__version__}: {size} statistics of 40 bytes in each mjData")
before = anonymous_kb()
data = [library.mj_makeData(ctypes.c_void_p(model._address)) for _ in range(500)]
each = (anonymous_kb() - before) / len(data)
print(f"an mjData of a model without bodies takes {each:.0f} kB; its arrays {arrays // 1024} kB")
assert 155 < each < 200 and arrays < 20_000, (each, arrays)
PY
"$folder/venv/bin/python" "$folder/memory.py"
