"""Minari data sets: data/main_data.hdf5 or data/EPISODE/*.arrow (or .parquet), and
data/metadata.json. Observations have T + 1 rows, all else T.

Minari stores pictures as JPEG unless told otherwise; they are decoded here.
"""

import io
import json
import os
import pathlib
import re

import numpy as np

from replicant.data._episode import Column, Episode, array_of, check_length, flat, need
from replicant.errors import InvalidArgument, IoError

_VERSION = "0.5.4"  # whose layout is written
_VERSIONED = re.compile(r"-v\d+$")
_ONCE = ("actions", "rewards", "terminations", "truncations")  # T rows


def _is_once(name: str) -> bool:
    return name.partition("/")[0] in _ONCE


def _leaves(space, element: str, path=()):
    """(name, space) of every array of a serialised space, in the space's order. Elements of a tuple
    have the name `element`, with their index."""
    parts = space.get("subspaces")
    if parts is None:
        yield "/".join(path), space
        return
    if isinstance(parts, list):
        parts = {element.format(index): part for index, part in enumerate(parts)}
    for name, part in parts.items():
        yield from _leaves(part, element, (*path, name))


def _shape(leaf) -> tuple[int, ...]:
    """The shape of an array of a serialised space."""
    if leaf["type"] == "MultiBinary":
        return tuple(np.ravel(leaf["n"]).tolist())
    return tuple(leaf.get("shape", np.shape(leaf.get("nvec", 0))))


