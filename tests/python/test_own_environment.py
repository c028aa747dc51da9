"""Environments of one's own: the adapter, and a training by the package's own fleet."""

import dataclasses
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs

import replicant
from replicant import _adapter, _own_environment, errors
from replicant._adapter import Adapter

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples/python/own_environment.py"
SHORT = {
    "learner.limits.max_steps": 60,
    "agent.networks.policy_hidden_sizes": [8],
    "agent.networks.critic_hidden_sizes": [8],
    "evaluation.episodes": 2,
}


class DmCounter(dm_env.Environment):
    """Observes how many steps it has made; ends after three."""

    def reset(self):
        self.count = 0
        return dm_env.restart(self.observe())

    def observe(self):
        return {"count": np.float64(self.count), "twice": np.full((1, 2), self.count)}

    def step(self, action):
        self.count += 1
        if self.count == 3:
            return dm_env.termination(float(action[0]), self.observe())
        return dm_env.transition(float(action[0]), self.observe())

    def observation_spec(self):
        return {"count": specs.Array((), float), "twice": specs.Array((1, 2), int)}

    def action_spec(self):
        return specs.BoundedArray((2,), np.float32, [-1, -2], [1, 2])


def test_a_dm_env_is_read_as_numbers():
    adapter = Adapter(DmCounter())
    assert adapter.observation == [("count", []), ("twice", [1, 2])]
    assert adapter.minimum == [-1, -2] and adapter.maximum == [1, 2]
    np.testing.assert_array_equal(adapter.reset(1), [0, 0, 0])
    for count in (1, 2):
        observation, reward, discount, is_last = adapter.step([0.5, 0])
        np.testing.assert_array_equal(observation, [count] * 3)
        assert (reward, discount, is_last) == (0.5, 1.0, False)
    assert adapter.step([0.25, 0])[1:] == (0.25, 0.0, True)


def test_gymnasiums_ends_become_discounts():
    class Ends(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (2,))
        action_space = gymnasium.spaces.Box(-1, 1, (1,))
        ends = (False, True)

        def reset(self, *, seed=None, options=None):
            return np.array([seed, 0]), {}

        def step(self, action):
            return np.zeros(2), 1, *self.ends, {}

    environment = Ends()
    adapter = Adapter(environment)
    np.testing.assert_array_equal(adapter.reset(7), [7, 0])
    assert adapter.step([0.0])[1:] == (1.0, 1.0, True)
    environment.ends = (True, False)
    assert adapter.step([0.0])[1:] == (1.0, 0.0, True)


