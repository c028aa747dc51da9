"""Recordings of envs.Recorder: episode-000000.npz, ... and recording.json.

An episode's file has "observation" or "observation/NAME" [T + 1, ...], "action" [T, ...], "reward"
float64 [T], "terminated" and "truncated" bool [].
"""

import json
import os
import pathlib
import secrets
import zipfile

import numpy as np

from replicant.data._episode import Column, Episode, check_length
from replicant.errors import InvalidArgument, IoError

_ENDS = ("terminated", "truncated")


def _is_observation(name: str) -> bool:
    return name.partition("/")[0] == "observation"


class Source:
    def __init__(self, path: str):
        self._folder = pathlib.Path(path)
        file = self._folder / "recording.json"
        try:
            about = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise IoError(f"{path}: no recording: {error}") from None
        except ValueError as error:
            raise InvalidArgument(f"{file}: {error}") from None
        self._files = sorted(self._folder.glob("episode-*.npz"))
        if not self._files:
            raise InvalidArgument(f"{path}: no episodes")
        low, high = about.get("action_low"), about.get("action_high")
        self.bounds = None if low is None else (np.asarray(low), np.asarray(high))
        self.frames_per_second = about.get("frames_per_second")
        first = self.episode(0, None)
        self.columns = {name: Column(rows.shape[1:], rows.dtype, int(_is_observation(name)))
                        for name, rows in first.columns.items()}
        self.defaults = {
            "observation": [name for name, column in self.columns.items()
                            if _is_observation(name) and len(column.shape) < 3],
            "action": ["action"], "reward": "reward", "terminated": ""}

    def __len__(self):
        return len(self._files)

    def close(self) -> None:
        pass

    def episode(self, index: int, names: list[str] | None) -> Episode:
        file = self._files[index]
        try:
            with np.load(file) as stored:
                wanted = [n for n in stored if n not in _ENDS] if names is None else names
                missing = [name for name in (*wanted, "action", *_ENDS) if name not in stored]
                if missing:
                    raise InvalidArgument(f"{file}: no {missing[0]}; it has "
                                          f"{', '.join(stored)}")
                num_steps = len(stored["action"])
                rows = {name: stored[name] for name in wanted}
                terminated = bool(stored["terminated"])
        except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise IoError(f"{file}: {error}") from None
        for name, value in rows.items():
            check_length(str(file), name, len(value), num_steps + _is_observation(name))
        return Episode(str(file), rows, num_steps, terminated)


class Writer:
    """Writes a recording below a folder, which may hold one already: episodes are added. Several
    writers may add to it at the same time. A file appears whole."""

    def __init__(self, folder, bounds, frames_per_second, name: str = ""):
        self._folder = pathlib.Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        low, high = (None, None) if bounds is None else (np.asarray(b).tolist() for b in bounds)
        about = {"version": 1, "name": name, "action_low": low, "action_high": high,
                 "frames_per_second": frames_per_second}
        file = self._folder / "recording.json"
        if not file.exists():
            part = self._folder / f"recording-{secrets.token_hex(8)}.part"
            part.write_text(json.dumps(about), encoding="utf-8")
            os.replace(part, file)
        old = json.loads(file.read_text(encoding="utf-8"))
        if old != about:
            raise InvalidArgument(f"{file}: another recording: it has {old}, want {about}")
        self._next = 1 + max((int(f.stem.removeprefix("episode-"))
                              for f in self._folder.glob("episode-*.npz")), default=-1)

    def write(self, episode) -> pathlib.Path:
        observations = episode.observations
        names = (["observation"] if list(observations) == [""] else
                 [f"observation/{name}" for name in observations])
        file, part = self._claim()
        try:
            with open(part, "wb") as out:
                np.savez_compressed(
                    out, **dict(zip(names, observations.values(), strict=True)),
                    action=episode.action, reward=np.asarray(episode.reward, np.float64),
                    terminated=np.array(episode.terminated),
                    truncated=np.array(not episode.terminated))
            os.replace(part, file)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return file

    def _claim(self) -> tuple[pathlib.Path, pathlib.Path]:
        """The file of a new episode, and its part, which no other writer has made."""
        while True:
            file = self._folder / f"episode-{self._next:06}.npz"
            part = file.with_suffix(".part")
            self._next += 1
            try:
                part.touch(exist_ok=False)
            except FileExistsError:
                continue
            # another writer may have finished it in between
            if not file.exists():
                return file, part
            part.unlink()

    def close(self) -> None:
        pass
