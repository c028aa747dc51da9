"""Trains an environment of one's own, without MuJoCo, by the fleet.

    python own_environment.py [--folder runs/pole] [--seconds 120] [--seed 1]

The environment is a pole on a motor that is too weak to lift it at once. It is written for
Gymnasium; dm_env's would do as well.
"""

import argparse
import time

import gymnasium
import numpy as np

import replicant


class Pole(gymnasium.Env):
    """Angle 0 is upright. The reward is 1 there and 0 for a hanging pole."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)
    dt, num_steps = 0.05, 200

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.angle, self.velocity = self.np_random.uniform([-np.pi, -1.0], [np.pi, 1.0])
        self.step_of_episode = 0
        return self.observe(), {}

    def observe(self):
        return np.array([np.cos(self.angle), np.sin(self.angle), self.velocity])

    def step(self, action):
        # a rod of 1 kg and 1 m
        torque = float(action[0])
        self.velocity += self.dt * (15.0 * np.sin(self.angle) + 3.0 * torque)
        self.velocity = float(np.clip(self.velocity, -8.0, 8.0))
        self.angle += self.dt * self.velocity
        self.step_of_episode += 1
        reward = (1.0 + np.cos(self.angle)) / 2.0
        return self.observe(), reward, False, self.step_of_episode == self.num_steps, {}


def train(folder, overrides):
    return replicant.train("cartpole_swingup_state", {"task.action_repeat": 2, **overrides},
                           folder=folder, make_env=Pole)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="runs/pole")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with train(arguments.folder, {"learner.limits.max_seconds": arguments.seconds,
                                  "run.seed": arguments.seed}) as run:
        while run.is_running():
            time.sleep(5)
            returns = run.evaluations()["return"]
            print(f"returns of 200: {np.round(returns, 1)}", flush=True)
        run.wait()
    policy = run.policy()
    env = Pole()
    observation, _ = env.reset(seed=1)
    print("first action:", policy.act(observation))
