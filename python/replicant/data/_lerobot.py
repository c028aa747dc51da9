"""LeRobotDataset v3: meta/info.json, meta/episodes, data/*.parquet and videos/CAMERA/*.mp4.

Several episodes share a file. A step has no last observation: each column has T rows. A column
`timestamp` begins at 0 in each episode; in a video an episode begins at its from_timestamp.
"""

import io
import json
import pathlib

import numpy as np

from replicant.data._episode import Column, Episode, array_of, check_length, need
from replicant.errors import InvalidArgument, IoError

# of the package, no part of a step
INDICES = ("timestamp", "frame_index", "episode_index", "index", "task_index")


class _Files:
    """Rows of episodes in parquet files; keeps the row group that was read last."""

    def __init__(self):
        self._parquet = need("pyarrow.parquet", "LeRobot's data")
        self._file = self._path = self._group = None
        self._table = None

    def rows(self, path: pathlib.Path, episode: int, names: list[str]):
        """A table of the columns `names` of an episode."""
        pa = need("pyarrow", "LeRobot's data")
        compute = need("pyarrow.compute", "LeRobot's data")
        try:
            if path != self._path:
                self._file = self._parquet.ParquetFile(path)
                self._path, self._group = path, None
            parts = []
            for group in range(self._file.num_row_groups):
                low, high = self._range(group)
                if not low <= episode <= high:
                    continue
                key = (group, tuple(names))
                if key != self._group:
                    self._table = self._file.read_row_group(
                        group, columns=[*dict.fromkeys([*names, "episode_index"])])
                    self._group = key
                parts.append(self._table.filter(
                    compute.equal(self._table["episode_index"], episode)))
        except (OSError, pa.ArrowException) as error:
            raise IoError(f"{path}: episode {episode}: {error}") from None
        return pa.concat_tables(parts) if parts else None

    def _range(self, group: int) -> tuple[float, float]:
        """The episodes of a row group."""
        metadata = self._file.metadata
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            if chunk.path_in_schema == "episode_index":
                statistics = chunk.statistics
                if statistics is not None and statistics.has_min_max:
                    return statistics.min, statistics.max
        return -np.inf, np.inf


