import enum
from collections.abc import Sequence

import mujoco
import numpy
from numpy.typing import NDArray

MUJOCO_VERSION: int


class Output(enum.Enum):
    COLOR = 0

    DEPTH = 1

    SEGMENTATION = 2


class SceneRenderer:
    def __init__(self, model: mujoco.MjModel, is_known: bool,
                 like: SceneRenderer | None) -> None: ...

    def render(self, model: mujoco.MjModel, scene: mujoco.MjvScene, output: Output, height: int,
               width: int, out: NDArray) -> None: ...

    def reload_assets(self, model: mujoco.MjModel) -> None: ...


def render_batch(renderers: Sequence[SceneRenderer], models: list[mujoco.MjModel],
                 datas: list[mujoco.MjData], cameras: Sequence[int], output: Output, height: int,
                 width: int, option: mujoco.MjvOption | None, num_threads: int,
                 out: NDArray) -> None: ...
