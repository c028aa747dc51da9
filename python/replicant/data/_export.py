"""Data sets of what was recorded, or of what a run has collected, for others."""

import contextlib
import dataclasses
import importlib
import math
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from replicant._adapter import MAX_EPISODE_STEPS
from replicant.data import _recording, _yaml
from replicant.data._episode import Recorded
from replicant.data._replay_folder import ReplayFolder
from replicant.errors import ConfigError, IoError

# with the modules of their writers
FORMATS = {"minari": "_minari", "lerobot": "_lerobot_writer"}


class _Recording:
    """The episodes of a recording."""

    def __init__(self, folder):
        self._source = _recording.Source(str(folder))
        self.bounds = self._source.bounds
        self.frames_per_second = self._source.frames_per_second
        if self.bounds is None:
            raise ConfigError(f"{folder}: its actions have no bounds, which the format needs")

    def __len__(self):
        return len(self._source)

    def episodes(self) -> Iterator[Recorded]:
        for index in range(len(self._source)):
            episode = self._source.episode(index, None)
            names = [name for name in episode.columns if name.partition("/")[0] == "observation"]
            yield Recorded(
                observations={name.partition("/")[2]: episode.columns[name] for name in names},
                action=episode.columns["action"], reward=episode.columns["reward"],
                terminated=bool(episode.terminated))

    def close(self) -> None:
        self._source.close()


@dataclasses.dataclass
class _Steps:
    """What a run's environment tells of its steps.

    numbers, images  (name, shape) of the arrays that an observation has, as a replay joins them
    low, high        of the actions
    frames_per_second  of the agent's steps; None: the environment does not say so
    """

    numbers: list[tuple[str, tuple[int, ...]]]
    images: list[tuple[str, tuple[int, ...]]]
    low: np.ndarray
    high: np.ndarray
    frames_per_second: float | None

    def named(self, numbers: np.ndarray | None, pixels: np.ndarray | None) -> dict[str, np.ndarray]:
        """The arrays of T observations, by name: from [T, N] numbers and [T, P] bytes. None: a
        replay has none."""
        arrays = {}
        for rows, parts in ((numbers, self.numbers), (pixels, self.images)):
            begin = 0
            for name, shape in parts if rows is not None else ():
                end = begin + math.prod(shape)
                arrays[name] = rows[:, begin:end].reshape(len(rows), *shape)
                begin = end
        return arrays


class _RunReplay:
    """The whole episodes in the checkpoint of a run's replay."""

    def __init__(self, run: pathlib.Path, steps: _Steps):
        self._folder = ReplayFolder(run / "replay")
        if len(self._folder) == 0:
            raise ConfigError(f"{run / 'replay'}: no whole episode; {self._folder.num_partial} "
                              "without their begin or end")
        self._steps = steps
        self.bounds, self.frames_per_second = (steps.low, steps.high), steps.frames_per_second

    def __len__(self):
        return len(self._folder)

    def episodes(self) -> Iterator[Recorded]:
        low, high = self.bounds
        for episode in self._folder:
            yield Recorded(
                observations=self._steps.named(episode["observation"], episode["frame"]),
                action=(low + (episode["action"] + 1.0) / 2.0 * (high - low)).astype(np.float32),
                reward=episode["reward"].astype(np.float64),
                terminated=bool(episode["discount"][-1] == 0))

    def close(self) -> None:
        self._folder.close()