class Source:
    def __init__(self, path: str):
        self._folder = pathlib.Path(path)
        file = self._folder / "meta/info.json"
        try:
            info = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise IoError(f"{path}: no LeRobot data set: {error}") from None
        except ValueError as error:
            raise InvalidArgument(f"{file}: {error}") from None
        version = str(info.get("codebase_version"))
        if not version.startswith("v3."):
            raise InvalidArgument(f"{file}: codebase_version is {version}, want v3; hint: convert it "
                                  "with lerobot")
        self._info = info
        self._features = info["features"]
        self._episodes = self._read_episodes()
        self._files = _Files()
        self._video = _Video()
        self.frames_per_second = float(info["fps"])
        self.bounds = None
        self._cameras = [name for name, feature in self._features.items()
                         if feature["dtype"] in ("video", "image")]
        first = self._numbers(0, self._number_names(), leaves_out=True)
        self.columns = {name: Column(rows.shape[1:], rows.dtype) for name, rows in first.items()}
        for name in self._cameras:
            shape = tuple(self._features[name]["shape"])
            if shape[0] in (1, 3) and shape[-1] not in (1, 3):  # channels first
                shape = (*shape[1:], shape[0])
            self.columns[name] = Column(shape, np.dtype(np.uint8))
        self.defaults = {
            "observation": [name for name, column in self.columns.items()
                            if name.startswith("observation.") and name not in self._cameras],
            "action": ["action"] if "action" in self.columns else []}
        if "next.reward" in self.columns:
            self.defaults["reward"] = "next.reward"
        # next.done may also mean a cut: the mapping says whether an end is one for good

    def _number_names(self) -> list[str]:
        return [name for name, feature in self._features.items()
                if name not in INDICES and name not in self._cameras
                and feature["dtype"] not in ("string", "language")]

    def _read_episodes(self) -> list[dict]:
        """What meta/episodes says of each episode, by its index."""
        dataset = need("pyarrow.dataset", "LeRobot's data")
        pa = need("pyarrow", "LeRobot's data")
        folder = self._folder / "meta/episodes"
        try:
            rows = dataset.dataset(folder, format="parquet")
            names = [name for name in rows.schema.names
                     if not name.startswith("stats/") and name != "tasks"]
            episodes = rows.to_table(columns=names).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise IoError(f"{folder}: {error}") from None
        episodes.sort(key=lambda episode: episode["episode_index"])
        total = int(self._info["total_episodes"])
        if [episode["episode_index"] for episode in episodes] != list(range(total)) or total == 0:
            raise InvalidArgument(f"{folder}: {len(episodes)} episodes, and meta/info.json says "
                                  f"{total}")
        return episodes

    def __len__(self):
        return len(self._episodes)

    def close(self) -> None:
        self._video.close()

    def episode(self, index: int, names: list[str] | None) -> Episode:
        names = list(self.columns) if names is None else names
        cameras = [name for name in names if name in self._cameras]
        rows = self._numbers(index, [name for name in names if name not in cameras])
        length = int(self._episodes[index]["length"])
        for name in cameras:
            if self._features[name]["dtype"] == "image":
                rows[name] = self._images(index, name)
            else:
                rows[name] = self._frames(index, name, length)
        return Episode(f"{self._data_file(index)}: episode {index}", rows, length)

    def _data_file(self, index: int) -> pathlib.Path:
        episode = self._episodes[index]
        return self._folder / self._info["data_path"].format(
            chunk_index=episode["data/chunk_index"], file_index=episode["data/file_index"])

    def _table(self, index: int, names: list[str]):
        file, length = self._data_file(index), int(self._episodes[index]["length"])
        where = f"{file}: episode {index}"
        if not file.exists():
            raise IoError(f"{where}: no such file")
        table = self._files.rows(file, index, [*names, "timestamp"])
        check_length(where, "the data", 0 if table is None else table.num_rows, length)
        return where, table

    def _numbers(self, index: int, names: list[str], *,
                 leaves_out: bool = False) -> dict[str, np.ndarray]:
        """Columns of numbers. leaves_out: those with gaps that no mapping has by default."""
        where, table = self._table(index, names)
        times = table["timestamp"].to_numpy()
        wanted = np.arange(len(times)) / self.frames_per_second
        late = np.abs(times - wanted) > 0.1 / self.frames_per_second
        if late.any():
            step = int(np.argmax(late))
            raise InvalidArgument(
                f"{where}: step {step} is at {times[step]:.6g} s, and fps "
                f"{self.frames_per_second:g} of meta/info.json makes it {wanted[step]:.6g} s")
        rows = {}
        for name in names:
            try:
                rows[name] = array_of(where, name, table[name])
            except InvalidArgument:
                if not leaves_out or name.startswith(("observation.", "action", "next.")):
                    raise
        return rows

    def _images(self, index: int, name: str) -> np.ndarray:
        where, table = self._table(index, [name])
        image = need("PIL.Image", "pictures in LeRobot's data")
        pictures = []
        for step, cell in enumerate(table[name].to_pylist()):
            try:
                picture = (io.BytesIO(cell["bytes"]) if cell["bytes"] else
                           self._folder / cell["path"])
                pictures.append(np.asarray(image.open(picture).convert("RGB")))
            except (OSError, TypeError) as error:
                raise InvalidArgument(f"{where}: step {step}: {name}: {error}") from None
        return np.stack(pictures)

    def _frames(self, index: int, name: str, length: int) -> np.ndarray:
        episode = self._episodes[index]
        file = self._folder / self._info["video_path"].format(
            video_key=name, chunk_index=episode[f"videos/{name}/chunk_index"],
            file_index=episode[f"videos/{name}/file_index"])
        return self._video.frames(f"{file}: episode {index}", file,
                                  float(episode[f"videos/{name}/from_timestamp"]), length,
                                  self.frames_per_second)


class _Video:
    """Frames of mp4 files; keeps the file that was read last open."""

    def __init__(self):
        self._path = self._container = None

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
        self._path = self._container = None

    def frames(self, where: str, path: pathlib.Path, begin_s: float, count: int,
               rate: float) -> np.ndarray:
        """`count` frames from `begin_s` on, uint8 [count, H, W, 3]."""
        av = need("av", "LeRobot's videos")
        if not path.exists():
            raise IoError(f"{where}: no such video")
        try:
            if path != self._path:
                self.close()
                self._container, self._path = av.open(str(path)), path
                for stream in self._container.streams.video:
                    stream.thread_type = "AUTO"
            return self._decode(where, begin_s, count, rate)
        except (av.FFmpegError, ValueError) as error:
            self.close()
            if isinstance(error, InvalidArgument):
                raise
            raise IoError(f"{where}: {error}") from None

    def _decode(self, where, begin_s, count, rate) -> np.ndarray:
        if not self._container.streams.video:
            raise InvalidArgument(f"{where}: no video in the file")
        stream = self._container.streams.video[0]
        if stream.codec_context is None:
            raise InvalidArgument(f"{where}: no decoder of this codec")
        given = float(stream.average_rate or 0)
        if abs(given - rate) > 0.01 * rate:
            raise InvalidArgument(f"{where}: {given:g} frames a second, and fps of meta/info.json is "
                                  f"{rate:g}")
        self._container.seek(int(begin_s / stream.time_base), stream=stream, backward=True)
        frames = None
        step = 0
        for frame in self._container.decode(stream):
            if frame.time < begin_s + (step - 0.5) / rate:
                continue  # before the episode: the decoder begins at a key frame
            if frame.time > begin_s + (step + 0.5) / rate:
                break
            picture = frame.to_ndarray(format="rgb24")
            if frames is None:
                frames = np.empty((count, *picture.shape), np.uint8)
            frames[step] = picture
            step += 1
            if step == count:
                return frames
        raise InvalidArgument(f"{where}: {step} of {count} frames, from {begin_s:g} s on")
