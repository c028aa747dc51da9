"""The mapping file: which columns of a data set are observation, frame, action, reward and end.

    format: minari                 # or lerobot, robomimic, recording
    path: datasets/door            # relative to this file
    observation: [observations]    # columns of numbers, joined in this order; []: none
    frame: null                    # a column of pictures, uint8 [H, W, C], or a list: one for
                                   # each camera, in the run's order
    action: [actions]
    action_low: -1.0               # numbers or lists; they become -1 and 1
    action_high: 1.0
    clip_actions: false            # whether actions outside are moved to the bounds
    reward: rewards                # a column, {constant: 0.0} or {function: FILE.py:NAME}
    terminated: terminations       # the same
    action_repeat: 1               # steps of the file in one step of the agent
    reward_of_repeat: mean         # or sum
    reward_scale: 1.0              # what rewards are multiplied by
    episodes: null                 # the first N
"""

import dataclasses
import difflib
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from replicant import _make_env
from replicant.data import _yaml
from replicant.data._episode import Episode, Source, check_length
from replicant.errors import ConfigError, InvalidArgument

FORMATS = ("minari", "lerobot", "robomimic", "recording")


@dataclasses.dataclass
class Steps:
    """T steps of the agent, as a replay stores them.

    observation  float32 [T + 1, N], or None
    frame        uint8 [T + 1, H, W, C], of several cameras [T + 1, P]: the bytes of their pictures,
                 one after the other; or None
    action       float32 [T, A], in [-1, 1]
    reward, discount  float32 [T]
    num_left_out   steps of the file at its end without an observation after them
    """

    observation: np.ndarray | None
    frame: np.ndarray | None
    action: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    num_left_out: int = 0


