#!/usr/bin/env bash
# MuJoCo 3.17.0: on the caps of a capsule a cube texture does not follow the
# surface. The classic renderer looks it up as if each cap were as high as the
# capsule's half length, whatever its radius.
#
# Behaviour: OpenGL takes the direction into the cube from the coordinates of a
# display list, in which the tube ends at z = 1 and a cap reaches from 1 to 2;
# both are scaled by the half length. With texuniform="true", which stands for
# "in spatial units", the direction is right on spheres, boxes and the tube, and
# wrong on the caps: of a short, thick capsule the side faces of the cube climb
# far up the caps, of a long, thin one the end faces reach down to the rim.
#
# Output seen (Debian 12, CPython 3.11, Mesa 22.3.6), face of the cube half way up
# the cap, where the surface itself points to +z:
#   mujoco 3.17.0: sphere +z, capsule of radius 0.5 and half length 0.1 +x
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/draw.py" <<'PY'
import mujoco

XML = """<mujoco><visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
<asset><texture name="t" type="cube" builtin="flat" width="8" height="48" rgb1="1 1 1"/>
<material name="m" texture="t" texuniform="true"/></asset>
<worldbody><camera name="above" pos="0 0 4" projection="orthographic" fovy="1.2"/>
<geom {shape} material="m"/></worldbody></mujoco>"""
FACES = "+x", "-x", "+y", "-y", "+z", "-z"


def face(shape):
    """The face of the cube that is seen from above at x = 0.3, z = 0.4 over the cap's middle."""
    model = mujoco.MjModel.from_xml_string(XML.format(shape=shape))
    texels = model.tex_data.reshape(6, -1)
    for i, of_face in enumerate(texels):
        of_face[:] = 40 * (i + 1)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, 120, 120) as renderer:
        renderer.update_scene(data, "above")
        return FACES[round(renderer.render()[60, 90, 0] / 40) - 1]


sphere, capsule = face('type="sphere" size=".5"'), face('type="capsule" size=".5 .1"')
print(f"mujoco {mujoco.__version__}: sphere {sphere}, capsule of radius 0.5 and half length 0.1 {capsule}")
raise SystemExit(0 if (sphere, capsule) == ("+z", "+x") else 1)
PY
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mujoco==3.17.0
MUJOCO_GL=osmesa "$folder/venv/bin/python" "$folder/draw.py"
