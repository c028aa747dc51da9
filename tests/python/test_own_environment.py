"""Environments of one's own: the adapter, and a training by the package's own fleet."""

import dataclasses
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs

import replicant
from replicant import _adapter, _make_env, _train, errors
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
    assert (f"{form.size} numbers" in seen) == (form.size > 0)
    assert [f"image {image.dims}" in seen for image in form.images] == ["image" in seen] * len(form.images)
    assert bool(form.images) == ("image" in seen)
    if isinstance(evaluated(space), gymnasium.Space):
        sample = evaluated(space).sample()
        flat = form.flat(sample)
        assert flat.shape == (form.size,) and flat.dtype == np.float64
        for pixels, image in zip(form.pixels(sample), form.images, strict=True):
            assert list(pixels.shape) == image.dims and pixels.dtype == np.uint8


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


def test_images_and_numbers_of_inner_dictionaries_keep_their_order():
    spaces = gymnasium.spaces
    space = spaces.Dict({
        "arm": spaces.Dict({"wrist": spaces.Box(0, 255, (3, 4, 5), np.uint8),
                            "joint": spaces.Box(-1, 1, (2,))}),
        "front": spaces.Box(0, 255, (6, 7, 1), np.uint8), "speed": spaces.Box(-1, 1, ())})
    adapter = Adapter(Plain(observation_space=space, observation=space.sample()))
    assert adapter.images == [("arm/wrist", [4, 5, 3]), ("front", [6, 7, 1])]
    assert adapter.observation == [("arm/joint", [2]), ("speed", [])]
    numbers = adapter.reset(1)
    raw = adapter.newest
    np.testing.assert_array_equal(numbers, [*raw["arm"]["joint"], raw["speed"]])
    # channels last, one image after the other
    wrist = np.moveaxis(raw["arm"]["wrist"], 0, 2)
    np.testing.assert_array_equal(adapter.pixels, np.append(wrist.ravel(), raw["front"].ravel()))
    # a batch
    batch = {"arm": {name: np.stack([value] * 3) for name, value in raw["arm"].items()},
             "front": np.stack([raw["front"]] * 3), "speed": np.stack([raw["speed"]] * 3)}
    rows, is_batch = adapter.form.batch(batch)
    assert is_batch and rows.shape == (3, 3)
    np.testing.assert_array_equal(adapter.form.pixels(batch)[0][2], wrist)


@pytest.mark.parametrize("observation, message", [
    (np.zeros((8, 9, 3), np.uint8), r"'observation' is uint8 \(8, 9, 3\); want uint8 \(8, 8, 3\), as"),
    (np.zeros((8, 8, 3)), r"'observation' is float64 \(8, 8, 3\); want uint8"),
    (None, "'observation' is None; want uint8"),
])
def test_an_image_of_another_form_is_named(observation, message):
    space = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    adapter = Adapter(Plain(observation_space=space, observation=space.sample()))
    adapter.reset(1)
    adapter._environment.observation = observation
    with pytest.raises(errors.InvalidArgument, match=message):
        adapter.step([0.0, 0.0])


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


def test_an_episodes_stack_keeps_frames_of_an_array_that_is_drawn_into_again():
    space = gymnasium.spaces.Box(0, 255, (1, 1, 1), np.uint8)
    core = types.SimpleNamespace(
        has_pixels=True, images={"observation": (1, 1, 1)}, frame_stack=3, state_size=0,
        observation_shape=(1, 1, 3), act_pixels=lambda stack, *_: stack.astype(float))
    policy = replicant.Policy(core, None, None, {}, None,
                              (_adapter.ObservationForm(space), np.dtype(np.float32)))
    frame, act = np.zeros((1, 1, 1), np.uint8), policy.episode()
    stacks = []
    for value in (10, 20, 30, 40):
        frame[:] = value
        stacks.append(act(frame).ravel().tolist())
    assert stacks == [[10, 10, 10], [10, 10, 20], [10, 20, 30], [20, 30, 40]]


def test_a_dictionary_without_a_name_is_refused():
    space = gymnasium.spaces.Dict({"arm": gymnasium.spaces.Box(-1, 1, (3,))})
    adapter = Adapter(Plain(observation_space=space, observation={"leg": np.zeros(3)}))
    with pytest.raises(errors.InvalidArgument, match=r"an observation has \['leg'\]; want \['arm'\]"):
        adapter.reset(1)


