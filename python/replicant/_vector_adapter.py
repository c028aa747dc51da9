"""A batch of environments, gymnasium.vector's or EnvPool's, as the environments of one actor.

The batch steps once for all of its environments: after announce() of all actions, with the first
step() or reset() of any of them. The next one of each takes its row. A batch begins an episode with
the step after the last one and ignores that step's action (Gymnasium's AutoresetMode.NEXT_STEP,
EnvPool's own way), as the environments of a training do. Other modes are refused: SAME_STEP hides the
last observation's successor, and with DISABLED the others would wait for a reset.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from replicant._adapter import Face, check_wrappers, close_environment
from replicant._scalar import flag_of, number_of
from replicant.errors import ConfigError, InvalidArgument

# batches with environments that no one has taken, by the function that made them
_open: dict[Callable[[], Any], "_Batch"] = {}


def _is_envpool(environment) -> bool:
    return all(hasattr(environment, name) for name in ("all_env_ids", "send", "recv", "config"))


def is_batch(environment) -> bool:
    return isinstance(environment, gymnasium.vector.VectorEnv) or _is_envpool(environment)


def first_member(make: Callable[[], Any], environment) -> "Member":
    batch = _Batch(environment)
    _open[make] = batch
    return batch.take()


def next_member(make: Callable[[], Any]) -> "Member | None":
    """The next environment of the batch that `make` has made, if one is left and none was used."""
    batch = _open.get(make)
    if batch is None or batch.is_used or batch.num_taken == batch.num_envs:
        return None
    return batch.take()


def _row(values, index: int):
    """Row `index` of a batch of observations."""
    if isinstance(values, Mapping):
        return {name: _row(value, index) for name, value in values.items()}
    return np.array(values[index])


class _Batch:
    """One batch, with a row for each environment."""

    def __init__(self, environment):
        self.environment = environment
        self._is_envpool = _is_envpool(environment)
        if self._is_envpool:
            self.num_envs = len(environment.all_env_ids)
            batch_size = environment.config.get("batch_size") or self.num_envs
            if batch_size != self.num_envs:
                raise ConfigError(f"make_env: EnvPool with batch_size {batch_size} of {self.num_envs} "
                                  "environments; a policy acts for all of them: want no batch_size")
            self.observation_space = environment.observation_space
            self.action_space = environment.action_space
        else:
            self.num_envs = environment.num_envs
            mode = environment.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
            if AutoresetMode(mode) != AutoresetMode.NEXT_STEP:
                raise ConfigError(f"make_env: {environment!r} has the autoreset mode {mode}; allowed: "
                                  "AutoresetMode.NEXT_STEP, the default")
            check_wrappers(environment)
            self.observation_space = environment.single_observation_space
            self.action_space = environment.single_action_space
        self.num_taken = self.num_closed = 0
        self.is_used = False
        shape = (self.num_envs, *self.action_space.shape)
        # environments that nobody takes get the middle of the range
        middle = (self.action_space.low / 2 + self.action_space.high / 2
                  if hasattr(self.action_space, "low") else 0.0)
        self._actions = np.broadcast_to(middle, shape).astype(self.action_space.dtype)
        self._announced = np.zeros(self.num_envs, bool)
        # rows that have not been taken since the last step or reset
        self._is_fresh = np.zeros(self.num_envs, bool)
        self._result: tuple = ()
        # actors.env_threads may ask for rows at the same time
        self._lock = threading.Lock()

    def take(self) -> "Member":
        self.num_taken += 1
        return Member(self, self.num_taken - 1)

    def announce(self, index: int, action: np.ndarray) -> None:
        self._actions[index] = action
        self._announced[index] = True

    def is_under_way(self, index: int) -> bool:
        """Whether `index` has an action, or a row that it has not taken."""
        return bool(self._announced[index] or self._is_fresh[index])

    def first_row(self, index: int, seed: int) -> tuple:
        """row() of an episode's beginning. The batch begins it with the reset of another environment
        or the step of all; otherwise here, with an episode in all environments."""
        with self._lock:
            if not self.is_under_way(index):
                self._reset(seed)
            return self._take_row(index)

    def row(self, index: int) -> tuple:
        """(observation, reward, terminated, truncated) of `index` in the newest step, which is made
        unless it is."""
        with self._lock:
            return self._take_row(index)

    def _reset(self, seed: int) -> None:
        self.is_used = True
        # EnvPool takes its seed when it is made, by the user's function
        seeds = {} if self._is_envpool else {"seed": seed}
        result = self.environment.reset(**seeds)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidArgument(f"reset() returned {result!r:.80}; want (observation, info)")
        zeros = np.zeros(self.num_envs)
        self._keep((result[0], zeros, zeros > 0, zeros > 0))

    def _take_row(self, index: int) -> tuple:
        if not self._is_fresh[index]:
            if not self._announced[:self.num_taken].all():
                raise InvalidArgument(f"environment {index} of a batch steps, but others have no "
                                      "action; want one for each of them; hint: task.action_repeat: "
                                      "1, and as many actors.environments as the batch has")
            result = self.environment.step(self._actions)
            if not isinstance(result, tuple) or len(result) != 5:
                raise InvalidArgument(f"step() returned {result!r:.80}; want (observation, reward, "
                                      "terminated, truncated, info)")
            self._keep(result[:4])
        self._is_fresh[index] = False
        observation, reward, terminated, truncated = self._result
        return _row(observation, index), reward[index], terminated[index], truncated[index]

    def _keep(self, result: tuple) -> None:
        self._result = result
        self._announced[:] = False
        self._is_fresh[:self.num_taken] = True

    def close(self) -> None:
        self.num_closed += 1
        if self.num_closed < self.num_taken:
            return
        for make in [make for make, batch in _open.items() if batch is self]:
            del _open[make]
        environment, self.environment = self.environment, None
        close_environment(environment)


class Member(Face):
    """One environment of a batch."""

    is_of_batch = True

    def __init__(self, batch: _Batch, index: int):
        self._batch, self._index = batch, index
        super().__init__(batch.observation_space, batch.action_space, timestep_s=0.0)
        self._is_open = True
        self._action = np.empty(0)

    def announce(self, action) -> None:
        self._action = np.array(action, dtype=self.action_dtype).reshape(self._shape)
        self._batch.announce(self._index, self._action)

    def reset(self, seed: int) -> np.ndarray:
        """Starts an episode; returns the numbers of its first observation."""
        return self._see(self._batch.first_row(self._index, seed)[0])

    def step(self, action) -> tuple[np.ndarray, float, float, bool]:
        """(numbers of the observation, reward, discount, whether the episode is over)."""
        if not self._batch.is_under_way(self._index):
            self.announce(action)
        if (self._action.ravel() != np.array(action, dtype=self.action_dtype).ravel()).any():
            raise InvalidArgument(f"environment {self._index} of a batch has stepped with the action "
                                  f"{self._action!r:.80}; want the same, got {action!r:.80}; hint: no "
                                  "task.disturbances of actions")
        observation, reward, terminated, truncated = self._batch.row(self._index)
        terminated = flag_of(terminated, "terminated")
        return (self._see(observation), number_of(reward, "reward"), 0.0 if terminated else 1.0,
                terminated or flag_of(truncated, "truncated"))

    def close(self) -> None:
        """Closes the batch with the last of its environments; further calls do nothing."""
        if self._is_open:
            self._is_open = False
            self._batch.close()
