"""replicant check-env: each fault of an environment is named, and a good one has none."""

import subprocess
import sys
import time
import types

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_vector_environment import EnvPool

from replicant._check_env import check_env


class Good(gymnasium.Env):
    """Ends after 20 steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def step(self, action):
        self.t += 1
        return self.observe(), 0.5, False, self.t == 20, {}


class GoodDm(dm_env.Environment):
    def reset(self):
        self.t = 0
        return dm_env.restart({"x": np.random.uniform(size=2)})

    def step(self, action):
        self.t += 1
        end = dm_env.truncation if self.t == 20 else dm_env.transition
        return end(0.5, {"x": np.random.uniform(size=2)})

    def observation_spec(self):
        return {"x": specs.Array((2,), float)}

    def action_spec(self):
        return specs.BoundedArray((1,), float, -1, 1)


def found(make, kind):
    """The topics and texts of one kind."""
    report = check_env(make, steps=200, seconds=600)
    return {topic: text for k, topic, text in report.lines if k == kind}


@pytest.mark.parametrize("make", [Good, GoodDm])
def test_a_good_environment_has_no_fault(make):
    report = check_env(make, steps=200)
    assert report.count("mend") == report.count("note") == 0, report
    topics = {topic for _, topic, _ in report.lines}
    assert topics >= {"make", "face", "actions", "observation", "numbers", "rewards", "ends", "speed",
                      "seeds", "second", "close"}
    assert str(report).endswith("0 to mend, 0 notes")


def make_batch(member=Good, mode=AutoresetMode.NEXT_STEP):
    return SyncVectorEnv([member] * 3, autoreset_mode=mode)


@pytest.mark.parametrize("make", [make_batch, EnvPool])
def test_a_batch_is_tried_by_one_of_its_environments(make):
    report = check_env(make, steps=200)
    assert report.count("mend") == 0, report
    assert ("note", "batch", "set actors.environments: 3 and task.action_repeat: 1") in report.lines
    topics = {topic for _, topic, _ in report.lines}
    assert topics >= {"face", "actions", "observation", "numbers", "ends", "speed", "seeds", "close"}


def test_a_fault_of_a_batch_is_named():
    assert found(lambda: make_batch(mode=AutoresetMode.SAME_STEP), "mend")["spaces"].endswith(
        "has the autoreset mode AutoresetMode.SAME_STEP; allowed: AutoresetMode.NEXT_STEP, the default")
    assert found(lambda: make_batch(NaN), "mend") == {
        "numbers": "episode 0, step 7: observation 'observation'[1] is nan; want finite numbers of "
        "float32"}


class Exits(Good):
    def step(self, action):
        sys.exit(3)


class OldReset(Good):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


@pytest.mark.parametrize("make, text", [
    (Exits, "episode 0, step 1: SystemExit: 3"),
    (OldReset, "episode 0, step 0: reset() returned "),
])
def test_what_ends_the_episodes_is_said_once(make, text):
    report = check_env(make, steps=200)
    assert [topic for kind, topic, _ in report.lines if kind != "ok"] == ["episodes"]
    assert text in str(report)


class Overwrites(Good):
    """The reward tells whether an action is the one that was drawn."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)

    def step(self, action):
        action /= 2
        observation, _, *rest = super().step(action)
        return observation, float(abs(action[0])), *rest


def test_an_environment_may_write_into_its_action():
    report = check_env(Overwrites, steps=200)
    assert report.count("note") == 0 and report.has("seeds"), report


class NaN(Good):
    def observe(self):
        return np.array([0, np.nan if self.t == 7 else 0])


class Huge(Good):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 1e300, *rest


class OtherShape(Good):
    def observe(self):
        return np.zeros(2 if self.t < 3 else 3)


class AtTheBound(Good):
    def step(self, action):
        if action[0] == 1.0:
            raise ZeroDivisionError("a joint at its stop")
        return super().step(action)


class WholeNumbers(Good):
    action_space = gymnasium.spaces.Box(0, 3, (1,), np.int64)


class Endless(Good):
    def step(self, action):
        return self.observe(), 0.5, False, False, {}


class Leaves(Good):
    def __init__(self):
        self.simulator = subprocess.Popen(["sleep", "60"])


class ClosesBadly(Good):
    def close(self):
        raise RuntimeError("not open")


def broken():
    raise ConnectionError("the robot is off")


@pytest.mark.parametrize("make, topic, text", [
    (broken, "make", "ConnectionError: the robot is off"),
    (NaN, "numbers", "episode 0, step 7: observation 'observation'[1] is nan; want finite numbers of "
     "float32"),
    (Huge, "numbers", "episode 0, step 1: the reward is 1e+300; want a finite number"),
    (OtherShape, "episodes", "episode 0, step 3: observation 'observation' has the shape (3,); want "
     "(2,), as the environment says"),
    (AtTheBound, "episodes", "episode 2, step 1: ZeroDivisionError: a joint at its stop"),
    (WholeNumbers, "spaces", "the actions are Box(0, 3, (1,), int64); an agent needs floating-point "
     "numbers between two bounds, such as Box(-1, 1, (2,), float32)"),
    (Endless, "ends", "no end of an episode in 20000 steps; hint: gymnasium.wrappers.TimeLimit, or "
     "truncated=True (dm_env.truncation) after some steps"),
    (ClosesBadly, "close", "RuntimeError: not open"),
])
def test_what_a_training_suffers_from_is_to_be_mended(make, topic, text):
    assert found(make, "mend") == {topic: text}


