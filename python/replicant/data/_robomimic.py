"""robomimic's HDF5: data/demo_N with actions, rewards, dones, obs/NAME and perhaps next_obs/NAME.
obs has T rows; the last observation is next_obs's last row."""

import pathlib

import numpy as np

from replicant.data._episode import Column, Episode, check_length, need
from replicant.errors import InvalidArgument, IoError


class Source:
    def __init__(self, path: str):
        h5py = need("h5py", "robomimic's HDF5")
        self._path = pathlib.Path(path)
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise IoError(f"{path}: {error}") from None
        if "data" not in self._file:
            raise InvalidArgument(f"{path}: no group 'data'; it has {', '.join(self._file)}")
        self._demos = sorted((name for name in self._file["data"] if name.startswith("demo_")),
                             key=lambda name: int(name.removeprefix("demo_")))
        if not self._demos:
            raise InvalidArgument(f"{path}: no data/demo_0")
        first = self.episode(0, None)
        self.columns = {name: Column(rows.shape[1:], rows.dtype,
                                     len(rows) - first.num_steps)
                        for name, rows in first.columns.items()}
        self.defaults = {
            "observation": [name for name, column in self.columns.items()
                            if name.startswith("obs/") and len(column.shape) < 3],
            "action": ["actions"]}
        for key, name in (("reward", "rewards"), ("terminated", "dones")):
            if name in self.columns:
                self.defaults[key] = name
        # robosuite's controllers
        self.bounds = (np.array(-1.0), np.array(1.0))
        self.frames_per_second = None

    def __len__(self):
        return len(self._demos)

    def close(self) -> None:
        self._file.close()

    def episode(self, index: int, names: list[str] | None) -> Episode:
        demo = self._demos[index]
        where = f"{self._path}: {demo}"
        group = self._file["data"][demo]
        stored = {}
        group.visititems(lambda name, item: stored.update({name: item})
                         if hasattr(item, "shape") and item.shape else None)
        if "actions" not in stored:
            raise InvalidArgument(f"{where}: no actions; it has {', '.join(stored)}")
        num_steps = len(stored["actions"])
        rows = {}
        for name in (self._columns(stored, num_steps) if names is None else names):
            if name not in stored:
                raise InvalidArgument(f"{where}: no {name}; it has {', '.join(stored)}")
            try:
                value = stored[name][()]
                check_length(where, name, len(value), num_steps)
                following = stored.get(name.replace("obs/", "next_obs/", 1))
                if name.startswith("obs/") and following is not None:
                    value = np.concatenate([value, following[-1:]])
            except OSError as error:
                raise IoError(f"{where}: {name}: {error}") from None
            rows[name] = value
        return Episode(where, rows, num_steps)

    @staticmethod
    def _columns(stored, num_steps: int) -> list[str]:
        """Of a demo's data what may have a row for each step: Isaac Lab and MimicGen also write
        initial states and the origins of subtasks."""
        return [name for name, item in stored.items() if name.startswith("obs/")
                or (len(item) == num_steps and not name.startswith("next_obs/"))]
