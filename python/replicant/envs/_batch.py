"""The environments behind every face."""

import os
import pathlib
import secrets

from replicant import _envs
from replicant._libraries import suite_folder
from replicant.envs._task import Task, temporary_folder


def seeds_of(seed) -> list[int]:
    """One seed, or one for each environment, as unsigned 64-bit numbers; None: drawn."""
    if seed is None:
        return [secrets.randbits(64)]
    seeds = [seed] if isinstance(seed, int) or not hasattr(seed, "__iter__") else list(seed)
    return [int(one) & 0xFFFFFFFFFFFFFFFF for one in seeds]


class Batch:
    """An EnvironmentBatch, with what its options need while it lives or is seeded again."""

    def __init__(self, task, num_envs, *, pixels, state, camera, frame_stack, renderer,
                 action_repeat, action_repeat_reward, num_threads, seed, first_index, flatten,
                 autoreset=0, mjcf=None):
        if action_repeat_reward not in ("sum", "mean"):
            raise ValueError(
                f"action_repeat_reward: got {action_repeat_reward!r}, want 'sum' or 'mean'")
        config = _envs.TaskConfig()
        own_task = None
        self._folder = None
        if isinstance(task, Task):
            self._folder = temporary_folder()
            own_task = task._define(pathlib.Path(self._folder.name))
            config.name = task.name
        else:
            config.name = task
        config.mjcf = os.fspath(mjcf) if mjcf is not None else ""
        config.suite_folder = suite_folder()
        config.action_repeat = action_repeat
        config.set_reward_sum(action_repeat_reward == "sum")
        if pixels is not None:
            height, width = pixels
            config.set_pixels(str(camera), height, width, renderer, frame_stack)
        has_state = pixels is None if state is None else state
        if num_threads is None:
            num_threads = min(num_envs, len(os.sched_getaffinity(0)))
        # the caller's thread alone is faster than one that it waits for
        self.core = _envs.EnvironmentBatch(
            config, own_task, num_envs=num_envs, first_index=first_index,
            threads=num_threads if num_threads > 1 else 0, has_state=has_state,
            is_flat=flatten and has_state, autoreset=autoreset, seeds=seeds_of(seed))

    def close(self) -> None:
        self.core = None
        if self._folder is not None:
            self._folder.cleanup()
