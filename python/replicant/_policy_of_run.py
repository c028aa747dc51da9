"""Trained policies.

    import replicant
    policy = replicant.Policy.load("runs/cheetah")
    env = policy.make_env(num_envs=16)
    observation, _ = env.reset(seed=1)
    action = policy.act(observation)
"""

import difflib
import functools
import inspect
import json
import math
import os
import pathlib
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from replicant import _make_env, _run_files
from replicant._libraries import load_onednn, mujoco_if_any, suite_folder
from replicant._scalar import seed_of
from replicant.errors import InvalidArgument, IoError

load_onednn()
with mujoco_if_any():
    from replicant import _policy

from replicant._adapter import MAX_EPISODE_STEPS, adapt  # noqa: E402

if TYPE_CHECKING:
    from replicant import envs


def _checkpoints(folder: pathlib.Path) -> list[pathlib.Path]:
    """Complete checkpoints, oldest first."""
    return sorted(path.parent for path in folder.glob("step-*/checkpoint.json"))


def _best(checkpoints: list[pathlib.Path]) -> pathlib.Path | None:
    """The one with the largest return, as evaluation::BestPolicy finds it: there may be two after a
    crash."""
    returns = {}
    for checkpoint in checkpoints:
        try:
            about = json.loads((checkpoint / "checkpoint.json").read_text(encoding="utf-8"))
            returns[checkpoint] = float(about["metadata"]["return"])
        except (OSError, ValueError, KeyError, TypeError):  # damaged, or removed meanwhile
            continue
    return max(returns, key=returns.__getitem__, default=None)


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
        if not (path / "checkpoint.json").exists():
            raise IoError(f"{given}: no checkpoint; hint: {run}, or a folder step-... in its "
                          "checkpoints or best")
        return run, path
    if which not in ("newest", "best"):
        raise InvalidArgument(f"which: got {which!r}, want 'newest' or 'best'")
    if which == "newest":
        found = max(_checkpoints(run / "checkpoints"), default=None)
        hint = "; hint: which='best'" if _checkpoints(run / "best") else ""
        missing = f"checkpoint yet{hint}"
    else:
        found = _best(_checkpoints(run / "best"))
        missing = "evaluated policy in best yet"
    if found is None:
        raise IoError(f"{given}: the run has no {missing}")
    return run, found


def _numbers(values, name: str, dtype) -> np.ndarray:
    """The values as an array. InvalidArgument for a value that the network cannot take as it is."""
    given = np.asarray(values)
    if given.dtype.kind not in "biuf":
        raise InvalidArgument(f"policy: {name} is {values!r:.80}; want numbers")
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is refused below
        array = np.ascontiguousarray(given, dtype=dtype)
    is_picture = array.dtype == np.uint8
    is_good = array == given if is_picture else np.isfinite(array)
    if not is_good.all():
        at = tuple(int(i) for i in np.argwhere(~is_good)[0])
        want = "whole numbers from 0 to 255" if is_picture else "finite numbers of float32"
        raise InvalidArgument(f"policy: {name}{list(at)} is {given[at]}; want {want}")
    return array


def _join(images: dict, observation) -> np.ndarray:
    """The bytes of all images, one image after the other: [P], or [B, P] of a batch."""
    if not isinstance(observation, Mapping) or not {*images} <= {*observation}:
        wanted = ", ".join(f'"{name}"' for name in images)
        raise InvalidArgument(f"policy: want an observation with {wanted}; hint: the run has "
                              "task.pixels.cameras")
    arrays = {name: _numbers(observation[name], name, np.uint8) for name in images}
    batch = next(iter(arrays.values())).shape[:-3]
    for name, array in arrays.items():
        if len(batch) > 1 or array.shape != (*batch, *images[name]):
            raise InvalidArgument(f"policy: got '{name}' of the shape {array.shape}, want "
                                  f"{images[name]}, or that with a batch in front, the same for "
                                  "all images")
    return np.concatenate([array.reshape(*batch, -1) for array in arrays.values()], axis=-1)


class _Stacks:
    """The last frames of an episode, the first one for those before it; oldest first."""

    def __init__(self, depth: int):
        self._depth = depth
        self._frames: list[list[np.ndarray]] = []

    def push(self, images: list[np.ndarray]) -> list[np.ndarray]:
        """Adds the newest frame of each image, [H, W, C]; returns the stacks [H, W, C depth]."""
        # copies: an environment may draw into its arrays again
        images = [np.array(image) for image in images]
        self._frames = [*self._frames[1:], images] if self._frames else [images] * self._depth
        return [np.concatenate(frames, axis=-1) for frames in zip(*self._frames, strict=True)]


