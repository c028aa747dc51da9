"""A user's environment as the roles of a training see it: numbers in, numbers out."""

import copy
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import gymnasium
import gymnasium.wrappers.vector
import numpy as np

from replicant._observation_form import ObservationForm
from replicant._scalar import flag_of, number_of
from replicant.errors import ConfigError, InvalidArgument

MAX_EPISODE_STEPS = 20_000  # evaluation.max_episode_steps
_LEARNING = (gymnasium.wrappers.NormalizeObservation, gymnasium.wrappers.NormalizeReward,
             gymnasium.wrappers.vector.NormalizeObservation, gymnasium.wrappers.vector.NormalizeReward)


def is_dm_env(environment) -> bool:
    """Whether the environment has dm_env's face, not Gymnasium's. ConfigError if it has neither."""
    if isinstance(environment, gymnasium.vector.VectorEnv):
        raise ConfigError(f"make_env: got {environment!r}, a batch of environments; want one here")
    # a wrapper may show the attributes of both
    if isinstance(environment, gymnasium.Env):
        return False
    if isinstance(environment, dm_env.Environment):
        return True
    if hasattr(environment, "observation_space") and hasattr(environment, "action_space"):
        return False
    if all(callable(getattr(environment, name, None)) for name in ("observation_spec", "action_spec")):
        return True
    raise ConfigError(f"make_env: got {environment!r}, want an environment of Gymnasium or dm_env")


def check_wrappers(environment) -> None:
    """ConfigError for a wrapper that learns the scale of what it returns: every process would have
    a scale of its own, no checkpoint would have any, and a policy would see other numbers."""
    while isinstance(environment, (gymnasium.Wrapper, gymnasium.vector.VectorWrapper)):
        if isinstance(environment, _LEARNING) and environment.update_running_mean:
            name = type(environment).__name__
            raise ConfigError(
                f"make_env: {name} learns its scale from what each process sees, and no checkpoint "
                "has it: actors, evaluator and policy would see different numbers; hint: "
                "agent.observations.normalize: running and agent.distribution.range: running in its "
                f"place, a fixed scale (TransformObservation), or fill {name}'s statistics in "
                "make_env and set its update_running_mean to False")
        environment = environment.env
    for one in getattr(environment, "envs", None) or ():
        check_wrappers(one)