class Plain(gymnasium.Env):
    """Takes whatever spaces and results it is given."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (2,))
    observation = np.zeros(3)
    result: tuple = ()

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        return self.result or (self.observation, 0.5, False, False, {})


def rows_of_table(title):
    """The first two cells of the rows of a table in docs/python.md."""
    text = (EXAMPLE.parents[2] / "docs/python.md").read_text(encoding="utf-8")
    lines = text[text.index(title):].splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:3]]
            for line in itertools.takewhile(lambda line: line.startswith("|"), lines)]


def evaluated(cell):
    names = {**vars(gymnasium.spaces), "specs": specs, "np": np}
    return eval(cell.strip("`"), names)


@pytest.mark.parametrize("space, seen", rows_of_table("| observation |"))
def test_the_manuals_observations_are_taken_or_refused(space, seen):
    if seen == "refused":
        with pytest.raises(errors.ConfigError, match="the observation"):
            _adapter.ObservationForm(evaluated(space))
        return
    form = _adapter.ObservationForm(evaluated(space))
    assert f"{form.size} numbers" in seen
    if isinstance(evaluated(space), gymnasium.Space):
        sample = evaluated(space).sample()
        flat = form.flat(sample)
        assert flat.shape == (form.size,) and flat.dtype == np.float64


@pytest.mark.parametrize("space, taken", rows_of_table("| action |"))
def test_the_manuals_actions_are_taken_or_refused(space, taken):
    if taken == "refused":
        with pytest.raises(errors.ConfigError, match="an agent needs"):
            _adapter.bounds_of(evaluated(space))
    else:
        low, high = _adapter.bounds_of(evaluated(space))
        assert (low < high).any()


def test_choices_become_ones_among_zeros():
    spaces = gymnasium.spaces
    form = _adapter.ObservationForm(spaces.Dict({
        "door": spaces.Discrete(3, start=5), "keys": spaces.MultiDiscrete([2, 3]),
        "lamps": spaces.MultiBinary(2)}))
    one = {"door": 6, "keys": np.array([1, 0]), "lamps": np.array([0, 1], np.int8)}
    np.testing.assert_array_equal(form.flat(one), [0, 1, 0, 0, 1, 1, 0, 0, 0, 1])
    with pytest.raises(errors.InvalidArgument, match=r"'door' is 8; its space has the values \[5\] to "
                       r"\[7\]"):
        form.flat({**one, "door": 8})


@pytest.mark.parametrize("observation, message", [
    (np.zeros(2), r"observation 'observation' has the shape \(2,\); want \(3,\)"),
    (None, "observation 'observation' is None; want numbers"),
    (["1", "2", "3"], "is .* want numbers"),
    ([[1], [1, 2]], "want numbers"),
    (np.zeros(3, complex), "want numbers"),
    ({"x": 1}, "want numbers"),
])
def test_an_observation_of_another_form_is_named(observation, message):
    adapter = Adapter(Plain())
    adapter.reset(1)
    adapter._environment.observation = observation
    with pytest.raises(errors.InvalidArgument, match=message):
        adapter.step([0.0, 0.0])


def test_a_dictionary_without_a_name_is_refused():
    space = gymnasium.spaces.Dict({"arm": gymnasium.spaces.Box(-1, 1, (3,))})
    adapter = Adapter(Plain(observation_space=space, observation={"leg": np.zeros(3)}))
    with pytest.raises(errors.InvalidArgument, match=r"an observation has \['leg'\]; want \['arm'\]"):
        adapter.reset(1)


@pytest.mark.parametrize("result, message", [
    ((np.zeros(3), None, False, False, {}), "the reward is None; want a number"),
    ((np.zeros(3), np.zeros(2), False, False, {}), "the reward is array.*; want a number"),
    ((np.zeros(3), 0.0, None, False, {}), "terminated is None; want True or False"),
    ((np.zeros(3), 0.0, False, "no", {}), "truncated is 'no'; want True or False"),
    ((np.zeros(3), 0.0, False, {}), r"step\(\) returned .*want \(observation, reward, terminated"),
])
def test_a_step_of_another_form_is_named(result, message):
    with pytest.raises(errors.InvalidArgument, match=message):
        Adapter(Plain(result=result)).step([0.0, 0.0])


class Both(Plain):
    """As robosuite's GymWrapper."""

    action_spec = property(lambda self: (np.full(2, -1.0), np.full(2, 1.0)))

    def observation_spec(self):
        return {"joint": np.zeros(3)}


class Forwarding(Plain):
    """As wrappers that forward what they do not know to a dm_env."""

    def __getattr__(self, name):
        return getattr(DmCounter(), name)


@pytest.mark.parametrize("environment", [Both(), Forwarding(),
                                         gymnasium.wrappers.TimeLimit(Both(), 5)])
def test_what_gymnasium_knows_is_read_as_gymnasium(environment):
    adapter = Adapter(environment)
    assert adapter.observation == [("observation", [3])]
    adapter.reset(1)
    assert adapter.step([0.0, 0.0])[1:] == (0.5, 1.0, False)


class RaisingDt(Plain):
    @property
    def dt(self):
        raise RuntimeError("no clock")


@pytest.mark.parametrize("environment, seconds", [
    (Plain(dt=0.02), 0.02), (Plain(dt=np.float32(0.5)), 0.5), (Plain(dt=lambda: 0.25), 0.25),
    (gymnasium.wrappers.TimeLimit(Plain(dt=0.02), 5), 0.02),
    (Plain(dt=None), 0), (Plain(dt=np.array([0.02])), 0), (Plain(dt="fast"), 0),
    (Plain(dt=np.nan), 0), (Plain(dt=True), 0), (RaisingDt(), 0),
])
def test_the_timestep_is_a_number_or_not_known(environment, seconds):
    assert Adapter(environment).control_timestep_s == seconds


