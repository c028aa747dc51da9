#!/usr/bin/env bash
# Meta-World 3.1.1 cannot be imported after `pip install metaworld`.
#
# Behaviour: metaworld imports gymnasium.envs.mujoco, and Gymnasium 1.4.0's imports
# `packaging` there. Gymnasium names packaging only in its extra "mujoco", which
# metaworld does not ask for, so pip installs none and `pip check` finds nothing.
# With packaging installed, `import metaworld` works.
#
# Output seen (Debian 12, CPython 3.11):
#   No broken requirements found.
#   as installed: ModuleNotFoundError: No module named 'packaging'
#   with packaging: imported
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q metaworld==3.1.1 gymnasium==1.4.0 mujoco==3.3.0
"$folder/venv/bin/pip" check
import() {
  MUJOCO_GL=disable "$folder/venv/bin/python" -c 'import metaworld; print("imported")' 2>&1 |
    tail -n 1
}
before=$(import || true)
echo "as installed: $before"
"$folder/venv/bin/pip" install -q packaging==26.4
after=$(import)
echo "with packaging: $after"
[[ $before == "ModuleNotFoundError: No module named 'packaging'" && $after == imported ]]
