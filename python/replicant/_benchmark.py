"""replicant benchmark [NAME] [--seconds S] [--to FILE] [--set KEY=VALUE ...]

How fast this machine trains NAME, which is what `replicant train` takes (default:
cartpole-swingup). Short fleets train with other numbers of threads and of actors, for about S
seconds in all (default 120); then the task's environments step with each renderer. The keys of the
fastest training are printed and written to FILE (default benchmark.yaml), which
`replicant train FILE` takes. The figures hold for the machine as it is now: let nothing else run.
An environment of your own is named by REPLICANT_MAKE_ENV.
"""

import argparse
import contextlib
import dataclasses
import datetime
import math
import os
import pathlib
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator

from replicant import _config, _make_env, _recipes, _run_files, _train
from replicant.errors import Error, IoError

_SETTLE_S = 2.0  # from the first update; the queues fill
_LONGEST_START_S = 180.0
_LONGEST_SILENCE_S = 30.0
_LEAST_S = 2.0  # status.json is written once a second
# A rate within this share of the best is no better: two trials of one configuration differ by it.
_NOISE = 0.05


@dataclasses.dataclass
class Trial:
    """What a short fleet did; rates in 1/s. No update: 0; no actors: `frames` is NaN."""

    threads: int
    actors: int | None
    updates: float = 0.0
    frames: float = math.nan
    limit: str = ""

    @property
    def keys(self) -> dict[str, int]:
        found = {"learner.replication.threads": self.threads}
        return found if self.actors is None else found | {"actors.count": self.actors}


def num_processors() -> int:
    return len(os.sched_getaffinity(0))


def _machine() -> str:
    name = platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next((line.partition(":")[2].strip() for line in file
                     if line.startswith("model name")), name)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (f"{num_processors()} processors, {name}, {memory:.0f} GiB; load of the last minute "
            f"{os.getloadavg()[0]:.1f}")


# --- environments ---


def _steps_per_s(task: str, num_threads: int, seconds: float, **options) -> float:
    """Control steps of all environments, rendered if `options` say so."""
    from replicant import envs

    env = envs.make_vec(task, 4 * num_threads, num_threads=num_threads, seed=1, **options)
    try:
        env.reset()
        actions = env.action_space.sample()
        env.step(actions)
        steps, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            env.step(actions)
            steps += env.num_envs * options.get("action_repeat", 1)
        return steps / spent
    finally:
        env.close()


def _print_environments(config: dict[str, str], section: dict, seconds: float):
    """`config` is the resolved configuration of a trial, and `section` its section `task` as given:
    its files are not in the trial's folder, which is gone."""
    task = config["task.name"]
    own = {name: section[name] for name in ("mjcf", "suite_folder") if section.get(name)} | {
        "gl_platform": config["task.pixels.gl_platform"],
        "egl_device": int(config["task.pixels.egl_device"])}
    size = int(config["task.pixels.height"]), int(config["task.pixels.width"])
    repeat = int(config["task.action_repeat"])
    counts = sorted({1, num_processors()})
    print(f"\n{task}, control steps/s with action_repeat {repeat}\n{'threads':24}"
          + "".join(f"{count:14}" for count in counts))
    rows = [("state", {})]
    if config["task.pixels.enabled"] == "true":
        rows += [(f"{size[0]}x{size[1]} by {renderer}", {"pixels": size, "renderer": renderer})
                 for renderer in ("raycast", "gl")]
    for label, options in rows:
        rates = []
        for count in counts:
            try:
                rate = _steps_per_s(task, count, seconds, action_repeat=repeat, **own, **options)
                rates.append(f"{rate:14,.0f}")
            except Exception as error:  # a scene or a platform that is not there
                rates = [f"  {str(error).splitlines()[0]:.70}"]
                break
        print(f"{label:24}" + "".join(rates), flush=True)


# --- fleets ---


