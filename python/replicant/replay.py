"""A replay: step-wise writers, a service with tables, and readers of n-step transitions.

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

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from replicant import _replay
from replicant.errors import CommError, ConfigError, InvalidArgument

# An array, or a dictionary of such, by name.
Nested = Any


@dataclasses.dataclass(frozen=True)
class _Leaf:
    path: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int

    @property
    def num_bytes(self):
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def cast(self, value) -> np.ndarray:
        array = np.asarray(value, dtype=self.dtype)
        if array.shape != self.shape:
            name = "/".join(self.path) or "array"
            raise InvalidArgument(f"{name}: got the shape {array.shape}, want {self.shape}")
        return array


def _flatten(value, path=()):
    spaces = getattr(value, "spaces", value)  # of gymnasium.spaces.Dict
    if isinstance(spaces, Mapping):
        for name, part in spaces.items():
            yield from _flatten(part, (*path, str(name)))
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        yield path, tuple(int(side) for side in value.shape), np.dtype(value.dtype)
    else:
        shape, dtype = value
        yield path, tuple(shape), np.dtype(dtype)


class _Layout:
    """How nested arrays lie in a row of bytes."""

    def __init__(self, structure):
        self.leaves: list[_Leaf] = []
        offset = alignment = 0
        for path, shape, dtype in [] if structure is None else _flatten(structure):
            if dtype.hasobject:
                raise InvalidArgument(f"{'/'.join(path)}: arrays of objects cannot be stored")
            offset = -(-offset // dtype.alignment) * dtype.alignment
            leaf = _Leaf(path, shape, dtype, offset)
            self.leaves.append(leaf)
            offset += leaf.num_bytes
            alignment = max(alignment, dtype.alignment)
        self.num_bytes = -(-offset // alignment) * alignment if self.leaves else 0
        self._row = np.zeros(self.num_bytes, np.uint8)
        self._is_plain = len(self.leaves) == 1 and not self.leaves[0].path

    def pack(self, value) -> np.ndarray:
        """The bytes of one row, valid until the next call."""
        if not self.leaves:
            return self._row
        if self._is_plain:
            array = np.ascontiguousarray(self.leaves[0].cast(value))
            return array.reshape(-1).view(np.uint8)
        for leaf in self.leaves:
            part = value
            for name in leaf.path:
                part = part[name]
            end = leaf.offset + leaf.num_bytes
            self._row[leaf.offset:end] = np.ascontiguousarray(leaf.cast(part)).reshape(-1).view(
                np.uint8)
        return self._row

    def unpack(self, rows: np.ndarray):
        """Views of the rows [B, num_bytes], nested as the structure was."""
        if not self.leaves:
            return None
        nested: dict = {}
        for leaf in self.leaves:
            part = rows[:, leaf.offset:leaf.offset + leaf.num_bytes].view(leaf.dtype)
            part = part.reshape(len(rows), *leaf.shape)
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
    """

    def __init__(self, observation: Nested, action: Nested, frame: Nested = None):
        self._observation = _Layout(observation)
        self._action = _Layout(action)
        self._frame = _Layout(frame)
        self.observation_bytes = self._observation.num_bytes
        self.action_bytes = self._action.num_bytes
        self.frame_bytes = self._frame.num_bytes

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
    total_steps: int  # that all writers had inserted at the draw
    _held: Any = dataclasses.field(repr=False)

    def __len__(self):
        return len(self.reward)


