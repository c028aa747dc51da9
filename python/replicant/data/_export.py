"""Data sets of what was recorded, or of what a run's policy does, for others."""

import importlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

from replicant.data import _recording
from replicant.data._episode import Recorded
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


def _record_policy(run, folder, num_episodes: int, which: str) -> None:
    """Evaluation episodes of a run's policy."""
    from replicant import Policy, envs

    policy = Policy.load(run, which=which)
    options = {**policy._core.environment, "action_repeat_reward": "mean"}
    env = envs.make(**options)
    try:
        envs.record(env, policy.act, folder, num_episodes, seed=0)
    finally:
        env.close()


def export(source: str | os.PathLike, folder: str | os.PathLike, format: str, *,
           episodes: int = 10, which: str = "newest", pictures: str = "png",
           progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Writes a data set into the new folder `folder` and returns its number of episodes.

    source    a recording of envs.Recorder, or the folder of a run: its policy then plays
    format    "minari": hdf5, with pictures as they are; "lerobot": v3
    pictures  of lerobot: "png", without loss, or "video", AV1
    episodes  that the policy of a run plays
    which     of a run: its "newest" policy, or the "best"
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
        if not (source / "recording.json").exists():
            played = pathlib.Path(scratch) / "played"
            _record_policy(source, played, episodes, which)
            source = played
        recording = _Recording(source)
        part = pathlib.Path(scratch) / "part"
        module = importlib.import_module(f"replicant.data._{format}")
        options = {"pictures": pictures} if format == "lerobot" else {}
        writer = module.Writer(part, recording.bounds, recording.frames_per_second, to.name,
                               **options)
        for done, episode in enumerate(recording.episodes()):
            writer.write(episode)
            progress(done + 1, len(recording))
        writer.close()
        shutil.move(part, to)
    return len(recording)
