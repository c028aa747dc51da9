"""Tasks in Python: start, observation, reward and end, and their faults."""

import gc
import itertools
import weakref

import numpy as np
import pytest
from pendulum import PENDULUM, own_task

from replicant import envs, errors
from replicant._adapter import Adapter


def test_a_task_with_pixels_is_an_environment_of_a_training():
    cameras = PENDULUM.replace('<camera name="side"', '<camera name="top" pos="0 0 3"/><camera '
                               'name="side"')
    options = {"pixels": (8, 6), "camera": ["side", "top"], "state": True}
    env = envs.make(own_task(mjcf=cameras), **options, frame_stack=1)
    face = Adapter(env)
    assert face.images == [("pixels/side", [8, 6, 3]), ("pixels/top", [8, 6, 3])]
    assert face.observation == [("state", [2])]
    with pytest.raises(errors.ConfigError) as raised:
        Adapter(envs.make(own_task(mjcf=cameras), **options))
    assert str(raised.value).endswith(
        "; hint: one frame, as envs.make(..., frame_stack=1) gives it; task.pixels.frame_stack "
        "stacks them")


def test_a_task_in_python_says_start_observation_reward_and_end():
    starts = []

    def initialize(physics, rng):
        physics.qpos = rng.uniform(-0.5, 0.5, 1)
        starts.append(physics.joint_position("hinge")[0])

    task = own_task(
        reward=lambda physics: physics.sensor("angle")[0],
        observation=lambda physics: {
            "tip": physics.site_position("tip"), "rotation": physics.body_matrix("pole"),
            "angle": physics.qpos[0]},
        termination=lambda physics: 0.0 if abs(physics.qpos[0]) > 0.6 else None,
        initialize=initialize, time_limit_s=10.0)
    expected = None
    for threads in (0, 2):
        env = envs.make_vec(task, 2, flatten=False, num_threads=threads, seed=9)
        observation, _ = env.reset()
        assert observation["rotation"].shape == (2, 3, 3) and observation["angle"].shape == (2,)
        np.testing.assert_allclose(np.sin(observation["angle"]), observation["tip"][:, 0])
        steps = []
        for _ in range(150):
            observation, reward, terminated, truncated, _ = env.step(np.full((2, 1), 2.0))
            steps.append(np.stack([observation["angle"], reward, terminated]))
            assert not truncated.any()
            if terminated.any():
                assert np.abs(observation["angle"])[terminated].min() > 0.6
        steps = np.stack(steps)
        assert steps[:, 2].sum() >= 2
        expected = steps if expected is None else expected
        np.testing.assert_array_equal(steps, expected)
    assert len(set(starts)) > 2


def test_errors_of_a_task_in_python_reach_the_caller():
    def failing(physics):
        raise KeyError("no such thing")

    for threads in (0, 2):
        env = envs.make_vec(own_task(reward=failing), 2, num_threads=threads)
        env.reset()
        with pytest.raises(KeyError, match="no such thing"):
            env.step(np.zeros((2, 1)))
    with pytest.raises(errors.InvalidArgument, match="did you mean 'tip'"):
        env = envs.make_vec(own_task(observation=lambda p: {"x": p.site_position("tp")}))
    with pytest.raises(errors.InvalidArgument, match=r"observation\(\) must return a dictionary"):
        envs.make_vec(own_task(observation=lambda p: p.qpos))


@pytest.mark.parametrize("end", [True, np.False_, float("nan"), 2])
def test_an_end_that_is_no_discount_is_refused(end):
    env = envs.make_vec(own_task(termination=lambda physics: end))
    env.reset()
    with pytest.raises(errors.InvalidArgument, match=f"termination.*, got {end}"):
        env.step(np.zeros((1, 1)))


def fails_once(number):
    """A task whose third reward is `number`, or raised where it is an exception."""
    calls = itertools.count(1)

    def reward(physics):
        if next(calls) != 3:
            return 1.0
        if isinstance(number, Exception):
            raise number
        return number

    return own_task(reward=reward)


@pytest.mark.parametrize("number", [np.inf, np.nan, 1e300])
def test_a_reward_that_is_not_finite_is_refused_with_its_place(number):
    env = envs.make_vec(fails_once(number))
    env.reset()
    for _ in range(2):
        env.step(np.zeros((1, 1)))
    with pytest.raises(errors.InvalidArgument) as refused:
        env.step(np.zeros((1, 1)))
    text = {1e300: "1e+300"}.get(number, str(number))
    assert str(refused.value) == (
        f"pendulum-own: environment 0, episode 0, step 3: the reward is {text}; want finite numbers "
        "of float32")