class _Client:
    """What writers and readers have in common: a C++ client `_core`."""

    _core: Any

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

    endpoint      the service's
    group_steps   steps that are sent and later evicted together
    codec         of frames: "lz4", "zstd" or "none"
    queue_groups  groups that may wait to be sent; then append() waits
    """

    def __init__(self, endpoint: str, signature: Signature, *, name: str = "writer",
                 group_steps: int = 8, codec: str = "lz4", queue_groups: int = 64):
        self._signature = signature
        self._core = _replay.Writer(
            endpoint, name, **signature._bytes, group_steps=group_steps, codec=codec,
            queue_groups=queue_groups)
        self._has_frames = signature.frame_bytes > 0

    def begin(self) -> None:
        """Starts an episode; one that was not ended is dropped."""
        self._core.begin()

    def append(self, observation: Nested, action: Nested, reward: float, discount: float = 1.0, *,
               frame=None, priority: float | None = None, timeout: float | None = None) -> bool:
        """Adds step t: o_t, a_t, r_{t+1}, d_{t+1}.

        discount  0 where the episode terminates with this step, else 1
        frame     of o_t, if the signature has one
        priority  of the transition that begins here; None: the largest so far
        timeout   seconds to wait for room in the queue; None: without end

        False if the episode is lost from some step on: no room in time, or a restarted service
        that no longer knows it. The next begin() goes on.
        """
        s = self._signature
        return self._core.append(
            s._observation.pack(observation), s._action.pack(action), reward, discount,
            s._frame.pack(frame) if self._has_frames else None, priority, timeout)

    def end(self, observation: Nested, *, frame=None, timeout: float | None = None) -> bool:
        """Ends the episode with its last observation, which has no action."""
        s = self._signature
        return self._core.end(s._observation.pack(observation),
                              s._frame.pack(frame) if self._has_frames else None, timeout)

    def flush(self, timeout: float | None = None) -> bool:
        """Waits until the service has all full groups; False if it has not in time."""
        return self._core.flush(timeout)


class Reader(_Client):
    """Draws batches ahead of time.

    endpoints            one service, or several that are drawn from by their mass
    table                the table's name
    prefetch             batches that are requested, under way or ready
    decode_threads       threads that decompress and stack frames
    importance_exponent  of the importance weights, in [0, 1]
    shares_memory        lets services of this host write into the reader's memory
    seed                 of the choice among services
    """

    def __init__(self, endpoints: str | Sequence[str], signature: Signature, *,
                 batch_size: int = 256, table: str = "default", name: str = "reader",
                 prefetch: int = 2, decode_threads: int = 1, importance_exponent: float = 0.0,
                 shares_memory: bool = True, seed: int = 0):
        self._signature = signature
        self._core = _replay.Reader(
            [endpoints] if isinstance(endpoints, str) else list(endpoints), name,
            **signature._bytes, table=table, batch_size=batch_size, prefetch=prefetch,
            decode_threads=decode_threads if signature.frame_bytes else 1,
            importance_exponent=importance_exponent, shares_memory=shares_memory, seed=seed)

    def sample(self, timeout: float | None = None) -> Batch | None:
        """The next batch; None if there is none within `timeout` seconds."""
        held = self._core.sample(timeout)
        if held is None:
            return None
        arrays = _replay.arrays_of(held)
        s = self._signature
        frames = next_frames = None
        if s.frame_bytes:
            shape = (held.size, held.stack, *s._frame.leaves[0].shape)
            dtype = s._frame.leaves[0].dtype
            frames = arrays["frames"].view(dtype).reshape(shape)
            next_frames = arrays["next_frames"].view(dtype).reshape(shape)
        return Batch(
            observation=s._observation.unpack(arrays["observation"]),
            action=s._action.unpack(arrays["action"]),
            reward=arrays["reward"], discount=arrays["discount"],
            next_observation=s._observation.unpack(arrays["next_observation"]),
            frames=frames, next_frames=next_frames, weight=arrays["weight"],
            probability=arrays["probability"], priority=arrays["priority"],
            times_sampled=arrays["times_sampled"], total_steps=held.total_steps, _held=held)

    def update_priorities(self, batch: Batch, priorities) -> None:
        """Sends a new priority for each item of `batch`; does not wait."""
        self._core.update(batch._held, np.ascontiguousarray(priorities, dtype=np.float32))

    def checkpoint(self, id: int, timeout: float | None = None) -> bool:
        """Has every service save checkpoint `id` > 0; False if it is not saved in time."""
        return self._core.checkpoint(id, timeout)


class _Child:
    """A service in a child process, which ends with this one."""

    def __init__(self, yaml: str):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "replicant._replay_child"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._process.stdin.write(yaml + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the child process has ended"}
        if "error" in answer:
            self._process.stdin.close()
            self._process.wait()
            kind = {"ConfigError": ConfigError, "InvalidArgument": InvalidArgument}
            raise kind.get(answer.get("kind"), CommError)(answer["error"])
        self.endpoint = answer["endpoint"]
        self.pid = self._process.pid

    def close(self):
        if self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait()


class Replay:
    """A replay service; see start(). Any process of this host may connect to `endpoint`."""

    def __init__(self, server, signature: Signature):
        self._server = server
        self.signature = signature
        self.endpoint: str = server.endpoint

    @classmethod
    def start(cls, signature: Signature, tables: Mapping[str, Mapping[str, Any]] | None = None, *,
              process: str = "thread", **options) -> "Replay":
        """Starts a service.

        tables   by name: sampler ("prioritized", "uniform", "fifo", "lifo"), priority_exponent,
                 remover ("fifo", "lifo", "lowest_priority"), max_size, max_times_sampled, n_step,
                 discount, stack, rate_limiter {mode ("ratio", "min_size", "queue"), ...}. Here a
                 table without rate_limiter gives samples from its first item on. None: one table
                 "default". Every step goes to all tables
        process  "thread": in threads of this process; "child": in a child process, which ends when
                 this one does
        options  further keys of the section replay in configs/reference.yaml: max_bytes, bind,
                 checkpoint_folder, durability, seed, ...
        """
        if process not in ("thread", "child"):
            raise InvalidArgument(f"process: got {process!r}, want 'thread' or 'child'")
        defaults = {"rate_limiter": {"mode": "min_size", "min_size_to_sample": 1}}
        sections = {name: {**defaults, **table}
                    for name, table in (tables or {"default": {}}).items()}
        # JSON is YAML
        yaml = json.dumps({**signature._bytes, **options, "tables": sections})
        return cls(_replay.Server(yaml) if process == "thread" else _Child(yaml), signature)

    def writer(self, **options) -> Writer:
        return Writer(self.endpoint, self.signature, **options)

    def reader(self, **options) -> Reader:
        return Reader(self.endpoint, self.signature, **options)

    def status(self, timeout: float = 5.0) -> dict[str, Any]:
        """Memory, rates, peers and tables; docs/replay_protocol.md lists the fields."""
        return status(self.endpoint, timeout)

    def close(self) -> None:
        """Ends the service. With a checkpoint folder it saves a checkpoint."""
        self._server.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def status(endpoint: str, timeout: float = 5.0) -> dict[str, Any]:
    """The status of the service at `endpoint`."""
    return json.loads(_replay.status(endpoint, timeout))