def bounds_of(action) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest action of a space or specification, float64 [A]. ConfigError if an agent
    cannot choose between them."""
    low = getattr(action, "low", getattr(action, "minimum", None))
    high = getattr(action, "high", getattr(action, "maximum", None))
    if low is None or high is None or np.dtype(action.dtype).kind != "f":
        raise ConfigError(f"make_env: the actions are {action}; an agent needs floating-point numbers "
                          "between two bounds, such as Box(-1, 1, (2,), float32)")
    low, high = (np.broadcast_to(bound, action.shape).ravel().astype(float) for bound in (low, high))
    if not np.isfinite([low, high]).all() or not (low <= high).all() or not (low < high).any():
        raise ConfigError(f"make_env: the bounds of the actions are {low} and {high}; an agent needs "
                          "finite ones and a range between them; hint: "
                          "gymnasium.wrappers.RescaleAction")
    return low, high


def control_timestep_s(environment) -> float:
    """Simulated seconds of a step; 0 if the environment does not say so."""
    def is_positive(value) -> bool:
        return (isinstance(value, numbers.Real) and not isinstance(value, bool)
                and 0 < value < math.inf)

    for source in (environment, getattr(environment, "unwrapped", None)):
        for name in ("control_timestep", "dt"):
            try:
                value = getattr(source, name)
                value = value() if callable(value) else value
            except Exception:  # the user's code; the number is not needed
                continue
            if is_positive(value):
                return float(value)
    # Gymnasium's pictures of a second, one for each step
    metadata = getattr(environment, "metadata", None)
    rate = metadata.get("render_fps") if isinstance(metadata, Mapping) else None
    return 1.0 / float(rate) if is_positive(rate) else 0.0


def _copy_of(info):
    """A copy, in which values that cannot be copied stay what they are."""
    try:
        return copy.deepcopy(info)
    except Exception:  # such as a lock, or the user's code
        return ({name: _copy_of(value) for name, value in info.items()}
                if isinstance(info, dict) else info)


class Face:
    """What the roles of a training use of an environment: observations as one array of numbers, and
    images.

    form                how an observation becomes numbers and images
    observation         [(name, shape), ...] of the arrays of numbers, in their order
    images              [(name, [H, W, C]), ...] of the images, in their order
    newest              observation, as the environment gave it
    numbers, pixels     of the newest observation, float64 [size], and uint8 [P]: the bytes of its
                        images, one image after the other
    minimum, maximum    of the actions
    control_timestep_s  of one step; 0: unknown
    has_goals           whether goal_reward() gives the rewards of other goals
    is_of_batch         whether other environments step with it, so that announce() comes first
    """

    has_goals = False
    is_of_batch = False

    def __init__(self, observations, actions, timestep_s: float):
        self.form = ObservationForm(observations)
        low, high = bounds_of(actions)
        self._shape = tuple(actions.shape)
        self.action_dtype = np.dtype(actions.dtype)
        self.observation = [(part.name, part.dims) for part in self.form.parts]
        self.images = [(image.name, image.dims) for image in self.form.images]
        self.newest = None
        self.numbers, self.pixels = np.empty(0), np.empty(0, np.uint8)
        self.minimum, self.maximum = low.tolist(), high.tolist()
        self.control_timestep_s = timestep_s

    def announce(self, action) -> None:
        """Tells the action of the next step() before other environments of a batch step."""

    def _see(self, observation) -> np.ndarray:
        """Keeps an observation; returns its numbers."""
        self.newest, self.numbers = observation, self.form.flat(observation)
        images = self.form.pixels(observation)
        if images:
            self.pixels = np.concatenate([image.ravel() for image in images])
        return self.numbers


class Adapter(Face):
    """One environment of Gymnasium or dm_env."""

    def __init__(self, environment):
        self._environment = environment
        self._is_dm = is_dm_env(environment)
        if self._is_dm:
            spaces = environment.observation_spec(), environment.action_spec()
        else:
            check_wrappers(environment)
            spaces = environment.observation_space, environment.action_space
        super().__init__(*spaces, control_timestep_s(environment))
        self._goals = getattr(environment, "unwrapped", environment)
        self._goal_space = getattr(spaces[0], "spaces", {}).get("achieved_goal")
        self.has_goals = (self._goal_space is not None
                          and callable(getattr(self._goals, "compute_reward", None)))
        # of the episode's steps: the goal achieved after it, info and discount
        self._made: list[tuple[np.ndarray, Any, float]] = []

    def reset(self, seed: int) -> np.ndarray:
        """Starts an episode; returns the numbers of its first observation."""
        self._made.clear()
        if self._is_dm:
            # dm_env has no seeds: a task that draws from NumPy's global stream repeats
            np.random.seed(seed % 2**32)
            return self._see(self._environment.reset().observation)
        result = self._environment.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidArgument(f"reset() returned {result!r:.80}; want (observation, info)")
        return self._see(result[0])

    def step(self, action) -> tuple[np.ndarray, float, float, bool]:
        """(numbers of the observation, reward, discount, whether the episode is over)."""
        # a copy: the environment may write into it
        action = np.array(action, dtype=self.action_dtype).reshape(self._shape)
        result = self._environment.step(action)
        if self._is_dm:
            if result.first():
                raise InvalidArgument("step() began an episode before the last one was over; want "
                                      "a step of type MID or LAST")
            return (self._see(result.observation), number_of(result.reward, "reward"),
                    number_of(result.discount, "discount"), bool(result.last()))
        if not isinstance(result, tuple) or len(result) != 5:
            raise InvalidArgument(f"step() returned {result!r:.80}; want (observation, reward, "
                                  "terminated, truncated, info)")
        observation, reward, terminated, truncated, info = result
        terminated = flag_of(terminated, "terminated")
        discount = 0.0 if terminated else 1.0
        if self.has_goals:
            # copies: the environment may write into them
            goal = np.array(observation["achieved_goal"], np.float64)
            self._made.append((goal, _copy_of(info), discount))
        return (self._see(observation), number_of(reward, "reward"), discount,
                terminated or flag_of(truncated, "truncated"))

    def goal_size(self) -> int:
        """Numbers of a goal."""
        return math.prod(self._goal_space.shape)

    def achieved_goal(self, step: int) -> list[float]:
        """The goal achieved after step `step` (1, 2, ...) of the newest episode."""
        return self._made[step - 1][0].ravel().tolist()

    def goal_reward(self, step: int, desired) -> tuple[float, float]:
        """(reward, discount) that step `step` of the newest episode would have given with the goal
        `desired`. Without a method compute_terminated of the environment the discount is the
        step's own."""
        achieved, info, discount = self._made[step - 1]
        desired = np.reshape(desired, achieved.shape)
        reward = number_of(self._goals.compute_reward(achieved, desired, info),
                           "result of compute_reward()")
        terminated = getattr(self._goals, "compute_terminated", None)
        if callable(terminated):
            discount = 0.0 if flag_of(terminated(achieved, desired, info),
                                      "the result of compute_terminated()") else 1.0
        return reward, discount

    def close(self) -> None:
        """Closes the environment; further calls do nothing."""
        environment, self._environment = self._environment, None
        close_environment(environment)


def close_environment(environment) -> None:
    close = getattr(environment, "close", None)
    if callable(close):
        close()


def adapt(make: Callable[[], Any]) -> Face:
    """The adapter of a new environment, which is closed if it cannot be used. An environment of a
    batch that `make` has made before counts as new until it is used."""
    from replicant import _vector_adapter

    if member := _vector_adapter.next_member(make):
        return member
    environment = make()
    try:
        if _vector_adapter.is_batch(environment):
            return _vector_adapter.first_member(make, environment)
        return Adapter(environment)
    except BaseException:
        close_environment(environment)
        raise
