"""Trained policies.

    import replicant
    policy = replicant.Policy.load("runs/cheetah")
    env = policy.make_env(num_envs=16)
    observation, _ = env.reset(seed=1)
    action = policy.act(observation)
"""

import functools
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from replicant._libraries import load_mujoco, load_onednn, suite_folder
from replicant.errors import InvalidArgument, IoError

load_mujoco()
load_onednn()

from replicant import _own_environment, _policy, envs  # noqa: E402
from replicant._adapter import adapt  # noqa: E402


def _checkpoints(folder: pathlib.Path) -> list[pathlib.Path]:
    """Complete checkpoints, oldest first."""
    return sorted(path.parent for path in folder.glob("step-*/checkpoint.json"))


def _find(given, which: str) -> tuple[pathlib.Path, pathlib.Path]:
    """The folder of the run and of the checkpoint that `given` names."""
    path = pathlib.Path(given).resolve()
    if not path.exists():
        raise IoError(f"{given}: no such folder")
    run = next((p for p in (path, *path.parents) if (p / "config.yaml").exists()), None)
    if run is None:
        raise IoError(f"{given}: neither the folder of a run, which has a config.yaml, nor a "
                      "checkpoint in one")
    if path != run:
        return run, path
    if which not in ("newest", "best"):
        raise InvalidArgument(f"which: got {which!r}, want 'newest' or 'best'")
    found = _checkpoints(run / ("checkpoints" if which == "newest" else "best"))
    if not found:
        raise IoError(f"{given}: the run has no {which} checkpoint yet")
    return run, found[-1]


class Policy:
    """The policy of a run of the workload d4pg, on this machine's processors.

    One thread at a time may use it; a forked child must load its own.
    """

    def __init__(self, core, run: pathlib.Path, checkpoint: pathlib.Path):
        self._core = core
        self.run = run
        self.checkpoint = checkpoint
        self._dtype = np.uint8 if core.has_pixels else np.float32
        self._shape = core.observation_shape

    @classmethod
    def load(cls, run_or_checkpoint: str | os.PathLike, *, which: str = "newest",
             num_threads: int = 1, make_env=None) -> "Policy":
        """Loads the policy of a run, or of one checkpoint in it.

        which        of a run: its "newest" checkpoint, or the "best" by its evaluations
        num_threads  for the computation
        make_env     of a run that was trained with it, see replicant.train()
        """
        run, checkpoint = _find(run_or_checkpoint, which)
        make_adapter = None
        if make_env is not None:
            make = _own_environment.find(_own_environment.name_of(make_env))
            make_adapter = functools.partial(adapt, make)

        core = _policy.Policy(str(run / "config.yaml"), str(checkpoint), suite_folder(),
                              num_threads, _own_environment.TASK, make_adapter)
        return cls(core, run, checkpoint)

    @property
    def step(self) -> int:
        """Updates of the learner up to the checkpoint."""
        return self._core.step

    def act(self, observation, explore: float = 0.0) -> np.ndarray:
        """Actions in the task's range, float64 [A], or [B, A] for a batch.

        observation  as the policy's environment gives it: uint8 [H, W, 3 frame_stack], or the
                     numbers [O]; a batch has B in front. A new B compiles a plan. Of a run with
                     task.pixels.state a dictionary of "pixels" and "state" [S]
        explore      standard deviation of Gaussian noise, where the range of actions is [-1, 1];
                     0: the policy's own action
        """
        if explore is True:
            raise InvalidArgument("explore: give the standard deviation of the noise, such as 0.2")
        state = np.empty(0, np.float32)
        if self._core.state_size > 0:
            if not isinstance(observation, Mapping) or not {"pixels", "state"} <= {*observation}:
                raise InvalidArgument('policy: want an observation with "pixels" and "state"; '
                                      "hint: task.pixels.state of the run is true")
            state = np.ascontiguousarray(observation["state"], dtype=np.float32)
            observation = observation["pixels"]
        array = np.ascontiguousarray(observation, dtype=self._dtype)
        is_batch = array.ndim == len(self._shape) + 1
        if array.shape[1:] != self._shape if is_batch else array.shape != self._shape:
            raise InvalidArgument(f"policy: got an observation of the shape {array.shape}, want "
                                  f"{self._shape}, or that with a batch in front")
        rows = array.shape[0] if is_batch else 1
        act = self._core.act_pixels if self._core.has_pixels else self._core.act_state
        actions = act(array, state, rows, float(explore))
        return actions if is_batch else actions[0]

    def make_env(self, num_envs: int = 1, **options) -> envs.VectorEnv:
        """The environments that the policy was trained in; options as in envs.make_vec().
        Environments of one's own have to be made by their own function."""
        return envs.make_vec(num_envs=num_envs, **{**self._core.environment, **options})

    def evaluate(self, num_episodes: int = 10, *, seed: int = 0, **options) -> np.ndarray:
        """Returns of the first episodes of `num_episodes` environments, float64 [num_episodes]:
        sums of the rewards of all control steps."""
        env = self.make_env(num_episodes, seed=seed, **options)
        observation, _ = env.reset()
        returns = np.zeros(num_episodes)
        is_over = np.zeros(num_episodes, bool)
        while not is_over.all():
            observation, reward, terminated, truncated, _ = env.step(self.act(observation))
            returns += np.where(is_over, 0.0, reward)
            is_over |= terminated | truncated
        return returns