@pytest.mark.parametrize("result, message", [
    ((np.zeros(3), None, False, False, {}), "the reward is None; want a number, or an array of one"),
    ((np.zeros(3), [[1], [2, 3]], False, False, {}), "the reward is .*; want a number"),
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


def test_what_an_environment_does_to_its_action_stays_there():
    class Doubler(Plain):
        action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)

        def step(self, action):
            action *= 2
            return action.sum(keepdims=True).repeat(3), 0.5, False, False, {}

    adapter = Adapter(Doubler())
    action = np.array([0.25, 0.5])
    for _ in range(2):  # as when an action is repeated
        np.testing.assert_array_equal(adapter.step(action)[0], [1.5] * 3)
    np.testing.assert_array_equal(action, [0.25, 0.5])


@pytest.mark.parametrize("wrapper", [
    gymnasium.wrappers.NormalizeObservation, gymnasium.wrappers.NormalizeReward])
def test_a_wrapper_that_learns_its_scale_is_refused(wrapper):
    environment = wrapper(Plain())
    outer = gymnasium.wrappers.TimeLimit(environment, 10)
    with pytest.raises(errors.ConfigError, match=(
            f"make_env: {wrapper.__name__} learns its scale from what each process sees, .*"
            "update_running_mean to False")):
        Adapter(outer)
    environment.update_running_mean = False
    adapter = Adapter(outer)
    adapter.reset(1)
    np.testing.assert_allclose(adapter.step([0, 0])[0], [0] * 3)


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
    assert _make_env.name_of(DmCounter) == f"{__name__}:DmCounter"
    assert _make_env.find("dataclasses:dataclass") is dataclasses.dataclass
    assert _make_env.find(f"{__file__}:DmCounter").__name__ == "DmCounter"
    with pytest.raises(errors.InvalidArgument, match="top level of a module"):
        _make_env.name_of(lambda: None)
    with pytest.raises(errors.InvalidArgument, match="no such file"):
        _make_env.find("/nowhere/env.py:make")
    with pytest.raises(errors.InvalidArgument, match="has no function missing"):
        _make_env.name_of(f"{__file__}:missing")


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
    with pytest.raises(errors.InvalidArgument, match="was trained with make_env; want it here, too"):
        replicant.Policy.load(run.folder)
    opened = replicant.Run.open(run.folder, make_env=f"{EXAMPLE}:Pole")
    longer = opened.resume(**{"learner.limits.max_steps": 80}).wait(timeout=280)
    assert longer.policy().step == 80


CONFIG = EXAMPLE.parents[2] / "configs/cartpole_swingup_state.yaml"

ROBOT = """
import os, subprocess
import gymnasium, numpy as np

FOLDER = {folder!r}


def write(name, line):
    # one write: several processes append
    with open(os.path.join(FOLDER, name), "a") as file:
        file.write(line + "\\n")


class Robot(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({{
        "arm": gymnasium.spaces.Box(-1e3, 1e3, (2,), np.float64),
        "door": gymnasium.spaces.Discrete(2)}})
    action_space = gymnasium.spaces.Box(-0.1, 0.3, (1,), np.float64)

    def __init__(self):
        self.simulator = subprocess.Popen(["sleep", "1000"])
        write("made", str(self.simulator.pid))

    def observe(self):
        return {{"arm": np.full(2, float(self.t)), "door": self.t % 2}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {{}}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        return self.observe(), -0.5, False, self.t == {length}, {{}}

    def close(self):
        self.simulator.kill()
        self.simulator.wait()
        write("closed", str(self.simulator.pid))
"""


def write_robot(folder, *, length=20, more=""):
    """A file with an environment that starts a process, and writes when it is made and closed."""
    file = folder / "robot.py"
    file.write_text(ROBOT.format(folder=str(folder), length=length) + more, encoding="utf-8")
    return f"{file}:Robot"


def lines_of(file):
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def await_true(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def test_environments_of_a_run_are_closed_once(tmp_path):
    make = write_robot(tmp_path)
    bounds = {"agent.distribution.v_min": -50, "agent.distribution.v_max": 0}
    run = replicant.train(CONFIG, {**SHORT, **bounds}, folder=tmp_path / "run", make_env=make)
    run.wait(timeout=280)
    # its own form of observation, and its type of actions
    policy = run.policy()
    one = {"arm": np.zeros(2), "door": 1}
    action = policy.act(one)
    assert action.shape == (1,) and gymnasium.spaces.Box(-0.1, 0.3, (1,), np.float64).contains(action)
    batch = policy.act({"arm": np.zeros((4, 2)), "door": np.ones(4, int)})
    np.testing.assert_allclose(batch, np.tile(action, (4, 1)), atol=1e-6)
    np.testing.assert_allclose(policy.act(np.array([0.0, 0, 0, 1])), action, atol=1e-6)
    np.testing.assert_array_equal(policy.evaluate(2), [-10.0, -10.0])
    with pytest.raises(errors.InvalidArgument, match=r"the observation\[1\] is nan; want finite"):
        policy.act({"arm": [0.0, np.nan], "door": 1})
    with pytest.raises(errors.InvalidArgument, match=r"the observation\[0\] is 1e\+300; want finite"):
        policy.act(np.array([1e300, 0, 0, 1]))
    made = lines_of(tmp_path / "made")
    assert len(made) >= 5
    assert sorted(lines_of(tmp_path / "closed")) == sorted(made)
    assert not any(is_alive(pid) for pid in made)


def test_nothing_is_left_of_a_killed_fleet(tmp_path):
    make = write_robot(tmp_path)
    run = replicant.train(CONFIG, {**SHORT, "learner.limits.max_steps": 10**7},
                          folder=tmp_path / "run", make_env=make)
    try:
        log = tmp_path / "run.log"
        await_true(lambda: log.exists() and "actor-0 runs" in log.read_text(encoding="utf-8"), 280)
        alive = [pid for pid in lines_of(tmp_path / "made") if is_alive(pid)]
        assert alive
    finally:
        os.kill(run._process.pid, signal.SIGKILL)
        run._process.wait()
    await_true(lambda: not any(is_alive(pid) for pid in alive))


BAD = """

class Robot(Robot):
    def observe(self):
        observation = super().observe()
        # one number of one episode: of its last observation
        if self.t == {length} and not lines("made_bad") and len(lines("episodes")) > 40:
            write("made_bad", "1")
            observation["arm"][1] = {number}
        return observation

    def reset(self, **options):
        write("episodes", "1")
        return super().reset(**options)


def lines(name):
    path = os.path.join(FOLDER, name)
    return open(path).read().split() if os.path.exists(path) else []
"""


@pytest.mark.parametrize("number, text", [("np.nan", "nan"), ("1e300", "1e+300")])
def test_one_bad_number_does_not_end_a_run(tmp_path, number, text):
    make = write_robot(tmp_path, more=BAD.format(number=number, length=20))
    settings = {**SHORT, "learner.limits.max_steps": 400, "evaluation.enabled": False}
    run = replicant.train(CONFIG, settings, folder=tmp_path / "run", make_env=make)
    run.wait(timeout=280)
    log = (tmp_path / "run.log").read_text(encoding="utf-8")
    assert lines_of(tmp_path / "made_bad") == ["1"]
    assert f"step 20: observation 'arm'[1] is {text}; want finite numbers of float32" in log
    assert "learner-0: exit code" not in log
    resumed = run.resume(**{"learner.limits.max_steps": 420}).wait(timeout=280)
    assert resumed.policy().step == 420


def test_an_environment_without_end_is_named(tmp_path):
    make = write_robot(tmp_path, length=-1)
    run = replicant.train(CONFIG, {**SHORT, "evaluation.max_episode_steps": 300},
                          folder=tmp_path / "run", make_env=make)
    run.wait(timeout=280)
    assert "TimeLimit" in (tmp_path / "run.log").read_text(encoding="utf-8")
    # 304 control steps of -0.5 with an action repeat of 8
    assert run.evaluations()["return"][-1] == -152.0
    with pytest.warns(UserWarning, match="TimeLimit"):
        assert run.policy().evaluate(1, max_episode_steps=80) == -40.0


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


def test_a_recipes_limits_do_not_end_a_training_of_ones_own(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(_train, "start_fleet", lambda *arguments: started.append(arguments[2]))
    names = [f"learner.limits.{name}" for name in ("max_steps", "max_seconds", "max_frames")]
    recipe = "cartpole_swingup_state"
    replicant.train(recipe, folder=tmp_path, make_env=f"{EXAMPLE}:Pole")
    assert [started[-1][name] for name in names] == [0, 0, 0]
    # what the user says comes later, in any form
    replicant.train(recipe, {"learner": {"limits": {"max_seconds": 5}}, names[0]: 7},
                    folder=tmp_path, make_env=f"{EXAMPLE}:Pole")
    assert started[-1][names[0]] == 7
    assert list(started[-1]).index("learner") > list(started[-1]).index(names[1])
    # neither a file's limits nor those of the recipe's task are changed
    replicant.train(CONFIG, folder=tmp_path, make_env=f"{EXAMPLE}:Pole")
    assert names[1] not in started[-1]
    replicant.train(recipe, folder=tmp_path)
    assert names[1] not in started[-1]
