"""Episodes of a data set, whatever its format."""

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from replicant.errors import ConfigError, InvalidArgument


@dataclasses.dataclass
class Episode:
    """T steps.

    where       of errors: file and episode
    columns     by the name in the file: observations [T + 1, ...], or [T, ...] where the file has
                no last one; all else [T, ...]
    num_steps   T
    terminated  whether the last step ended it for good; None: the file does not say so
    """

    where: str
    columns: dict[str, np.ndarray]
    num_steps: int
    terminated: bool | None = None


@dataclasses.dataclass(frozen=True)
class Column:
    """Shape and type of one step of a column. num_extra: 1 for observations with a last one."""

    shape: tuple[int, ...]
    dtype: np.dtype
    num_extra: int = 0

    def __str__(self):
        return f"{self.dtype}{list(self.shape)}"


class Source(Protocol):
    """A data set to read, opened by a module of this package.

    columns   all that each step has
    defaults  the columns' meaning where the mapping does not say it: observation, action, reward,
              terminated
    bounds    of the actions, low and high; None: the data set does not say
    frames_per_second  of the steps; None: the data set does not say
    """

    columns: dict[str, Column]
    defaults: dict[str, object]
    bounds: tuple[np.ndarray, np.ndarray] | None
    frames_per_second: float | None

    def __len__(self) -> int: ...

    def close(self) -> None: ...

    def episode(self, index: int, names: list[str]) -> Episode:
        """Episode `index` with these columns. InvalidArgument names what is wrong, with file and
        episode."""


def need(module: str, purpose: str):
    """Imports a package of the extra `data`. ConfigError with what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{purpose} needs the package {module.partition('.')[0]}: {error}; hint: "
                          "pip install 'WHEEL[data]'") from None


def flat(columns: Mapping, path: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Nested names as one: observations/arm."""
    for name, value in columns.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*path, name))
        else:
            yield "/".join((*path, name)), value


def array_of(where: str, name: str, column) -> np.ndarray:
    """The rows of a pyarrow column of numbers, or of lists of them, [T, ...]. InvalidArgument unless
    each row has the same shape."""
    pa = need("pyarrow", "columns of arrow and parquet")
    compute = need("pyarrow.compute", "columns of arrow and parquet")
    array = column
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if isinstance(array.type, pa.BaseExtensionType):  # such as Array2D of the package datasets
        array = array.storage
    shape = [len(array)]
    while array.null_count == 0 and (
            pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
            or pa.types.is_fixed_size_list(array.type)):
        lengths = compute.unique(compute.list_value_length(array)).to_pylist()
        if len(lengths) > 1:
            break
        shape.append(*(lengths or [0]))
        array = array.flatten()
    values = array.to_numpy(zero_copy_only=False)
    if array.null_count > 0 or values.dtype == object:
        raise InvalidArgument(f"{where}: {name}: its rows differ in length, or have gaps")
    return values.reshape(shape)


def check_length(where: str, name: str, num_rows: int, wanted: int) -> None:
    if num_rows != wanted:
        raise InvalidArgument(f"{where}: {name} has {num_rows} rows, want {wanted}")


@dataclasses.dataclass
class Recorded:
    """An episode to write.

    observations  [T + 1, ...] by name; one called "": the observation is an array, not a dictionary
    action        [T, A] in the environment's range
    reward        [T]
    terminated    whether it ended for good; otherwise it was cut
    """

    observations: dict[str, np.ndarray]
    action: np.ndarray
    reward: np.ndarray
    terminated: bool
