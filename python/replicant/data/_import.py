"""Data sets into a folder that a run draws from: the checkpoint of a replay."""

import importlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable

import numpy as np

from replicant import replay
from replicant.data._episode import Source
from replicant.data._mapping import Converter, Mapping
from replicant.errors import ConfigError, IoError

_MAX_STEPS = 1 << 24  # items of a table
_MEMORY = 256 << 20  # bytes of steps; the others lie on the disk
_SAVE_S = 30.0  # from one checkpoint to the next
_PATIENCE_S = 600.0  # for the disk
_ABOUT = "prior.json"


def open_source(mapping: Mapping) -> Source:
    """The data set of a mapping. ConfigError for a missing package, IoError for a missing file,
    InvalidArgument for a damaged one."""
    module = importlib.import_module(f"replicant.data._{mapping.format}")
    return module.Source(mapping.path)


def signature_of(converter: Converter) -> replay.Signature:
    """The steps of a run: float32 numbers beside the newest frame."""
    size = converter.observation_size
    return replay.Signature(
        observation=((size,), "float32") if size else None,
        action=((converter.action_size,), "float32"),
        frame=(converter.frame_shape, "uint8") if converter.frame_shape else None)


class Import:
    """Writes the episodes of a data set into `folder`, which appears when all are written. An
    import that was stopped goes on where its last checkpoint was, if the mapping is the same.

    total, done    episodes of the data set, and those that are written or left out
    num_steps      of the agent, so far
    num_left_out   episodes without a whole step
    num_cut        episodes without their last step, after which the file has no observation
    """

    def __init__(self, mapping: Mapping, folder):
        self._mapping = mapping
        self._folder = pathlib.Path(folder)
        self._part = self._folder.with_name(self._folder.name + ".part")
        if self._folder.exists():
            raise IoError(f"{folder}: exists; choose another folder, or remove it")
        self._source = open_source(mapping)
        self._converter = Converter(mapping, self._source)
        self.total = min(len(self._source), mapping.episodes or len(self._source))
        self.done = self.num_steps = self.num_left_out = self.num_cut = 0
        self._resume()

    def _resume(self) -> None:
        file = self._part / _ABOUT
        if not file.exists():
            shutil.rmtree(self._part, ignore_errors=True)
            self._part.mkdir(parents=True)
            return
        about = json.loads(file.read_text(encoding="utf-8"))
        if about["mapping"] != json.loads(json.dumps(self._mapping.key())):
            raise ConfigError(f"{self._part}: a part of an import by another mapping; remove it")
        self.done, self.num_steps = about["episodes"], about["steps"]
        self.num_left_out, self.num_cut = about["left_out"], about.get("cut", 0)

    def run(self, progress: Callable[["Import"], None] = lambda _: None) -> None:
        """Imports what is left; `progress` is called after each episode."""
        spill = self._part / "spill"
        with replay.Replay.start(
                signature_of(self._converter),
                {"default": {"n_step": 1, "max_size": _MAX_STEPS, "sampler": "uniform",
                             # nobody draws
                             "rate_limiter": {"mode": "min_size",
                                              "min_size_to_sample": _MAX_STEPS}}},
                checkpoint_folder=self._part, checkpoint_interval_s=0,
                restore_checkpoint=self.done, max_bytes=_MEMORY, disk_folder=spill,
                disk_max_bytes=1 << 50) as service:
            with service.writer(name="import") as writer:
                self._write(service, writer, progress)
        shutil.rmtree(spill, ignore_errors=True)
        self._note()
        os.replace(self._part, self._folder)

    def close(self) -> None:
        self._source.close()

    def _write(self, service, writer, progress) -> None:
        saved_at = time.monotonic()
        while self.done < self.total:
            self._append(writer, self._converter.steps(
                self._source.episode(self.done, self._converter.names)))
            self.done += 1
            if time.monotonic() - saved_at > _SAVE_S and self.done < self.total:
                self._save(service, writer)
                saved_at = time.monotonic()
            progress(self)
        if self.num_steps == 0:
            raise ConfigError(f"{self._mapping.path}: no episode has a whole step; each lacks its "
                              "last observation")
        self._flush(writer)  # the service saves the rest when it is closed

    def _append(self, writer, steps) -> None:
        if steps is None:
            self.num_left_out += 1
            return
        if self.num_steps + len(steps.action) > _MAX_STEPS:
            raise ConfigError(f"{self._mapping.path}: more than {_MAX_STEPS} steps, which one table "
                              f"cannot hold; hint: episodes: {self.done}")
        for _ in range(3):
            if self._try_append(writer, steps):
                self.num_steps += len(steps.action)
                self.num_cut += steps.num_left_out
                return
        raise IoError(f"{self._part}: the replay takes no more steps")

    @staticmethod
    def _try_append(writer, steps) -> bool:
        """Rows of bytes go to the writer's basis: the converter has checked the numbers, and
        Writer.append() would look at each step again."""
        num_rows = len(steps.action) + 1

        def bytes_of(rows, count):
            if rows is None:
                return [None] * count
            return list(np.ascontiguousarray(rows).reshape(count, -1).view(np.uint8))

        # without numbers an observation is no byte
        observation = (bytes_of(steps.observation, num_rows) if steps.observation is not None else
                       [np.empty(0, np.uint8)] * num_rows)
        frame, action = bytes_of(steps.frame, num_rows), bytes_of(steps.action, num_rows - 1)
        append, core = writer._core.append, writer._core
        core.begin()
        for t, (reward, discount) in enumerate(zip(steps.reward.tolist(), steps.discount.tolist(),
                                                   strict=True)):
            if not append(observation[t], action[t], reward, discount, frame[t], None, None):
                return False
        return core.end(observation[-1], frame[-1], None)

    def _flush(self, writer) -> None:
        if not writer.flush(_PATIENCE_S):
            raise IoError(f"{self._part}: the replay has not taken all steps in {_PATIENCE_S} s")

    def _save(self, service, writer) -> None:
        self._flush(writer)
        with service.reader(name="import", batch_size=1, prefetch=1) as saver:
            if not saver.checkpoint(self.done, _PATIENCE_S):
                raise IoError(f"{self._part}: no checkpoint in {_PATIENCE_S} s")
        self._note()

    def _note(self) -> None:
        """Written after the checkpoint that it names."""
        part = self._part / f"{_ABOUT}.part"
        part.write_text(json.dumps({
            "mapping": self._mapping.key(), "episodes": self.done, "steps": self.num_steps,
            "left_out": self.num_left_out, "cut": self.num_cut,
            "observation_size": self._converter.observation_size,
            "action_size": self._converter.action_size,
            "action_low": self._converter.action_low.tolist(),
            "action_high": self._converter.action_high.tolist(),
            "columns": self._converter.columns,
            "frame_shapes": [[int(size) for size in shape]
                             for shape in self._converter.frame_shapes]}, default=str),
            encoding="utf-8")
        os.replace(part, self._part / _ABOUT)


def import_data(mapping: Mapping | str | os.PathLike, folder,
                progress: Callable[[Import], None] = lambda _: None) -> Import:
    """Imports the data set of a mapping, or of a mapping file, into `folder`. ConfigError for a
    mapping that does not fit, InvalidArgument for a fault in the data, which names file, episode
    and step; `folder` is not there then."""
    if not isinstance(mapping, Mapping):
        mapping = Mapping.load(mapping)
    job = Import(mapping, folder)
    try:
        job.run(progress)
    finally:
        job.close()
    return job
