from collections.abc import Callable
from typing import Any

import numpy
from numpy.typing import NDArray


class Policy:
    def __init__(
            self, config_file: str, checkpoint: str, suite_folder: str, threads: int,
            seed: int, own_task: str, make_adapter: Callable[[], Any] | None) -> None: ...

    def act_pixels(
            self, observations: NDArray[numpy.uint8], states: NDArray[numpy.float32],
            rows: int, noise_scale: float) -> NDArray[numpy.float64]: ...

    def act_state(
            self, observations: NDArray[numpy.float32], states: NDArray[numpy.float32],
            rows: int, noise_scale: float) -> NDArray[numpy.float64]: ...

    @property
    def step(self) -> int: ...

    @property
    def has_pixels(self) -> bool: ...

    @property
    def images(self) -> dict[str, tuple[int, ...]]: ...

    @property
    def frame_stack(self) -> int: ...

    @property
    def state_size(self) -> int: ...

    @property
    def observation_shape(self) -> tuple[int, ...]: ...

    @property
    def environment(self) -> dict[str, Any]: ...
    @property
    def left_out(self) -> list[str]: ...
