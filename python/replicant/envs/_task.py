"""Tasks of a user's, written in Python."""

import dataclasses
import math
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping

import numpy as np

from replicant import _envs


@dataclasses.dataclass(frozen=True)
class Task:
    """A task: a MuJoCo model and Python functions that say what to do in it.

    name                the name in messages, for example "cartpole-spin"
    mjcf                path of an MJCF file, or its text
    reward              reward(physics) -> float, after every control step
    observation         observation(physics) -> {name: number or array}, always of the same names and
                        shapes, float64; None: "position" (qpos) and "velocity" (qvel)
    termination         termination(physics) -> None, or the last discount in [0, 1] where the
                        episode ends: 0 if it terminates, 1 if it is cut off
    initialize          initialize(physics, rng) sets the start of an episode; None: the model's
                        default pose. `rng` is a numpy.random.Generator of this episode
    control_timestep_s  simulated seconds of an action, a multiple of the model's timestep; 0: one
                        timestep
    time_limit_s        simulated seconds after which an episode is truncated

    The functions run with the GIL, in any thread: they should not share state. `physics` is an
    envs.Physics.
    """

    name: str
    mjcf: str | os.PathLike
    reward: Callable[[_envs.Physics], float]
    observation: Callable[[_envs.Physics], Mapping[str, np.ndarray]] | None = None
    termination: Callable[[_envs.Physics], float | None] | None = None
    initialize: Callable[[_envs.Physics, np.random.Generator], None] | None = None
    control_timestep_s: float = 0.0
    time_limit_s: float = math.inf

    def _define(self, folder: pathlib.Path) -> _envs.TaskDefinition:
        """The definition; text of a model goes into a file of `folder`."""
        mjcf = self.mjcf
        if isinstance(mjcf, str) and mjcf.lstrip().startswith("<"):
            path = folder / "model.xml"
            path.write_text(mjcf, encoding="utf-8")
            mjcf = path
        return _envs.define_task(
            self.name, os.fspath(mjcf), self.reward, self.observation, self.termination,
            self.initialize, control_timestep_s=self.control_timestep_s,
            time_limit_s=self.time_limit_s)


def temporary_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="replicant-")
