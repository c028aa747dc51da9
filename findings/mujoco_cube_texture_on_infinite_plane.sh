#!/usr/bin/env bash
# MuJoCo 3.17.0 on Mesa: an infinite plane with a cube texture and texuniform has
# one colour all over, which is no texel of the texture.
#
# Behaviour: with texuniform="true" the direction into the cube is multiplied by
# the geom's size, which is 0 along an infinite side. The direction has no length
# anywhere. OpenGL says nothing of that case; Mesa takes the corner where the faces
# -x, +y and +z meet, and blends the three texels there, although MuJoCo does
# not ask for seamless cube maps. With texuniform="false" the texture is seen.
#
# Output seen (Debian 12, CPython 3.11, Mesa 22.3.6), faces of brightness 20, 60,
# 100, 140, 180 and 220 in the order +x, -x, +y, -y, +z, -z:
#   mujoco 3.17.0: uniform [113], not uniform [20, 60, 100, 140]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/draw.py" <<'PY'
import mujoco
import numpy as np

XML = """<mujoco><visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
<asset><texture name="t" type="cube" builtin="flat" width="8" height="48" rgb1="1 1 1"/>
<material name="m" texture="t" texuniform="{uniform}"/></asset>
<worldbody><camera name="above" pos="0 0 2"/>
<geom type="plane" size="0 0 .1" material="m"/></worldbody></mujoco>"""


def brightness(uniform):
    """Of at least a tenth of the pixels."""
    model = mujoco.MjModel.from_xml_string(XML.format(uniform=uniform))
    texels = model.tex_data.reshape(6, -1)
    for i, of_face in enumerate(texels):
        of_face[:] = 40 * i + 20
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, 100, 100) as renderer:
        renderer.update_scene(data, "above")
        values, counts = np.unique(renderer.render()[..., 0], return_counts=True)
        return values[counts >= 1000].tolist()


uniform, other = brightness("true"), brightness("false")
print(f"mujoco {mujoco.__version__}: uniform {uniform}, not uniform {other}")
raise SystemExit(0 if uniform == [113] and other == [20, 60, 100, 140] else 1)
PY
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mujoco==3.17.0
MUJOCO_GL=osmesa "$folder/venv/bin/python" "$folder/draw.py"
