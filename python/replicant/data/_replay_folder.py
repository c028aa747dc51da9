"""Whole episodes in the folder of a replay's checkpoints, such as RUN/replay.

The formats are those of docs/replay_protocol.md ("RSG1", "RFG1") and of replay/store/segment.h.
"""

import mmap
import pathlib
import re
import struct
from collections.abc import Iterator

import numpy as np

from replicant.data._episode import need
from replicant.errors import InvalidArgument, IoError

_SEGMENT, _RECORD = struct.Struct("<4sIQ"), struct.Struct("<IIQQQ")
_CHUNK, _FRAMES = struct.Struct("<4sHHQIIII"), struct.Struct("<4sHHII")


class _Chunk:
    """Where a chunk lies, and what it continues."""

    def __init__(self, file: int, offset: int, size: int, header):
        _, self.num_steps, flags, _, self.first_step, self.o_bytes, self.a_bytes, self.f_bytes = header
        self.file, self.offset, self.size = file, offset, size
        self.ends, self.has_priorities = bool(flags & 1), bool(flags & 2)


class ReplayFolder:
    """The episodes of which the folder, or its shards, holds all steps. Oldest first.

    num_partial  episodes without their begin or end
    """

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        shards = sorted(folder.glob("shard-*-of-*")) or [folder]
        paths = [path for shard in shards for path in sorted(shard.glob("segment-*.log"))]
        if not paths:
            raise IoError(f"{folder}: no steps of a replay")
        self._shape = self._read_shape(shards[0] / "layout.yaml")
        self._maps, self._names = [], []
        found: dict[tuple, dict[int, _Chunk]] = {}
        serials = set()
        for path in paths:
            with open(path, "rb") as file:
                self._maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self._names.append(path)
            self._scan(len(self._maps) - 1, path.parent, found, serials)
        self._episodes = [episode for chunks in found.values()
                          if (episode := self._whole(chunks)) is not None]
        self.num_partial = len(found) - len(self._episodes)

    @staticmethod
    def _read_shape(file: pathlib.Path) -> dict[str, int]:
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise IoError(f"{file}: {error}") from None
        return {name: int(value) for name, value in re.findall(r"(\w+_bytes): (\d+)", text)}

    def _scan(self, number: int, shard, found, serials) -> None:
        """Notes the chunks of a segment, which a crash may have cut off at its end."""
        data = self._maps[number]
        if len(data) < _SEGMENT.size or data[:4] != b"RSL1":
            raise IoError(f"{self._names[number]}: no segment of a replay")
        offset = _SEGMENT.size
        while offset + _RECORD.size <= len(data):
            size, _, serial, writer, _ = _RECORD.unpack_from(data, offset)
            offset += _RECORD.size
            if size == 0 or offset + size > len(data):
                return
            # serial 0: a rate limiter's state; a known one: a copy
            if serial and (shard, serial) not in serials:
                if size < _CHUNK.size or data[offset:offset + 4] != b"RSG1":
                    return
                serials.add((shard, serial))
                header = _CHUNK.unpack_from(data, offset)
                chunk = _Chunk(number, offset, size, header)
                found.setdefault((shard, writer, header[3]), {})[chunk.first_step] = chunk
            offset += size

    @staticmethod
    def _whole(chunks: dict[int, _Chunk]) -> list[_Chunk] | None:
        episode, step = [], 0
        while step in chunks:
            episode.append(chunks[step])
            if episode[-1].ends:
                return episode
            step += episode[-1].num_steps
        return None

    def __len__(self):
        return len(self._episodes)

    @property
    def num_steps(self) -> int:
        return sum(chunk.num_steps for episode in self._episodes for chunk in episode)

    @property
    def shape(self) -> dict[str, int]:
        """observation_bytes, action_bytes and frame_bytes of a step."""
        return self._shape

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Episodes as observation float32 [T + 1, N] and frame uint8 [T + 1, frame_bytes], None
        where there are none; action float32 [T, A], reward and discount float32 [T]."""
        for episode in self._episodes:
            parts = [self._read(chunk) for chunk in episode]
            yield {name: (None if parts[0][name] is None else
                          np.concatenate([part[name] for part in parts])) for name in parts[0]}

    def _read(self, chunk: _Chunk) -> dict[str, np.ndarray | None]:
        data, at = self._maps[chunk.file], chunk.offset + _CHUNK.size
        rows = chunk.num_steps + chunk.ends

        def take(count, size, dtype=np.float32):
            nonlocal at
            values = np.frombuffer(data, dtype, count * size, at).reshape(count, size)
            at += values.nbytes
            return values

        reward, discount = take(chunk.num_steps, 1)[:, 0], take(chunk.num_steps, 1)[:, 0]
        if chunk.has_priorities:
            take(chunk.num_steps, 1)
        observation = take(rows, chunk.o_bytes // 4) if chunk.o_bytes else None
        action = take(chunk.num_steps, chunk.a_bytes // 4)
        frame = None
        if chunk.f_bytes:
            frame = self._frames(data[at:at + chunk.f_bytes], self._names[chunk.file], rows)
        return {"observation": observation, "frame": frame, "action": action, "reward": reward,
                "discount": discount}

    def _frames(self, block: bytes, name, rows: int) -> np.ndarray:
        magic, codec, count, size, _ = _FRAMES.unpack_from(block)
        if magic != b"RFG1" or count != rows or size != self._shape["frame_bytes"]:
            raise InvalidArgument(f"{name}: a frame block of {count} frames of {size} bytes, want "
                                  f"{rows} of {self._shape['frame_bytes']}")
        ends = np.frombuffer(block, np.uint32, count, _FRAMES.size)
        begin = payload = _FRAMES.size + 4 * count
        frames = np.empty((count, size), np.uint8)
        for index, end in enumerate(ends):
            stored = block[begin:payload + int(end)]
            begin = payload + int(end)
            if len(stored) != size:
                first = frames[0].tobytes() if index else b""
                stored = _decompressed(codec, stored, size, first)
            frames[index] = np.frombuffer(stored, np.uint8)
        return frames

    def close(self) -> None:
        for one in self._maps:
            try:
                one.close()
            except BufferError:  # an array that the caller holds is a view of it
                pass


def _decompressed(codec: int, stored: bytes, size: int, first: bytes) -> bytes:
    if codec == 1:
        block = need("lz4.block", "frames of a replay")
        return block.decompress(stored, uncompressed_size=size, dict=first)
    zstd = need("zstandard", "frames of a replay, compressed by zstd")
    dictionary = zstd.ZstdCompressionDict(first, zstd.DICT_TYPE_RAWCONTENT) if first else None
    return zstd.ZstdDecompressor(dict_data=dictionary).decompress(stored, max_output_size=size)
