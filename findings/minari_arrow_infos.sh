#!/usr/bin/env bash
# minari 0.5.4: a data set with a number for each step in `infos`, such as
# MuJoCo's x_position, is written as arrow or parquet without a word, and then no
# episode of it can be read. hdf5, the default, is fine.
#
# Behaviour: _encode_info keeps the shape of one step as metadata of the field,
# ",".join of an empty shape, "", for an array [T + 1]. _decode_info splits that
# text at the commas and takes int(b"") of its only part: ValueError. An array
# [T + 1, 1] survives. The data itself is whole: pyarrow reads it.
#
# Output seen (Debian 12, CPython 3.11):
#   minari 0.5.4: hdf5, infos of 4 numbers: read back
#   minari 0.5.4: arrow, infos of 4 numbers: ValueError: invalid literal for int() with base 10: b''
#   minari 0.5.4: parquet, infos of 4 numbers: ValueError: invalid literal for int() with base 10: b''
#   minari 0.5.4: arrow, infos of 4 x 1 numbers: read back
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "minari[hdf5,arrow]==0.5.4" pillow
cat >"$folder/infos.py" <<'PY'
import sys
import warnings
from importlib.metadata import version

import gymnasium
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

warnings.simplefilter("ignore")
box = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


def read_back(form, shape):
    """The error of reading the only episode; "read back" without one."""
    episode = EpisodeBuffer(
        observations=np.zeros((4, 1), np.float32), actions=np.zeros((3, 1), np.float32),
        rewards=[0.0] * 3, terminations=[False] * 3, truncations=[False, False, True],
        infos={"x_position": np.arange(4.0).reshape(shape)})
    data = minari.create_dataset_from_buffers(
        f"finding/{form}-{len(shape)}-v0", [episode], observation_space=box, action_space=box,
        data_format=form)
    try:
        got = next(data.iterate_episodes()).infos["x_position"]
    except ValueError as error:
        result = f"ValueError: {error}"
    else:
        result = "read back" if (got == np.arange(4.0).reshape(shape)).all() else "changed"
    print(f"minari {version('minari')}: {form}, infos of {' x '.join(map(str, shape))} numbers: "
          f"{result}")
    return result


results = [read_back("hdf5", (4,)), read_back("arrow", (4,)), read_back("parquet", (4,)),
           read_back("arrow", (4, 1))]
broken = "ValueError: invalid literal for int() with base 10: b''"
sys.exit(0 if results == ["read back", broken, broken, "read back"] else 1)
PY
MINARI_DATASETS_PATH=$folder/sets "$folder/venv/bin/python" "$folder/infos.py"
