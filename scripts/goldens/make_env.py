#!/usr/bin/env python3
"""Writes tests/golden/env: trajectories of dm_control in each Control Suite task.

    build/venv/bin/python scripts/goldens/make_env.py [TASK...]

TASK.safetensors holds one recorded trajectory (state, action, model/FIELD, observation,
reward, discount, step_type as in docs/environments.md) and moments of the
observation after a reset: reset/count, and mean and standard deviation of x
(reset/mean, reset/std) and of x^2 (reset/mean2, reset/std2).
manifest.json holds the versions and seeds.
"""

import json
import pathlib
import sys

import mujoco
import numpy as np
import safetensors.numpy
from importlib import metadata

import env_oracle

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/env"
TRAJECTORY_SEED = 11
RESET_SEED = 12
STEPS = 40
RESETS = 300


def reset_moments(task):
    environment = env_oracle.load(task, RESET_SEED)
    x = np.array([env_oracle.flat(environment.reset().observation)
                  for _ in range(RESETS)])
    return {"reset/count": np.array([RESETS], np.int64),
            "reset/mean": x.mean(0), "reset/std": x.std(0),
            "reset/mean2": (x**2).mean(0), "reset/std2": (x**2).std(0)}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for task in sys.argv[1:] or env_oracle.task_names():
        steps = min(STEPS, env_oracle.parity_steps(task))
        arrays = env_oracle.record(task, TRAJECTORY_SEED, steps)
        arrays.update(reset_moments(task))
        path = FOLDER / f"{task}.safetensors"
        safetensors.numpy.save_file(arrays, path)
        print(task, path.stat().st_size, flush=True)
    manifest = {
        "made by": "scripts/goldens/make_env.py",
        "dm_control": metadata.version("dm_control"),
        "mujoco": mujoco.__version__,
        "numpy": np.__version__,
        "trajectory seed": TRAJECTORY_SEED, "steps": STEPS,
        "reset seed": RESET_SEED, "resets": RESETS,
    }
    (FOLDER / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