@dataclasses.dataclass
class Mapping:
    """A mapping file; the module has its keys. None: as the data set says."""

    format: str
    path: str
    observation: list[str] | None = None
    frame: list[str] | None = None
    action: list[str] | None = None
    action_low: Any = None
    action_high: Any = None
    clip_actions: bool = False
    reward: Any = None
    terminated: Any = None
    action_repeat: int = 1
    reward_of_repeat: str = "mean"
    reward_scale: float = 1.0
    episodes: int | None = None
    file: str = ""  # the mapping's own

    @classmethod
    def load(cls, file) -> "Mapping":
        """ConfigError for a file that cannot be read, or a key that is unknown or missing."""
        return cls.of(_yaml.read(pathlib.Path(file), "a mapping file"), str(file))

    @classmethod
    def of(cls, keys: Any, file: str = "mapping") -> "Mapping":
        if not isinstance(keys, dict):
            raise ConfigError(f"{file}: want a mapping with the keys format and path")
        known = [field.name for field in dataclasses.fields(cls) if field.name != "file"]
        for key in keys:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
                raise ConfigError(f"{file}: {key}: unknown key{hint}")
        for key in ("format", "path"):
            if key not in keys:
                raise ConfigError(f"{file}: {key}: missing")
        mapping = cls(**keys, file=file)
        mapping._check()
        folder = pathlib.Path(file).resolve().parent
        mapping.path = str(folder / pathlib.Path(str(mapping.path)).expanduser())
        return mapping

    def _check(self) -> None:
        def refuse(key, wanted):
            raise ConfigError(f"{self.file}: {key}: got {getattr(self, key)!r}, want {wanted}")

        if self.format not in FORMATS:
            refuse("format", ", ".join(FORMATS))
        if not isinstance(self.path, (str, os.PathLike)):
            refuse("path", "text; hint: put it in quotes")
        for key in ("observation", "frame", "action"):
            value = getattr(self, key)
            if isinstance(value, str):
                setattr(self, key, [value])
            elif value is not None and not (
                    isinstance(value, list) and all(isinstance(name, str) for name in value)):
                refuse(key, "a list of columns")
        for key in ("reward", "terminated"):
            value = getattr(self, key)
            if value is not None and not isinstance(value, str) and not (
                    isinstance(value, dict) and len(value) == 1
                    and next(iter(value)) in ("constant", "function")):
                refuse(key, "a column, {constant: NUMBER} or {function: FILE.py:NAME}")
        for key in ("action_repeat", "episodes"):
            value = getattr(self, key)
            if value is not None and not (type(value) is int and value >= 1):
                refuse(key, "a number of at least 1")
        if self.reward_of_repeat not in ("mean", "sum"):
            refuse("reward_of_repeat", "mean or sum")
        if type(self.reward_scale) not in (int, float) or not np.isfinite(self.reward_scale):
            refuse("reward_scale", "a finite number")
        if type(self.clip_actions) is not bool:
            refuse("clip_actions", "true or false")

    def key(self) -> dict[str, Any]:
        """What decides the steps, as JSON has it."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "file"}


class Converter:
    """Makes an agent's steps of the episodes of a source. ConfigError for a mapping that does not
    fit the source, which names the missing column and how to give it."""

    def __init__(self, mapping: Mapping, source: Source):
        self._mapping, self._source = mapping, source
        observation = mapping.observation
        if observation is None:
            observation = source.defaults.get("observation", [])
        self._observation = list(observation)
        self._action = list(mapping.action or source.defaults.get("action", []))
        self._frame = list(mapping.frame or [])
        if not self._action:
            raise ConfigError(f"{mapping.path}: no action; {self._has()}; give action: [COLUMN]")
        if not self._observation and not self._frame:
            raise ConfigError(f"{mapping.path}: no observation; {self._has()}; give observation: "
                              "[COLUMN, ...] or frame: COLUMN")
        for name in (*self._observation, *self._action, *self._frame):
            self._find(name)
        self._functions: dict[str, Callable] = {}
        self._reward = self._rule("reward", "{constant: 0.0}")
        # an episode may say whether it terminated
        self._terminated = self._rule("terminated", "{constant: false}")
        for name in self._frame:
            shape, dtype = source.columns[name].shape, source.columns[name].dtype
            if len(shape) != 3 or shape[2] not in (1, 3, 4) or dtype != np.uint8:
                raise ConfigError(f"{mapping.path}: frame: {name} is {source.columns[name]}, want "
                                  "uint8 [H, W, C] with C 1, 3 or 4")
        for name in (*self._observation, *self._action):
            if source.columns[name].dtype.kind not in "biuf":
                raise ConfigError(f"{mapping.path}: {name} is {source.columns[name]}, want numbers")
        self.action_size = sum(self._size(name) for name in self._action)
        self.observation_size = sum(self._size(name) for name in self._observation)
        # of several cameras the bytes, one picture after the other
        self.frame_shapes = shapes = [source.columns[name].shape for name in self._frame]
        self.frame_shape = ((*shapes, None)[0] if len(shapes) < 2 else
                            (sum(math.prod(shape) for shape in shapes),))
        # of the task, [A]: what becomes -1 and 1
        self.action_low, self.action_high = self._bounds()
        rules = [rule for rule in (self._reward, self._terminated) if isinstance(rule, str) and rule]
        # a function may look at everything
        self.names = (list(source.columns) if self._functions else list(dict.fromkeys(
            [*self._observation, *self._action, *self._frame, *rules])))

    @property
    def columns(self) -> dict[str, list[str]]:
        """What the steps are made of: the names by their meaning, in their order."""
        return {"observation": self._observation, "frame": self._frame, "action": self._action}

    def _has(self) -> str:
        columns = ", ".join(f"{name} {column}" for name, column in self._source.columns.items())
        return f"it has {columns}"

    def _find(self, name: str) -> None:
        if name not in self._source.columns:
            raise ConfigError(f"{self._mapping.path}: no column {name!r}; {self._has()}")

    def _size(self, name: str) -> int:
        return int(np.prod(self._source.columns[name].shape, dtype=np.int64))

    def _rule(self, key: str, example: str):
        """A column's name, a number, or None for a function or the episode's own end."""
        given = getattr(self._mapping, key)
        if given is None:
            given = self._source.defaults.get(key)
        if given is None:
            raise ConfigError(f"{self._mapping.path}: no {key}; {self._has()}; give {key}: COLUMN, "
                              f"{key}: {example} or {key}: {{function: FILE.py:NAME}}")
        if isinstance(given, str):
            if given != "":  # "": the episode says so
                self._find(given)
            return given
        if "constant" in given:
            value = given["constant"]
            if not isinstance(value, (int, float)) or not np.isfinite(value):
                raise ConfigError(f"{self._mapping.file}: {key}: constant: got {value!r}, want a "
                                  "finite number")
            return float(value)
        name = given["function"]
        module, _, attribute = str(name).partition(":")
        if module.endswith(".py"):
            module = str(pathlib.Path(self._mapping.file).resolve().parent / module)
        try:
            self._functions[key] = _make_env.find(f"{module}:{attribute}")
        except InvalidArgument as error:
            text = str(error).removeprefix("make_env: ")
            raise ConfigError(f"{self._mapping.file}: {key}: {text}") from None
        return None

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        given = (self._mapping.action_low, self._mapping.action_high)
        low, high = self._source.bounds or (None, None)
        low, high = (own if one is None else one for one, own in zip(given, (low, high), strict=True))
        if low is None or high is None:
            raise ConfigError(f"{self._mapping.path}: no bounds of the actions; give action_low and "
                              "action_high, numbers or lists")

        def as_array(bound):
            array = np.asarray(bound)
            if array.dtype.kind not in "iuf" or array.size not in (1, self.action_size):
                return None
            return np.broadcast_to(array.astype(np.float64).ravel(), self.action_size)

        try:
            low, high = as_array(low), as_array(high)
        except ValueError:  # lists of different lengths in a list
            low = None
        if low is None or high is None or not np.isfinite([low, high]).all() or not (
                low < high).all():
            raise ConfigError(f"{self._mapping.path}: the bounds of the actions are {given}, want "
                              f"finite numbers, low < high, one or {self.action_size} each")
        return low, high

    def _call(self, key: str, episode: Episode):
        """The result of a user's function, [T]."""
        try:
            value = np.asarray(self._functions[key](episode.columns))
        except Exception as error:
            raise InvalidArgument(f"{episode.where}: the function of {key} raised "
                                  f"{type(error).__name__}: {error}") from error
        if value.dtype.kind not in "biuf" or value.shape not in ((), (episode.num_steps,)):
            raise InvalidArgument(f"{episode.where}: the function of {key} returned "
                                  f"{value.dtype}{list(value.shape)}, want a number or "
                                  f"[{episode.num_steps}]")
        return value

    def _numbers(self, key: str, rule, episode: Episode) -> np.ndarray:
        """One number for each step, float64 [T]; of `terminated` from a single one: the last's."""
        steps = episode.num_steps
        if rule is None:
            values = self._call(key, episode)
        elif rule == "":
            if episode.terminated is None:
                raise InvalidArgument(f"{episode.where}: it does not say whether it terminated")
            values = np.asarray(episode.terminated)
        elif isinstance(rule, str):
            values = episode.columns[rule].reshape(len(episode.columns[rule]), -1)
            check_length(episode.where, rule, len(values), steps)
            if values.shape[1] != 1:
                raise InvalidArgument(f"{episode.where}: {rule} has {values.shape[1]} numbers a "
                                      f"step; want one as {key}")
            values = values[:, 0]
        else:
            values = np.asarray(rule)
        if values.shape == ():
            one = float(values)
            values = np.full(steps, one)
            if key == "terminated":  # at the end of the episode alone
                values[:-1] = 0.0
        return values.astype(np.float64)

    def _join(self, episode: Episode, names: list[str], num_rows: int) -> np.ndarray:
        parts = []
        for name in names:
            rows = episode.columns[name]
            wanted = self._source.columns[name].shape
            if tuple(rows.shape[1:]) != tuple(wanted):
                raise InvalidArgument(f"{episode.where}: {name} has the shape "
                                      f"{list(rows.shape[1:])}, want {list(wanted)} as in the "
                                      "first episode")
            parts.append(rows[:num_rows].reshape(num_rows, -1).astype(np.float64))
        joined = np.concatenate(parts, axis=1)
        if not (np.abs(joined) <= np.finfo(np.float32).max).all():  # nor NaN
            joined = joined.astype(np.float32)
            step, at = np.argwhere(~np.isfinite(joined))[0]
            raise InvalidArgument(f"{episode.where}: step {step}: number {at} of "
                                  f"{', '.join(names)} is {joined[step, at]}, want finite ones")
        return joined

    def steps(self, episode: Episode) -> Steps | None:
        """None for an episode without a whole step."""
        terminated = self._numbers("terminated", self._terminated, episode)
        reward = self._numbers("reward", self._reward, episode)
        if not np.isfinite(reward).all():
            step = int(np.argmin(np.isfinite(reward)))
            raise InvalidArgument(f"{episode.where}: step {step}: the reward is {reward[step]}")
        num_steps = episode.num_steps
        neither = np.flatnonzero((terminated != 0) & (terminated != 1))
        if len(neither):
            step = int(neither[0])
            raise InvalidArgument(f"{episode.where}: step {step}: terminated is "
                                  f"{terminated[step]:g}, want 0 or 1")
        ends = np.flatnonzero(terminated)
        if len(ends) and ends[0] + 1 < num_steps:
            raise InvalidArgument(f"{episode.where}: it terminates at step {ends[0]} of "
                                  f"{num_steps}, not at its end; hint: terminated: {{constant: "
                                  "true}, or false")
        observed = [*self._observation, *self._frame]
        has_last = all(self._source.columns[name].num_extra for name in observed)
        if not has_last and not len(ends):
            num_steps -= 1  # where it leads to is not known
        if num_steps < 1:
            return None
        num_rows = num_steps + 1 if has_last or num_steps < episode.num_steps else num_steps
        for name in observed:
            if len(episode.columns[name]) < num_rows:
                check_length(episode.where, name, len(episode.columns[name]), num_rows)
        for name in self._action:
            check_length(episode.where, name, len(episode.columns[name]), episode.num_steps)
        starts = np.arange(0, num_steps, self._mapping.action_repeat)
        # where a terminated episode has no last observation, the one before stands for it: no
        # return looks there
        rows = np.minimum([*starts, num_steps], num_rows - 1)
        action = self._to_unit(episode, self._join(episode, self._action, num_steps))
        lengths = np.diff([*starts, num_steps])
        reward = np.add.reduceat(reward[:num_steps], starts)
        if self._mapping.reward_of_repeat == "mean":
            reward = reward / lengths
        reward = self._mapping.reward_scale * reward
        is_too_large = np.abs(reward) > np.finfo(np.float32).max
        if is_too_large.any():
            at = int(np.argmax(is_too_large))
            raise InvalidArgument(f"{episode.where}: step {starts[at]}: the reward is {reward[at]:g}, "
                                  "which float32 cannot hold")
        frames = self._frames(episode, rows) if self._frame else None
        observation = (self._join(episode, self._observation, num_rows)[rows].astype(np.float32)
                       if self._observation else None)
        return Steps(
            observation=observation, frame=frames,
            action=(np.add.reduceat(action, starts, axis=0) / lengths[:, None]).astype(np.float32),
            reward=reward.astype(np.float32),
            discount=1.0 - np.maximum.reduceat(terminated[:num_steps], starts).astype(np.float32),
            num_left_out=episode.num_steps - num_steps)

    def _frames(self, episode: Episode, rows: np.ndarray) -> np.ndarray:
        """The pictures of these rows, [len(rows), *frame_shape]."""
        pictures = []
        for name in self._frame:
            column, wanted = episode.columns[name], self._source.columns[name].shape
            if column.dtype != np.uint8 or tuple(column.shape[1:]) != tuple(wanted):
                raise InvalidArgument(f"{episode.where}: {name} is "
                                      f"{column.dtype}{list(column.shape[1:])}, want uint8 "
                                      f"{list(wanted)} as in the first episode")
            pictures.append(column[rows])
        if len(pictures) == 1:
            return pictures[0]
        return np.concatenate([one.reshape(len(rows), -1) for one in pictures], axis=1)

    def _to_unit(self, episode: Episode, action: np.ndarray) -> np.ndarray:
        """From the bounds to [-1, 1]."""
        unit = 2.0 * (action - self.action_low) / (self.action_high - self.action_low) - 1.0
        outside = np.abs(unit) > 1.0 + 1e-4  # more than the rounding of float32
        if outside.any() and not self._mapping.clip_actions:
            step, at = np.argwhere(outside)[0]
            raise InvalidArgument(
                f"{episode.where}: step {step}: number {at} of the action is {action[step, at]:.6g}, "
                f"want {self.action_low[at]:.6g} to {self.action_high[at]:.6g}; hint: action_low and "
                "action_high, or clip_actions: true")
        return np.clip(unit, -1.0, 1.0)
