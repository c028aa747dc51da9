#!/usr/bin/env bash
# minari 0.5.4: with a relative MINARI_DATASETS_PATH no data set can be made: the
# episodes are written, then FileNotFoundError names a path that has the folder twice.
#
# Behaviour: MinariStorage.get_size() globs data_path, whose results begin with
# data_path, and joins each to data_path again. An absolute path, which replaces what
# it is joined to, hides that. What is left behind has no metadata of its steps.
#
# Output seen (Debian 12, CPython 3.11):
#   minari 0.5.4: MINARI_DATASETS_PATH=/...: made, 3 steps
#   minari 0.5.4: MINARI_DATASETS_PATH=sets: FileNotFoundError: sets/finding/relative-v0/data/sets/finding/relative-v0/data/main_data.hdf5
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "minari[hdf5]==0.5.4" pillow
cat >"$folder/make.py" <<'PY'
import os
import sys
import warnings
from importlib.metadata import version

import gymnasium
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

warnings.simplefilter("ignore")
box = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
episode = EpisodeBuffer(
    observations=np.zeros((4, 1), np.float32), actions=np.zeros((3, 1), np.float32),
    rewards=[0.0] * 3, terminations=[False] * 3, truncations=[False, False, True], infos={})
path = os.environ["MINARI_DATASETS_PATH"]
try:
    made = minari.create_dataset_from_buffers(
        f"finding/{'absolute' if os.path.isabs(path) else 'relative'}-v0", [episode],
        observation_space=box, action_space=box)
except FileNotFoundError as error:
    result = f"FileNotFoundError: {error.filename}"
else:
    result = f"made, {made.total_steps} steps"
print(f"minari {version('minari')}: MINARI_DATASETS_PATH={'/...' if os.path.isabs(path) else path}: "
      f"{result}")
wanted = "made, 3 steps" if os.path.isabs(path) else "FileNotFoundError: sets/"
sys.exit(not result.startswith(wanted))
PY
cd "$folder"
MINARI_DATASETS_PATH=$folder/absolute venv/bin/python make.py
MINARI_DATASETS_PATH=sets venv/bin/python make.py
