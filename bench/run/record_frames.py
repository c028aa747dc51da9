#!/usr/bin/env python3
"""Records rendered frames of a Control Suite task under a random policy.

    MUJOCO_GL=osmesa build/venv/bin/python bench/run/record_frames.py \
        cheetah-run build/frames/cheetah-run-84.u8

Uniform random actions, action repeat 2, camera 0, one frame per agent step,
episodes of 500 frames one after the other. The file is the raw bytes of a
uint8 array [frame, height, width, 3]; what made it goes to FILE.json next to it.
codec_study and bench_replay read it; it is never committed.
"""

import argparse
import json
import pathlib

import dm_control
import mujoco
import numpy as np
from dm_control import suite

ACTION_REPEAT = 2
EPISODE_FRAMES = 500
SEED = 0


def record(task, size, count):
    domain, name = task.split("-")
    environment = suite.load(domain, name, task_kwargs={"random": SEED})
    spec = environment.action_spec()
    rng = np.random.default_rng(SEED)
    frames = np.empty((count, size, size, 3), np.uint8)
    for i in range(count):
        if i % EPISODE_FRAMES == 0:
            environment.reset()
        else:
            action = rng.uniform(spec.minimum, spec.maximum)
            for _ in range(ACTION_REPEAT):
                environment.step(action)
        frames[i] = environment.physics.render(size, size, camera_id=0)
    return frames


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", help="DOMAIN-TASK, for example cheetah-run")
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--size", type=int, default=84)
    parser.add_argument("--frames", type=int, default=2000)
    arguments = parser.parse_args()

    frames = record(arguments.task, arguments.size, arguments.frames)
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    frames.tofile(arguments.file)
    manifest = {
        "task": arguments.task, "shape": frames.shape, "seed": SEED,
        "action_repeat": ACTION_REPEAT, "episode_frames": EPISODE_FRAMES,
        "dm_control": dm_control.__version__ if hasattr(dm_control, "__version__") else "",
        "mujoco": mujoco.__version__,
    }
    arguments.file.with_suffix(".json").write_text(json.dumps(manifest) + "\n")


if __name__ == "__main__":
    main()
