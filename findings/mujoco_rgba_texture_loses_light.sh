#!/usr/bin/env bash
# MuJoCo 3.17.0: an opaque geom whose RGBA texture has an alpha of 251 of 255 or
# less is drawn without the light of every lamp that casts a shadow.
#
# Behaviour: the alpha of a texture is ignored in the first pass, which draws the
# geom opaque, as its material says. The pass of each lamp with shadow has an
# alpha test at 0.99 to leave shadowed pixels out, and the texture's alpha counts
# there. So a sticker or a logo with a soft alpha channel is black where its alpha
# is below 0.99, and only headlight and lamps without shadow light it. Shadows
# are on by default, and no alpha of the material is involved.
#
# Output seen (Debian 12, CPython 3.11, Mesa 22.3.6):
#   mujoco 3.17.0: brightness with texture alpha 252 178, 251 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/draw.py" <<'PY'
import struct
import zlib

import mujoco

XML = """<mujoco><visual><headlight active="0"/></visual>
<asset><texture name="t" type="2d" file="t.png" nchannel="4"/>
<material name="m" texture="t"/></asset>
<worldbody><light pos="0 0 3"/><geom type="plane" size="1 1 1" material="m"/></worldbody></mujoco>"""


def white_png(alpha):
    """A picture of 4 x 4 white pixels."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    rows = (b"\0" + bytes([255, 255, 255, alpha]) * 4) * 4
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 6, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def brightness(alpha):
    model = mujoco.MjModel.from_xml_string(XML, {"t.png": white_png(alpha)})
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, 64, 64) as renderer:
        renderer.update_scene(data)
        return int(renderer.render()[32, 32].mean())


bright, dark = brightness(252), brightness(251)
print(f"mujoco {mujoco.__version__}: brightness with texture alpha 252 {bright}, 251 {dark}")
raise SystemExit(0 if bright > 2 * dark else 1)
PY
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mujoco==3.17.0
MUJOCO_GL=osmesa "$folder/venv/bin/python" "$folder/draw.py"
