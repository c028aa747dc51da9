"""A replay: step-wise writers, a service with tables, and readers of n-step transitions or of
windows of successive steps.

    from replicant import replay
    signature = replay.Signature(observation=env.single_observation_space,
                                 action=env.single_action_space)
    with replay.Replay.start(signature, tables={"default": {"n_step": 3}}) as service:
        writer = service.writer()
        reader = service.reader(batch_size=256)
        writer.begin()
        writer.append(observation, action, reward)
        ...
        writer.end(last_observation)
        batch = reader.sample()

Replay     a service in threads of this process, or in a child process
Writer     streams the steps of one environment to a service
Reader     draws batches from one or more services, ahead of time
Signature  the names, shapes and types of a step

Every wait ends with Ctrl-C. Objects of this module belong to the process that made them: in a
forked child a call raises Error.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from replicant import _process, _replay, errors
from replicant._closed import NoCopy
from replicant._scalar import number_of
from replicant.errors import CommError, InvalidArgument

# An array, or a dictionary of such, by name.
Nested = Any
Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class _Leaf:
    name: str  # in errors
    path: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int

    @property
    def num_bytes(self):
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def cast(self, value) -> np.ndarray:
        """The value in this type. InvalidArgument if it has another shape or does not fit: floats
        are rounded to floats, never to integers, and integers stay as they are."""
        name = self.name
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InvalidArgument(f"{name}: {error}") from None
        if array.shape != self.shape:
            raise InvalidArgument(f"{name}: got the shape {array.shape}, want {self.shape}")
        if array.dtype == self.dtype or array.size == 0:
            return self._checked(array.astype(self.dtype, copy=False), array)
        if array.dtype.kind in "iu" and self.dtype.kind in "biu":
            is_bool = self.dtype.kind == "b"
            low, high = (0, 1) if is_bool else (np.iinfo(self.dtype).min, np.iinfo(self.dtype).max)
            if array.min() < low or array.max() > high:
                raise InvalidArgument(f"{name}: got {array.min()} to {array.max()}, want "
                                      f"{self.dtype}, {low} to {high}")
        elif not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise InvalidArgument(f"{name}: got {array.dtype}, want {self.dtype}")
        with np.errstate(over="ignore"):  # it becomes an infinity
            return self._checked(array.astype(self.dtype), array)

    def _checked(self, array: np.ndarray, given: np.ndarray) -> np.ndarray:
        """One NaN in a replay ruins every network that learns from it. Extras may have any number:
        logarithms of 0, say."""
        if self.dtype.kind != "f" or self.name.startswith("extra") or np.isfinite(array).all():
            return array
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InvalidArgument(f"{self.name}{list(at) if at else ''}: got {given[at]}, want finite "
                              f"numbers of {self.dtype}")


def _join(*names):
    return "/".join(name for name in names if name)


def _flatten(root, value, path=()):
    """The path, shape and type of each array; `root` is what errors call the structure."""
    spaces = getattr(value, "spaces", value)  # of gymnasium.spaces.Dict
    if isinstance(spaces, Mapping):
        for name, part in spaces.items():
            yield from _flatten(root, part, (*path, str(name)))
        return
    try:
        shape, dtype = (value.shape, value.dtype) if hasattr(value, "shape") else value
        shape, dtype = tuple(int(side) for side in shape), np.dtype(dtype)
        is_storable = min(shape, default=0) >= 0 and not dtype.hasobject
    except (TypeError, ValueError):
        is_storable = False
    if not is_storable:
        raise InvalidArgument(
            f"{_join(root, *path)}: got {type(value).__name__} {value!r:.100}, want an array, a "
            "space, a spec, a pair (shape, dtype), or a dictionary of these")
    yield path, shape, dtype


def _check_given(name, value, is_wanted):
    if is_wanted != (value is not None):
        raise InvalidArgument(f"{name}: got {'none' if value is None else 'one'}, the signature "
                              f"has {'one' if is_wanted else 'none'}")


class _Layout:
    """How nested arrays lie in a row of bytes."""

    def __init__(self, name, structure):
        self.leaves: list[_Leaf] = []
        offset = alignment = 0
        for path, shape, dtype in [] if structure is None else _flatten(name, structure):
            offset = -(-offset // dtype.alignment) * dtype.alignment
            leaf = _Leaf(_join(name, *path), path, shape, dtype, offset)
            self.leaves.append(leaf)
            offset += leaf.num_bytes
            alignment = max(alignment, dtype.alignment)
        self.num_bytes = -(-offset // alignment) * alignment if self.leaves else 0
        self._is_plain = len(self.leaves) == 1 and not self.leaves[0].path

    def pack(self, value) -> np.ndarray:
        """The bytes of one row. Writers in several threads share a layout: it keeps no row."""
        if self._is_plain:
            array = np.ascontiguousarray(self.leaves[0].cast(value))
            return array.reshape(-1).view(np.uint8)
        row = np.zeros(self.num_bytes, np.uint8)
        for leaf in self.leaves:
            part = value
            for name in leaf.path:
                try:
                    part = part[name]
                except (KeyError, IndexError, TypeError):
                    given = list(part) if isinstance(part, Mapping) else type(part).__name__
                    raise InvalidArgument(f"{leaf.name}: got {given}, want a dictionary with "
                                          f"'{name}'") from None
            end = leaf.offset + leaf.num_bytes
            row[leaf.offset:end] = np.ascontiguousarray(leaf.cast(part)).reshape(-1).view(np.uint8)
        return row

    def unpack(self, rows: np.ndarray):
        """Views of the rows [..., num_bytes], nested as the structure was."""
        if not self.leaves:
            return None
        nested: dict = {}
        for leaf in self.leaves:
            part = rows[..., leaf.offset:leaf.offset + leaf.num_bytes].view(leaf.dtype)
            part = part.reshape(*rows.shape[:-1], *leaf.shape)
            if not leaf.path:
                return part
            inner = nested
            for name in leaf.path[:-1]:
                inner = inner.setdefault(name, {})
            inner[leaf.path[-1]] = part
        return nested


class Signature:
    """Names, shapes and types of a step: nested dictionaries of whatever has `shape` and `dtype`
    (arrays, Gymnasium's spaces, dm_env's specs), or of pairs (shape, dtype).

    observation  what is stored with every step and returned for o_t and o_{t+n}
    action       what is stored with every step
    frame        uint8 pixels of one frame, compressed; tables stack the last ones. None: none
    extra        what else is stored with every observation, such as the state of a recurrent
                 network before it sees that observation. None: none
    """

    def __init__(self, observation: Nested, action: Nested, frame: Nested = None,
                 extra: Nested = None):
        self.has_extra = extra is not None
        # one row for both
        both = {} if observation is None else {"observation": observation}
        self._observation = (_Layout("", {**both, "extra": extra}) if self.has_extra
                             else _Layout("observation", observation))
        self._action = _Layout("action", action)
        self._frame = _Layout("frame", frame)
        if len(self._frame.leaves) > 1:
            raise InvalidArgument(f"frame: got {len(self._frame.leaves)} arrays, want one")
        self.observation_bytes = self._observation.num_bytes
        self.action_bytes = self._action.num_bytes
        self.frame_bytes = self._frame.num_bytes

    def _pack_observation(self, observation, extra) -> np.ndarray:
        _check_given("extra", extra, self.has_extra)
        if not self.has_extra:
            return self._observation.pack(observation)
        return self._observation.pack({"observation": observation, "extra": extra})

    def _pack_frame(self, frame) -> np.ndarray | None:
        _check_given("frame", frame, self.frame_bytes > 0)
        return None if frame is None else self._frame.pack(frame)

    def _unpack_observation(self, rows: np.ndarray) -> tuple[Nested, Nested]:
        """Observations and extras of the rows [..., observation_bytes]."""
        both = self._observation.unpack(rows)
        return (both.get("observation"), both["extra"]) if self.has_extra else (both, None)

    @property
    def _bytes(self):
        return {"observation_bytes": self.observation_bytes, "action_bytes": self.action_bytes,
                "frame_bytes": self.frame_bytes}


@dataclasses.dataclass
class Batch:
    """B transitions. The arrays share the reader's memory, which is used again once nothing refers
    to any of them.

    reward, discount   float32 [B]: R = sum of the n rewards, each discounted, and the discount D of
                       the bootstrap at o_{t+n}: 0 where the episode terminated
    frames             uint8 [B, stack, ...] of o_t, oldest first; None without frames
    weight             float32 [B]: importance weights, the largest is 1
    probability        float64 [B]: of each draw
    priority           float32 [B]: when drawn
    times_sampled      int64 [B]: this draw included
    """

    observation: Nested
    action: Nested
    reward: np.ndarray
    discount: np.ndarray
    next_observation: Nested
    frames: np.ndarray | None
    next_frames: np.ndarray | None
    weight: np.ndarray
    probability: np.ndarray
    priority: np.ndarray
    times_sampled: np.ndarray
    extra: Nested  # of o_t, and of o_{t+n}; None without extra in the signature
    next_extra: Nested
    total_steps: int  # that all writers had inserted at the draw
    _held: Any = dataclasses.field(repr=False)

    def __len__(self):
        return len(self.reward)


@dataclasses.dataclass
class Windows:
    """B windows of H steps in a row. The arrays share the reader's memory, as in Batch.

    A window that reaches the end of its episode has fewer steps; what lies beyond them is zero.

    observation, extra  [B, H + 1, ...] of o_t ... o_{t+H}
    action              [B, H, ...]
    reward, discount    float32 [B, H]: r and d of each step; d is 0 where the episode terminated,
                        1 where it was cut off
    mask                bool [B, H]: the steps that the window has
    frames              uint8 [B, H + stack, ...]: each frame once, oldest first; None without
                        frames. stacks() has them for each observation
    weight, probability, priority, times_sampled  [B], as in Batch
    """

    observation: Nested
    action: Nested
    reward: np.ndarray
    discount: np.ndarray
    mask: np.ndarray
    frames: np.ndarray | None
    weight: np.ndarray
    probability: np.ndarray
    priority: np.ndarray
    times_sampled: np.ndarray
    extra: Nested
    total_steps: int  # that all writers had inserted at the draw
    _held: Any = dataclasses.field(repr=False)

    def __len__(self):
        return len(self.reward)

    def stacks(self) -> np.ndarray:
        """The stacks of every observation, [B, H + 1, stack, ...]: a read-only view of frames."""
        if self.frames is None:
            raise InvalidArgument("stacks: the signature has no frame")
        stacks = np.lib.stride_tricks.sliding_window_view(self.frames, self._held.stack, axis=1)
        return np.moveaxis(stacks, -1, 2)


class _Client(NoCopy):
    """The common part of writers and readers: a C++ client `_core`."""

    _core: Any
    _instead = "connect another one to the same endpoint"

    @property
    def metrics(self) -> dict[str, Any]:
        """Counts since the client was made."""
        return self._core.metrics

    def close(self) -> None:
        """Ends the connection; a writer drops what is not sent, and the open episode."""
        self._core.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Writer(_Client):
    """Streams the steps of one environment. Steps are sent in groups, in the background.

    endpoint         the service's
    group_steps      steps that are sent and later evicted together
    codec            of frames: "lz4", "zstd" or "none"
    queue_groups     groups that may wait to be sent; then append() waits
    key_file         file of the client's CURVE key pair; "": no keys
    server_key_file  file of the service's public key; "": the client pair's key
    """

    def __init__(self, endpoint: str, signature: Signature, *, name: str = "writer",
                 group_steps: int = 16, codec: str = "lz4", queue_groups: int = 64,
                 key_file: Path = "", server_key_file: Path = ""):
        self._signature = signature
        self._core = _replay.Writer(
            endpoint, name, **signature._bytes, group_steps=group_steps, codec=codec,
            queue_groups=queue_groups, key_file=str(key_file),
            server_key_file=str(server_key_file))

    def begin(self) -> None:
        """Starts an episode; one that was not ended is dropped."""
        self._core.begin()

    def append(self, observation: Nested, action: Nested, reward: float, discount: float = 1.0, *,
               frame=None, extra: Nested = None, priority: float | None = None,
               timeout: float | None = None) -> bool:
        """Adds step t: o_t, a_t, r_{t+1}, d_{t+1}.

        reward    a number, or an array of one; discount and priority, too
        discount  0 where the episode terminates with this step, else 1
        frame     of o_t, if the signature has one
        extra     of o_t, if the signature has one
        priority  of the item that begins here; None: the largest so far
        timeout   seconds to wait for room in the queue; None: without end

        False if the episode is lost from some step on: no room in time, or a restarted service
        that no longer knows it. Continue with the next begin(). InvalidArgument for a step that
        does not fit, such as one with a reward or an observation of NaN; the episode continues
        without it.
        """
        s = self._signature
        return self._core.append(
            s._pack_observation(observation, extra), s._action.pack(action),
            number_of(reward, "reward"), number_of(discount, "discount"), s._pack_frame(frame),
            None if priority is None else number_of(priority, "priority"), timeout)

    def end(self, observation: Nested, *, frame=None, extra: Nested = None,
            timeout: float | None = None) -> bool:
        """Ends the episode with its last observation, which has no action."""
        s = self._signature
        return self._core.end(s._pack_observation(observation, extra), s._pack_frame(frame),
                              timeout)

    def flush(self, timeout: float | None = None) -> bool:
        """Waits until the service has all full groups; False if that takes too long."""
        return self._core.flush(timeout)


class Reader(_Client):
    """Draws batches ahead of time.

    endpoints            one service, or several that are drawn from by their mass
    table                the table's name
    prefetch             batches that are requested, under way or ready
    decode_threads       threads that decompress and stack frames
    importance_exponent  of the importance weights, in [0, 1]
    shares_memory        lets services of this host write into the reader's memory
    frame_store_bytes    memory for frames that the reader keeps, so that none travels twice; 0:
                         every batch brings its frames
    seed                 of the choice among services
    key_file             file of the client's CURVE key pair; "": no keys
    server_key_file      file of the services' public key; "": the client pair's key
    """

    def __init__(self, endpoints: str | Sequence[str], signature: Signature, *,
                 batch_size: int = 256, table: str = "default", name: str = "reader",
                 prefetch: int = 4, decode_threads: int = 1, importance_exponent: float = 0.0,
                 shares_memory: bool = True, frame_store_bytes: int = 0, seed: int = 0,
                 key_file: Path = "", server_key_file: Path = ""):
        self._signature = signature
        self._core = _replay.Reader(
            [endpoints] if isinstance(endpoints, str) else list(endpoints), name,
            **signature._bytes, table=table, batch_size=batch_size, prefetch=prefetch,
            decode_threads=decode_threads if signature.frame_bytes else 1,
            importance_exponent=importance_exponent, shares_memory=shares_memory,
            frame_store_bytes=frame_store_bytes, seed=seed, key_file=str(key_file), server_key_file=str(server_key_file))

    def sample(self, timeout: float | None = None) -> Batch | Windows | None:
        """The next batch, of windows if the table has them; None if there is none within `timeout`
        seconds."""
        held = self._core.sample(timeout)
        if held is None:
            return None
        arrays = _replay.arrays_of(held)
        both = {name: arrays[name]
                for name in ("reward", "discount", "weight", "probability", "priority",
                             "times_sampled")}
        both.update(total_steps=held.total_steps, _held=held)
        unpack = self._unpack_windows if held.window else self._unpack_transitions
        return unpack(held, arrays, both)

    def _unpack_transitions(self, held, arrays, both) -> Batch:
        s = self._signature
        observation, extra = s._unpack_observation(arrays["observation"])
        next_observation, next_extra = s._unpack_observation(arrays["next_observation"])
        return Batch(
            observation=observation, action=s._action.unpack(arrays["action"]),
            next_observation=next_observation,
            frames=self._frames(arrays["frames"], held.stack),
            next_frames=self._frames(arrays["next_frames"], held.stack),
            extra=extra, next_extra=next_extra, **both)

    def _unpack_windows(self, held, arrays, both) -> Windows:
        s, size, window = self._signature, held.size, held.window
        observation, extra = s._unpack_observation(
            arrays["observation"].reshape(size, window + 1, s.observation_bytes))
        return Windows(
            observation=observation, extra=extra,
            action=s._action.unpack(
                arrays["action"].reshape(size, window, s.action_bytes)),
            mask=np.arange(window) < arrays["num_steps"][:, None],
            frames=self._frames(arrays["frames"], window + held.stack), **both)

    def _frames(self, rows, count: int) -> np.ndarray | None:
        """The `count` frames of each row."""
        if not self._signature.frame_bytes:
            return None
        leaf = self._signature._frame.leaves[0]
        return rows.view(leaf.dtype).reshape(len(rows), count, *leaf.shape)

    def update_priorities(self, batch: Batch | Windows, priorities) -> None:
        """Sends a new priority for each item of `batch`, which this reader drew; does not wait."""
        given = np.asarray(priorities)
        if given.dtype.kind not in "biuf" or given.shape != (len(batch),):
            raise InvalidArgument(f"priorities: got {given.dtype} {list(given.shape)}, want a number "
                                  f"for each item of the batch, [{len(batch)}]")
        with np.errstate(over="ignore"):  # the reader refuses infinity
            self._core.update(batch._held, np.ascontiguousarray(given, dtype=np.float32))

    def checkpoint(self, id: int, timeout: float | None = None) -> bool:
        """Has every service save checkpoint `id` > 0; False if it is not saved in time."""
        return self._core.checkpoint(id, timeout)


class _Child:
    """A service in a child process. It ends when this process does, because its input ends then."""

    _all = weakref.WeakSet()

    def __init__(self, yaml: str):
        self._process = subprocess.Popen(
            _process.python("replicant._replay_child"), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True,
            env=_process.environment())
        self._all.add(self)
        self._process.stdin.write(yaml + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if not answer:
            self.close()
            raise CommError("the child process has ended")
        self.endpoint = answer["endpoint"]
        self.pid = self._process.pid

    def _read(self) -> dict[str, Any]:
        """The next line of the child, empty at its end. Raises the error that it tells."""
        answer = json.loads(self._process.stdout.readline() or "{}")
        if "error" in answer:
            self._process.wait()
            raise getattr(errors, answer["kind"])(answer["error"])
        return answer

    def close(self):
        if self._process.poll() is None:
            with contextlib.suppress(BrokenPipeError):  # it has just ended
                print("close", file=self._process.stdin, flush=True)
            self._read()
            self._process.wait()

    @classmethod
    def leave_inputs(cls):
        """In a fork: holds no input of a child open."""
        for child in cls._all:
            child._process.stdin.close()


os.register_at_fork(after_in_child=_Child.leave_inputs)


def _to_json(value):
    """What json.dumps() does not know."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidArgument(f"Replay.start: got {type(value).__name__} {value!r:.100}, want numbers, "
                          "strings, paths, lists and dictionaries")