class Source:
    def __init__(self, path: str):
        folder = pathlib.Path(path)
        self._folder = folder / "data" if (folder / "data").is_dir() else folder
        file = self._folder / "metadata.json"
        try:
            metadata = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise IoError(f"{path}: no Minari data set: {error}") from None
        except ValueError as error:
            raise InvalidArgument(f"{file}: {error}") from None
        self._form = metadata.get("data_format", "hdf5")
        if self._form not in ("hdf5", "arrow", "parquet"):
            raise InvalidArgument(f"{file}: data_format is {self._form!r}, want hdf5, arrow or "
                                  "parquet")
        self._num_episodes = int(metadata.get("total_episodes", 0))
        if self._num_episodes == 0:
            raise InvalidArgument(f"{file}: no episodes")
        self._shapes = {}  # in the order of the spaces
        self.bounds = None
        element = "_index_{}" if self._form == "hdf5" else "{}"
        for kind in ("observation", "action"):
            space = json.loads(metadata.get(f"{kind}_space") or "{}")
            for name, leaf in _leaves(space, element, (f"{kind}s",)) if space else ():
                self._shapes[name] = _shape(leaf)
            if kind == "action" and space.get("type") == "Box":
                self.bounds = (np.asarray(space["low"], float), np.asarray(space["high"], float))
        if self.bounds is not None and not np.isfinite(self.bounds).all():
            self.bounds = None
        self._open()
        first = self.episode(0, None)
        # hdf5 lists its names alphabetically
        order = {name: place for place, name in enumerate(self._shapes)}
        self.columns = {
            name: Column(rows.shape[1:], rows.dtype, len(rows) - first.num_steps)
            for name, rows in sorted(first.columns.items(),
                                     key=lambda item: order.get(item[0], len(order)))}
        observations = [name for name, column in self.columns.items()
                        if name.partition("/")[0] == "observations" and len(column.shape) < 3]
        self.defaults = {
            "observation": observations,
            "action": [name for name in self.columns if name.partition("/")[0] == "actions"]}
        for key, name in (("reward", "rewards"), ("terminated", "terminations")):
            if name in self.columns:
                self.defaults[key] = name
        self.frames_per_second = None

    def _open(self):
        self._hdf5 = None
        if self._form == "hdf5":
            h5py = need("h5py", "Minari's hdf5")
            file = self._folder / "main_data.hdf5"
            try:
                self._hdf5 = h5py.File(file, "r")
            except OSError as error:
                raise IoError(f"{file}: {error}") from None
        else:
            self._dataset = need("pyarrow.dataset", f"Minari's {self._form}")

    def __len__(self):
        return self._num_episodes

    def close(self) -> None:
        if self._hdf5 is not None:
            self._hdf5.close()

    def episode(self, index: int, names: list[str] | None) -> Episode:
        if self._hdf5 is not None:
            where = f"{self._folder / 'main_data.hdf5'}: episode {index}"
            rows = self._hdf5_rows(where, index, names)
        else:
            where = f"{self._folder / str(index)}: episode {index}"
            rows = self._arrow_rows(where, index, names)
        once = next((len(value) for name, value in rows.items() if _is_once(name)), None)
        num_steps = max(len(v) for v in rows.values()) - 1 if once is None else once
        for name, value in list(rows.items()):
            is_info, num_rows = name.startswith("infos/"), len(value)
            if is_info and num_rows == num_steps:
                continue
            if is_info and names is None and num_rows != num_steps + 1:
                del rows[name]  # not of the steps
                continue
            check_length(where, name, num_rows, num_steps + (0 if _is_once(name) else 1))
        return Episode(where, rows, num_steps)

    def _hdf5_rows(self, where, index, names) -> dict[str, np.ndarray]:
        try:
            group = self._hdf5[f"episode_{index}"]
        except KeyError:
            raise InvalidArgument(f"{where}: missing; metadata.json says {self._num_episodes} "
                                  "episodes") from None
        stored = {}
        group.visititems(lambda name, item: stored.update({name: item})
                         if hasattr(item, "shape") else None)
        rows = {}
        for name in stored if names is None else names:
            if name not in stored:
                raise InvalidArgument(f"{where}: no {name}; it has {', '.join(stored)}")
            if names is None and self._is_left_out(name, stored[name]):
                continue
            try:
                rows[name] = self._decoded(where, name, stored[name][()])
            except OSError as error:
                raise IoError(f"{where}: {name}: {error}") from None
        return rows

    @staticmethod
    def _is_left_out(name, item) -> bool:
        """Whether a dataset is no column: text, a single value, or an info that is no number."""
        h5py = need("h5py", "Minari's hdf5")
        return item.shape == () or h5py.check_string_dtype(item.dtype) is not None or (
            name.startswith("infos/") and item.dtype.kind not in "biuf")

    def _decoded(self, where, name, value) -> np.ndarray:
        """Pictures of encoded ones."""
        shape = self._shapes.get(name, ())
        if value.dtype == object or (len(shape) == 3 and value.ndim == 2
                                     and value.shape[1] != np.prod(shape)):
            return _pictures(where, name, [bytes(row) for row in value])
        return value

    def _arrow_rows(self, where, index, names) -> dict[str, np.ndarray]:
        try:
            table = self._dataset.dataset(
                self._folder / str(index), format=self._form,
                ignore_prefixes=["_", ".", "metadata.json"]).to_table().combine_chunks()
        except (OSError, ValueError) as error:
            raise IoError(f"{where}: {error}") from None
        stored = dict(flat({name: _nested(table[name]) for name in table.column_names
                            if name != "episode_id"}))
        num_rows = table.num_rows
        rows = {}
        for name in stored if names is None else names:
            if name not in stored:
                raise InvalidArgument(f"{where}: no {name}; it has {', '.join(stored)}")
            try:
                value = self._of_arrow(where, name, stored[name])
            except InvalidArgument:
                if names is not None or not name.startswith("infos/"):
                    raise
                continue  # infos may be anything
            if value is not None:
                rows[name] = value[:num_rows - 1] if _is_once(name) else value
        return rows

    def _of_arrow(self, where, name, array) -> np.ndarray | None:
        pa = need("pyarrow", "Minari's arrow")
        if pa.types.is_binary(array.type):
            return _pictures(where, name, array.to_pylist())
        if pa.types.is_string(array.type):
            return None  # text
        rows = array_of(where, name, array)
        # numbers of several dimensions are one list
        return rows.reshape(len(rows), *self._shapes.get(name, rows.shape[1:]))


