"""A fleet trains environments of Python from images and numbers, from goals, and from a batch."""

import json
import os
import pathlib
import runpy
import subprocess

import numpy as np
import pytest

import replicant
from replicant import _process, _recipes, errors

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples/python/images_and_state.py"
SHORT = {
    "learner.limits.max_steps": 60,
    "agent.networks.policy_hidden_sizes": [8],
    "agent.networks.critic_hidden_sizes": [8],
    "evaluation.episodes": 2,
}


def test_a_fleet_learns_from_an_image_and_selected_numbers(tmp_path):
    example = runpy.run_path(str(EXAMPLE))
    overrides = {**example["SETTINGS"], **SHORT}
    # the function of a file that every process imports
    run = replicant.train("cartpole_swingup_state", overrides, folder=tmp_path / "run",
                          make_env=f"{EXAMPLE}:Cursor")
    run.wait(timeout=280)
    assert len(run.evaluations()["return"]) > 0
    policy = run.policy()
    env = example["Cursor"]()
    observation, _ = env.reset(seed=1)
    action = policy.act(observation)
    assert env.action_space.contains(action)
    # the clock is not seen, the others are
    late = {**observation, "clock": np.array([2.5], np.float32)}
    np.testing.assert_array_equal(policy.act(late), action)
    for name in ("camera", "cursor"):
        other = {**observation, name: (observation[name] // 2 + 1).astype(observation[name].dtype)}
        assert (policy.act(other) != action).any(), name
    returns = policy.evaluate(2)
    assert returns.shape == (2,) and (returns < 0).all() and (returns > -430).all()
    # numbers of a thousand were normalized: the learner's mean is theirs
    mean = variable_of(run, "observations/mean")
    assert mean.shape == (4,) and (np.abs(mean[:2] - 500) < 200).all() and (np.abs(mean[2:]) < 1).all()
    # keys of the model's metadata, as protobuf writes them: there is no camera of a model of MuJoCo
    model = tmp_path / "model.onnx"
    subprocess.run([*_process.python("replicant"), "export", "--checkpoint", run.folder, "--to", model],
                   env={**os.environ, "REPLICANT_MAKE_ENV": f"{EXAMPLE}:Cursor"}, check=True,
                   timeout=280)
    assert b"\n\x0bframe_stack\x12" in model.read_bytes()
    assert b"\n\x06camera\x12" not in model.read_bytes()


@pytest.mark.parametrize("program, images, numbers", [
    ("gymnasium_pixels", ["pixels"], []), ("two_cameras", ["front", "hand"], ["joints"])])
def test_a_fleet_trains_mujoco_models_from_pictures_of_the_ray_caster(program, images, numbers,
                                                                      tmp_path, request):
    pytest.importorskip("mujoco", reason="MuJoCo is not installed")
    from replicant import render

    # the policy makes an environment here, which may install the renderer
    request.addfinalizer(render.uninstall)
    pytest.importorskip("imageio", reason="Gymnasium's MuJoCo environments need it")
    example = runpy.run_path(str(EXAMPLE.parent / f"{program}.py"))
    make = "make" if "make" in example else "Arm"
    run = replicant.train(
        "pixels", {**example["SETTINGS"], **SHORT, "learner.batch_size": 16,
                   "learner.limits.max_steps": 20, "actors.exploration.random_steps": 100,
                   "replay.tables.default.rate_limiter.min_size_to_sample": 100,
                   "evaluation.episodes": 1},
        folder=tmp_path / "run", make_env=f"{EXAMPLE.parent / program}.py:{make}")
    run.wait(timeout=280)
    assert len(run.evaluations()["return"]) > 0
    env = example[make]()
    observation, _ = env.reset(seed=1)
    policy = run.policy()
    action = policy.episode()(observation)
    assert env.action_space.contains(action)
    for name in images + numbers:  # each is seen
        other = {**observation, name: (observation[name] // 2 + 1).astype(observation[name].dtype)}
        assert (policy.episode()(other) != action).any(), name
    # an episode's frames are stacked
    stacks = {name: np.concatenate([observation[name]] * 3, axis=-1) for name in images}
    state = {"state": np.concatenate([observation[name] for name in numbers])} if numbers else {}
    np.testing.assert_array_equal(policy.act({**stacks, **state}), action)
    with pytest.raises(errors.InvalidArgument, match="the run stacks 3 frames.*episode"):
        policy.act(observation)
    env.close()


def variable_of(run, name):
    """A variable of the newest checkpoint, float32."""
    return array_of(max((run.folder / "checkpoints").glob("step-*")) / "variables.safetensors", name)


def array_of(file, name):
    """An array of a .safetensors file, float32."""
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    array = json.loads(data[8:begin])[name]
    first, last = array["data_offsets"]
    return np.frombuffer(data[begin + first:begin + last], "<f4").reshape(array["shape"])


REACH = '''
import gymnasium
import numpy as np


class Reach(gymnasium.Env):
    """A point moves to a goal on a line; the reward is 0 there and -1 elsewhere."""

    box = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    observation_space = gymnasium.spaces.Dict(
        {"observation": box, "achieved_goal": box, "desired_goal": box})
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 1))
        self.count = 0
        return self.observe(), {}

    def observe(self):
        return {"observation": self.place.copy(), "achieved_goal": self.place.copy(),
                "desired_goal": self.goal.copy()}

    def compute_reward(self, achieved_goal, desired_goal, info):
        assert info["count"] >= 1
        return -1.0 if abs(achieved_goal[0] - desired_goal[0]) > 0.05 else 0.0

    def step(self, action):
        self.place = np.clip(self.place + 0.2 * float(action[0]), -1, 1)
        self.count += 1
        info = {"count": self.count}
        reward = self.compute_reward(self.place, self.goal, info)
        return self.observe(), reward, False, self.count == 10, info


class Seen(Reach):
    """Its goals are pictures."""

    picture = gymnasium.spaces.Box(0, 255, (32, 32, 3), np.uint8)
    observation_space = gymnasium.spaces.Dict(
        {"observation": Reach.box, "achieved_goal": picture, "desired_goal": picture})

    def observe(self):
        goal = np.zeros((32, 32, 3), np.uint8)
        return {"observation": self.place.copy(), "achieved_goal": goal, "desired_goal": goal}


def make():
    return Reach()


def make_batch():
    return gymnasium.vector.SyncVectorEnv([Reach] * 3)
'''


def write_reach(tmp_path):
    file = tmp_path / "reach.py"
    file.write_text(REACH, encoding="utf-8")
    return file


def test_goals_in_hindsight_reach_the_replay(tmp_path):
    run = replicant.train(
        "cartpole_swingup_state",
        {**SHORT, "task.action_repeat": 1, "actors.hindsight.goals": 4,
         "agent.distribution.range": "running", "learner.limits.max_steps": 400},
        folder=tmp_path / "run", make_env=f"{write_reach(tmp_path)}:make")
    run.wait(timeout=280)
    curves = run.curves()
    # frames are steps of the environment, not their copies: 128 rows of each update, 128 draws of a
    # row of five
    assert 0 < run.evaluations()["frames"][-1] < 400
    assert curves["reward"][-1] > -2.9  # three steps of -1 without goals achieved
    assert run.policy().evaluate(2).shape == (2,)


@pytest.mark.parametrize("settings, message", [
    ({}, "has no array 'desired_goal'; allowed: 0"),
    ({"task.action_repeat": 8},
     "4 with task.action_repeat 8, but rewards of other goals are of single steps"),
    ({"task.pixels.enabled": True, "agent.networks.encoder.kind": "light"},
     "4 with task.pixels.state false, so that the agent does not see its goal"),
])
def test_hindsight_without_goals_is_refused(tmp_path, settings, message):
    run = replicant.train(
        "cartpole_swingup_state",
        {**SHORT, "task.action_repeat": 1, "actors.hindsight.goals": 4, **settings},
        folder=tmp_path / "run", make_env=f"{EXAMPLE.parent / 'own_environment.py'}:Pole")
    with pytest.raises(errors.Error, match=message):
        run.wait(timeout=280)


def lockstep(tmp_path, make, **settings):
    """A short training of cartpole_swingup_state.yaml with the environment of a function."""
    sets = {"task.name": "python-environment", "task.action_repeat": 1,
            "evaluation.enabled": "false", "learner.limits.max_steps": 2,
            "run.dir": tmp_path / "run", **settings}
    return subprocess.run(
        [*_process.python("replicant"), "lockstep", "--config",
         str(_recipes.FOLDER / "cartpole_swingup_state.yaml"),
         *(word for key, value in sets.items() for word in ("--set", f"{key}={value}"))],
        env={**_process.environment(), "REPLICANT_MAKE_ENV": f"{write_reach(tmp_path)}:{make}"},
        timeout=120, capture_output=True, text=True)


def test_goals_that_are_pictures_are_refused(tmp_path):
    ended = lockstep(tmp_path, "Seen", **{
        "actors.hindsight.goals": 4, "task.pixels.enabled": "true", "task.pixels.state": "true",
        "task.pixels.frame_stack": 1, "agent.networks.encoder.kind": "light"})
    assert ended.returncode == 1
    assert "4: 'desired_goal' of python-environment is an image; goals are numbers" in ended.stderr


def test_lockstep_refuses_a_batch(tmp_path):
    ended = lockstep(tmp_path, "make_batch", **{"actors.environments": 3})
    assert ended.returncode == 1
    assert "make_env makes a batch, whose environments cannot be brought back" in ended.stderr


def test_a_batch_trains_as_one_actors_environments(tmp_path):
    run = replicant.train(
        "cartpole_swingup_state",
        {**SHORT, "task.action_repeat": 1, "actors.environments": 3,
         "agent.distribution.range": "running"},
        folder=tmp_path / "run", make_env=f"{write_reach(tmp_path)}:make_batch")
    run.wait(timeout=280)
    assert len(run.evaluations()["return"]) > 0
    returns = run.policy().evaluate(3)
    assert returns.shape == (3,) and ((-10 <= returns) & (returns <= 0)).all()


def test_lockstep_resumes_hindsight_to_the_bit(tmp_path):
    environment = {**_process.environment(), "REPLICANT_MAKE_ENV": f"{write_reach(tmp_path)}:make"}
    settings = {
        "task.name": "python-environment", "task.action_repeat": 1, "actors.hindsight.goals": 3,
        "actors.environments": 2, "actors.exploration.random_steps": 100,
        "agent.networks.policy_hidden_sizes": "[8]", "agent.networks.critic_hidden_sizes": "[8]",
        "agent.distribution.range": "running", "agent.observations.normalize": "running",
        "learner.log_interval_s": 0.01, "evaluation.enabled": "false", "learner.batch_size": 32,
        # chunks of other lengths than the episodes'; a limiter that lets writers wait
        "actors.group_steps": 4,
        "replay.tables.default.rate_limiter":
            "{samples_per_insert: 4, min_size_to_sample: 100, error_buffer: 64}",
        "learner.num_kept_checkpoints": 20}

    def train(folder, steps):
        sets = {**settings, "run.dir": tmp_path / folder, "learner.limits.max_steps": steps}
        subprocess.run(
            [*_process.python("replicant"), "lockstep", "--config",
             str(_recipes.FOLDER / "cartpole_swingup_state.yaml"),
             *(word for key, value in sets.items() for word in ("--set", f"{key}={value}"))],
            env=environment, timeout=120, check=True)

    train("whole", 40)
    for steps in (*range(20, 32), 40):
        train("parts", steps)
    for file in ("variables.safetensors", "checkpoint.json", "lockstep.safetensors"):
        name = f"checkpoints/step-{40:012}/{file}"
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    # parts ended within episodes and at their ends
    lengths = {array_of(checkpoint / "lockstep.safetensors", "actions/0").size
               for checkpoint in (tmp_path / "parts/checkpoints").glob("step-*")}
    assert 10 in lengths and len(lengths) > 1
