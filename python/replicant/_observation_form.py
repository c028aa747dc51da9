"""How the observations of a user's environment become one array of numbers, and images."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from replicant.errors import ConfigError, InvalidArgument

_ALLOWED = ("allowed: arrays of numbers or booleans of at most two dimensions, Discrete, images uint8 "
            "[H, W, C] or [C, H, W] with C 1, 3 or 4, and dictionaries of these")
_CHANNELS = (1, 3, 4)


class _Image:
    """One image of an observation, uint8 [H, W, C]. The environment may give [H, W] or [C, H, W].

    shape  as the environment gives it
    dims   [H, W, C]
    """

    def __init__(self, name: str, spec):
        self.name = name
        self.shape = tuple(int(n) for n in spec.shape)
        self._is_first = len(self.shape) == 3 and self.shape[2] not in _CHANNELS
        if len(self.shape) == 2:
            self.dims = [*self.shape, 1]
        elif self._is_first:
            self.dims = [*self.shape[1:], self.shape[0]]
        else:
            self.dims = [*self.shape]
        if self.dims[2] not in _CHANNELS or min(self.dims) < 1:
            is_stack = {self.shape[0], self.shape[-1]} & {6, 9, 12, 15}
            hint = ("; hint: one frame, as envs.make(..., frame_stack=1) gives it; "
                    "task.pixels.frame_stack stacks them" if is_stack else "")
            raise ConfigError(f"make_env: the observation {name} is {spec}; {_ALLOWED}{hint}")

    @staticmethod
    def is_one(spec) -> bool:
        """Whether a space or specification is of images."""
        return (getattr(spec, "dtype", None) == np.uint8 and not hasattr(spec, "nvec")
                and len(getattr(spec, "shape", None) or ()) in (2, 3))

    def images(self, value) -> np.ndarray:
        """One value, or a batch of them, as uint8 [..., H, W, C]."""
        array = np.asarray(value)
        if array.dtype != np.uint8 or array.shape[-len(self.shape):] != self.shape:
            given = f"{array.dtype} {array.shape}" if array.dtype != object else f"{value!r:.80}"
            raise InvalidArgument(f"observation '{self.name}' is {given}; want uint8 {self.shape}, as "
                                  "the environment says")
        if self._is_first:
            array = np.moveaxis(array, -3, -1)
        return array.reshape(*array.shape[:array.ndim - len(self.shape)], *self.dims)


def _leaves(named: Mapping, outer: str = "") -> list[tuple[str, Any]]:
    """Names and spaces of a dictionary and those within it: "arm/joint"."""
    found = []
    for name, spec in named.items():
        inner = getattr(spec, "spaces", spec)
        if isinstance(inner, Mapping):
            found += _leaves(inner, f"{outer}{name}/")
        else:
            found.append((f"{outer}{name}", spec))
    return found


def _value_at(observation, path: str):
    """The value of a name of _leaves(); KeyError if there is none. A key may have a slash itself."""
    if path in observation:
        return observation[path]
    for name, value in observation.items():
        if isinstance(value, Mapping) and path.startswith(f"{name}/"):
            return _value_at(value, path[len(name) + 1:])
    raise KeyError(path)


class _Part:
    """One array of an observation.

    shape  as the environment gives it
    size   of the numbers that it becomes: each choice of `counts` becomes as many numbers, of which
           one is 1 and the others 0
    """

    def __init__(self, name: str, spec):
        self.name = name
        self.shape = getattr(spec, "shape", None)
        dtype = getattr(spec, "dtype", None)
        # Discrete has n, dm_env's DiscreteArray num_values; MultiBinary has n too, and a shape
        counts = getattr(spec, "nvec", getattr(spec, "num_values", None))
        if counts is None and self.shape == ():
            counts = getattr(spec, "n", None)
        if (self.shape is None or dtype is None or not np.dtype(dtype).kind in "biuf"
                or len(self.shape) > 2 or (dtype == np.uint8 and len(self.shape) > 1)):
            raise ConfigError(f"make_env: the observation {name} is {spec}; {_ALLOWED}")
        self.shape = tuple(int(n) for n in self.shape)
        self.counts = None if counts is None else np.ravel(counts).astype(int)
        self._start = np.ravel(getattr(spec, "start", 0))
        self.dims = list(self.shape) if counts is None else [int(self.counts.sum())]
        self.size = math.prod(self.dims)

    def array(self, value) -> np.ndarray:
        """The value as an array; InvalidArgument unless it is one of numbers."""
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different lengths
            array = None
        if array is None or array.dtype.kind not in "biuf":
            raise InvalidArgument(f"observation '{self.name}' is {value!r:.80}; want numbers")
        return array

    def rows(self, value, num_rows: int | None = None) -> np.ndarray:
        """One value, or `num_rows` values, as numbers: float64 [1 or num_rows, size]."""
        array = self.array(value)
        wanted = self.shape if num_rows is None else (num_rows, *self.shape)
        # sides of 1 change nothing
        if [n for n in array.shape if n != 1] != [n for n in wanted if n != 1]:
            raise InvalidArgument(f"observation '{self.name}' has the shape {array.shape}; want "
                                  f"{wanted}, as the environment says")
        array = array.reshape(num_rows or 1, -1)
        if self.counts is None:
            return array.astype(np.float64)
        choices = array - self._start
        if not ((choices >= 0) & (choices < self.counts) & (choices == choices.astype(int))).all():
            raise InvalidArgument(f"observation '{self.name}' is {value!r:.80}; its space has the "
                                  f"values {self._start.tolist()} to "
                                  f"{(self._start + self.counts - 1).tolist()}")
        return np.concatenate(
            [np.eye(count)[choices[:, i].astype(int)] for i, count in enumerate(self.counts)], axis=1)


class ObservationForm:
    """How the observations of an environment become one array of numbers, and images.

    parts    the arrays of numbers, in their order
    images   the images, in their order
    is_dict  whether an observation is a dictionary, not one array
    """

    def __init__(self, spec):
        # a space or specification of one array, or a dictionary of them
        named = getattr(spec, "spaces", spec)
        self.is_dict = isinstance(named, Mapping)
        if isinstance(named, (tuple, list)):
            raise ConfigError(f"make_env: the observation is {spec}; {_ALLOWED}")
        leaves = _leaves(named) if self.is_dict else [("observation", spec)]
        self.images = [_Image(name, leaf) for name, leaf in leaves if _Image.is_one(leaf)]
        self.parts = [_Part(name, leaf) for name, leaf in leaves if not _Image.is_one(leaf)]
        self.size = sum(part.size for part in self.parts)
        if self.size == 0 and not self.images:
            raise ConfigError(f"make_env: the observation {spec} has no numbers")

    def select(self, names: Sequence[str]) -> None:
        """Keeps the arrays of these names, in this order, as task.observations does; [] keeps all."""
        if not names:
            return
        order = {name: i for i, name in enumerate(names)}
        for attribute in ("parts", "images"):
            kept = [leaf for leaf in getattr(self, attribute) if leaf.name in order]
            setattr(self, attribute, sorted(kept, key=lambda leaf: order[leaf.name]))
        self.size = sum(part.size for part in self.parts)

    def _values(self, observation, leaves) -> list:
        if not self.is_dict:
            return [observation for _ in leaves]
        names = [leaf.name for leaf in leaves]
        try:
            return [_value_at(observation, name) for name in names]
        except (KeyError, AttributeError, TypeError):
            given = list(observation) if isinstance(observation, Mapping) else repr(observation)[:80]
            raise InvalidArgument(f"an observation has {given}; want {names}") from None

    def flat(self, observation) -> np.ndarray:
        """The numbers of one observation, float64 [size]."""
        values = self._values(observation, self.parts)
        rows = [part.rows(value)[0] for part, value in zip(self.parts, values, strict=True)]
        return np.concatenate(rows) if rows else np.empty(0)

    def arrays(self, observation) -> dict[str, np.ndarray]:
        """Copies of the arrays of one observation, by name, in this form: choices as numbers of which
        one is 1, images as uint8 [H, W, C]. An observation that is one array has the name ""."""
        values = self._values(observation, self.parts)
        seen = {part.name: np.array(value) if part.counts is None else part.rows(value)[0]
                for part, value in zip(self.parts, values, strict=True)}
        for image, pixels in zip(self.images, self.pixels(observation), strict=True):
            seen[image.name] = np.array(pixels)
        return seen if self.is_dict else {"": seen["observation"]}

    def pixels(self, observation) -> list[np.ndarray]:
        """The images of one observation, or of a batch, each uint8 [..., H, W, C]."""
        values = self._values(observation, self.images)
        return [image.images(value) for image, value in zip(self.images, values, strict=True)]

    def batch(self, observation) -> tuple[np.ndarray, bool]:
        """The numbers of one observation or a batch of them, float64 [B, size], and whether it is a
        batch."""
        if not self.parts:
            image, value = self.images[0], self._values(observation, self.images[:1])[0]
            is_batch = np.ndim(value) == len(image.shape) + 1
            return np.empty((len(value) if is_batch else 1, 0)), is_batch
        values = self._values(observation, self.parts)
        first = self.parts[0].array(values[0])
        is_batch = first.ndim == len(self.parts[0].shape) + 1
        num_rows = len(first) if is_batch else None
        return np.concatenate([part.rows(value, num_rows) for part, value in
                               zip(self.parts, values, strict=True)], axis=1), is_batch

    def is_own(self, observation) -> bool:
        """Whether this is an observation of the environment, or a batch, and not yet numbers."""
        if self.is_dict:
            return isinstance(observation, Mapping)
        if self.images:
            return True
        array, own = self.parts[0].array(observation), self.parts[0].shape
        if self.parts[0].counts is None and len(own) == 1:
            return False  # the numbers are the observation
        is_choice = self.parts[0].counts is not None and array.dtype.kind in "iu"
        return array.shape == own or (array.shape[1:] == own and (is_choice or own != ()))
