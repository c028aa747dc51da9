import os
from collections.abc import Callable, Mapping, Sequence

import numpy
from numpy.typing import ArrayLike, NDArray


class Physics:
    """A MuJoCo simulation as a task's functions see it. Every array is a copy, float64.

    Units are the model's: metres, seconds and radians in the Control Suite.
    """

    @property
    def time_s(self) -> float: ...

    @property
    def timestep_s(self) -> float: ...

    @property
    def qpos(self) -> NDArray[numpy.float64]:
        """Positions [nq]."""

    @qpos.setter
    def qpos(self, arg: ArrayLike, /) -> None: ...

    @property
    def qvel(self) -> NDArray[numpy.float64]:
        """Velocities [nv]."""

    @qvel.setter
    def qvel(self, arg: ArrayLike, /) -> None: ...

    @property
    def act(self) -> NDArray[numpy.float64]:
        """Activations of actuators [na]."""

    @act.setter
    def act(self, arg: ArrayLike, /) -> None: ...

    def set_keyframe(self, key: str | int) -> None:
        """
        Sets the whole state to a keyframe of the model, given by name or number: for initialize().
        """

    def mocap_position(self, name: str) -> NDArray[numpy.float64]:
        """World position of a mocap body [3]."""

    def set_mocap_position(self, name: str, position: ArrayLike) -> None: ...

    def mocap_quaternion(self, name: str) -> NDArray[numpy.float64]:
        """Orientation of a mocap body [4], w first."""

    def set_mocap_quaternion(self, name: str, quaternion: ArrayLike) -> None: ...

    def tendon_length(self, name: str) -> float: ...

    def tendon_velocity(self, name: str) -> float: ...

    @property
    def ctrl(self) -> NDArray[numpy.float64]:
        """Controls [nu]."""

    @property
    def sensordata(self) -> NDArray[numpy.float64]:
        """Readings of all sensors."""

    def body_position(self, name: str) -> NDArray[numpy.float64]:
        """World position of a body [3]."""

    def body_matrix(self, name: str) -> NDArray[numpy.float64]:
        """Rotation of a body, body to world [3, 3]."""

    def geom_position(self, name: str) -> NDArray[numpy.float64]:
        """World position of a geom [3]."""

    def site_position(self, name: str) -> NDArray[numpy.float64]:
        """World position of a site [3]."""

    def sensor(self, name: str) -> NDArray[numpy.float64]:
        """Reading of a sensor."""

    def joint_position(self, name: str) -> NDArray[numpy.float64]:
        """Positions of a joint: [1]; ball [4]; free [7]."""

    def joint_velocity(self, name: str) -> NDArray[numpy.float64]:
        """Velocities of a joint: [1]; ball [3]; free [6]."""

    def set_joint_position(self, name: str, position: ArrayLike) -> None: ...

    def set_joint_velocity(self, name: str, velocity: ArrayLike) -> None: ...


class TaskDefinition: ...


def define_task(
        name: str, mjcf: str, mjcf_text: str, reward: Callable[[Physics], float],
        observation: Callable[[Physics], Mapping[str, numpy.ndarray]] | None,
        termination: Callable[[Physics], float | None] | None,
        initialize: Callable[[Physics, numpy.random.Generator], None] | None,
        control_timestep_s: float, time_limit_s: float) -> TaskDefinition: ...


def tasks() -> list[str]:
    """Names of the Control Suite's 51 tasks."""


class TaskConfig:
    def __init__(self) -> None: ...

    @property
    def name(self) -> str: ...

    @name.setter
    def name(self, arg: str, /) -> None: ...

    @property
    def mjcf(self) -> str: ...

    @mjcf.setter
    def mjcf(self, arg: str, /) -> None: ...

    @property
    def suite_folder(self) -> str: ...

    @suite_folder.setter
    def suite_folder(self, arg: str, /) -> None: ...

    @property
    def observations(self) -> list[str]: ...

    @observations.setter
    def observations(self, arg: Sequence[str], /) -> None: ...

    @property
    def action_repeat(self) -> int: ...

    @action_repeat.setter
    def action_repeat(self, arg: int, /) -> None: ...

    def set_reward_sum(self, arg: bool, /) -> None: ...

    def set_gl(self, arg0: str, arg1: int, /) -> None: ...

    def set_pixels(
            self, arg0: Sequence[str], arg1: Sequence[tuple[int, int]], arg2: str, arg3: int,
            /) -> None: ...


class EnvironmentBatch:
    def __init__(
            self, task: TaskConfig, own_task: TaskDefinition | None, num_envs: int,
            first_index: int, threads: int, has_state: bool, is_flat: bool, autoreset: int,
            seeds: Sequence[int]) -> None: ...

    def seed(self, seeds: Sequence[int]) -> None: ...

    def reset(
            self, mask: NDArray[numpy.bool_] | None = None
    ) -> numpy.ndarray | dict[str, numpy.ndarray]: ...

    def step(self, actions: NDArray[numpy.float64]) -> tuple: ...

    def dm_reset(self) -> tuple: ...

    def dm_step(self, actions: NDArray[numpy.float64]) -> tuple: ...

    def send(self, actions: NDArray[numpy.float64], ids: NDArray[numpy.int32]) -> None: ...

    def recv(self, count: int) -> tuple: ...

    def render(
            self, id: int, camera: str, height: int, width: int,
            renderer: str) -> NDArray[numpy.uint8]: ...

    def finish(self) -> None: ...

    @property
    def num_under_way(self) -> int: ...

    @property
    def observation_arrays(self) -> list[tuple]: ...

    @property
    def action_minimum(self) -> list[float]: ...

    @property
    def action_maximum(self) -> list[float]: ...

    @property
    def control_timestep_s(self) -> float: ...

    @property
    def counters(self) -> dict[str, int]: ...


class VideoWriter:
    """Writes frames, uint8 [height, width, 3], into an MP4 by the program ffmpeg."""

    def __init__(self, file: str | os.PathLike[str], height: int, width: int, frames_per_second: float) -> None: ...

    def write(self, frame: NDArray[numpy.uint8]) -> None: ...

    def finish(self) -> None: ...
