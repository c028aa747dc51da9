"""The environments behind every face."""

import atexit
import numbers
import operator
import os
import pathlib
import weakref

import numpy as np

from replicant import _envs, _libraries
from replicant._scalar import seed_of
from replicant.envs._task import Task, file_or_text
from replicant.errors import InvalidArgument

_living: "weakref.WeakSet[_envs.EnvironmentBatch]" = weakref.WeakSet()


def seeds_of(seed) -> list[int]:
    """One seed, or one for each environment, as unsigned 64-bit numbers; None: drawn."""
    return [seed_of(one, "a whole number, or one for each environment")
            for one in (seed if np.ndim(seed) else [seed])]


def one_of(value, name: str, known: tuple[str, ...]) -> str:
    """The value of option `name`, one of the known words."""
    if not isinstance(value, str) or value not in known:
        raise InvalidArgument(f"{name}: got {value!r:.80}, want "
                              f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}")
    return value


def whole(value, name: str, low: int = -2**31, high: int = 2**31 - 1) -> int:
    """The value of option `name`, a whole number from `low` to `high`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name}: got {value!r:.80}, want a whole number") from None
    if not low <= number <= high:
        raise InvalidArgument(f"{name}: got {number}, want {low} to {high}")
    return number


def pair(value, name: str) -> tuple[int, int] | None:
    """The two whole numbers of option `name`; None: it does not have two values."""
    try:
        first, second = value
    except (TypeError, ValueError):
        return None
    return whole(first, name), whole(second, name)


def array_of(values, kinds: str, dtype, name: str) -> np.ndarray:
    """The values as an array of `dtype`. InvalidArgument unless they are of one of NumPy's kinds,
    such as "iu", and stay the same."""
    given = np.asarray(values)
    is_kind = given.dtype.kind in kinds or given.size == 0
    array = given.astype(dtype if is_kind else given.dtype, copy=False)
    if not is_kind or ("f" not in kinds and not np.array_equal(array, given)):
        raise InvalidArgument(f"{name}: got {given!r:.80} of {given.dtype}, want {np.dtype(dtype)}")
    return array


def _cameras(pixels, camera) -> tuple[list[str], list[tuple[int, int]]]:
    """Names and sizes of the cameras of `pixels` and `camera`, which are one or several."""
    one = isinstance(camera, (str, int)) or not hasattr(camera, "__iter__")
    cameras = [camera] if one else list(camera)
    if not cameras:
        raise ValueError("camera: got no camera, want at least one")
    if isinstance(pixels, numbers.Integral) and not isinstance(pixels, bool):
        pixels = (pixels, pixels)
    sizes = list(pixels) if hasattr(pixels, "__iter__") else []
    if sizes and not any(hasattr(size, "__len__") for size in sizes):
        sizes = [pixels] * len(cameras)
    pairs = [pair(size, "pixels") for size in sizes]
    if len(pairs) != len(cameras) or None in pairs:
        raise ValueError(f"pixels: got {pixels!r} for {len(cameras)} cameras, want (height, width), "
                         "a number for both, or a list of pairs, one for each camera")
    return [str(name) for name in cameras], pairs


def make_batch(task, num_envs, *, pixels, state, camera, frame_stack, renderer, gl_platform,
               egl_device, action_repeat, action_repeat_reward, num_threads, seed, first_index,
               flatten, autoreset=0, mjcf=None, suite_folder=None,
               observations=None) -> _envs.EnvironmentBatch:
    """The environments of the faces' options."""
    config = _envs.TaskConfig()
    own_task = task._define() if isinstance(task, Task) else None
    config.name = task if own_task is None else task.name
    if mjcf is not None:
        config.mjcf, text = file_or_text(mjcf)
        if text:
            raise InvalidArgument("mjcf: got the text of a model, want the path of its file; "
                                  "hint: envs.Task(mjcf=...) takes a text")
    try:
        folder = pathlib.Path(suite_folder or _libraries.suite_folder())
    except TypeError:
        raise InvalidArgument(f"suite_folder: got {suite_folder!r:.80}, want a path") from None
    config.suite_folder = str(folder.expanduser())
    if observations is not None:
        if isinstance(observations, str):
            raise ValueError(f"observations: got {observations!r}, want a list of names")
        config.observations = list(observations)
    config.action_repeat = whole(action_repeat, "action_repeat")
    config.set_reward_sum(
        one_of(action_repeat_reward, "action_repeat_reward", ("sum", "mean")) == "sum")
    one_of(renderer, "renderer", ("auto", "raycast", "gl"))
    config.set_gl(
        one_of(gl_platform, "gl_platform", ("auto", "osmesa", "egl", "egl-surfaceless")),
        whole(egl_device, "egl_device", 0, 63))
    if pixels is not None:
        cameras, sizes = _cameras(pixels, camera)
        config.set_pixels(cameras, sizes, renderer, whole(frame_stack, "frame_stack"))
    has_state = pixels is None if state is None else state
    num_envs = whole(num_envs, "num_envs")
    if num_threads is None:
        num_threads = min(num_envs, len(os.sched_getaffinity(0)))
    num_threads = whole(num_threads, "num_threads")
    first_index = whole(first_index, "first_index", -2**63, 2**63 - 1)
    # the caller's thread alone is faster than one that it waits for
    batch = _envs.EnvironmentBatch(
        config, own_task, num_envs=num_envs, first_index=first_index,
        threads=num_threads if num_threads > 1 else 0, has_state=has_state,
        is_flat=flatten and has_state, autoreset=autoreset, seeds=seeds_of(seed))
    _living.add(batch)
    return batch


@atexit.register
def _finish() -> None:
    """Before Python ends, which would abort in a thread that is in a task's function."""
    for batch in list(_living):
        batch.finish()
