"""A user's environment as the actors of a training see it."""

import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from replicant.errors import ConfigError, InvalidArgument

TASK = "python-environment"  # task.name of a training with make_env


def name_of(make_env: Callable[[], Any] | str) -> str:
    """The name that finds `make_env` in another process: FILE.py:NAME or MODULE:NAME."""
    if isinstance(make_env, str):
        find(make_env)
        return make_env
    name = getattr(make_env, "__qualname__", "")
    module = sys.modules.get(getattr(make_env, "__module__", ""))
    if not name.isidentifier() or getattr(module, name, None) is not make_env:
        raise InvalidArgument(
            f"make_env: got {make_env!r}, want a function at the top level of a module or of a "
            "file, which every process of the training can import; or its name, FILE.py:NAME")
    if module.__name__ != "__main__":
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)
    if file is None:
        raise InvalidArgument("make_env: a function of an interactive session cannot be imported "
                              "by other processes; hint: put it into a file")
    return f"{pathlib.Path(file).resolve()}:{name}"


def find(name: str) -> Callable[[], Any]:
    """The function that name_of() has named."""
    source, _, attribute = name.rpartition(":")
    if not source:
        raise InvalidArgument(f"make_env: got {name!r}, want FILE.py:NAME or MODULE:NAME")
    if source.endswith(".py"):
        if not pathlib.Path(source).exists():
            raise InvalidArgument(f"make_env: {source}: no such file")
        spec = importlib.util.spec_from_file_location("replicant_own_environment", source)
        module = importlib.util.module_from_spec(spec)
        # for dataclasses and pickles of the file
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(source)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise InvalidArgument(f"make_env: {source} has no function {attribute}")
    return found


class Adapter:
    """Gymnasium's or dm_env's environment with observations as one array of numbers.

    observation         [(name, shape), ...] of the arrays, in their order
    minimum, maximum    of the actions
    control_timestep_s  of one step; 0: unknown
    """

    def __init__(self, environment):
        self._environment = environment
        self._is_dm = hasattr(environment, "observation_spec")
        if self._is_dm:
            spec, action = environment.observation_spec(), environment.action_spec()
            spaces = dict(spec) if hasattr(spec, "items") else {"observation": spec}
            low, high = getattr(action, "minimum", None), getattr(action, "maximum", None)
        elif hasattr(environment, "observation_space"):
            space, action = environment.observation_space, environment.action_space
            spaces = dict(getattr(space, "spaces", {"observation": space}))
            low, high = getattr(action, "low", None), getattr(action, "high", None)
        else:
            raise ConfigError(f"make_env: got {environment!r}, want an environment of Gymnasium "
                              "or dm_env")
        if low is None or high is None:
            raise ConfigError(f"make_env: actions {action} have no bounds; an agent needs numbers "
                              "between two bounds")
        for name, part in spaces.items():
            # a space of spaces has no shape, or None
            if getattr(part, "shape", None) is None or not np.issubdtype(part.dtype, np.number) or (
                    part.dtype == np.uint8 and len(part.shape) > 1):
                raise ConfigError(f"make_env: the observation {name} is {part}; allowed: arrays of "
                                  "numbers, no pictures and no spaces within spaces")
        self._names = list(spaces) if self._is_dict() else None
        self._shape = tuple(action.shape)
        self._dtype = action.dtype
        self.observation = [(name, [int(n) for n in part.shape]) for name, part in spaces.items()]
        self.minimum = np.broadcast_to(low, self._shape).ravel().tolist()
        self.maximum = np.broadcast_to(high, self._shape).ravel().tolist()
        seconds = getattr(environment, "control_timestep", None) or getattr(environment, "dt", 0.0)
        self.control_timestep_s = float(seconds() if callable(seconds) else seconds)

    def _is_dict(self):
        environment = self._environment
        spec = environment.observation_spec() if self._is_dm else environment.observation_space
        return hasattr(spec, "items") or hasattr(spec, "spaces")

    def _flat(self, observation) -> np.ndarray:
        parts = [observation] if self._names is None else [observation[n] for n in self._names]
        return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])

    def reset(self, seed: int) -> np.ndarray:
        if not self._is_dm:
            return self._flat(self._environment.reset(seed=seed)[0])
        # dm_env has no seeds: a task that draws from NumPy's global stream repeats
        np.random.seed(seed % 2**32)
        return self._flat(self._environment.reset().observation)

    def step(self, action) -> tuple[np.ndarray, float, float, bool]:
        """(observation, reward, discount, whether the episode is over)."""
        action = np.asarray(action, dtype=self._dtype).reshape(self._shape)
        if self._is_dm:
            step = self._environment.step(action)
            return (self._flat(step.observation), float(step.reward), float(step.discount),
                    bool(step.last()))
        observation, reward, terminated, truncated, _ = self._environment.step(action)
        return (self._flat(observation), float(reward), 0.0 if terminated else 1.0,
                bool(terminated or truncated))