def _nested(column):
    """A column as nested dictionaries of arrays."""
    pa = need("pyarrow", "Minari's arrow")
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_struct(array.type):
        return {array.type.field(i).name: _nested(array.field(i))
                for i in range(array.type.num_fields)}
    return array


def _pictures(where, name, encoded: list[bytes]) -> np.ndarray:
    image = need("PIL.Image", "pictures of Minari")
    pictures = []
    for row, one in enumerate(encoded):
        try:
            pictures.append(np.asarray(image.open(io.BytesIO(one))))
        except OSError as error:
            raise InvalidArgument(f"{where}: {name}: picture {row}: {error}") from None
    return np.stack(pictures)


class Writer:
    """Writes data/main_data.hdf5 and data/metadata.json below a new folder. Pictures are stored as
    they are: Minari's JPEG would change them.

    bounds  of the actions
    """

    def __init__(self, folder: str, bounds, frames_per_second, name: str):
        h5py = need("h5py", "Minari's hdf5")
        self._data = pathlib.Path(folder) / "data"
        self._data.mkdir(parents=True)
        self._file = h5py.File(self._data / "main_data.hdf5", "w", track_order=True)
        self._bounds, self._name = bounds, name
        self._spaces = None
        self._num_episodes = self._num_steps = 0

    def write(self, episode) -> None:
        group = self._file.create_group(f"episode_{self._num_episodes}", track_order=True)
        observations = episode.observations
        is_one = list(observations) == [""]
        for name, rows in observations.items():
            path = "observations" if is_one else f"observations/{name}"
            group.create_dataset(path, data=rows, chunks=True,
                                 compression="gzip" if rows.ndim == 4 else None)
        num_steps = len(episode.action)
        ends = np.zeros(num_steps, bool)
        ends[-1] = True
        group.create_dataset("actions", data=episode.action)
        group.create_dataset("rewards", data=episode.reward.astype(np.float64))
        group.create_dataset("terminations", data=ends & episode.terminated)
        group.create_dataset("truncations", data=ends & (not episode.terminated))
        group.attrs["id"] = self._num_episodes
        group.attrs["total_steps"] = num_steps
        if self._spaces is None:
            spaces = {name: _box(rows) for name, rows in observations.items()}
            self._spaces = next(iter(spaces.values())) if is_one else _dictionary(spaces)
            low, high = (np.broadcast_to(bound, episode.action.shape[1:]).tolist()
                         for bound in self._bounds)
            self._action = {"type": "Box", "dtype": str(episode.action.dtype),
                            "shape": list(episode.action.shape[1:]), "low": low, "high": high}
        self._num_episodes += 1
        self._num_steps += num_steps

    def close(self) -> None:
        self._file.close()
        size = os.path.getsize(self._data / "main_data.hdf5")
        (self._data / "metadata.json").write_text(json.dumps({
            "total_episodes": self._num_episodes, "total_steps": self._num_steps,
            "data_format": "hdf5", "jpeg_encoding": False, "dataset_id": self._name if _VERSIONED.search(self._name) else f"{self._name}-v0",
            "minari_version": _VERSION, "dataset_size": round(size / 1e6, 1),
            "observation_space": json.dumps(self._spaces),
            "action_space": json.dumps(self._action)}), encoding="utf-8")


def _dictionary(spaces: dict[str, dict]) -> dict:
    """The serialised space of named ones; "arm/joint" is one within "arm", as HDF5 has it."""
    whole = {"type": "Dict", "subspaces": {}}
    for name, space in spaces.items():
        *outer, last = name.split("/")
        at = whole
        for part in outer:
            at = at["subspaces"].setdefault(part, {"type": "Dict", "subspaces": {}})
        at["subspaces"][last] = space
    return whole


def _box(rows: np.ndarray) -> dict:
    """The serialised space of one array."""
    shape, dtype = rows.shape[1:], rows.dtype
    low, high = -np.inf, np.inf
    if dtype.kind == "b":
        low, high = 0, 1
    elif dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return {"type": "Box", "dtype": str(dtype), "shape": list(shape),
            "low": np.full(shape, low, dtype).tolist(), "high": np.full(shape, high, dtype).tolist()}
