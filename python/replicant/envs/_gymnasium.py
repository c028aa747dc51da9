"""Gymnasium's faces: Env and VectorEnv."""

import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from replicant import _envs
from replicant._closed import Closed, NoCopy
from replicant.envs._batch import array_of, make_batch, pair, seeds_of
from replicant.envs._task import Task
from replicant.errors import InvalidArgument

# dm_control's bound of an unbounded actuator
_UNBOUNDED = 1e10
_AUTORESET = {AutoresetMode.NEXT_STEP: 0, AutoresetMode.SAME_STEP: 1, AutoresetMode.DISABLED: 2}


def _observation_space(core) -> gymnasium.Space:
    spaces = {}
    for name, shape, is_pixels in core.observation_arrays:
        if is_pixels:
            spaces[name] = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        else:
            spaces[name] = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float64)
    return next(iter(spaces.values())) if len(spaces) == 1 else gymnasium.spaces.Dict(spaces)


def _action_space(core) -> gymnasium.spaces.Box:
    low = np.array(core.action_minimum)
    high = np.array(core.action_maximum)
    low[low <= -_UNBOUNDED] = -np.inf
    high[high >= _UNBOUNDED] = np.inf
    return gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


class VectorEnv(NoCopy, gymnasium.vector.VectorEnv):
    """Environments of one task that step together on separate threads; see make_vec()."""

    metadata: dict[str, Any] = {
        "render_modes": ["rgb_array"], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        task: str | Task,
        num_envs: int = 1,
        *,
        pixels: int | tuple[int, int] | Sequence[tuple[int, int]] | None = None,
        state: bool | None = None,
        frame_stack: int = 3,
        camera: str | int | Sequence[str | int] = 0,
        renderer: str = "auto",
        gl_platform: str = "auto",
        egl_device: int = 0,
        action_repeat: int = 1,
        action_repeat_reward: str = "sum",
        flatten: bool = True,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        num_threads: int | None = None,
        seed: int | Sequence[int] | None = None,
        first_index: int = 0,
        mjcf=None,
        suite_folder: str | os.PathLike | None = None,
        observations: Sequence[str] | None = None,
        render_mode: str | None = None,
        render_size: tuple[int, int] = (240, 320),
        render_camera: str | int = 0,
    ):
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode: got {render_mode!r}, want None or 'rgb_array'")
        size = pair(render_size, "render_size")
        if size is None:
            raise InvalidArgument(f"render_size: got {render_size!r}, want (height, width)")
        mode = AutoresetMode(autoreset_mode)
        core = make_batch(
            task, num_envs, pixels=pixels, state=state, camera=camera, frame_stack=frame_stack,
            renderer=renderer, gl_platform=gl_platform, egl_device=egl_device,
            action_repeat=action_repeat, action_repeat_reward=action_repeat_reward,
            num_threads=num_threads, seed=seed, first_index=first_index, flatten=flatten,
            autoreset=_AUTORESET[mode], mjcf=mjcf, suite_folder=suite_folder,
            observations=observations)
        self._core = core
        self.num_envs = num_envs
        self.render_mode = render_mode
        self._render = (str(render_camera), *size, renderer)
        self.metadata = {
            **type(self).metadata, "autoreset_mode": mode,
            "render_fps": max(1, round(1.0 / core.control_timestep_s))}
        self.single_observation_space = _observation_space(core)
        self.single_action_space = _action_space(core)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        """Starts an episode in every environment.

        seed     makes the environments anew, as VectorEnv(..., seed=seed) does: one number, or a
                 number for each environment
        options  {"reset_mask": bool [num_envs]} starts an episode in some of them only
        """
        mask = options.get("reset_mask") if options else None
        if seed is not None:
            if mask is not None:
                raise ValueError("reset: seed and options['reset_mask'] given; a seed makes all "
                                 "environments anew, so give one of them")
            self._core.seed(seeds_of(seed))
        return self._core.reset(
            None if mask is None else array_of(mask, "b", bool, "reset_mask")), {}

    def step(self, actions):
        """Makes a step in every environment; `actions` is [num_envs, A].

        The returned arrays stay valid as long as they are referred to; see replicant.envs.
        """
        return self._core.step(array_of(actions, "biuf", np.float64, "actions"))

    def send(self, actions, env_ids) -> None:
        """Starts a step in the environments `env_ids` and returns at once.

        actions  [len(env_ids), A], in the order of env_ids
        """
        self._core.send(array_of(actions, "biuf", np.float64, "actions"),
                        array_of(env_ids, "iu", np.int32, "env_ids"))

    def recv(self, count: int | None = None):
        """Waits until `count` of the sent environments are done; None: all that were sent.

        Returns as step() does. Row i belongs to environment info["env_id"][i].
        """
        return self._core.recv(self._core.num_under_way if count is None else count)

    def render(self):
        """One picture of each environment, uint8 [height, width, 3]."""
        if self.render_mode is None:
            return None
        return tuple(self._core.render(i, *self._render) for i in range(self.num_envs))

    @property
    def counters(self) -> dict[str, int]:
        """Episodes, control steps and divergences of the physics since the last seed."""
        return self._core.counters

    def close_extras(self, **kwargs):
        self._core = Closed("the environment")


