"""replicant check-env MODULE:FUNCTION: tries a user's environment and says what to mend.

It plays random episodes as an actor would, with the checks of a training and some more.
"""

import argparse
import contextlib
import itertools
import math
import os
import pathlib
import sys
import threading
import time

import gymnasium
import numpy as np

from replicant import _make_env
from replicant._adapter import (MAX_EPISODE_STEPS, Adapter, Face, bounds_of, close_environment,
                                is_dm_env)
from replicant._vector_adapter import first_member, is_batch
from replicant.errors import Error

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_DISCOUNT = 0.99  # for the proposed bounds of returns
_RAISED = (Exception, SystemExit)  # by a user's code: it may call sys.exit()


class Report:
    """Lines of a kind ("ok", "note", "mend"), a topic and a text; one for each text."""

    def __init__(self):
        self.lines: list[tuple[str, str, str]] = []

    def add(self, kind: str, topic: str, text: str) -> None:
        line = (kind, topic, " ".join(str(text).split()).removeprefix("make_env: "))
        if line not in self.lines:
            self.lines.append(line)

    def count(self, kind: str) -> int:
        return sum(line[0] == kind for line in self.lines)

    def has(self, topic: str) -> bool:
        return any(line[1] == topic for line in self.lines)

    def __str__(self):
        rows = [f"  {kind:<5} {topic:<12} {text}" for kind, topic, text in self.lines]
        mend, notes = self.count("mend"), self.count("note")
        return "\n".join([*rows, f"{mend} to mend, {notes} note{'' if notes == 1 else 's'}"])


def _text_of(error: BaseException) -> str:
    return str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"


def _why_outside(space, value, name: str = "observation") -> str:
    """Why a value, of which a training takes the numbers, is not in its space."""
    kind = getattr(value, "dtype", type(value).__name__)
    if isinstance(space, gymnasium.spaces.Dict):
        for inner, part in space.spaces.items():
            if not part.contains(value[inner]):
                return _why_outside(part, value[inner], inner)
        others = [str(inner) for inner in value if inner not in space.spaces]
        if others:
            return (f"observation '{name}' has {', '.join(others)}; its space has "
                    f"{', '.join(space.spaces)} only, and a training sees only these")
        return f"observation '{name}' has the type {kind}; its space has dict"
    shape = np.shape(value)
    if isinstance(space, gymnasium.spaces.Box):
        # a training takes sides of 1 more or less
        array = np.asarray(value).reshape(space.shape)
        outside = np.argwhere(~((array >= space.low) & (array <= space.high)))
        if len(outside):
            at = tuple(int(i) for i in outside[0])
            return (f"observation '{name}'{list(at)} is {array[at]:.6g}; its space has "
                    f"{space.low[at]:.6g} to {space.high[at]:.6g}")
    if shape != space.shape:
        return f"observation '{name}' has the shape {shape}; its space has {space.shape}"
    return f"observation '{name}' has the type {kind}; its space has {space.dtype}"


