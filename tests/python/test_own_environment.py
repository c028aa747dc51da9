"""Environments of one's own: the adapter, and a training by the package's own fleet."""

import dataclasses
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
from replicant import _own_environment, errors

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
    adapter = _own_environment.Adapter(DmCounter())
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
    adapter = _own_environment.Adapter(environment)
    np.testing.assert_array_equal(adapter.reset(7), [7, 0])
    assert adapter.step([0.0])[1:] == (1.0, 1.0, True)
    environment.ends = (True, False)
    assert adapter.step([0.0])[1:] == (1.0, 0.0, True)


def test_what_an_agent_cannot_use_is_refused():
    class Discrete(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (2,))
        action_space = gymnasium.spaces.Discrete(3)

    with pytest.raises(errors.ConfigError, match="actions Discrete.* have no bounds"):
        _own_environment.Adapter(Discrete())
    Discrete.action_space = gymnasium.spaces.Box(-1, 1, (1,))
    Discrete.observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    with pytest.raises(errors.ConfigError, match="allowed: arrays of numbers, no pictures"):
        _own_environment.Adapter(Discrete())
    box = gymnasium.spaces.Box(0, 1, (2,))
    Discrete.observation_space = gymnasium.spaces.Dict({"arm": gymnasium.spaces.Dict({"x": box})})
    with pytest.raises(errors.ConfigError, match="the observation arm is .* no spaces within"):
        _own_environment.Adapter(Discrete())
    with pytest.raises(errors.ConfigError, match="want an environment of Gymnasium or dm_env"):
        _own_environment.Adapter(object())


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
