"""Pictures by dm_control, for tests that compare with it.

usage: render_oracle.py OUT HEIGHT WIDTH [MODEL.xml CAMERA POSE]...

OUT gets uint8 [cases, HEIGHT, WIDTH, 3]. A pose is the model's qpos0 moved by
small multiples of 1/64, the same numbers as suite_model.h has.
"""
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/goldens"))
import env_oracle  # noqa: E402,F401  dm_control on MuJoCo 4, too
from dm_control import mujoco  # noqa: E402


def main():
  out, height, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
  cases = sys.argv[4:]
  with open(out, 'wb') as file:
    for xml, camera, pose in zip(cases[0::3], cases[1::3], cases[2::3]):
      physics = mujoco.Physics.from_xml_path(xml)
      nq = physics.model.nq
      physics.data.qpos[:] = physics.model.qpos0 + np.array(
          [((7 * i + 3 * int(pose)) % 11 - 5) / 64 for i in range(nq)])
      physics.forward()
      pixels = physics.render(height, width, camera_id=int(camera))
      file.write(np.ascontiguousarray(pixels).tobytes())


main()