def _counts(status: dict) -> tuple[float, float, float]:
    """The time, the learner's updates and frames."""
    numbers = next((role["numbers"] for role in status["roles"]
                    if role["name"].startswith("learner")), {})
    return status["time"], numbers.get("updates", 0.0), numbers.get("frames", math.nan)


def _measure(run: _train.Run, trial: Trial, seconds: float):
    """Waits for updates, and measures them for `seconds`."""
    deadline = time.monotonic() + _LONGEST_START_S
    while _counts(status := _run_files.status(run.folder))[1] == 0.0:
        if not run.is_running():
            run.wait()  # raises what went wrong
            return
        if time.monotonic() > deadline:
            trial.limit = status["limit"]
            return
        time.sleep(0.2)
    time.sleep(_SETTLE_S)
    first = last = _counts(_run_files.status(run.folder))
    deadline = time.monotonic() + seconds + _LONGEST_SILENCE_S
    # on a busy machine the numbers are older than a second
    while ((last[0] - first[0] < seconds or last[1] == first[1]) and run.is_running()
           and time.monotonic() < deadline):
        time.sleep(0.2)
        status = _run_files.status(run.folder)
        last = _counts(status)
    spent = last[0] - first[0]
    if spent > 0.0:
        trial.updates = (last[1] - first[1]) / spent
        trial.frames = (last[2] - first[2]) / spent
    trial.limit = status["limit"]


class Trials:
    """Short fleets of one recipe."""

    def __init__(self, config: pathlib.Path, settings: dict, words: list[str], folder: pathlib.Path,
                 seconds: float, make_env: str | None):
        self._config, self._words, self._folder, self._seconds = config, words, folder, seconds
        # a trial ends when it is measured
        self._settings = settings | _train.ENDLESS | {"evaluation.enabled": False}
        if make_env:
            self._settings |= {"task.name": _make_env.TASK}
        self._make_env = make_env
        self.done: list[Trial] = []
        self.longest_s = 0.0

    def run(self, keys: dict[str, int]) -> dict[str, str]:
        """Trains with these keys; returns the resolved configuration."""
        start = time.monotonic()
        folder = self._folder / f"trial-{len(self.done)}"
        settings = {**self._settings, **keys, "run.dir": str(folder)}
        words = ["--config", str(self._config), *self._words]
        with _train.start_fleet(words, folder, settings, self._make_env) as run:
            trial = Trial(0, None)
            _measure(run, trial, self._seconds)
        config = _run_files.flat_yaml(folder / "config.yaml")
        trial.threads = int(config["learner.replication.threads"])
        if config["learner.workload"] == "d4pg":
            trial.actors = int(config["actors.count"])
        shutil.rmtree(folder)
        self.done.append(trial)
        self.longest_s = max(self.longest_s, time.monotonic() - start)
        frames = "" if math.isnan(trial.frames) else f"{trial.frames:12,.0f}"
        print(f"{trial.threads:8}{trial.actors or '-':>8}{trial.updates:12.4g}{frames}  "
              f"{trial.limit.partition(' (')[0]}", flush=True)
        return config

    def best(self) -> Trial:
        """The fastest; of equals the one that was tried first."""
        best = self.done[0]
        for trial in self.done[1:]:
            if trial.updates > best.updates * (1.0 + _NOISE):
                best = trial
        return best


def _search(trials: Trials, deadline: float):
    """Tries other numbers of threads, then of actors, as long as they help and there is time."""

    def has_time(key: str) -> bool:
        if time.monotonic() + trials.longest_s <= deadline:
            return True
        print(f"no time to try other values of {key}; hint: --seconds")
        return False

    own = trials.done[0]
    steps = [[], []]
    count = 1
    while count <= num_processors():
        if count != own.threads:
            steps[count > own.threads].append(count)
        count *= 2
    for counts in (reversed(steps[0]), steps[1]):
        for count in counts:
            if not has_time("learner.replication.threads"):
                return
            before = trials.best()
            trials.run({**own.keys, "learner.replication.threads": count})
            if trials.best() is before:
                break
    # more actors help only a learner that waits for them
    while (best := trials.best()).actors and best.limit.startswith("actors"):
        if not has_time("actors.count"):
            return
        trials.run({**best.keys, "actors.count": 2 * best.actors})
        if trials.best() is best:
            return


