"""Trainings: starts the program `fleet` of an installed or built copy of Replicant."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

import numpy as np

from replicant.errors import ConfigError, Error, IoError


def find_fleet() -> str:
    """The program: REPLICANT_FLEET, or `fleet` on PATH."""
    found = os.environ.get("REPLICANT_FLEET") or shutil.which("fleet")
    if not found or not os.access(found, os.X_OK):
        raise IoError(
            "the program fleet was not found; hint: build it (cmake --build --preset release) and "
            "set REPLICANT_FLEET=build/release/bin/fleet")
    return found


class Run:
    """A training, or one that has ended; see train().

    folder  the run's folder: resolved configuration, logs, checkpoints, curves
    """

    def __init__(self, folder: pathlib.Path, process: subprocess.Popen | None, log: pathlib.Path):
        self.folder = folder
        self._process = process
        self._log = log

    @classmethod
    def open(cls, folder: str | os.PathLike) -> "Run":
        """A run that this process did not start."""
        path = pathlib.Path(folder).resolve()
        if not (path / "config.yaml").exists():
            raise IoError(f"{folder}: no folder of a run, which has a config.yaml")
        return cls(path, None, path.parent / f"{path.name}.log")

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout: float | None = None) -> "Run":
        """Waits for the end. Raises Error with the fleet's last lines if it failed, and
        TimeoutError after `timeout` seconds."""
        if self._process is None:
            return self
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.folder}: still running after {timeout} s") from None
        if code != 0:
            text = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            kind = ConfigError if not (self.folder / "config.yaml").exists() else Error
            raise kind("\n".join(text[-20:]) or f"fleet ended with code {code}")
        return self

    def stop(self, timeout: float | None = None) -> "Run":
        """Ends the training with a last checkpoint, from which it can be resumed."""
        if self.is_running():
            self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def resume(self, **overrides) -> "Run":
        """Goes on from the last checkpoint."""
        if self.is_running():
            raise Error(f"{self.folder}: it runs already")
        return _start(["--resume", str(self.folder)], self.folder, overrides)

    def progress(self) -> dict[str, Any]:
        """The newest line of fleet.jsonl; empty before the first."""
        records = _records(self.folder / "fleet.jsonl")
        return records[-1] if records else {}

    def evaluations(self) -> dict[str, np.ndarray]:
        """Evaluations so far, one array for each number: step, seconds, return, return_std, ..."""
        return _columns(_records(self.folder / "evaluations.jsonl"))

    def curves(self) -> dict[str, np.ndarray]:
        """The learner's numbers so far, one array for each: step, critic_loss, ..."""
        return _columns(_records(self.folder / "learner.jsonl"))

    def policy(self, which: str = "newest"):
        """replicant.Policy.load() of this run."""
        from replicant import Policy

        return Policy.load(self.folder, which=which)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.is_running():
            self.stop()


def _records(file: pathlib.Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    records = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break  # the last line is being written
    return records


def _columns(records: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    names = {name for record in records for name, value in record.items()
             if isinstance(value, (int, float)) and not isinstance(value, bool)}
    return {name: np.array([record.get(name, np.nan) for record in records], dtype=float)
            for name in sorted(names)}


def _start(arguments, folder, overrides: Mapping[str, Any]) -> Run:
    program = find_fleet()
    settings = [f"{key}={value if isinstance(value, str) else json.dumps(value)}"
                for key, value in overrides.items()]
    command = [program, *arguments]
    for setting in settings:
        command += ["--set", setting]
    log = folder.parent / f"{folder.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as output:
        # Ctrl-C is for this program, which stops the run when it likes
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    return Run(folder, process, log)


def train(config: str | os.PathLike, overrides: Mapping[str, Any] | None = None, *,
          folder: str | os.PathLike) -> Run:
    """Starts a training and returns at once.

    config     a YAML file, such as configs/cartpole_swingup_state.yaml
    overrides  keys in full and their values: {"learner.max_seconds": 600}
    folder     of the run; must be empty or missing. The fleet's own output is in FOLDER.log
    """
    path = pathlib.Path(folder).resolve()
    return _start(["--config", os.fspath(config)], path,
                  {**(overrides or {}), "run.dir": str(path)})
