"""Numbers and flags of a user's code, which may be arrays of one element, and seeds."""

import operator
import secrets

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


def seed_of(seed, want: str = "a whole number") -> int:
    """A seed as an unsigned number of 64 bits; None: drawn by the operating system."""
    if seed is None:
        return secrets.randbits(64)
    try:
        return operator.index(seed) & 0xFFFFFFFFFFFFFFFF
    except TypeError:
        raise InvalidArgument(f"seed: got {seed!r:.80}, want {want}") from None


def flag_of(value, name: str) -> bool:
    array = _array_of(value)
    if array.size != 1 or array.dtype.kind not in "biu" or array.item() not in (0, 1):
        raise InvalidArgument(f"{name} is {value!r:.80}; want True or False")
    return bool(array.item())