def _steps_of_task(policy, env) -> _Steps:
    core = policy._core
    # an observation that is an array, not a dictionary, has no name
    is_dict = hasattr(env.observation_space, "spaces")
    images = [(name if is_dict else "", (*shape[:2], shape[2] // core.frame_stack))
              for name, shape in core.images.items()]
    size = core.state_size if images else math.prod(core.observation_shape)
    return _Steps(numbers=[("state" if is_dict else "", (size,))] if size else [], images=images,
                  low=env.action_space.low, high=env.action_space.high,
                  frames_per_second=1.0 / env.dt)


class _OwnEnvironment:
    """Episodes that the policy of a run with make_env plays, one step for each of the agent's."""

    def __init__(self, policy, reward_of_repeat: str, episodes: int):
        self._policy, self._num_episodes = policy, episodes
        self._reduce = {"mean": np.mean, "sum": np.sum}[reward_of_repeat]
        self._adapter = policy._make_adapter()
        form, repeat = policy._form, policy._core.environment["action_repeat"]
        step_s = self._adapter.control_timestep_s * repeat
        # an observation that is an array, not a dictionary, has no name
        self.steps = _Steps(
            *([(leaf.name if form.is_dict else "", tuple(leaf.dims)) for leaf in leaves]
              for leaves in (form.parts, form.images)),
            low=np.asarray(self._adapter.minimum), high=np.asarray(self._adapter.maximum),
            frames_per_second=1.0 / step_s if step_s > 0 else None)
        self.bounds = self.steps.low, self.steps.high
        self.frames_per_second = self.steps.frames_per_second

    def __len__(self):
        return self._num_episodes

    def episodes(self) -> Iterator[Recorded]:
        form, adapter = self._policy._form, self._adapter
        for seed in range(self._num_episodes):
            numbers, pixels, actions, rewards = [], [], [], []

            def see(numbers=numbers, pixels=pixels):
                numbers.append(form.flat(adapter.newest).astype(np.float32))
                pixels.append(np.concatenate(
                    [np.empty(0, np.uint8), *(p.ravel() for p in form.pixels(adapter.newest))]))

            adapter.reset(seed)
            see()
            for action, of_repeat, discount, is_over in self._policy._play_steps(
                    adapter, MAX_EPISODE_STEPS):
                actions.append(action)
                rewards.append(self._reduce(of_repeat))
                see()
            if not is_over:
                self._policy._warn_of_a_cut("export", MAX_EPISODE_STEPS)
            yield Recorded(
                observations=self.steps.named(np.stack(numbers), np.stack(pixels)),
                action=np.stack(actions).astype(np.float32), reward=np.float64(rewards),
                terminated=discount == 0)

    def close(self) -> None:
        self._adapter.close()


def export(source: str | os.PathLike, folder: str | os.PathLike, format: str, *,
           episodes: int | None = None, which: str = "newest", pictures: str = "png",
           make_env: Callable | str | None = None, fps: float | None = None,
           progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Writes a data set into the new folder `folder` and returns its number of episodes.

    source    a recording of envs.Recorder, or the folder of a run
    format    "minari": hdf5, with pictures as they are; "lerobot": v3
    episodes  of a run: None: the whole episodes in its replay's checkpoint, which have other goals
              in a run with actors.hindsight.goals and are refused then. A number: its policy
              plays as many, without the run's task.randomization, task.disturbances and
              task.distractions, with a warning. One without an end is cut off after 20,000
              control steps, with a warning
    which     of a run's policies plays: the "newest", or the "best"
    pictures  of lerobot: "png", without loss, or "video", AV1
    make_env  of a run that was trained with it, see replicant.train()
    fps       of lerobot: steps of a second, where the source does not say it
    progress  called after each episode with the number of those written, and of all

    The folder appears when all is written.
    """
    to, source = pathlib.Path(folder), pathlib.Path(source)
    _check(source, format, episodes, which, pictures, make_env, fps)
    if to.exists():
        raise IoError(f"{folder}: exists; choose another folder, or remove it")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{to.name}.", dir=to.parent) as scratch:
        played, part = pathlib.Path(scratch) / "played", pathlib.Path(scratch) / "part"
        with contextlib.closing(_open(source, played, episodes, which, make_env)) as opened:
            module = importlib.import_module(f"replicant.data.{FORMATS[format]}")
            options = {"pictures": pictures} if format == "lerobot" else {}
            frames_per_second = opened.frames_per_second if fps is None else fps
            writer = module.Writer(part, opened.bounds, frames_per_second, to.name, **options)
            for done, episode in enumerate(opened.episodes()):
                writer.write(episode)
                progress(done + 1, len(opened))
            writer.close()
        shutil.move(part, to)
    return len(opened)


def _check(source: pathlib.Path, format: str, episodes, which, pictures, make_env, fps) -> None:
    """ConfigError for an option that is wrong or would do nothing."""
    if format not in FORMATS:
        raise ConfigError(f"format: got {format!r}, want {', '.join(FORMATS)}")
    if pictures != "png" and format != "lerobot":
        raise ConfigError(f"pictures: got {pictures!r} with the format {format!r}; only lerobot's "
                          "can be chosen")
    if fps is not None and (format != "lerobot" or not 0 < fps < math.inf):
        raise ConfigError(f"fps: got {fps!r} with the format {format!r}; want a number above 0, of "
                          "lerobot only")
    if (source / "recording.json").exists():
        for name, given, default in (("episodes", episodes, None), ("which", which, "newest"),
                                     ("make_env", make_env, None)):
            if given != default:
                raise ConfigError(f"{name}: got {given!r}, but {source} is a recording; only a run "
                                  "takes it")
    if episodes is None and which != "newest":
        raise ConfigError(f"which: got {which!r} without episodes, which the policy would play; "
                          "hint: episodes=N, or --episodes N")
    if episodes is not None and episodes < 1:
        raise ConfigError(f"episodes: got {episodes!r}, want a number of at least 1")


def _open(source: pathlib.Path, played: pathlib.Path, episodes: int | None, which: str, make_env):
    if (source / "recording.json").exists():
        return _Recording(source)
    if not (source / "config.yaml").exists():
        raise IoError(f"{source}: neither a recording, which has a recording.json, nor a run, which "
                      "has a config.yaml")
    # the run's, with all keys of its version
    config = _yaml.read(source / "config.yaml", "the run's configuration")
    goals = config["actors"].get("hindsight", {}).get("goals", 0)
    if episodes is None and goals > 0:
        raise ConfigError(f"{source}: its replay holds episodes with other goals than they had "
                          f"(actors.hindsight.goals: {goals}); hint: episodes=N, or --episodes N, "
                          "which its policy plays")
    from replicant import Policy

    reward_of_repeat = config["task"]["action_repeat_reward"]
    policy = Policy.load(source, which=which, make_env=make_env)
    if episodes is not None:
        policy._warn_of_what_is_left_out()
    if make_env is not None:
        own = _OwnEnvironment(policy, reward_of_repeat, episodes or 0)
        if episodes is not None:
            return own
        own.close()
        return _RunReplay(source, own.steps)
    from replicant import envs  # needs MuJoCo, as the run's task does

    env = envs.make(**policy._core.environment, action_repeat_reward=reward_of_repeat)
    try:
        if episodes is None:
            return _RunReplay(source, _steps_of_task(policy, env))
        envs.record(env, policy.act, played, episodes, seed=0, newest_frame=True)
        return _Recording(played)
    finally:
        env.close()
