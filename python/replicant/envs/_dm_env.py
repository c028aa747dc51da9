"""dm_env's face, for one environment and for a batch."""

import dm_env
import numpy as np
from dm_env import specs

from replicant._closed import Closed, NoCopy
from replicant.envs._batch import array_of, make_batch
from replicant.envs._task import Task
from replicant.errors import InvalidArgument


def _observation_spec(core):
    found = {}
    for name, shape, is_pixels in core.observation_arrays:
        if is_pixels:
            found[name] = specs.BoundedArray(shape, np.uint8, 0, 255, name=name)
        else:
            found[name] = specs.Array(shape, np.float64, name=name)
    return found


class DmVectorEnvironment(NoCopy):
    """Environments of one task with dm_env's terms; see load().

    Every field of a TimeStep has the environments as its first dimension: step_type int8,
    reward and discount float64 [num_envs], observation {name: [num_envs, ...]}. A first step has
    reward 0 and discount 1. The step after a last one starts an episode and ignores the action.
    """

    def __init__(self, task: str | Task, num_envs: int, **options):
        options = {
            "pixels": None, "state": None, "frame_stack": 1, "camera": 0, "renderer": "auto",
            "gl_platform": "auto", "egl_device": 0, "action_repeat": 1,
            "action_repeat_reward": "sum", "num_threads": None, "seed": None, "first_index": 0,
            "mjcf": None, "suite_folder": None, "observations": None, **options}
        self._renderer = options["renderer"]
        self._core = make_batch(task, num_envs, flatten=False, **options)
        self._names = [name for name, _, _ in self._core.observation_arrays]
        self.num_envs = num_envs

    def _time_step(self, step_type, reward, discount, observation):
        if len(self._names) == 1:
            observation = {self._names[0]: observation}
        return dm_env.TimeStep(step_type, reward, discount, observation)

    def reset(self) -> dm_env.TimeStep:
        return self._time_step(*self._core.dm_reset())

    def step(self, action) -> dm_env.TimeStep:
        """Makes a step in every environment; `action` is [num_envs, A]."""
        return self._time_step(*self._core.dm_step(array_of(action, "biuf", np.float64, "action")))

    def observation_spec(self):
        """Of one environment."""
        return _observation_spec(self._core)

    def action_spec(self) -> specs.BoundedArray:
        """Of one environment."""
        low, high = self._core.action_minimum, self._core.action_maximum
        return specs.BoundedArray((len(low),), np.float64, low, high, name="action")

    def reward_spec(self) -> specs.Array:
        return specs.Array((), np.float64, name="reward")

    def discount_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((), np.float64, 0.0, 1.0, name="discount")

    def control_timestep(self) -> float:
        """Simulated seconds of a step."""
        return self._core.control_timestep_s

    def render(self, index: int = 0, height: int = 240, width: int = 320,
               camera_id: str | int = 0) -> np.ndarray:
        """A picture of one environment, uint8 [height, width, 3]."""
        return self._core.render(index, str(camera_id), height, width, self._renderer)

    def close(self) -> None:
        self._core = Closed("the environment")


class DmEnvironment(NoCopy, dm_env.Environment):
    """One environment with dm_env's face; see load()."""

    def __init__(self, task: str | Task, **options):
        self._vector = DmVectorEnvironment(task, 1, num_threads=0, **options)

    def _first(self, batch: dm_env.TimeStep) -> dm_env.TimeStep:
        step_type = dm_env.StepType(int(batch.step_type[0]))
        observation = {name: array[0] for name, array in batch.observation.items()}
        if step_type == dm_env.StepType.FIRST:
            return dm_env.restart(observation)
        return dm_env.TimeStep(
            step_type, float(batch.reward[0]), float(batch.discount[0]), observation)

    def reset(self) -> dm_env.TimeStep:
        return self._first(self._vector.reset())

    def step(self, action) -> dm_env.TimeStep:
        return self._first(self._vector.step(array_of(action, "biuf", np.float64, "action")[None]))

    def observation_spec(self):
        return self._vector.observation_spec()

    def action_spec(self) -> specs.BoundedArray:
        return self._vector.action_spec()

    def reward_spec(self):
        return self._vector.reward_spec()

    def discount_spec(self):
        return self._vector.discount_spec()

    def control_timestep(self) -> float:
        return self._vector.control_timestep()

    def render(self, height: int = 240, width: int = 320, camera_id: str | int = 0) -> np.ndarray:
        """A picture, uint8 [height, width, 3]."""
        return self._vector.render(0, height, width, camera_id)

    def close(self) -> None:
        self._vector.close()


def load(task: str | Task, num_envs: int | None = None, **options):
    """Makes environments with dm_env's face, the Control Suite's own.

    num_envs  None: one environment, a dm_env.Environment; a number: a DmVectorEnvironment
    options   make_vec()'s pixels, state, frame_stack (here 1 by default), camera, renderer,
              gl_platform, egl_device, action_repeat, action_repeat_reward, num_threads, seed,
              first_index, mjcf, suite_folder and observations

    Observations are dictionaries with dm_control's names, and "pixels".
    """
    if isinstance(num_envs, str):
        raise InvalidArgument(f"envs.load: got the task {task!r} and num_envs {num_envs!r}; want one "
                              f"name, DOMAIN-TASK; hint: envs.load('{task}-{num_envs}')")
    if num_envs is None:
        return DmEnvironment(task, **options)
    return DmVectorEnvironment(task, num_envs, **options)
