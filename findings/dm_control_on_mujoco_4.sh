#!/usr/bin/env bash
# dm_control 1.0.50 on MuJoCo 4.0.0: every task of the Control Suite fails to load,
# and the only cause is a table of names.
#
# Behaviour: dm_control sets no upper bound on mujoco, so pip installs 4.0.0.
# Physics makes a named view of each array in its table `array_sizes`, which
# still lists seven arrays of MjModel and two of MjData that MuJoCo 4 removed with
# the flexvert constraints. getattr fails for the first, so no task loads. With
# the nine names deleted from the table, all tasks load and step: nothing else of
# dm_control is incompatible with MuJoCo 4.
#
# Output seen (Debian 12, CPython 3.11):
#   mujoco 4.0.0, dm_control 1.0.50
#   as installed: 0 of 50 tasks load; 'MjModel' object has no attribute 'flex_vertedge'
#   removed: flex_vertedge flex_vertedgeadr flex_vertedgenum flex_vertmetric flexvert_J flexvert_J_colind flexvert_J_rowadr flexvert_J_rownnz flexvert_length
#   with the repaired table: 50 of 50 tasks load and step
# (quadruped-escape is left out: it renders at reset and needs OpenGL.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mujoco==4.0.0 mujoco-core==4.0.0 mujoco-studio==4.0.0 dm_control==1.0.50
cat >"$folder/tasks.py" <<'PY'
import collections
import logging
import sys
from importlib.metadata import version

import mujoco
from dm_control.mujoco.wrapper.mjbindings import sizes

logging.disable(logging.WARNING)
print(f"mujoco {mujoco.__version__}, dm_control {version('dm_control')}")


def load_all():
    """(number of tasks that load and step, number of tasks, errors by count)."""
    from dm_control import suite
    tasks = [t for t in suite.ALL_TASKS if t != ("quadruped", "escape")]
    loaded, errors = 0, collections.Counter()
    for domain, task in tasks:
        try:
            environment = suite.load(domain, task, task_kwargs={"random": 1})
            environment.reset()
            environment.step(environment.action_spec().generate_value())
            loaded += 1
        except AttributeError as error:
            errors[str(error)] += 1
    return loaded, len(tasks), errors


before, count, errors = load_all()
print(f"as installed: {before} of {count} tasks load; {', '.join(errors)}")
removed = []
for struct, cls in (("mjmodel", mujoco.MjModel), ("mjdata", mujoco.MjData)):
    for name in list(sizes.array_sizes[struct]):
        if not hasattr(cls, name):
            del sizes.array_sizes[struct][name]
            removed.append(name)
print("removed:", *sorted(removed))
after, count, _ = load_all()
print(f"with the repaired table: {after} of {count} tasks load and step")
sys.exit(0 if (before, len(removed), after) == (0, 9, count) else 1)
PY
MUJOCO_GL=disable "$folder/venv/bin/python" "$folder/tasks.py"
