"""Writes LeRobotDataset v3 (replicant.data._lerobot has the layout)."""

import fractions
import io
import json
import os
import pathlib

import numpy as np

from replicant.data._episode import need
from replicant.data._lerobot import INDICES
from replicant.errors import ConfigError


class Writer:
    """Writes a data set that lerobot reads. The last observation of an episode, which the format
    has no row for, is left out.

    pictures  "png": in the parquet files, without loss; "video": AV1, as lerobot encodes
    """

    _FILE_BYTES = 100 << 20
    _VIDEO_BYTES = 200 << 20

    def __init__(self, folder: str, bounds, frames_per_second, name: str, *, pictures: str = "png"):
        self._pa = need("pyarrow", "LeRobot's data")
        self._parquet = need("pyarrow.parquet", "LeRobot's data")
        if pictures not in ("png", "video"):
            raise ConfigError(f"pictures: got {pictures!r}, want png or video")
        if frames_per_second is None or frames_per_second <= 0:
            raise ConfigError("the environment does not say how many steps a second has, which the "
                              "format needs; hint: fps=N, or --fps N; an environment says it by dt "
                              "or by metadata['render_fps']")
        self._fps = fractions.Fraction(frames_per_second).limit_denominator(1000)
        self._folder, self._pictures, self._name = pathlib.Path(folder), pictures, name
        (self._folder / "meta").mkdir(parents=True)
        self._features = self._schema = self._data = None
        self._data_index = 0
        self._episodes: list[dict] = []
        self._sums: dict[str, _Moments] = {}
        self._num_frames = 0
        self._videos: dict[str, _VideoFile] = {}

    def write(self, episode) -> None:
        length, index = len(episode.action), len(self._episodes)
        columns = {_name_of(name, rows): _three_channels(name, rows[:length])
                   for name, rows in episode.observations.items()}
        columns["action"] = episode.action
        ends = np.arange(length) == length - 1
        columns["next.reward"] = np.asarray(episode.reward, np.float32)[:, None]
        columns["next.done"] = ends[:, None]
        columns["next.terminated"] = (ends & episode.terminated)[:, None]
        if self._features is None:
            self._features = {name: self._feature(name, rows) for name, rows in columns.items()}
        about = {"episode_index": index, "tasks": [self._name], "length": length,
                 "dataset_from_index": self._num_frames,
                 "dataset_to_index": self._num_frames + length}
        arrays = {}
        for name, rows in columns.items():
            kind = self._features[name]["dtype"]
            moments = _Moments(rows, kind in ("video", "image"))
            about |= {f"stats/{name}/{key}": value for key, value in moments.summary().items()}
            self._sums[name] = moments.joined(self._sums.get(name))
            if kind == "video":
                about |= self._write_video(name, rows)
            elif kind == "image":
                arrays[name] = [{"bytes": _png(picture), "path": None} for picture in rows]
            else:
                is_one = self._features[name]["shape"] == [1]
                arrays[name] = rows.reshape(length) if is_one else rows.tolist()
        steps = np.arange(length)
        arrays |= {"timestamp": (steps / float(self._fps)).astype(np.float32), "frame_index": steps,
                   "episode_index": np.full(length, index), "index": self._num_frames + steps,
                   "task_index": np.zeros(length, np.int64)}
        table = self._pa.table(arrays, schema=self._make_schema())
        about |= self._write_table(table)
        about |= {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
        self._episodes.append(about)
        self._num_frames += length

    def _feature(self, name: str, rows: np.ndarray) -> dict:
        if rows.dtype == np.uint8 and rows.ndim == 4:
            return {"dtype": "image" if self._pictures == "png" else "video",
                    "shape": list(rows.shape[1:]), "names": ["height", "width", "channels"]}
        return {"dtype": str(rows.dtype), "shape": list(rows.shape[1:]) or [1], "names": None}

    def _make_schema(self):
        if self._schema is None:
            pa = self._pa
            fields = []
            for name, feature in self._features.items():
                if feature["dtype"] == "video":
                    continue
                if feature["dtype"] == "image":
                    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
                else:
                    kind = self._kind(np.dtype(feature["dtype"]), feature["shape"])
                fields.append((name, kind))
            fields += [("timestamp", pa.float32())] + [(name, pa.int64()) for name in INDICES[1:]]
            self._schema = pa.schema(fields)
        return self._schema

    def _kind(self, dtype: np.dtype, shape: list[int]):
        """The type of a column of arrays [T, *shape], as lerobot has it: a number of the shape [1] is
        no list, and lists in lists have no length."""
        pa = self._pa
        kind = pa.from_numpy_dtype(dtype)
        if len(shape) == 1:
            return kind if shape == [1] else pa.list_(kind, shape[0])
        for _ in shape:
            kind = pa.list_(kind)
        return kind

    def _write_table(self, table) -> dict:
        chunk, file = divmod(self._data_index, 1000)
        if self._data is None:
            path = self._folder / f"data/chunk-{chunk:03}/file-{file:03}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._data_path = path
            self._data = self._parquet.ParquetWriter(path, table.schema)
        self._data.write_table(table)  # a row group for each episode
        if self._data_path.stat().st_size > self._FILE_BYTES:
            self._data.close()
            self._data = None
            self._data_index += 1
        return {"data/chunk_index": chunk, "data/file_index": file}

    def _write_video(self, name: str, rows: np.ndarray) -> dict:
        video = self._videos.get(name)
        if video is None:
            video = self._videos[name] = _VideoFile(self._folder / "videos" / name, self._fps)
        chunk, file, begin = video.write(rows, self._VIDEO_BYTES)
        return {f"videos/{name}/chunk_index": chunk, f"videos/{name}/file_index": file,
                f"videos/{name}/from_timestamp": begin,
                f"videos/{name}/to_timestamp": begin + len(rows) / float(self._fps)}

    def close(self) -> None:
        if self._data is not None:
            self._data.close()
        for video in self._videos.values():
            video.close()
        pa = self._pa
        folder = self._folder / "meta/episodes/chunk-000"
        folder.mkdir(parents=True)
        self._parquet.write_table(pa.Table.from_pylist(self._episodes), folder / "file-000.parquet")
        # lerobot looks a task up by its text, the index of a pandas table
        index = {"index_columns": ["task"], "column_indexes": [], "pandas_version": "2.0.0",
                 "columns": [{"name": name, "field_name": name, "pandas_type": kind,
                              "numpy_type": numpy, "metadata": None} for name, kind, numpy in
                             (("task_index", "int64", "int64"), ("task", "unicode", "object"))]}
        tasks = pa.table({"task_index": [0], "task": [self._name]})
        self._parquet.write_table(tasks.replace_schema_metadata({"pandas": json.dumps(index)}),
                                  self._folder / "meta/tasks.parquet")
        stats = {name: {key: np.asarray(value).tolist() for key, value in sums.summary().items()}
                 for name, sums in self._sums.items()}
        (self._folder / "meta/stats.json").write_text(json.dumps(stats), encoding="utf-8")
        features = {**self._features, "timestamp": {"dtype": "float32", "shape": [1], "names": None},
                    **{name: {"dtype": "int64", "shape": [1], "names": None}
                       for name in INDICES[1:]}}
        for name, video in self._videos.items():
            features[name] = {**features[name], "info": video.info()}
        (self._folder / "meta/info.json").write_text(json.dumps({
            "codebase_version": "v3.0", "robot_type": None, "fps": _plain(self._fps), "features": features,
            "total_episodes": len(self._episodes), "total_frames": self._num_frames,
            "total_tasks": 1, "chunks_size": 1000, "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200, "splits": {"train": f"0:{len(self._episodes)}"},
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
            if self._videos else None}, indent=2), encoding="utf-8")


def _name_of(name: str, rows: np.ndarray) -> str:
    if rows.dtype == np.uint8 and rows.ndim == 4:
        return f"observation.images.{(name or 'pixels').replace('/', '.')}"
    return f"observation.{(name or 'state').replace('/', '.')}"


def _three_channels(name: str, rows: np.ndarray) -> np.ndarray:
    """Pictures of three channels, as lerobot has them: a grey one has three equal ones."""
    if rows.dtype != np.uint8 or rows.ndim != 4 or rows.shape[3] == 3:
        return rows
    if rows.shape[3] != 1:
        raise ConfigError(f"{name}: pictures of {rows.shape[3]} channels; LeRobot's have 1 or 3")
    return np.repeat(rows, 3, axis=3)


def _plain(fps: fractions.Fraction) -> int | float:
    return fps.numerator if fps.denominator == 1 else float(fps)


def _png(picture: np.ndarray) -> bytes:
    image = need("PIL.Image", "pictures in LeRobot's data")
    out = io.BytesIO()
    image.fromarray(picture).save(out, "PNG", compress_level=1)
    return out.getvalue()


class _Moments:
    """Smallest, largest, mean and deviation of each number; of pictures by channel, in [0, 1]."""

    def __init__(self, rows: np.ndarray, is_picture: bool):
        values = rows.astype(np.float64) / (255.0 if is_picture else 1.0)
        axes = (0, 1, 2) if is_picture else (0,)
        self._shape = (3, 1, 1) if is_picture else rows.shape[1:]
        self.count, self.weight = len(rows), float(np.prod([values.shape[a] for a in axes]))
        self.low, self.high = values.min(axes), values.max(axes)
        self.sum, self.squares = values.sum(axes), np.square(values).sum(axes)

    def joined(self, other: "_Moments | None") -> "_Moments":
        if other is not None:
            self.count, self.weight = self.count + other.count, self.weight + other.weight
            self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
            self.sum, self.squares = self.sum + other.sum, self.squares + other.squares
        return self

    def summary(self) -> dict:
        mean = self.sum / self.weight
        deviation = np.sqrt(np.maximum(self.squares / self.weight - mean * mean, 0.0))
        return {"min": self.low.reshape(self._shape).tolist(),
                "max": self.high.reshape(self._shape).tolist(),
                "mean": mean.reshape(self._shape).tolist(),
                "std": deviation.reshape(self._shape).tolist(), "count": [self.count]}


class _VideoFile:
    """mp4 files of one camera, AV1 with a key frame every second frame, as lerobot's."""

    def __init__(self, folder: pathlib.Path, fps: fractions.Fraction):
        self._av = need("av", "LeRobot's videos")
        self._folder, self._fps = folder, fps
        self._container = self._stream = None
        self._index = self._num_frames = self._num_bytes = 0
        self._size = (0, 0)

    def write(self, rows: np.ndarray, max_bytes: int) -> tuple[int, int, float]:
        """Chunk, file and seconds where the rows begin."""
        chunk, file = divmod(self._index, 1000)
        if self._container is None:
            path = self._folder / f"chunk-{chunk:03}/file-{file:03}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._num_frames = self._num_bytes = 0
            os.environ.setdefault("SVT_LOG", "1")  # the encoder: errors alone
            height, width = self._size = rows.shape[1:3]
            self._container = self._av.open(str(path), "w")
            self._stream = self._container.add_stream(
                "libsvtav1", rate=self._fps, options={"g": "2", "crf": "30"})
            self._stream.width, self._stream.height = width, height
            self._stream.pix_fmt = "yuv420p"
            self._stream.time_base = 1 / self._fps
        begin = self._num_frames / float(self._fps)
        for picture in rows:
            frame = self._av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = self._num_frames, 1 / self._fps
            packets = self._stream.encode(frame)
            self._num_bytes += sum(packet.size for packet in packets)
            self._container.mux(packets)
            self._num_frames += 1
        if self._num_bytes > max_bytes:
            self.close()
            self._index += 1
        return chunk, file, begin

    def close(self) -> None:
        if self._container is not None:
            self._container.mux(self._stream.encode())
            self._container.close()
            self._container = None

    def info(self) -> dict:
        return {"video.height": self._size[0], "video.width": self._size[1], "video.codec": "av1",
                "video.pix_fmt": "yuv420p", "video.is_depth_map": False, "video.fps": _plain(self._fps),
                "video.channels": 3, "has_audio": False}