class Policy:
    """The policy of a run of the workload d4pg, on this machine's processors.

    One thread at a time may use it; a forked child must load its own.
    """

    def __init__(self, core, run: pathlib.Path, checkpoint: pathlib.Path, options,
                 make_adapter=None, own=None):
        self._core = core
        self._options = options  # of load(), which a copy is made by
        self.run = run
        self.checkpoint = checkpoint
        self._dtype = np.uint8 if core.has_pixels else np.float32
        self._shape = core.observation_shape
        # of a run with make_env
        self._make_adapter = make_adapter
        self._form, self.action_dtype = own or (None, np.dtype(np.float32))

    @classmethod
    def load(cls, run_or_checkpoint: str | os.PathLike, *, which: str = "newest",
             num_threads: int = 1, make_env=None, seed: int | None = None) -> "Policy":
        """Loads the policy of a run, or of one checkpoint in it.

        which        of a run: its "newest" checkpoint, or the "best" by its evaluations
        num_threads  for the computation
        make_env     of a run that was trained with it, see replicant.train()
        seed         of act(explore=...); None: drawn by the operating system, so that each load
                     draws other noise
        """
        run, checkpoint = _find(run_or_checkpoint, which)
        task = _run_files.flat_yaml(run / "config.yaml").get("task.name", "").strip('"')
        if make_env is None and task == _make_env.TASK:
            raise InvalidArgument(f"Policy.load: {run} was trained with make_env; want it here, too: "
                                  "make_env=FUNCTION or make_env=\"FILE.py:FUNCTION\"")
        make_adapter, own = None, []
        if make_env is not None:
            make = make_env if callable(make_env) else _make_env.find(make_env)

            def make_adapter():
                adapter = adapt(make)
                own[:] = adapter.form, adapter.action_dtype
                return adapter

        core = _policy.Policy(str(run / "config.yaml"), str(checkpoint), suite_folder(),
                              num_threads, seed_of(seed), _make_env.TASK, make_adapter)
        if own:
            own[0].select(core.environment["observations"])
        options = {"num_threads": num_threads, "make_env": make_env, "seed": seed}
        return cls(core, run, checkpoint, options, make_adapter, own)

    def __repr__(self):
        return f"<replicant.Policy {self.checkpoint}>"

    def __reduce__(self):
        load = functools.partial(Policy.load, **self._options)
        return load, (self.checkpoint,)

    @property
    def step(self) -> int:
        """Updates of the learner up to the checkpoint."""
        return self._core.step

    def act(self, observation, explore: float = 0.0) -> np.ndarray:
        """Actions in the task's range, [A], or [B, A] for a batch, in the dtype of the
        environment's action space.

        observation  as the policy's environment gives it: uint8 [H, W, 3 frame_stack], or the
                     numbers [O]; a batch has B in front. A new B compiles a plan. Of a run with
                     task.pixels.state a dictionary of "pixels" and "state" [S], and with several
                     cameras one of "pixels/CAMERA" of each and that "state". Of a run with
                     make_env an observation of that environment, or its numbers; where the run
                     stacks frames, a dictionary of the stacks of its images and a "state", or
                     episode() in the place of act()
        explore      standard deviation of Gaussian noise, where the range of actions is [-1, 1];
                     0: the policy's own action. The noise is of load()'s seed
        """
        if explore is True or not 0.0 <= explore < math.inf:
            raise InvalidArgument(f"explore: got {explore!r}; want the standard deviation of the "
                                  "noise, such as 0.2")
        if self._form is not None and self._form.is_own(observation):
            observation = self._of_environment(observation)
        return self._act(observation, explore)

    def episode(self) -> Callable[..., np.ndarray]:
        """The policy of one episode of a run with make_env: a function that takes the environment's
        observations as they come, stacks their frames, and returns actions as act() does. With it a
        robot is controlled that was trained from stacked frames."""
        if self._form is None:
            raise InvalidArgument("policy: the run's environment stacks its frames itself; use act()")
        stacks = _Stacks(self._core.frame_stack)

        def act(observation, explore: float = 0.0) -> np.ndarray:
            return self._act(self._of_environment(observation, stacks), explore)

        return act

    def _of_environment(self, observation, stacks=None):
        """An observation of the run's own environment, or a batch, in the form of make_env()'s.

        stacks  of its images, for a run that stacks frames
        """
        form, images = self._form, self._core.images
        if form.images and stacks is None and self._core.frame_stack > 1:
            if isinstance(observation, Mapping) and all(
                    np.shape(observation.get(name))[-3:] == shape for name, shape in images.items()):
                return observation  # of stacks already
            raise InvalidArgument(
                f"policy: the run stacks {self._core.frame_stack} frames; want a dictionary of stacks "
                + ", ".join(f'"{name}" {shape}' for name, shape in images.items())
                + "; hint: episode() makes them")
        numbers, is_batch = form.batch(observation) if form.parts else (None, False)
        if numbers is not None and not is_batch:
            numbers = numbers[0]
        if not form.images:
            return numbers
        pixels = form.pixels(observation)
        named = dict(zip(images, pixels if stacks is None else stacks.push(pixels), strict=True))
        if self._core.state_size > 0:
            named["state"] = numbers
        return named if len(named) > 1 else next(iter(named.values()))

    def _act(self, observation, explore: float) -> np.ndarray:
        state = np.empty(0, np.float32)
        images = self._core.images
        if self._core.state_size > 0:
            if not isinstance(observation, Mapping) or not {*images, "state"} <= {*observation}:
                wanted = ", ".join(f'"{name}"' for name in images)
                raise InvalidArgument(f'policy: want an observation with {wanted} and "state"; '
                                      "hint: task.pixels.state of the run is true")
            state = _numbers(observation["state"], "the state", np.float32)
        if len(images) > 1:
            observation = _join(images, observation)
        elif images and isinstance(observation, Mapping):
            observation = observation[next(iter(images))]
        array = _numbers(observation, "the observation", self._dtype)
        is_batch = array.ndim == len(self._shape) + 1
        if array.shape[1:] != self._shape if is_batch else array.shape != self._shape:
            raise InvalidArgument(f"policy: got an observation of the shape {array.shape}, want "
                                  f"{self._shape}, or that with a batch in front")
        rows = array.shape[0] if is_batch else 1
        act = self._core.act_pixels if self._core.has_pixels else self._core.act_state
        actions = act(array, state, rows, float(explore)).astype(self.action_dtype)
        return actions if is_batch else actions[0]

    def make_env(self, num_envs: int = 1, **options) -> "envs.VectorEnv":
        """The environments that the policy was trained in; options as in envs.make_vec(). The
        environment of a run with make_env is made by that function alone. They have no
        task.randomization, task.disturbances or task.distractions of the run, with a warning: the
        program evaluator evaluates with them."""
        if self._make_adapter is not None:
            raise InvalidArgument("policy: the run's environment is made by its make_env; hint: call "
                                  "that function, or evaluate()")
        from replicant import envs

        self._warn_of_what_is_left_out()
        return envs.make_vec(num_envs=num_envs, **{**self._core.environment, **options})

    def evaluate(self, num_episodes: int = 10, *, seed: int = 0,
                 max_episode_steps: int = MAX_EPISODE_STEPS, **options) -> np.ndarray:
        """Returns of `num_episodes` episodes, float64 [num_episodes]: sums of the rewards of all
        control steps. They are the first episodes of as many environments, or with make_env those
        of one environment, which is closed afterwards.

        max_episode_steps  control steps after which an episode is cut off, with a warning
        """
        self._check_evaluate(options)
        play = self._play_task if self._make_adapter is None else self._play_own
        returns, is_cut = play(num_episodes, seed, max_episode_steps, **options)
        if is_cut:
            self._warn_of_a_cut("evaluate", max_episode_steps)
        return returns

    def _check_evaluate(self, options: Mapping) -> None:
        """InvalidArgument for an option of evaluate() that it does not have."""
        known = ["num_episodes", "seed", "max_episode_steps"]
        if self._make_adapter is None:
            from replicant import envs

            known += [*inspect.signature(envs.VectorEnv).parameters][2:]
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                meant = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
                raise InvalidArgument(f"evaluate: unknown option {name}{meant}")

    @staticmethod
    def _warn_of_a_cut(where: str, max_steps: int) -> None:
        warnings.warn(f"{where}: an episode had no end after {max_steps} control steps and is cut "
                      "off there; hint: give the environment a time limit, such as "
                      "gymnasium.wrappers.TimeLimit", stacklevel=3)

    def _warn_of_what_is_left_out(self) -> None:
        if self._core.left_out:
            warnings.warn(f"policy: environments without the run's {', '.join(self._core.left_out)}; "
                          "hint: `replicant evaluator --checkpoint RUN` evaluates with them",
                          stacklevel=3)

    def _play_task(self, num_episodes: int, seed: int, max_steps: int, **options):
        env = self.make_env(num_episodes, seed=seed, **options)
        try:
            observation, _ = env.reset()
            returns = np.zeros(num_episodes)
            is_over = np.zeros(num_episodes, bool)
            num_steps = 0
            while not is_over.all() and num_steps < max_steps:
                observation, reward, terminated, truncated, _ = env.step(self.act(observation))
                returns += np.where(is_over, 0.0, reward)
                is_over |= terminated | truncated
                num_steps += self._core.environment["action_repeat"]
            return returns, not is_over.all()
        finally:
            env.close()

    def _play_steps(self, adapter, max_steps: int):
        """Plays an episode of the run's own environment, which has been reset, or its first
        `max_steps` control steps: yields, after each step of the agent, its action, the rewards of
        its control steps, the last one's discount, and whether the episode is over."""
        act, num_steps, is_over = self.episode(), 0, False
        while not is_over and num_steps < max_steps:
            action = act(adapter.newest)
            rewards = []
            for _ in range(self._core.environment["action_repeat"]):
                _, reward, discount, is_over = adapter.step(action)
                rewards.append(reward)
                if is_over:
                    break
            num_steps += len(rewards)
            yield action, rewards, discount, is_over

    def _play_own(self, num_episodes: int, seed: int, max_steps: int):
        self._warn_of_what_is_left_out()
        adapter = self._make_adapter()
        try:
            returns, is_cut = np.zeros(num_episodes), False
            for episode in range(num_episodes):
                adapter.reset(seed + episode)
                is_over = False
                for _, rewards, _, is_over in self._play_steps(adapter, max_steps):
                    returns[episode] += sum(rewards)
                is_cut |= not is_over
            return returns, is_cut
        finally:
            adapter.close()
