"""Trains a task of Meta-World from pixels, and prints its success rate.

    pip install WHEEL metaworld packaging
    python metaworld_pixels.py [--task reach-v3] [--folder runs/reach] [--seconds 1800] [--seed 1]

Meta-World needs its own version of MuJoCo; the ray caster draws scenes of any from 3.2 on. The
policy sees 64 x 64 pixels of the camera corner2 and the hand's place and opening, as in published
work, and not where the goal or the object is. A success is the task's own, at any step of an
episode.
"""

import argparse
import os
import time

import gymnasium
import metaworld  # noqa: F401  registers its tasks
import numpy as np

import replicant
from replicant import render

SIDE = 64  # pixels


class FromPixels(gymnasium.Wrapper):
    """Two control steps per action; an image, and the first four numbers of the task."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Dict({
            "corner": gymnasium.spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8),
            "hand": gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)})
        self.renderer = render.Renderer(env.unwrapped.model, SIDE, SIDE)

    def observe(self, numbers):
        self.renderer.update_scene(self.env.unwrapped.data, "corner2")
        # this camera stands on its head
        image = np.ascontiguousarray(self.renderer.render()[::-1])
        return {"corner": image, "hand": numbers[:4]}

    def reset(self, **options):
        numbers, info = self.env.reset(**options)
        return self.observe(numbers), info

    def step(self, action):
        total, success = 0.0, 0.0
        for _ in range(2):
            numbers, reward, terminated, truncated, info = self.env.step(action)
            total += reward
            success = max(success, info["success"])
            if terminated or truncated:
                break
        # its rewards are in [0, 10]
        return self.observe(numbers), total / 20, terminated, truncated, {"success": success}


def make():
    # every process of the training imports this file
    task = os.environ.get("METAWORLD_TASK", "reach-v3")
    env = gymnasium.make("Meta-World/MT1", env_name=task, seed=0, max_episode_steps=200)
    return FromPixels(env)


SETTINGS = {
    "task.action_repeat": 1,
    "task.observations": ["corner", "hand"],
    "task.pixels.state": True,
    "agent.observations.normalize": "running",
    "actors.exploration.random_steps": 1000,
    "actors.exploration.decay_steps": 10000,
}


def train(folder, overrides):
    return replicant.train("pixels", {**SETTINGS, **overrides}, folder=folder, make_env=make)


def success_rate(policy, episodes, seed):
    """Of the policy, or of random actions without one."""
    env = make()
    env.action_space.seed(seed)
    successes = 0
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        act = policy.episode() if policy else lambda _: env.action_space.sample()
        is_over, success = False, 0.0
        while not is_over:
            action = act(observation)
            observation, _, terminated, truncated, info = env.step(action)
            success = max(success, info["success"])
            is_over = terminated or truncated
        successes += success > 0
    env.close()
    return successes / episodes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="reach-v3")
    parser.add_argument("--folder", default="runs/reach")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=20)
    arguments = parser.parse_args()
    os.environ["METAWORLD_TASK"] = arguments.task
    chance = success_rate(None, arguments.episodes, seed=1000)
    with train(arguments.folder, {"learner.limits.max_seconds": arguments.seconds,
                                  "run.seed": arguments.seed}) as run:
        while run.is_running():
            time.sleep(20)
            returns = run.evaluations()["return"]
            print(f"returns, at most 100: {np.round(returns, 1)}", flush=True)
        run.wait()
    rate = success_rate(run.policy(which="best"), arguments.episodes, seed=1000)
    print(f"{arguments.task}: success rate {rate:.2f}, of random actions {chance:.2f}, "
          f"{arguments.episodes} episodes; {run.evaluations()['frames'][-1]:.0f} frames")