def test_what_is_no_environment_is_refused():
    for other in (object(), gymnasium.make_vec("Pendulum-v1", num_envs=2)):
        with pytest.raises(errors.ConfigError, match="make_env: got"):
            Adapter(other)


class Closing(Plain):
    closed = 0

    def close(self):
        Closing.closed += 1


def test_an_environment_is_closed_once():
    Closing.closed = 0
    adapter = _adapter.adapt(Closing)
    adapter.close()
    adapter.close()
    assert Closing.closed == 1
    with pytest.raises(errors.ConfigError):
        _adapter.adapt(lambda: Closing(action_space=gymnasium.spaces.Discrete(2)))
    assert Closing.closed == 2


def test_a_function_is_named_so_that_other_processes_find_it():
    assert _own_environment.name_of(DmCounter) == f"{__name__}:DmCounter"
    assert _own_environment.find("dataclasses:dataclass") is dataclasses.dataclass
    assert _own_environment.find(f"{__file__}:DmCounter").__name__ == "DmCounter"
    with pytest.raises(errors.InvalidArgument, match="top level of a module"):
        _own_environment.name_of(lambda: None)
    with pytest.raises(errors.InvalidArgument, match="no such file"):
        _own_environment.find("/nowhere/env.py:make")
    with pytest.raises(errors.InvalidArgument, match="has no function missing"):
        _own_environment.name_of(f"{__file__}:missing")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    sys.path.append(str(EXAMPLE.parent))
    try:
        import own_environment

        return own_environment.train(folder, SHORT).wait(timeout=280)
    finally:
        sys.path.remove(str(EXAMPLE.parent))


def test_the_fleet_of_the_package_trains_it(run):
    policy = run.policy()
    assert policy.step == 60
    actions = policy.act(np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]))
    assert actions.shape == (2, 1) and np.abs(actions).max() <= 2
    # two episodes of 200 control steps with rewards of [0, 1]
    assert 0 <= run.evaluations()["return"][-1] <= 200
    opened = replicant.Run.open(run.folder, make_env=f"{EXAMPLE}:Pole")
    longer = opened.resume(**{"learner.limits.max_steps": 80}).wait(timeout=280)
    assert longer.policy().step == 80


def process_of(run, role):
    """The process of a running fleet's role."""
    fleet = run._process.pid
    children = pathlib.Path(f"/proc/{fleet}/task/{fleet}/children").read_text(encoding="ascii")
    return next(int(pid) for pid in children.split()
                if role.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))


def test_a_killed_actor_is_started_again(tmp_path):
    training = replicant.train(
        EXAMPLE.parents[2] / "configs/cartpole_swingup_state.yaml",
        {**SHORT, "learner.limits.max_steps": 10**7}, folder=tmp_path / "run",
        make_env=f"{EXAMPLE}:Pole")
    log = tmp_path / "run.log"

    def await_line(text):
        deadline = time.monotonic() + 280
        while text not in log.read_text(encoding="utf-8"):
            assert training.is_running() and time.monotonic() < deadline, text
            time.sleep(0.05)

    with training:
        await_line("actor-0 runs")
        os.kill(process_of(training, "actor"), signal.SIGKILL)
        await_line("actor-0: signal 9")
        await_line("actor-0 starts (incarnation 2)")


def test_what_the_environment_raises_is_named(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("def make():\n    raise ValueError('the robot is off')\n")
    config = EXAMPLE.parents[2] / "configs/cartpole_swingup_state.yaml"
    failing = replicant.train(config, SHORT, folder=tmp_path / "run", make_env=f"{file}:make")
    with pytest.raises(errors.Error, match="ValueError: the robot is off"):
        failing.wait(timeout=280)


def test_the_package_brings_its_own_programs():
    program = pathlib.Path(sys.executable).parent / "replicant"
    found = subprocess.run([program, "fleet", "--version"], stdout=subprocess.PIPE, text=True,
                           check=True, timeout=280)
    assert found.stdout.startswith("fleet ")
