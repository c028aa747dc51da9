"""Trains a robot from two cameras and its joints: an arm reaches for a ball.

    python two_cameras.py [--folder runs/arm] [--seconds 600] [--seed 1]

The arm is an MJCF text; the file of another robot takes its place. One camera stands in front of the
arm, the other is on its hand. Both are drawn by the ray caster, each only where the policy looks at
it. The images have convolutions of their own, whose features join the numbers of the joints.
"""

import argparse
import time

import gymnasium
import mujoco
import numpy as np

import replicant
from replicant import render

MODEL = """
<mujoco>
  <option timestep="0.005"/>
  <asset>
    <texture name="floor" type="2d" builtin="checker" width="64" height="64" rgb1=".3 .4 .5"
             rgb2=".2 .3 .4"/>
    <material name="floor" texture="floor" texrepeat="6 6"/>
  </asset>
  <default><geom contype="0" conaffinity="0"/><joint axis="0 0 1" damping="1"/></default>
  <worldbody>
    <light pos="0 0 2" dir="0 0 -1"/>
    <camera name="front" pos="0 -0.9 0.8" xyaxes="1 0 0 0 .7 .8"/>
    <geom type="plane" size="1 1 .1" material="floor"/>
    <body name="upper" pos="0 0 .05">
      <joint name="shoulder" range="-3 3"/>
      <geom type="capsule" fromto="0 0 0 .25 0 0" size=".03" rgba=".8 .6 .2 1" mass="1"/>
      <body name="fore" pos=".25 0 0">
        <joint name="elbow" range="-2.5 2.5"/>
        <geom type="capsule" fromto="0 0 0 .2 0 0" size=".025" rgba=".8 .4 .2 1" mass=".5"/>
        <site name="hand" pos=".22 0 0"/>
        <camera name="hand" pos=".1 0 .25" xyaxes="0 -1 0 1 0 .5"/>
      </body>
    </body>
    <body name="ball" mocap="true"><geom size=".04" rgba="1 0 0 1"/></body>
  </worldbody>
  <actuator>
    <velocity joint="shoulder" kv="4" ctrlrange="-3 3"/>
    <velocity joint="elbow" kv="2" ctrlrange="-3 3"/>
  </actuator>
</mujoco>
"""
SIDE = 48  # pixels


class Arm(gymnasium.Env):
    """The reward is 1 where the hand touches the ball, and falls with the distance."""

    image = gymnasium.spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    observation_space = gymnasium.spaces.Dict({
        "front": image, "hand": image,
        "joints": gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)})
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    dt, num_steps = 0.05, 60

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_string(MODEL)
        self.data = mujoco.MjData(self.model)
        self.renderer = render.Renderer(self.model, SIDE, SIDE)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.np_random.uniform(-1.0, 1.0, 2)
        angle, radius = self.np_random.uniform([-2.0, 0.2], [2.0, 0.45])
        self.data.mocap_pos[0] = [radius * np.cos(angle), radius * np.sin(angle), 0.05]
        mujoco.mj_forward(self.model, self.data)
        self.step_of_episode = 0
        return self.observe(), {}

    def look(self, camera):
        self.renderer.update_scene(self.data, camera)
        return self.renderer.render()

    def observe(self):
        return {"front": self.look("front"), "hand": self.look("hand"),
                "joints": np.concatenate([self.data.qpos, self.data.qvel])}

    def step(self, action):
        self.data.ctrl[:] = 3.0 * np.asarray(action, float)
        mujoco.mj_step(self.model, self.data, round(self.dt / self.model.opt.timestep))
        mujoco.mj_forward(self.model, self.data)
        self.step_of_episode += 1
        distance = np.linalg.norm(self.data.site("hand").xpos - self.data.mocap_pos[0])
        reward = float(np.exp(-5.0 * max(0.0, distance - 0.05)))
        return self.observe(), reward, False, self.step_of_episode == self.num_steps, {}

    def close(self):
        self.renderer.close()


SETTINGS = {
    "task.action_repeat": 1,
    "task.observations": ["front", "hand", "joints"],
    "task.pixels.state": True,
    "agent.observations.normalize": "running",
}


def train(folder, overrides):
    return replicant.train("pixels", {**SETTINGS, **overrides}, folder=folder, make_env=Arm)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="runs/arm")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with train(arguments.folder, {"learner.limits.max_seconds": arguments.seconds,
                                  "run.seed": arguments.seed}) as run:
        while run.is_running():
            time.sleep(10)
            returns = run.evaluations()["return"]
            print(f"returns, at most {Arm.num_steps}: {np.round(returns, 1)}", flush=True)
        run.wait()
    env = Arm()
    observation, _ = env.reset(seed=1)
    print("first action:", run.policy().episode()(observation))
