"""Trains an environment whose observation is a dictionary of an image and numbers.

    python images_and_state.py [--folder runs/cursor] [--seconds 180] [--seed 1]

A cursor follows a spot. Only the image shows the spot, and only the numbers tell where the cursor is
and how fast it moves, so that the policy needs both. task.observations selects these two arrays and
leaves the third out. The reward is not in [0, 1] and the numbers have different sizes: two keys of
the agent care for that.
"""

import argparse
import time

import gymnasium
import numpy as np

import replicant

SIDE = 16  # pixels


class Cursor(gymnasium.Env):
    """A mass on a plane of 1 x 1 m. The reward is -10 times its distance to the spot, in metres."""

    observation_space = gymnasium.spaces.Dict({
        "camera": gymnasium.spaces.Box(0, 255, (SIDE, SIDE, 1), np.uint8),
        "clock": gymnasium.spaces.Box(0, np.inf, (1,)),
        # millimetres and metres per second
        "cursor": gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)})
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    dt, num_steps = 0.1, 30

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.spot = self.np_random.uniform(0.15, 0.85, 2)
        self.position = self.np_random.uniform(0.0, 1.0, 2)
        self.velocity = np.zeros(2)
        self.step_of_episode = 0
        return self.observe(), {}

    def observe(self):
        # a soft spot, whose place is known to less than a pixel
        pixels = (np.arange(SIDE) + 0.5) / SIDE
        rows, columns = (np.exp(-((pixels - x) ** 2) / (2 * 0.08**2)) for x in self.spot)
        image = np.round(255 * np.outer(rows, columns)).astype(np.uint8)
        return {"camera": image[:, :, None],
                "clock": np.array([self.step_of_episode * self.dt], np.float32),
                "cursor": np.concatenate([1000.0 * self.position, self.velocity])}

    def step(self, action):
        self.velocity += self.dt * (4.0 * np.asarray(action, float) - 2.0 * self.velocity)
        self.position = np.clip(self.position + self.dt * self.velocity, 0.0, 1.0)
        self.step_of_episode += 1
        reward = -10.0 * float(np.linalg.norm(self.position - self.spot))
        return self.observe(), reward, False, self.step_of_episode == self.num_steps, {}


SETTINGS = {
    "task.action_repeat": 1,
    "task.observations": ["camera", "cursor"],
    "task.pixels": {"enabled": True, "state": True, "frame_stack": 1},
    "agent.networks.encoder": {"kind": "custom", "channels": [16, 16], "kernels": [4, 3],
                               "strides": [2, 1]},
    "agent.observations.normalize": "running",
    "agent.distribution.range": "running",
    "replay.max_bytes": 1_000_000_000,
}


def train(folder, overrides):
    return replicant.train("cartpole_swingup_state", {**SETTINGS, **overrides}, folder=folder,
                           make_env=Cursor)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="runs/cursor")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with train(arguments.folder, {"learner.limits.max_seconds": arguments.seconds,
                                  "run.seed": arguments.seed}) as run:
        while run.is_running():
            time.sleep(5)
            returns = run.evaluations()["return"]
            print(f"returns, at most 0: {np.round(returns, 1)}", flush=True)
        run.wait()
    env = Cursor()
    observation, _ = env.reset(seed=1)
    print("first action:", run.policy().act(observation))