@pytest.mark.parametrize("failure", [np.nan, KeyError("no such thing")])
def test_a_step_that_fails_ends_the_episode(failure):
    # a batch begins another one, a single environment asks for a reset
    for make in (envs.make_vec, envs.make):
        env = make(fails_once(failure))
        env.reset()
        actions = np.zeros(env.action_space.shape)
        for _ in range(2):
            env.step(actions)
        with pytest.raises((errors.InvalidArgument, KeyError)):
            env.step(actions)
        if make is envs.make:
            with pytest.raises(errors.InvalidArgument, match="the episode of environment 0 is over"):
                env.step(actions)
            env.reset()
        else:
            assert env.step(actions)[1] == 0.0
            assert env.counters["episodes"] == 2
        assert env.step(actions)[1] == 1.0


@pytest.mark.parametrize("reward", [None, [0.5], "much", {}])
def test_a_reward_that_is_no_number_is_refused_with_its_task(reward):
    env = envs.make_vec(own_task(reward=lambda physics: reward))
    env.reset()
    with pytest.raises(errors.InvalidArgument) as refused:
        env.step(np.zeros((1, 1)))
    assert f"pendulum-own: reward() must return a finite number, got {reward!r}" in str(refused.value)


@pytest.mark.parametrize("number, text", [(np.nan, "nan"), (1e300, r"1e\+300"), (None, "nan")])
def test_an_observation_that_no_network_can_take_is_refused(number, text):
    calls = itertools.count()
    task = own_task(observation=lambda physics: {
        "angle": physics.qpos, "ready": [0.0, number if next(calls) == 4 else 1.0]})
    env = envs.make_vec(task, flatten=False)
    env.reset()
    with pytest.raises(errors.InvalidArgument, match=(
            "pendulum-own: environment 0, episode 0, step [0-9]+: "
            rf"observation 'ready'\[1\] is {text}; want finite numbers of float32")):
        for _ in range(10):
            env.step(np.zeros((1, 1)))
    # the next step begins another episode
    assert env.step(np.zeros((1, 1)))[1] == 0.0


def test_a_task_that_ends_in_the_step_of_its_time_limit_terminates():
    task = own_task(termination=lambda physics: 0.0 if physics.time_s > 0.195 else None)
    for make in (envs.make, envs.make_vec):
        env = make(task)
        env.reset()
        for _ in range(19):
            assert not np.any(env.step(env.action_space.sample())[2:4])
        assert np.all(env.step(env.action_space.sample())[2])
    env = envs.load(task)
    env.reset()
    last = [env.step(np.zeros(1)) for _ in range(20)][-1]
    assert last.last() and last.discount == 0.0


def test_a_time_limit_is_a_whole_number_of_steps():
    # 0.9 / (3 * 0.01) is 30.000000000000004
    env = envs.make(own_task(control_timestep_s=0.03, time_limit_s=0.9))
    env.reset()
    truncated = [env.step(np.zeros(1))[3] for _ in range(30)]
    assert truncated == 29 * [False] + [True]


def test_a_task_without_observations_is_refused():
    with pytest.raises(errors.InvalidArgument, match="the observation would be empty"):
        envs.make_vec(own_task(observation=lambda physics: {}))


def test_an_error_of_mujocos_reaches_the_caller():
    # an arena in which the contacts of a step do not fit
    ball = '<body><freejoint/><geom size="0.1"/></body>'
    small = PENDULUM.replace("<option", '<size memory="4K"/><option').replace(
        "<worldbody>", "<worldbody>" + ball + ball)
    with pytest.raises(errors.Error, match="MuJoCo: .*stack"):
        env = envs.make_vec(own_task(mjcf=small))
        env.reset()
        env.step(np.zeros((1, 1)))


def test_an_object_whose_functions_are_its_environments_task_is_freed():
    class Trainer:
        def __init__(self):
            self.env = envs.make_vec(own_task(reward=self.reward), 2, num_threads=2)

        def reward(self, physics):
            return 1.0

    trainer = weakref.ref(Trainer())
    gc.collect()
    assert trainer() is None


def test_the_text_of_a_task_makes_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    envs.make_vec(own_task()).reset()
    assert not list(tmp_path.iterdir())


def test_a_physics_does_not_outlive_its_environment():
    kept = []
    env = envs.make_vec(own_task(initialize=lambda physics, rng: kept.append(physics)))
    env.reset()
    assert kept[0].qpos.shape == (1,)
    env.close()
    with pytest.raises(errors.InvalidArgument, match="its environment has gone"):
        kept[0].qpos