def test_a_process_that_close_leaves_is_named():
    made = []

    def make():
        made.append(Leaves())
        return made[-1]

    try:
        text = found(make, "mend")["close"]
        assert f"sleep ({made[0].simulator.pid})" in text
    finally:
        for environment in made:
            environment.simulator.kill()
            environment.simulator.wait()


class Unseeded(Good):
    def observe(self):
        return np.full(2, time.perf_counter() % 1.0, np.float32)


class Terminates(Good):
    def step(self, action):
        observation, reward, _, is_over, info = super().step(action)
        return observation, reward, is_over, False, info


class Negative(Good):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, -2.0, *rest


class BeyondItsSpace(Good):
    def observe(self):
        return np.full(2, 2.0, np.float32)


class OtherType(Good):
    def observe(self):
        return np.zeros(2)


class OtherShape(Good):
    def observe(self):
        return np.zeros((1, 2), np.float32)


class BeyondItsSpaceInAnotherShape(Good):
    def observe(self):
        return np.array([[0.0, 2.0]], np.float32)


class OneChoice(Good):
    observation_space = gymnasium.spaces.Discrete(3)

    def observe(self):
        return np.array([1])


class MoreThanItsSpace(Good):
    observation_space = gymnasium.spaces.Dict({"arm": Good.observation_space})

    def observe(self):
        return {"arm": np.zeros(2, np.float32), "time": self.t, "debug": None}


class NoDictionary(MoreThanItsSpace):
    def observe(self):
        return types.MappingProxyType({"arm": np.zeros(2, np.float32)})


class Single(Good):
    alive = 0

    def __init__(self):
        if Single.alive:
            raise RuntimeError("one connection only")
        Single.alive = 1

    def close(self):
        Single.alive = 0


class GreyPicture(Good):
    render_mode = "rgb_array"

    def render(self):
        return np.zeros((8, 8), np.uint8)


@pytest.mark.parametrize("make, topic, text", [
    (Unseeded, "seeds", "the same seed gives the first observation differently"),
    (Terminates, "ends", "every episode terminated after 20 steps: a time limit should truncate"),
    (Negative, "rewards", "from -2 to -2, not in [0, 1]"),
    (BeyondItsSpace, "space", "episode 0, step 0: observation 'observation'[0] is 2; its space has -1 "
     "to 1"),
    (OtherType, "space", "observation 'observation' has the type float64; its space has float32"),
    (OtherShape, "space", "observation 'observation' has the shape (1, 2); its space has (2,)"),
    (BeyondItsSpaceInAnotherShape, "space", "episode 0, step 0: observation 'observation'[1] is 2; "
     "its space has -1 to 1"),
    (OneChoice, "space", "observation 'observation' has the shape (1,); its space has ()"),
    (MoreThanItsSpace, "space", "observation 'observation' has time, debug; its space has arm only, "
     "and a training sees only these"),
    (NoDictionary, "space", "observation 'observation' has the type mappingproxy; its space has dict"),
    (Single, "second", "a second environment in one process fails (RuntimeError: one connection "
     "only)"),
    (GreyPicture, "render", "render() gives uint8 (8, 8); want uint8 [height, width, 3]"),
])
def test_what_is_good_to_know_is_noted(make, topic, text):
    notes = found(make, "note")
    assert list(notes) == [topic] and text in notes[topic]
    assert not found(make, "mend")


MODEL = """
<mujoco>
  <worldbody>
    <light pos="0 0 3"/>
    <geom type="plane" size="2 2 .1" rgba=".2 .6 .2 1"/>
    <geom type="sphere" size=".2" pos="0 0 1" rgba="1 0 0 1"/>
    <camera name="front" pos="0 -3 1" xyaxes="1 0 0 0 0 1"/>
    <camera name="hung" pos="0 -3 1" xyaxes="-1 0 0 0 0 -1"/>
  </worldbody>
</mujoco>"""


class Filmed(Good):
    """Shows what a camera of a MuJoCo model sees, as Gymnasium's own environments do."""

    render_mode = "rgb_array"

    def __init__(self, camera=0):
        import mujoco

        self.model = mujoco.MjModel.from_xml_string(MODEL)
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)
        self.mujoco_renderer = type("Renderer", (), {"camera_id": camera})

    def render(self):
        return np.zeros((16, 16, 3), np.uint8)


def test_a_camera_that_hangs_upside_down_is_noted():
    assert not found(Filmed, "note")
    assert found(lambda: Filmed(1), "note") == {
        "render": "camera 1 is upside down: its upward axis points down"}


def test_the_command_prints_and_ends_with_a_code(tmp_path):
    (tmp_path / "mine.py").write_text(
        f"import sys\nsys.path.insert(0, {__file__.rpartition('/')[0]!r})\n"
        "from test_check_env import Good, NaN\n", encoding="utf-8")

    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "replicant", "check-env", *arguments],
                              cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)

    good = run("mine:Good", "--steps", "100")
    assert good.returncode == 0 and good.stdout.endswith("0 to mend, 0 notes\n")
    bad = run("mine.py:NaN", "--steps", "100")
    assert bad.returncode == 1 and "  mend  numbers      episode 0, step 7: " in bad.stdout
    missing = run("mine:Missing")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("check-env: make_env: mine has no function Missing; hint: ")
