"""Tasks of a user's, written in Python."""

import codecs
import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Mapping

import numpy as np

from replicant import _envs
from replicant.errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Task:
    """A task: a MuJoCo model and Python functions that say what to do in it.

    name                the name in messages, for example "cartpole-spin"
    mjcf                path of an MJCF file, "~" for the home folder; or its text, whose meshes and
                        includes are relative to the working folder, as for
                        mujoco.MjModel.from_xml_string
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
    mjcf: str | bytes | os.PathLike
    reward: Callable[[_envs.Physics], float]
    observation: Callable[[_envs.Physics], Mapping[str, np.ndarray]] | None = None
    termination: Callable[[_envs.Physics], float | None] | None = None
    initialize: Callable[[_envs.Physics, np.random.Generator], None] | None = None
    control_timestep_s: float = 0.0
    time_limit_s: float = math.inf

    def _define(self) -> _envs.TaskDefinition:
        path, text = file_or_text(self.mjcf)
        return _envs.define_task(
            self.name, path, text, self.reward, self.observation, self.termination,
            self.initialize, control_timestep_s=self.control_timestep_s,
            time_limit_s=self.time_limit_s)


def file_or_text(mjcf) -> tuple[str, str]:
    """The absolute path of a model's file, or the model's text; the other one is empty."""
    try:
        given = mjcf if isinstance(mjcf, str) else bytes(mjcf) if isinstance(
            mjcf, (bytes, bytearray)) else os.fspath(mjcf)
    except TypeError:
        raise InvalidArgument(f"mjcf: got {mjcf!r:.100}, want the path of an MJCF file, or its "
                              "text") from None
    if isinstance(given, bytes):
        is_text = given.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"<")
        try:
            given = given.decode("utf-8") if is_text else os.fsdecode(given)
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"mjcf: the text is not UTF-8: {error}") from None
    if "\0" in given:
        raise InvalidArgument("mjcf: got zeros, as UTF-16 and archives hold; want the text of a "
                              "model in UTF-8, or the path of a file")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"mjcf: got {given!r:.100}, which UTF-8 cannot hold; want the path of "
                              "an MJCF file, or its text") from None
    # of an editor that marks UTF-8
    text = given.removeprefix("\ufeff")
    if text.lstrip().startswith("<"):
        return "", text
    if not given.strip():
        raise InvalidArgument("mjcf: empty; want the path of an MJCF file, or its text")
    return str(pathlib.Path(given).expanduser().absolute()), ""