class Env(NoCopy, gymnasium.Env):
    """One environment; see make()."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}

    def __init__(self, task: str | Task, *, render_mode: str | None = None, **options):
        for name in ("num_envs", "autoreset_mode", "num_threads"):
            if name in options:
                raise TypeError(f"{name}: not an option of a single environment; hint: use envs.make_vec()")
        self._vector = VectorEnv(
            task, 1, num_threads=0, autoreset_mode=AutoresetMode.DISABLED,
            render_mode=render_mode, **options)
        self._is_dict = isinstance(self._vector.single_observation_space, gymnasium.spaces.Dict)
        self.render_mode = render_mode
        self.metadata = {
            **type(self).metadata, "render_fps": self._vector.metadata["render_fps"]}
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space

    @property
    def dt(self) -> float:
        """Simulated seconds of a step, with its repeats."""
        return self._vector._core.control_timestep_s

    def _first(self, observation):
        if self._is_dict:
            return {name: array[0] for name, array in observation.items()}
        return observation[0]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        observation, info = self._vector.reset(seed=seed)
        return self._first(observation), info

    def step(self, action):
        action = array_of(action, "biuf", np.float64, "action")
        observation, reward, terminated, truncated, info = self._vector._core.step(action[None])
        return (self._first(observation), float(reward[0]), bool(terminated[0]),
                bool(truncated[0]), info)

    def render(self):
        pictures = self._vector.render()
        return None if pictures is None else pictures[0]

    def close(self):
        self._vector.close()


def make_vec(task: str | Task, num_envs: int = 1, **options) -> VectorEnv:
    """Makes `num_envs` environments that step together, with Gymnasium's VectorEnv face.

    task                  DOMAIN-TASK of envs.tasks(), or an envs.Task
    pixels                (height, width) of camera frames, or a number for both: the observation is
                          uint8 [height, width, 3 * frame_stack], oldest frame first; None: no
                          pixels. Of several cameras one for all, or one pair for each
    state                 whether the observation has the float64 arrays; None: unless it has pixels.
                          With pixels and state it is a dictionary
    frame_stack           frames in an observation
    camera                name or number of a camera in the model; -1: the free camera. A list of
                          several: the observation is a dictionary with "pixels/CAMERA" of each
    renderer              "raycast" draws on any processor, "gl" is MuJoCo's OpenGL; "auto": gl only
                          for scenes that raycast cannot draw
    gl_platform           of gl: "osmesa", "egl", "egl-surfaceless" or "auto"
    egl_device            number of the GPU of "egl", 0 to 63
    action_repeat         control steps for which an action is held
    action_repeat_reward  "sum" or "mean" of their rewards
    flatten               one array [state size] for all float64 arrays; False: a dictionary with
                          dm_control's names
    autoreset_mode        Gymnasium's: NEXT_STEP, SAME_STEP (with info["final_obs"]) or DISABLED
    num_threads           threads that step environments; None: one for each processor
    seed                  one number, or a number for each environment; None: drawn by the
                          operating system, so that every call plays other episodes
    first_index           index of environment 0; a process of several gives each its own range
    mjcf                  a model file in place of the task's own
    suite_folder          a folder dm_control/suite in place of the package's models; in both "~" is
                          the home folder
    observations          names of the float64 arrays to observe, in this order; None: all
    render_mode           None or "rgb_array"
    render_size           (height, width) of render()
    render_camera         camera of render()
    """
    return VectorEnv(task, num_envs, **options)


def make(task: str | Task, **options) -> Env:
    """Makes one environment with Gymnasium's Env face; the options are make_vec()'s."""
    return Env(task, **options)


def register() -> None:
    """Registers every task with Gymnasium as replicant/DOMAIN-TASK-v0."""
    for name in _envs.tasks():
        name_of_gymnasium = f"replicant/{name}-v0"
        if name_of_gymnasium not in gymnasium.registry:
            gymnasium.register(
                name_of_gymnasium, entry_point="replicant.envs:Env",
                vector_entry_point="replicant.envs:VectorEnv", kwargs={"task": name})