class Replay(NoCopy):
    """A replay service; see start(). Any process of this host may connect to `endpoint`."""

    _instead = "connect to its endpoint"

    def __init__(self, server, signature: Signature):
        self._server = server
        self.signature = signature
        self.endpoint: str = server.endpoint
        # also when Python ends while a daemon thread holds the service
        weakref.finalize(self, server.close)

    @classmethod
    def start(cls, signature: Signature, tables: Mapping[str, Mapping[str, Any]] | None = None, *,
              process: str = "thread", **options) -> "Replay":
        """Starts a service.

        tables   by name: sampler ("prioritized", "uniform", "fifo", "lifo"), priority_exponent,
                 priority_fade {base, floor}, remover ("fifo", "lifo", "lowest_priority"), max_size,
                 max_times_sampled, n_step and discount or window and period, stack, rate_limiter
                 {mode ("ratio", "min_size", "queue"), ...}. Here a table without rate_limiter gives
                 samples from its first item on. None: one table "default". Every step goes to all
                 tables
        process  "thread": in threads of this process; "child": in a child process, which ends when
                 this one does
        options  further keys of the section replay in configs/reference.yaml: max_bytes, bind,
                 checkpoint_folder, durability, seed, ...; all but shards
        """
        if process not in ("thread", "child"):
            raise InvalidArgument(f"process: got {process!r}, want 'thread' or 'child'")
        defaults = {"rate_limiter": {"mode": "min_size", "min_size_to_sample": 1}}
        sections = {name: {**defaults, **table}
                    for name, table in (tables or {"default": {}}).items()}
        # JSON is YAML
        yaml = json.dumps({**signature._bytes, **options, "tables": sections}, default=_to_json)
        return cls(_replay.Server(yaml) if process == "thread" else _Child(yaml), signature)

    def writer(self, **options) -> Writer:
        return Writer(self.endpoint, self.signature, **options)

    def reader(self, **options) -> Reader:
        return Reader(self.endpoint, self.signature, **options)

    def status(self, timeout: float = 5.0, **keys) -> dict[str, Any]:
        """Memory, rates, peers and tables; docs/replay_protocol.md lists the fields. Keys: see
        Reader."""
        return status(self.endpoint, timeout, **keys)

    def close(self) -> None:
        """Ends the service and frees its address. With a checkpoint folder it saves a checkpoint;
        IoError if it cannot. A service in threads tries again at the next call."""
        self._server.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def make_keys(key_file: Path, public_key_file: Path) -> None:
    """Writes a new CURVE key pair, readable by its owner alone, and its public key."""
    _replay.make_keys(str(key_file), str(public_key_file))


def status(endpoint: str, timeout: float = 5.0, *, key_file: Path = "",
           server_key_file: Path = "") -> dict[str, Any]:
    """The status of the service at `endpoint`. Keys: see Reader."""
    return json.loads(_replay.status(endpoint, timeout, str(key_file), str(server_key_file)))
