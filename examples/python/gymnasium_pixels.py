"""Trains a MuJoCo task of Gymnasium from pixels, drawn by the ray caster.

    python gymnasium_pixels.py [--folder runs/cheetah] [--seconds 1200] [--seed 1]

HalfCheetah-v5 shows 64 x 64 pixels of its own camera. render.install() has Gymnasium's own
render() draw them, without OpenGL. The policy sees the pixels alone; with --state it sees the numbers
of the task, too. Rewards have any size: agent.distribution.range finds theirs.
"""

import argparse
import time

import gymnasium
import numpy as np
from gymnasium.wrappers import AddRenderObservation

import replicant
from replicant import render

TASK = "HalfCheetah-v5"


def make():
    render.install()
    env = gymnasium.make(TASK, render_mode="rgb_array", width=64, height=64)
    # a dictionary of both; task.observations selects
    return AddRenderObservation(env, render_only=False, render_key="pixels", obs_key="state")


SETTINGS = {
    "task.action_repeat": 1,  # its steps are long: 0.05 s
    "task.observations": ["pixels"],
    "agent.distribution.range": "running",
    "actors.exploration.random_steps": 2000,
}
WITH_STATE = {
    "task.observations": ["pixels", "state"],
    "task.pixels.state": True,
    "agent.observations.normalize": "running",
}


def train(folder, overrides):
    return replicant.train("pixels", {**SETTINGS, **overrides}, folder=folder, make_env=make)


def steps_per_second(seconds=5.0):
    """Of the same loop in plain Python, with random actions."""
    env = make()
    env.reset(seed=1)
    count, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        count += 1
        if terminated or truncated:
            env.reset()
    env.close()
    return count / seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="runs/cheetah")
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", action="store_true")
    arguments = parser.parse_args()
    print(f"a loop in Python makes {steps_per_second():.0f} steps/s")
    overrides = {**(WITH_STATE if arguments.state else {}), "run.seed": arguments.seed,
                 "learner.limits.max_seconds": arguments.seconds}
    with train(arguments.folder, overrides) as run:
        while run.is_running():
            time.sleep(20)
            found = run.evaluations()
            for frames, value in zip(found["frames"], found["return"], strict=True):
                print(f"{frames:.0f} frames: return {value:.1f}")
        run.wait()
    print("returns of the policy:", np.round(run.policy().evaluate(3), 1))
