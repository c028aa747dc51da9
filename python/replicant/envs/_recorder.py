"""Records the episodes of an environment."""

import os
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from replicant._observation_form import ObservationForm
from replicant._scalar import number_of
from replicant.envs._gymnasium import Env
from replicant.errors import ConfigError, InvalidArgument


class Recorder(gymnasium.Wrapper):
    """Writes every whole episode of a Gymnasium environment into `folder`, a recording that
    `replicant data` reads. Whatever chooses the actions is recorded: a policy, a script, a person.
    Observations are recorded as a run with make_env sees them: pictures as [H, W, C], a Discrete one
    as n numbers, one of them 1. Those that no run takes are recorded as they are.

    env     one environment, with an action space of floating-point numbers
    folder  new, or a recording of the same environment, which grows
    newest_frame  of a stack of frames, uint8 [H, W, 3 k], records the newest one alone: the tables
                  of a replay stack them again

    An episode that reset() or close() cuts short is dropped. A wrapper around the recorder that
    changes an action is recorded with the changed one.
    """

    def __init__(self, env: gymnasium.Env, folder: str | os.PathLike, *,
                 newest_frame: bool = False):
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != "f":
            raise InvalidArgument(f"Recorder: the actions are {space}, want a Box of floating-point "
                                  "numbers")
        bounds = (space.low, space.high) if np.isfinite([space.low, space.high]).all() else None
        # here, so that environments alone load no replay
        from replicant._adapter import control_timestep_s
        from replicant.data import _recording

        step_s = control_timestep_s(env)
        rate = 1.0 / step_s if step_s > 0 else env.metadata.get("render_fps")
        self._writer = _recording.Writer(folder, bounds, None if rate is None else float(rate))
        self._form = self._form_of(env)
        self._newest_frame = newest_frame
        self._steps: list[tuple[dict[str, np.ndarray], np.ndarray, float]] | None = None
        self._last: dict[str, np.ndarray] = {}
        self.num_episodes = 0  # written by this recorder

    @staticmethod
    def _form_of(env) -> ObservationForm | None:
        """None: observations are recorded as they are."""
        # a run of the suite has the order of the observation, which a Dict sorts
        if isinstance(env.unwrapped, Env):
            return None
        try:
            return ObservationForm(env.observation_space)
        except ConfigError:  # such as a stack of frames
            return None

    def _arrays(self, observation) -> dict[str, np.ndarray]:
        """Copies: an environment may write into its arrays again."""
        if self._form is not None:
            return self._form.arrays(observation)
        from replicant.data._episode import flat

        named = dict(flat(observation)) if isinstance(observation, dict) else {"": observation}
        arrays = {name: np.array(value) for name, value in named.items()}
        if self._newest_frame:
            arrays = {name: value[..., -3:] if value.dtype == np.uint8 and value.ndim == 3 else value
                      for name, value in arrays.items()}
        return arrays

    def reset(self, **options):
        observation, info = self.env.reset(**options)
        self._steps, self._last = [], self._arrays(observation)
        return observation, info

    def step(self, action):
        if self._steps is None:
            raise InvalidArgument("Recorder: step() before reset()")
        # a copy: the environment may write into it
        taken = np.array(action, self.env.action_space.dtype)
        result = self.env.step(action)
        observation, reward, terminated, truncated, _ = result
        self._steps.append((self._last, taken, number_of(reward, "reward")))
        self._last = self._arrays(observation)
        if terminated or truncated:
            self._write(bool(terminated))
        return result

    def _write(self, terminated: bool) -> None:
        from replicant.data import Recorded

        observed = [*(step[0] for step in self._steps), self._last]
        self._writer.write(Recorded(
            observations={name: np.stack([one[name] for one in observed]) for name in self._last},
            action=np.stack([step[1] for step in self._steps]),
            reward=np.array([step[2] for step in self._steps]), terminated=terminated))
        self._steps = None
        self.num_episodes += 1


def record(env: gymnasium.Env, act: Callable[[Any], Any], folder: str | os.PathLike,
           num_episodes: int, seed: int | None = None, *, newest_frame: bool = False) -> None:
    """Records `num_episodes` episodes in which act(observation) chooses the actions.

    env   one environment, which stays open; episode i is reset with the seed `seed` + i
    act   a policy's act, or any function of an observation. One that raises StopIteration ends the
          recording: the episode under way is dropped
    newest_frame  as of Recorder
    """
    recorder = Recorder(env, folder, newest_frame=newest_frame)
    for episode in range(num_episodes):
        observation, _ = recorder.reset(seed=None if seed is None else seed + episode)
        is_over = False
        while not is_over:
            try:
                action = act(observation)
            except StopIteration:
                return
            observation, _, terminated, truncated, _ = recorder.step(action)
            is_over = terminated or truncated
