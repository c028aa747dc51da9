#!/usr/bin/env bash
# MuJoCo 3.17.0 and 4.0.0: a marker that a program adds to a scene makes the
# segmentation of the model's own geoms wrong, or an IndexError.
#
# Behaviour: mjv_initGeom is documented to set what is not given "to their
# default values", but it leaves segid, objid and objtype as they were in memory.
# Programs add markers to mujoco.Renderer.scene that way, as MuJoCo's tutorial
# does. In new memory all three are 0: segid 0 is the number of the model's first
# geom, so that mujoco.Renderer's table gives the first geom's pixels the
# marker's object, and both read (0, 0). In a place of the scene that held a geom
# before, the marker is taken for that geom; other leftovers are an IndexError.
# Nobody sees it in colours. Setting segid to -1 after mjv_initGeom mends it.
#
# Output seen (Debian 12, CPython 3.11, OSMesa 22.3.6):
#   mujoco 3.17.0 (object, type): pixels; 5 is a geom, 6 a site
#   marker in new memory:   (-1, -1): 565, (0, 0): 17807, (0, 6): 168, (1, 5): 660
#   in the place of a site: (-1, -1): 565, (0, 5): 16974, (0, 6): 1001, (1, 5): 660
#   with segid = -1:        (-1, -1): 966, (0, 5): 17574, (1, 5): 660
# and the same with 4.0.0. The floor's 17,000 pixels are no geom in the first line;
# the site has 833 pixels of the marker's in the second. The exit code is 1 if a
# version marks other objects.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/marker.py" <<'PY'
import sys

import mujoco
import numpy as np

XML = """
<mujoco><worldbody><light pos="0 0 3"/>
  <geom name="floor" type="plane" size="1 1 .1"/>
  <geom name="ball" size=".1" pos=".3 0 .1"/>
  <site name="target" size=".05" pos="-.3 0 .1"/>
</worldbody></mujoco>"""
model = mujoco.MjModel.from_xml_string(XML)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 120, 160)
renderer.enable_segmentation_rendering()
option = mujoco.MjvOption()


def objects(segid=None):
    scene = renderer.scene
    mujoco.mjv_initGeom(scene.geoms[scene.ngeom], mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, 0.2),
                        np.array([0, 0, 0.6]), np.eye(3).ravel(), np.ones(4, np.float32))
    if segid is not None:
        scene.geoms[scene.ngeom].segid = segid
    scene.ngeom += 1
    found, count = np.unique(renderer.render().reshape(-1, 2), axis=0, return_counts=True)
    return dict(zip(map(tuple, found.tolist()), count.tolist()))


print("mujoco", mujoco.__version__, "(object, type): pixels; 5 is a geom, 6 a site")
renderer.update_scene(data)
new = objects()
renderer.update_scene(data)
option.sitegroup[0] = 0  # the marker now stands where the site was
renderer.update_scene(data, scene_option=option)
place = objects()
renderer.update_scene(data, scene_option=option)
mended = objects(-1)
for name, seen in (("marker in new memory:  ", new), ("in the place of a site:", place),
                   ("with segid = -1:       ", mended)):
    print(name, ", ".join(f"{one}: {number}" for one, number in seen.items()))
nothing, floor, ball, site, none = (-1, -1), (0, 5), (1, 5), (0, 6), (0, 0)
is_seen = (set(new) == {nothing, none, site, ball} and new[none] > 10_000
           and set(place) == {nothing, floor, site, ball} and place[site] > new[site]
           and set(mended) == {nothing, floor, ball})
sys.exit(0 if is_seen else 1)
PY
for version in 3.17.0 4.0.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q "mujoco==$version"
  MUJOCO_GL=osmesa "$folder/$version/bin/python" "$folder/marker.py" 2>/dev/null
done
