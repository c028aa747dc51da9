#!/usr/bin/env bash
# MuJoCo 3.17.0: where two equal faces of a mesh lie on each other, every lamp that
# casts a shadow lights them twice.
#
# Behaviour: the classic renderer draws the scene once more for each lamp with
# shadow and adds the colours where the depth is not less than what is seen. Two
# faces with the same corners have the same depth, so both are added. CAD exports
# often hold such faces, which the compiler keeps; the head of Meta-World's Sawyer
# has 220 of them, and its pictures a bright patch that no other renderer shows. With
# castshadow="false" the same lamp lights them once.
#
# Output seen (Debian 12, CPython 3.11, Mesa 22.3.6), brightness of a square:
#   mujoco 3.17.0: with shadow one face 38, two 76; without shadow one face 38, two 38
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/draw.py" <<'PY'
import mujoco

XML = """<mujoco><visual><headlight active="0"/></visual>
<asset><mesh name="m" vertex="-1 -1 0  1 -1 0  0 1 0  0 0 -1"
 face="0 1 2 {more} 0 3 1  1 3 2  2 3 0"/></asset>
<worldbody><light type="directional" castshadow="{shadow}" diffuse=".3 .3 .3" specular="0 0 0"/>
<geom type="mesh" mesh="m"/></worldbody></mujoco>"""


def brightness(more, shadow):
    model = mujoco.MjModel.from_xml_string(XML.format(more=more, shadow=shadow))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, 64, 64) as renderer:
        camera = mujoco.MjvCamera()
        camera.distance, camera.elevation = 3, -90
        renderer.update_scene(data, camera)
        return int(renderer.render()[32, 32, 0])


one, two, bare_one, bare_two = (brightness(more, shadow) for shadow in ("true", "false")
                                for more in ("", "0 1 2"))
print(f"mujoco {mujoco.__version__}: with shadow one face {one}, two {two};"
      f" without shadow one face {bare_one}, two {bare_two}")
raise SystemExit(0 if two > 1.8 * one and bare_two == bare_one else 1)
PY
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mujoco==3.17.0
MUJOCO_GL=osmesa "$folder/venv/bin/python" "$folder/draw.py"