def test_the_model_is_named_where_it_is_missing(tmp_path):
    with pytest.raises(OSError, match="nothing.xml"):
        envs.make_vec(own_task(mjcf=tmp_path / "nothing.xml"))


def test_a_model_without_joints_has_empty_observations():
    model = "<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>"
    task = envs.Task(name="still", mjcf=model, reward=lambda physics: 1.0, control_timestep_s=0.02)
    time_step = envs.load(task).reset()
    assert time_step.observation["position"].shape == (0,)
    # and the default camera is the free one where the model has none
    env = envs.make_vec(task, 2, flatten=False, pixels=(8, 8), state=True)
    observation, _ = env.reset()
    assert observation["pixels"].shape == (2, 8, 8, 9) and observation["velocity"].shape == (2, 0)
    assert env.step(np.zeros((2, 0)))[1].tolist() == [1.0, 1.0]


RIG = """
<mujoco>
  <worldbody>
    <body name="hand" mocap="true" pos="0 0 1"><geom size=".05" contype="0" conaffinity="0"/></body>
    <body name="arm"><joint name="hinge" axis="0 1 0"/><geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/>
      <site name="end" pos=".3 0 0"/></body>
    <site name="anchor" pos="0 0 .4"/>
  </worldbody>
  <tendon><spatial name="rope"><site site="anchor"/><site site="end"/></spatial></tendon>
  <actuator><general joint="hinge" dyntype="integrator" ctrlrange="-1 1"/></actuator>
  <keyframe><key name="home" qpos=".1" act=".25"/><key name="bent" qpos="-.7" act=".5" mpos="0 .2 .8"/></keyframe>
</mujoco>
"""


def test_a_task_starts_in_a_keyframe_and_moves_mocap_bodies():
    seen = []

    def initialize(physics, rng):
        physics.set_keyframe("bent")
        seen.append((physics.qpos.tolist(), physics.act.tolist(),
                     physics.mocap_position("hand").tolist()))
        physics.set_keyframe(0)
        # as NumPy takes them
        physics.act = 0.75
        physics.set_mocap_position("hand", [0.1, 0.2, 0.3])
        physics.set_mocap_quaternion("hand", np.array([0, 1, 0, 0]))

    task = envs.Task(name="rig", mjcf=RIG, reward=lambda physics: physics.tendon_length("rope"),
                     observation=lambda physics: {
                         "qpos": physics.qpos, "act": physics.act,
                         "hand": physics.body_position("hand"),
                         "turn": physics.mocap_quaternion("hand"),
                         "speed": physics.tendon_velocity("rope")},
                     initialize=initialize, control_timestep_s=0.02)
    env = envs.load(task)
    first = env.reset()
    assert seen == [([-0.7], [0.5], [0.0, 0.2, 0.8])]
    assert first.observation["qpos"] == [0.1] and first.observation["act"] == [0.75]
    assert first.observation["hand"].tolist() == [0.1, 0.2, 0.3]
    assert first.observation["turn"].tolist() == [0.0, 1.0, 0.0, 0.0]
    step = env.step(np.zeros(1))
    assert 0.3 < step.reward < 0.7 and step.observation["speed"] != 0


@pytest.mark.parametrize(("call", "message"), [
    (lambda p: p.set_keyframe("hom"), "no key named 'hom' in the model; did you mean 'home'?"),
    (lambda p: p.set_keyframe(2), "keyframe 2 given; the model has 2"),
    (lambda p: p.set_mocap_position("arm", np.zeros(3)), "body 'arm' has no mocap=\"true\""),
    (lambda p: p.set_mocap_quaternion("hand", np.ones(1)), "got 1 numbers, want 4"),
    (lambda p: p.set_mocap_quaternion("hand", 0.5), "physics.hand: got 1 numbers, want 4"),
    (lambda p: setattr(p, "act", [[0.5]]), "physics.act: got [[0.5]], want 1 numbers"),
    (lambda p: setattr(p, "act", "much"), "physics.act: got 'much', want 1 numbers"),
    (lambda p: setattr(p, "act", None), "physics.act: got None, want 1 numbers"),
    (lambda p: p.tendon_length("rop"), "no tendon named 'rop' in the model; did you mean 'rope'?"),
])
def test_a_part_that_the_model_lacks_is_named(call, message):
    task = envs.Task(name="rig", mjcf=RIG, reward=lambda physics: 0.0, control_timestep_s=0.02,
                     initialize=lambda physics, rng: call(physics))
    with pytest.raises(errors.InvalidArgument) as raised:
        envs.load(task).reset()
    assert message in str(raised.value)
