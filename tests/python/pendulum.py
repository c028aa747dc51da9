"""A task in Python for the tests: a pendulum with a motor, whose reward is the height of its tip."""

from replicant import envs

PENDULUM = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <camera name="side" pos="0 -3 0" xyaxes="1 0 0 0 0 1"/>
    <light pos="0 -2 2"/>
    <body name="pole">
      <joint name="hinge" axis="0 1 0"/>
      <geom name="rod" type="capsule" fromto="0 0 0 0 0 1" size="0.05" mass="1"/>
      <site name="tip" pos="0 0 1"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" ctrlrange="-2 2" ctrllimited="true"/></actuator>
  <sensor><jointpos name="angle" joint="hinge"/></sensor>
</mujoco>
"""


def own_task(**changes):
    options = {
        "name": "pendulum-own",
        "mjcf": PENDULUM,
        "reward": lambda physics: float(physics.site_position("tip")[2]),
        "time_limit_s": 0.2,
        **changes,
    }
    return envs.Task(**options)