# the same as text, a number or a bool
_PLAIN = re.compile(r"true|false|[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.inf")


def _flow(value) -> str:
    """A value of _config.read() as YAML of one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(name)}: {_flow(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if value is None:
        return "null"
    return value if _PLAIN.fullmatch(value) else _train.yaml_of(value, value)


def _block(section: dict, resolved: dict[str, str], path: tuple[str, ...] = ()) -> Iterator[str]:
    """The lines of a section. Only `resolved` says whether `null` is no value or a text."""
    for name, value in sorted(section.items()):
        line = f"{'  ' * len(path)}{name if name.isidentifier() else _train.yaml_of(name, name)}:"
        if isinstance(value, dict) and value:
            yield line
            yield from _block(value, resolved, (*path, name))
        elif value is None:
            yield f"{line} {resolved.get('.'.join((*path, name)), 'null')}"
        else:
            yield f"{line} {_flow(value)}"


def _write(file: pathlib.Path, best: Trial, config: pathlib.Path, settings: list[str],
           resolved: dict[str, str], machine: str):
    """A configuration with `settings`, as --set takes them, and the keys of the best trial.
    `resolved` is the configuration of a trial."""
    settings = settings + [f"{key}={value}" for key, value in best.keys.items()]
    section = _config.part(_config.read(config, settings),
                           [setting.partition("=")[0] for setting in settings])
    lines = [f"# replicant benchmark, {datetime.date.today()}: {best.updates:.4g} updates/s",
             f"# on {machine}", f"base: {_flow(os.path.abspath(config))}",
             *_block(section, resolved)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    usage, _, about = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(prog="replicant benchmark", usage=usage, description=about,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="cartpole-swingup", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("benchmark.yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    if not options.seconds > 0.0:
        parser.error(f"--seconds: got {options.seconds:g}, want a number above 0")
    try:
        _benchmark(options)
    except Error as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    return 0


def _benchmark(options):
    config, settings = _recipes.find(options.name)
    if options.to.exists():
        raise IoError(f"{options.to}: exists already; hint: --to FILE")
    machine = _machine()
    print(machine)
    deadline = time.monotonic() + options.seconds
    make_env = os.environ.get(_make_env.VARIABLE)
    words = [word for pair in options.set for word in ("--set", pair)]
    with tempfile.TemporaryDirectory(prefix="replicant-benchmark-") as folder:
        trials = Trials(config, settings, words, pathlib.Path(folder),
                        max(options.seconds / 15.0, _LEAST_S), make_env)
        print(f"\n{options.name}, short trainings\n threads  actors   updates/s    frames/s  limit")
        resolved = trials.run({})
        _search(trials, deadline - options.seconds / 12.0)
    best = trials.best()
    if best.updates == 0.0:
        raise Error(f"no update within {_LONGEST_START_S:.0f} s; limit: {best.limit}")
    given = [f"{key}={_train.yaml_of(value, key)}" for key, value in settings.items()] + options.set
    if resolved["learner.workload"] == "d4pg" and not make_env:
        section = _config.read(config, given).get("task") or {}
        _print_environments(resolved, section, options.seconds / 100.0)
    _write(options.to, best, config, given, resolved, machine)
    keys = " ".join(f"--set {key}={value}" for key, value in best.keys.items())
    limit = best.limit.partition(" (")[0]
    print(f"\nfastest             {best.updates:.4g} updates/s; limit {limit}\n"
          f"keys                {keys}\n"
          f"written to          {options.to}; replicant train {options.to}")