def _children() -> dict[int, str]:
    """Living processes that this one has started, and theirs, by id."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text(encoding="utf-8").rpartition(")")
        except (OSError, UnicodeDecodeError):
            continue  # it has ended
        state, parent = rest.split()[:2]
        if state != "Z":
            parents[int(stat.parent.name)] = (int(parent), name.partition("(")[2])
    found: dict[int, str] = {}
    new = {os.getpid()}
    while new:
        new = {pid for pid, (parent, _) in parents.items() if parent in new and pid not in found}
        found |= {pid: parents[pid][1] for pid in new}
    return found


class _Check:
    """The checks of one environment."""

    def __init__(self, make, report: Report, *, steps: int, seed: int, seconds: float):
        self._make = make
        self._report = report
        self._steps = steps
        self._seed = seed
        self._deadline = time.monotonic() + seconds
        self._random = np.random.default_rng(seed)
        self._rewards = [math.inf, -math.inf]
        self._bad: set[str] = set()
        self._lengths: list[tuple[int, bool]] = []  # of episodes, and whether they terminated
        self._step_times: list[float] = []
        self._reset_times: list[float] = []
        self._adapter: Face | None = None
        self._num_envs = 1  # that step in one call

    def run(self) -> None:
        children, threads = set(_children()), set(threading.enumerate())
        begin = time.perf_counter()
        try:
            environment = self._make()
        except _RAISED as error:
            self._report.add("mend", "make", _text_of(error))
            return
        self._report.add("ok", "make", f"{time.perf_counter() - begin:.3g} s")
        try:
            if self._read_spaces(environment):
                self._play()
                self._repeat()
                if not self._adapter.is_of_batch:
                    self._make_another()
                    self._render(environment)
        finally:
            self._close(environment, children, threads)

    def _read_spaces(self, environment) -> bool:
        """Whether a training can use the environment at all."""
        try:
            if is_batch(environment):
                self._read_batch(environment)
            else:
                is_dm = is_dm_env(environment)
                self._report.add("ok", "face", f"{'dm_env' if is_dm else 'Gymnasium'}: {environment}")
                self._action = environment.action_spec() if is_dm else environment.action_space
                self._space = None if is_dm else environment.observation_space
                self._adapter = Adapter(environment)
        except _RAISED as error:
            self._report.add("mend", "spaces", _text_of(error))
            return False
        low, high = bounds_of(self._action)
        self._report.add("ok", "actions", self._action)
        if (low == high).any():
            self._report.add("note", "actions", f"element {int(np.argmax(low == high))} has one value")
        form = self._adapter.form
        arrays = [f"{array.name} {array.shape}" for array in (*form.images, *form.parts)]
        images = f"{len(form.images)} images and " if form.images else ""
        self._report.add("ok", "observation", f"{images}{form.size} numbers: " + ", ".join(arrays))
        return True

    def _read_batch(self, environment) -> None:
        """One environment of a batch is tried, as the evaluator plays it."""
        self._adapter = first_member(self._make, environment)
        batch = self._adapter._batch
        self._action, self._space = batch.action_space, batch.observation_space
        self._num_envs = batch.num_envs
        self._report.add("ok", "face", f"a batch of {batch.num_envs}: {environment}")
        self._report.add("note", "batch", f"set actors.environments: {batch.num_envs} and "
                         "task.action_repeat: 1")

    def _act(self, episode: int) -> np.ndarray:
        """The lowest actions in episode 1, the highest in episode 2, else random ones."""
        low, high = np.array(self._adapter.minimum), np.array(self._adapter.maximum)
        return low if episode == 1 else high if episode == 2 else self._random.uniform(low, high)

    def _play(self) -> None:
        num_steps = 0
        for episode in itertools.count():
            where = f"episode {episode}, step 0: "
            try:
                begin = time.perf_counter()
                observation = self._adapter.reset(self._seed + episode)
                self._reset_times.append(time.perf_counter() - begin)
                self._see(observation, where)
                is_over, length, discount = False, 0, 1.0
                while not is_over and length < MAX_EPISODE_STEPS and (
                        time.monotonic() < self._deadline):
                    if num_steps >= self._steps and self._lengths:
                        break
                    where = f"episode {episode}, step {length + 1}: "
                    action, begin = self._act(episode), time.perf_counter()
                    observation, reward, discount, is_over = self._adapter.step(action)
                    self._step_times.append(time.perf_counter() - begin)
                    length, num_steps = length + 1, num_steps + 1
                    self._see(observation, where)
                    self._weigh(reward, discount, where)
            except _RAISED as error:
                self._report.add("mend", "episodes", where + _text_of(error))
                return
            if is_over:
                self._lengths.append((length, discount == 0.0))
            elif length >= MAX_EPISODE_STEPS or not self._lengths:
                self._report.add(
                    "mend" if length >= MAX_EPISODE_STEPS else "note", "ends",
                    f"no end of an episode in {length} steps; hint: gymnasium.wrappers.TimeLimit, or "
                    "truncated=True (dm_env.truncation) after some steps")
                break
            if num_steps >= self._steps or time.monotonic() >= self._deadline:
                break
        self._sum_up(num_steps)

    def _see(self, observation: np.ndarray, where: str) -> None:
        bad = np.flatnonzero(~(np.abs(observation) <= _FLOAT32_MAX))
        if bad.size:
            index = int(bad[0])
            for part in self._adapter.form.parts:
                if index < part.size:
                    break
                index -= part.size
            self._add_once(f"observation '{part.name}'[{index}]", f"{where}observation '{part.name}'"
                           f"[{index}] is {observation[bad[0]]}; want finite numbers of float32")
            return
        if self._space is None or self._report.has("space"):
            return
        raw = self._adapter.newest
        if not self._space.contains(raw):
            self._report.add("note", "space", where + _why_outside(self._space, raw))

    def _add_once(self, name: str, text: str) -> None:
        """Reports the first bad value of a number."""
        if name not in self._bad:
            self._bad.add(name)
            self._report.add("mend", "numbers", text)

    def _weigh(self, reward: float, discount: float, where: str) -> None:
        if not abs(reward) <= _FLOAT32_MAX:
            self._add_once("reward", f"{where}the reward is {reward}; want a finite number")
            return
        if not 0.0 <= discount <= 1.0:
            self._add_once("discount", f"{where}the discount is {discount}; want [0, 1]")
        self._rewards = [min(self._rewards[0], reward), max(self._rewards[1], reward)]

    def _sum_up(self, num_steps: int) -> None:
        add, lengths = self._report.add, [length for length, _ in self._lengths]
        if not self._report.has("numbers"):
            add("ok", "numbers", f"{num_steps} steps with random, lowest and highest actions: finite")
        low, high = self._rewards
        if low < 0 or high > 1:
            rest = 1 - _DISCOUNT
            add("note", "rewards", f"from {low:.4g} to {high:.4g}, not in [0, 1]: set "
                "agent.distribution.range: running, or v_min and v_max there, for the "
                f"discount {_DISCOUNT} of a step to at "
                f"most {min(low, 0) / rest:.4g} and at least {max(high, 0) / rest:.4g}, or less if "
                "episodes are short")
        elif low <= high:
            add("ok", "rewards", f"from {low:.4g} to {high:.4g}")
        if lengths:
            num_terminated = sum(terminated for _, terminated in self._lengths)
            add("ok", "ends", f"{len(lengths)} episodes of {min(lengths)} to {max(lengths)} steps, "
                f"{num_terminated} terminated")
            if len(lengths) > 2 and num_terminated == len(lengths) and min(lengths) == max(lengths):
                add("note", "ends", f"every episode terminated after {lengths[0]} steps: a time limit "
                    "should truncate, or its last step is learned as a failure")
        if self._step_times:
            add("ok", "speed", f"{self._num_envs / max(np.median(self._step_times), 1e-9):.0f} "
                f"steps/s, a reset takes {1e3 * np.median(self._reset_times):.3g} ms")

    def _repeat(self) -> None:
        """Whether a seed and actions determine an episode."""
        if self._report.has("episodes"):
            return
        actions = [self._act(0) for _ in range(10)]

        def play(seed):
            seen = [self._adapter.reset(seed), self._adapter.pixels]
            for action in actions:
                observation, reward, _, is_over = self._adapter.step(action)
                seen += [observation, self._adapter.pixels, np.array([reward])]
                if is_over:
                    break
            return seen

        first, second = play(self._seed), play(self._seed)
        is_equal = len(first) == len(second) and all(
            np.array_equal(a, b, equal_nan=True) for a, b in zip(first, second, strict=True))
        if is_equal:
            self._report.add("ok", "seeds", "the same seed and actions give the same episode")
            return
        is_first_equal = all(np.array_equal(a, b, equal_nan=True)
                             for a, b in zip(first[:2], second[:2], strict=True))
        what = ("the first observation" if not is_first_equal
                else "the episode")
        self._report.add("note", "seeds", f"the same seed gives {what} differently: a run cannot be "
                         "repeated, and all its evaluations play other episodes")

    def _make_another(self) -> None:
        if self._report.has("episodes"):
            return
        try:
            other = self._make()
        except _RAISED as error:
            self._report.add("note", "second", "a second environment in one process fails "
                             f"({_text_of(error)}): set actors.environments to 1")
            return
        try:
            adapter = Adapter(other)
            adapter.reset(self._seed)
            adapter.step(self._act(0))
            self._adapter.reset(self._seed)
            self._report.add("ok", "second", "two environments live in one process")
        except _RAISED as error:
            self._report.add("note", "second", "two environments disturb each other "
                             f"({_text_of(error)}): set actors.environments to 1")
        finally:
            with contextlib.suppress(*_RAISED):  # _close() reports it of the first one
                close_environment(other)

    def _render(self, environment) -> None:
        mode = getattr(environment, "render_mode", None)
        if mode != "rgb_array":
            return
        try:
            self._adapter.reset(self._seed)
            environment.render()  # makes the context of OpenGL
            begin = time.perf_counter()
            picture = environment.render()
            seconds = time.perf_counter() - begin
        except _RAISED as error:
            self._report.add("note", "render", _text_of(error))
            return
        if getattr(picture, "dtype", None) != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            self._report.add("note", "render", f"render() gives {getattr(picture, 'dtype', picture)} "
                             f"{getattr(picture, 'shape', '')}; want uint8 [height, width, 3]")
            return
        self._report.add("ok", "render", f"{picture.shape}, {1e3 * seconds:.3g} ms")
        fault = _orientation_fault(environment, picture)
        if fault:
            self._report.add("note", "render", fault)

    def _close(self, environment, children, threads) -> None:
        try:
            close_environment(self._adapter or environment)
        except _RAISED as error:
            self._report.add("mend", "close", _text_of(error))
            return
        # what was asked to end may need a moment
        deadline = time.monotonic() + 2.0
        while (left := {pid: name for pid, name in _children().items() if pid not in children}) and (
                time.monotonic() < deadline):
            time.sleep(0.05)
        if left:
            self._report.add("mend", "close", "close() leaves processes: " + ", ".join(
                f"{name} ({pid})" for pid, name in left.items()))
        else:
            self._report.add("ok", "close", "no process is left")
        alive = [thread.name for thread in threading.enumerate() if thread not in threads]
        if alive:
            self._report.add("note", "close", f"close() leaves threads: {', '.join(alive)}")


def _orientation_fault(environment, picture: np.ndarray) -> str:
    """Why the picture of a MuJoCo simulation is upside down; "" if it is not, or not known."""
    base = getattr(environment, "unwrapped", environment)
    model, data = getattr(base, "model", None), getattr(base, "data", None)
    camera = getattr(getattr(base, "mujoco_renderer", None), "camera_id", None)
    if not hasattr(model, "ncam") or not isinstance(camera, int) or not 0 <= camera < model.ncam:
        return ""
    if data.cam_xmat[camera].reshape(3, 3)[2, 1] < -0.1:
        return f"camera {camera} is upside down: its upward axis points down"
    try:
        import mujoco

        with mujoco.Renderer(model, *picture.shape[:2]) as renderer:
            renderer.update_scene(data, camera=camera)
            drawn = renderer.render().astype(float)
    except Exception:  # no OpenGL here
        return ""
    upright, flipped = (np.abs(drawn - rows).mean() for rows in (picture, picture[::-1]))
    return "the rows come bottom-up; hint: picture[::-1]" if flipped < 0.8 * upright else ""


def check_env(make, *, steps: int = 2000, seed: int = 1, seconds: float = 60.0) -> Report:
    """Tries the environment that `make` returns, for about `steps` steps or `seconds` seconds."""
    report = Report()
    _Check(make, report, steps=steps, seed=seed, seconds=seconds).run()
    return report


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="replicant check-env", description="Tries a user's environment and says what to mend. "
        "The exit code is 1 if there is something to mend, and 2 if it could not be tried.")
    parser.add_argument("make_env", help="MODULE:FUNCTION or FILE.py:FUNCTION, as for train()")
    parser.add_argument("--steps", type=int, default=2000, help="steps to play (default 2000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first episode (default 1)")
    parser.add_argument("--seconds", type=float, default=60.0,
                        help="time after which it stops playing (default 60)")
    given = parser.parse_args(arguments)
    # as `python -m` does
    sys.path.insert(0, os.getcwd())
    try:
        make = _make_env.find(given.make_env)
    except (Error, ImportError) as error:
        print(f"check-env: {error}", file=sys.stderr)
        return 2
    report = check_env(make, steps=given.steps, seed=given.seed, seconds=given.seconds)
    print(report)
    return 1 if report.count("mend") else 0
