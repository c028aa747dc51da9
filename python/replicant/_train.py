"""Trainings: starts a fleet of processes from this package, or from the build whose program
`fleet` is named by REPLICANT_FLEET."""

import decimal
import enum
import json
import math
import numbers
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from replicant import _make_env, _process, _recipes, _run_files
from replicant.errors import EXIT_CONFIG, ConfigError, Error, IoError


def _fleet(make_env: str | None) -> tuple[list[str], dict[str, str]]:
    """The command that starts a fleet, and its environment variables: the program of
    REPLICANT_FLEET, or this package's own."""
    given = os.environ.get("REPLICANT_FLEET")
    if not given or make_env:
        own = {_make_env.VARIABLE: make_env} if make_env else {}
        return [*_process.python("replicant"), "fleet"], {**_process.environment(), **own}
    if not os.access(given, os.X_OK):
        raise IoError(f"REPLICANT_FLEET: {given}: no such program")
    return [given], dict(os.environ)


_POLL_S = 0.2  # of a run that another process started

# A recipe's limits are for its own task.
ENDLESS = {f"learner.limits.{name}": 0 for name in ("max_steps", "max_seconds", "max_frames")}


def settings_of_own(file: pathlib.Path) -> dict[str, Any]:
    """Keys of a training by the configuration `file` in an environment of the user's."""
    settings = {"task.name": _make_env.TASK, "evaluation.video.enabled": False}
    return {**settings, **ENDLESS} if _recipes.FOLDER in file.parents else settings


class Run:
    """A training, or one that has ended; see train().

    folder  the run's folder: resolved configuration, logs, checkpoints, curves
    """

    def __init__(self, folder: pathlib.Path, process: subprocess.Popen | None, log: pathlib.Path,
                 make_env: str | None = None, log_begin: int = 0):
        self.folder = folder
        self._process = process
        self._log = log
        self._log_begin = log_begin  # bytes of earlier processes
        self._make_env = make_env

    @classmethod
    def open(cls, folder: str | os.PathLike, make_env=None) -> "Run":
        """A run that this process did not start, with the make_env that it was started with. It is
        watched; `with` does not stop it."""
        path = pathlib.Path(folder).resolve()
        if not (path / "config.yaml").exists():
            raise IoError(f"{folder}: no folder of a run, which has a config.yaml")
        return cls(path, None, path.parent / f"{path.name}.log",
                   None if make_env is None else _make_env.name_of(make_env))

    def is_running(self) -> bool:
        """Whether its fleet runs, whoever started it. Of a fleet on another host the folder says so,
        also once it is killed."""
        if self._process is None:
            return _run_files.is_running(self.folder)
        return self._process.poll() is None

    def wait(self, timeout: float | None = None) -> "Run":
        """Waits for the end. Raises Error with the fleet's last lines if it failed or was killed, and
        TimeoutError after `timeout` seconds."""
        if self._process is None:
            problem = self._watch(timeout)
        else:
            try:
                code = self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise self._late(timeout) from None
            problem = f"fleet ended with code {code}" if code else ""
        if problem:
            lines = self._last_lines()
            if self._process is None or not lines:
                lines.append(problem)
            kind = ConfigError if self._process is not None and code == EXIT_CONFIG else Error
            raise kind("\n".join(lines))
        return self

    def stop(self, timeout: float | None = None) -> "Run":
        """Ends the training with a last checkpoint, from which it can be resumed; one that another
        process started by `fleet --stop`. TimeoutError after `timeout` seconds; a second call then
        kills all processes of the run."""
        if self.is_running():
            if self._process is None:
                self._stop_by_fleet(timeout)
            else:
                self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def _watch(self, timeout: float | None) -> str:
        """Waits for the end of a fleet that another process started; returns how it failed, or ""."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while self.is_running():
            if time.monotonic() >= deadline:
                raise self._late(timeout)
            time.sleep(_POLL_S)
        status = _run_files.flat_yaml(self.folder / "state.yaml").get("status")
        return {"failed": f"{self.folder}: the run has failed",
                "running": f"{self.folder}: its fleet was killed"}.get(status, "")

    def _stop_by_fleet(self, timeout: float | None) -> None:
        command, environment = _fleet(None)
        # kept: after a timeout it still waits for the end
        self._stopping = subprocess.Popen(
            [*command, "--stop", str(self.folder)], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            _, output = self._stopping.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise self._late(timeout) from None
        # the run may have ended meanwhile
        if self._stopping.returncode != 0 and self.is_running():
            raise Error(output.strip() or f"{self.folder}: fleet --stop failed")

    def _late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{self.folder}: still running after {timeout} s")

    def _last_lines(self) -> list[str]:
        try:
            text = self._log.read_bytes()[self._log_begin:].decode(errors="replace")
        except FileNotFoundError:  # started by another program
            return []
        return text.strip().splitlines()[-20:]

    def resume(self, overrides: Mapping[str, Any] | None = None, **more) -> "Run":
        """Goes on from the last checkpoint. `overrides` are those of train():
        {"learner.limits.max_steps": 0}; so are keywords."""
        if self.is_running():
            raise Error(f"{self.folder}: it runs already")
        return start_fleet(["--resume", str(self.folder)], self.folder,
                           {**checked_overrides(overrides), **more}, self._make_env)

    def progress(self) -> dict[str, Any]:
        """The newest line of fleet.jsonl; empty before the first."""
        records = _run_files.records(self.folder / "fleet.jsonl")
        return records[-1] if records else {}

    def evaluations(self) -> dict[str, np.ndarray]:
        """Evaluations so far, one array for each number: step, seconds, return, return_std, ...;
        empty arrays before the first."""
        records = _run_files.records(self.folder / "evaluations.jsonl")
        return _columns(records) or {name: np.empty(0) for name in _OF_EVALUATIONS}

    def curves(self) -> dict[str, np.ndarray]:
        """The learner's numbers so far, one array for each: step, critic_loss, ..."""
        return _columns(_run_files.records(self.folder / "learner.jsonl"))

    def policy(self, which: str = "newest", *, seed: int | None = None):
        """replicant.Policy.load() of this run."""
        from replicant import Policy

        return Policy.load(self.folder, which=which, make_env=self._make_env, seed=seed)

    def __repr__(self):
        return f"<replicant.Run {self.folder}>"

    def __reduce__(self):
        # a copy, here or in another process, watches the same run
        return Run.open, (self.folder, self._make_env)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        # stop() of a run that has ended raises why it failed; an exception of the block counts more
        if self._process is not None and (kind is None or self.is_running()):
            self.stop()


