#!/usr/bin/env bash
# MuJoCo 3.12.0 and later: an enum of the bindings equals a NumPy integer only if
# the integer stands on the left.
#
# Behaviour: numbers of a model, such as model.jnt_type[0], are NumPy integers.
# Up to 3.11.0 they equal the enums on either side. Since 3.12.0
# `model.jnt_type[0] == mjJNT_HINGE` is still True and
# `mjJNT_HINGE == model.jnt_type[0]` is False, without a warning. Python itself
# puts the element of a container on the left, so that `in` a tuple, list or set
# of enums, list.index and the look-up in a dictionary with enums as keys fail,
# although the hashes are equal. With a Python int, int(model.jnt_type[0]), both
# sides are equal. gymnasium-robotics 1.4.2, which sets no upper bound on mujoco,
# asserts `joint_type in (mjJNT_HINGE, mjJNT_SLIDE)`: its Fetch, hand and kitchen
# environments cannot be made.
#
# Output seen (Debian 12, CPython 3.11, NumPy 2.4.6):
#   mujoco 3.11.0: number == enum True, enum == number True, in a tuple True, in a dictionary True
#   FetchReach-v4: made
#   mujoco 3.12.0: number == enum True, enum == number False, in a tuple False, in a dictionary False
#   FetchReach-v4: AssertionError in mujoco_utils.py
# and 4.0.0 prints what 3.12.0 does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/enums.py" <<'PY'
import pathlib
import sys
import traceback
import warnings

import gymnasium
import gymnasium_robotics
import mujoco

warnings.filterwarnings("ignore")
gymnasium.register_envs(gymnasium_robotics)
model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><body><joint type='hinge'/><geom size='.1'/></body></worldbody></mujoco>")
hinge, number = mujoco.mjtJoint.mjJNT_HINGE, model.jnt_type[0]
assert hash(hinge) == hash(number) and hinge == int(number)
found = (number == hinge, hinge == number, number in (hinge,), number in {hinge: 1})
print("mujoco {}: number == enum {}, enum == number {}, in a tuple {}, in a dictionary {}".format(
    mujoco.__version__, *found))
try:
    gymnasium.make("FetchReach-v4").close()
    fetch = "made"
except AssertionError as error:
    file = traceback.extract_tb(error.__traceback__)[-1].filename
    fetch = f"AssertionError in {pathlib.Path(file).name}"
print("FetchReach-v4:", fetch)
is_old = mujoco.__version__ == "3.11.0"
wanted = ((True, is_old, is_old, is_old), "made" if is_old else "AssertionError in mujoco_utils.py")
sys.exit((found, fetch) != wanted)
PY
for version in 3.11.0 3.12.0 4.0.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q "mujoco==$version" gymnasium-robotics==1.4.2 gymnasium==1.4.0 numpy==2.4.6
  MUJOCO_GL=disable "$folder/$version/bin/python" "$folder/enums.py" 2>/dev/null
done
