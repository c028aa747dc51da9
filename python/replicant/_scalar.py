"""Numbers and flags of a user's code, which may be arrays of one element."""

import numpy as np

from replicant.errors import InvalidArgument


def _array_of(value) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:  # rows of different lengths
        return np.empty(0)


def number_of(value, name: str) -> float:
    if type(value) is float:
        return value
    array = _array_of(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise InvalidArgument(f"the {name} is {value!r:.80}; want a number, or an array of one")
    return float(array.item())


def flag_of(value, name: str) -> bool:
    array = _array_of(value)
    if array.size != 1 or array.dtype.kind not in "biu" or array.item() not in (0, 1):
        raise InvalidArgument(f"{name} is {value!r:.80}; want True or False")
    return bool(array.item())
