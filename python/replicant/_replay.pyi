from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray


class Writer:
    def __init__(
            self, endpoint: str, name: str, observation_bytes: int, action_bytes: int,
            frame_bytes: int, group_steps: int, codec: str, queue_groups: int, key_file: str,
            server_key_file: str) -> None: ...

    def begin(self) -> None: ...

    def append(
            self, observation: NDArray[numpy.uint8], action: NDArray[numpy.uint8], reward: float,
            discount: float, frame: NDArray[numpy.uint8] | None, priority: float | None,
            timeout_s: float | None) -> bool: ...

    def end(
            self, observation: NDArray[numpy.uint8], frame: NDArray[numpy.uint8] | None,
            timeout_s: float | None) -> bool: ...

    def flush(self, timeout_s: float | None) -> bool: ...

    def close(self) -> None: ...

    @property
    def metrics(self) -> dict[str, Any]: ...


class HeldBatch:
    @property
    def size(self) -> int: ...

    @property
    def stack(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def total_steps(self) -> int: ...


def arrays_of(held: HeldBatch) -> dict[str, numpy.ndarray]: ...


class Reader:
    def __init__(
            self, endpoints: Sequence[str], name: str, observation_bytes: int, action_bytes: int,
            frame_bytes: int, table: str, batch_size: int, prefetch: int, decode_threads: int,
            importance_exponent: float, shares_memory: bool, frame_store_bytes: int, seed: int,
            key_file: str, server_key_file: str) -> None: ...

    def sample(self, timeout_s: float | None) -> HeldBatch | None: ...

    def update(self, batch: HeldBatch, priorities: NDArray[numpy.float32]) -> None: ...

    def checkpoint(self, id: int, timeout_s: float | None) -> bool: ...

    def close(self) -> None: ...

    @property
    def metrics(self) -> dict[str, Any]: ...


class Server:
    def __init__(self, yaml: str) -> None: ...

    @property
    def endpoint(self) -> str: ...

    def close(self) -> None: ...


def make_keys(key_file: str, public_key_file: str) -> None: ...


def status(
        endpoint: str, timeout_s: float, key_file: str, server_key_file: str) -> str: ...
