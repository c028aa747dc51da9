"""Data sets of what was recorded, or of what a run has collected, for others."""

import importlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from replicant.data import _recording
from replicant.data._episode import Recorded
from replicant.data._replay_folder import ReplayFolder
from replicant.errors import ConfigError, IoError

FORMATS = ("minari", "lerobot")


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


class _RunReplay:
    """The whole episodes in the checkpoint of a run's replay."""

    def __init__(self, run: pathlib.Path, env, pixels):
        self._folder = ReplayFolder(run / "replay")
        if len(self._folder) == 0:
            raise ConfigError(f"{run / 'replay'}: no whole episode; {self._folder.num_partial} "
                              "without their begin or end")
        self._pixels = pixels
        self.bounds = env.action_space.low, env.action_space.high
        self.frames_per_second = 1.0 / env.dt

    def __len__(self):
        return len(self._folder)

    def episodes(self) -> Iterator[Recorded]:
        low, high = self.bounds
        for episode in self._folder:
            observations = {}
            if episode["observation"] is not None:
                observations["state" if self._pixels else ""] = episode["observation"]
            if episode["frame"] is not None:
                observations["pixels"] = episode["frame"].reshape(-1, *self._pixels, 3)
            yield Recorded(
                observations=observations,
                action=(low + (episode["action"] + 1.0) / 2.0 * (high - low)).astype(np.float32),
                reward=episode["reward"].astype(np.float64),
                terminated=bool(episode["discount"][-1] == 0))


def _open_run(run: pathlib.Path, which: str):
    """The policy of a run, and one environment as its actors have it."""
    from replicant import Policy, envs

    policy = Policy.load(run, which=which)
    if policy._make_adapter is not None:
        raise ConfigError(f"{run}: its environment is made by make_env; hint: record it by "
                          "envs.record(env, policy.act, ...) and export the recording")
    options = {**policy._core.environment, "action_repeat_reward": "mean"}
    return policy, envs.make(**options), options.get("pixels")


def export(source: str | os.PathLike, folder: str | os.PathLike, format: str, *,
           episodes: int | None = None, which: str = "newest", pictures: str = "png",
           progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Writes a data set into the new folder `folder` and returns its number of episodes.

    source    a recording of envs.Recorder, or the folder of a run
    format    "minari": hdf5, with pictures as they are; "lerobot": v3
    episodes  None: of a run, the whole episodes in its replay's checkpoint. A number: its policy
              plays as many
    which     the run's "newest" policy, or the "best"
    pictures  of lerobot: "png", without loss, or "video", AV1
    progress  called after each episode with the number of those written, and of all

    The folder appears when all is written.
    """
    if format not in FORMATS:
        raise ConfigError(f"format: got {format!r}, want {', '.join(FORMATS)}")
    to, source = pathlib.Path(folder), pathlib.Path(source)
    if to.exists():
        raise IoError(f"{folder}: exists; choose another folder, or remove it")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{to.name}.", dir=to.parent) as scratch:
        opened = _open(source, pathlib.Path(scratch) / "played", episodes, which)
        part = pathlib.Path(scratch) / "part"
        module = importlib.import_module(f"replicant.data._{format}")
        options = {"pictures": pictures} if format == "lerobot" else {}
        writer = module.Writer(part, opened.bounds, opened.frames_per_second, to.name, **options)
        for done, episode in enumerate(opened.episodes()):
            writer.write(episode)
            progress(done + 1, len(opened))
        writer.close()
        shutil.move(part, to)
    return len(opened)


def _open(source: pathlib.Path, played: pathlib.Path, episodes: int | None, which: str):
    if (source / "recording.json").exists():
        return _Recording(source)
    if not (source / "config.yaml").exists():
        raise IoError(f"{source}: neither a recording, which has a recording.json, nor a run, which "
                      "has a config.yaml")
    from replicant import envs

    policy, env, pixels = _open_run(source, which)
    try:
        if episodes is None:
            return _RunReplay(source, env, pixels)
        envs.record(env, policy.act, played, episodes, seed=0, newest_frame=True)
        return _Recording(played)
    finally:
        env.close()