_OF_EVALUATIONS = ("step", "seconds", "frames", "episodes", "return", "return_std", "return_min",
                   "return_max", "length")


def _columns(records: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    names = {name for record in records for name, value in record.items()
             if isinstance(value, (int, float)) and not isinstance(value, bool)}
    return {name: np.array([record.get(name, np.nan) for record in records], dtype=float)
            for name in sorted(names)}


def yaml_of(value, key: str) -> str:
    """The value as YAML of one line: text always in quotes, so that no rule of YAML or of --set
    reads it as something else; NumPy's and other libraries' numbers and arrays, paths and enums
    as their plain values."""
    if isinstance(value, enum.Enum):
        return yaml_of(value.value, key)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (str, bytes, os.PathLike)):
        # text of JSON is text of YAML, but for this control character
        return json.dumps(os.fsdecode(value), ensure_ascii=False).replace("\x7f", "\\x7f")
    if isinstance(value, Mapping):
        parts = (f"{yaml_of(name, key)}: {yaml_of(part, key)}" for name, part in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(yaml_of(part, key) for part in value) + "]"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, (numbers.Real, decimal.Decimal)):
        return repr(float(value)).replace("inf", ".inf").replace("nan", ".nan")
    if hasattr(value, "tolist"):  # an array, a tensor or one of their numbers
        return yaml_of(value.tolist(), key)
    raise ConfigError(f"{key}: got {type(value).__name__} {value!r:.100}; want text, a path, a "
                      "number, a bool, None, a list or a dictionary of these")


def checked_overrides(overrides: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ConfigError(f"overrides: got {overrides!r:.100}; want a dictionary of keys and their "
                          "values, such as {\"learner.limits.max_seconds\": 600}")
    return overrides or {}


def start_fleet(arguments, folder, overrides: Mapping[str, Any], make_env: str | None) -> Run:
    _make_env.check_not_importing()
    command, environment = _fleet(make_env)
    command += arguments
    for key, value in overrides.items():
        command += ["--set", f"{key}={yaml_of(value, key)}"]
    log = folder.parent / f"{folder.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as output:
        begin = output.tell()
        # Ctrl-C is for this program, which stops the run when it likes
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env=environment)
    return Run(folder, process, log, make_env, begin)


def train(config: str | os.PathLike, overrides: Mapping[str, Any] | None = None, *,
          folder: str | os.PathLike, make_env: Callable[[], Any] | str | None = None) -> Run:
    """Starts a training and returns at once.

    config     a YAML file; or the name of a recipe or a task, as `replicant train --list` prints
               them: "cartpole_swingup_state", "finger-spin"
    overrides  keys in full and their values: {"learner.limits.max_seconds": 600}
    folder     of the run; must be empty or missing. The fleet's own output is in FOLDER.log
    make_env   a function without arguments that returns an environment of Gymnasium or dm_env, to
               train in instead of the configuration's task. Every actor and the evaluator import
               it from its file or module and call it; or its name, "FILE.py:NAME". Observations
               are numbers, actions have bounds. Rewards outside [0, 1] need
               agent.distribution.range: running, or v_min and v_max there. A recipe's limits are
               for its own task and do not count: the training ends by learner.limits in
               `overrides`, or by stop()
    """
    path = pathlib.Path(folder).resolve()
    file, settings = _recipes.find(config)
    # what an argument says; last, as a dictionary {"task": {...}} may hold it too
    fixed = {"run.dir": str(path)}
    name = None
    if make_env is not None:
        name = _make_env.name_of(make_env)
        fixed["task.name"] = _make_env.TASK
        settings = {**settings, **settings_of_own(file)}
    overrides = checked_overrides(overrides)
    for key in fixed.keys() & overrides.keys():
        argument = "folder" if key == "run.dir" else "make_env"
        raise ConfigError(f"{key}: got {overrides[key]!r:.100}; leave it out, the argument "
                          f"{argument} says it")
    settings = {key: value for key, value in settings.items() if key not in fixed}
    settings |= {**overrides, **fixed}
    return start_fleet(["--config", str(file)], path, settings, name)
