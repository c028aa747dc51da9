"""replicant.train and replicant.Policy: a short training, its curves, and its policy."""

import json
import os
import pathlib
import pickle
import re
import runpy
import shutil
import subprocess
import threading

import numpy as np
import pytest

import replicant
from replicant import errors
from replicant import _libraries, _process
from replicant._policy_of_run import _find

CONFIG = pathlib.Path(__file__).parents[2] / "configs/cartpole_swingup_state.yaml"
# far below what the task needs: only the parts are tested
SHORT = {
    "learner.limits.max_steps": 60,
    "agent.networks.policy_hidden_sizes": [8],
    "agent.networks.critic_hidden_sizes": [8],
}


def first_return_by_evaluator(run):
    """Its episodes are those of one environment: the first is that of environment 0."""
    found = subprocess.run(
        [*_process.python("replicant"), "evaluator", "--checkpoint", run.folder, "--json", "--set",
         "evaluation.seed=0"],
        stdout=subprocess.PIPE, check=True, timeout=280)
    return json.loads(found.stdout)["returns"][0]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train") / "run"
    return replicant.train(CONFIG, SHORT, folder=folder).wait(timeout=280)


def test_a_training_leaves_its_curves_and_a_policy(run):
    assert not run.is_running()
    curves = run.curves()
    # a record from before the first update has no loss
    updated = curves["step"] > 0
    assert curves["step"][-1] <= 60 and updated.any()
    assert np.isfinite(curves["critic_loss"][updated]).all()
    policy = run.policy()
    assert policy.step == 60
    assert repr(run) == f"<replicant.Run {run.folder}>"
    assert repr(policy) == f"<replicant.Policy {run.folder}/checkpoints/step-000000000060>"
    assert replicant.Run.open(run.folder).policy().checkpoint == policy.checkpoint


def test_a_policy_acts_the_same_alone_and_in_a_batch(run):
    policy = replicant.Policy.load(run.folder)
    env = policy.make_env(num_envs=5, seed=3)
    observation, _ = env.reset()
    actions = policy.act(observation)
    assert actions.shape == (5, 1) and np.abs(actions).max() <= 1
    for i in range(5):
        np.testing.assert_allclose(policy.act(observation[i]), actions[i], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(policy.act(observation), actions)
    noisy = policy.act(observation, explore=0.5)
    assert not np.array_equal(noisy, actions)
    assert not np.array_equal(noisy, policy.act(observation, explore=0.5))
    for scale in (True, -0.1, np.nan, np.inf):
        with pytest.raises(errors.InvalidArgument, match="explore: got .*standard deviation"):
            policy.act(observation, explore=scale)


def test_a_second_thread_in_a_policys_call_is_refused(run, monkeypatch):
    policy, empty, refused = run.policy(), np.empty, []
    expected = policy.act(np.zeros((2, 5)))

    def act():
        with pytest.raises(errors.Error) as raised:
            policy.act(np.zeros((2, 5)))
        refused.append(str(raised.value))

    def call_meanwhile(shape, dtype):
        # the call under way makes its result, the actions of two rows
        if shape == (2, 1) and not refused:
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
        return empty(shape, dtype)

    monkeypatch.setattr(np, "empty", call_meanwhile)
    np.testing.assert_array_equal(policy.act(np.zeros((2, 5))), expected)
    assert refused == ["another call of this policy is under way; hint: one thread at a time, and "
                       "none from a task's own functions"]


def test_an_evaluation_repeats_and_equals_the_evaluators(run):
    policy = replicant.Policy.load(run.folder)
    returns = policy.evaluate(4, seed=0)
    np.testing.assert_array_equal(policy.evaluate(4, seed=0), returns)
    assert returns.shape == (4,) and (returns >= 0).all()
    with pytest.raises(errors.InvalidArgument,
                       match="evaluate: unknown option episodes; did you mean num_episodes?"):
        policy.evaluate(episodes=2)
    assert first_return_by_evaluator(run) == pytest.approx(returns[0], rel=1e-3)


def test_a_policy_plays_the_runs_own_model_from_any_folder(tmp_path, monkeypatch):
    suite = pathlib.Path(_libraries.suite_folder())
    model = (suite / "cartpole.xml").read_text().replace("./common", str(suite / "common"))
    # the second one has the place that the run's has in its folder
    for file, mass in (("heavy.xml", "2"), ("elsewhere/model/model.xml", "0.001")):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(model.replace('mass=".1"', f'mass="{mass}"'))
    heavy = replicant.train(CONFIG, {**SHORT, "task.mjcf": tmp_path / "heavy.xml"},
                            folder=tmp_path / "run").wait(timeout=280)
    monkeypatch.chdir(tmp_path / "elsewhere")
    policy = heavy.policy()
    assert policy._core.environment["mjcf"] == str(heavy.folder / "model/model.xml")
    returns = policy.evaluate(1, seed=0)
    assert first_return_by_evaluator(heavy) == pytest.approx(returns[0], rel=1e-3)
    light = policy.evaluate(1, seed=0, mjcf="model/model.xml")
    assert light[0] != pytest.approx(returns[0], rel=1e-2)


def test_a_policy_plays_the_models_of_the_runs_suite_folder(tmp_path):
    own, suite = tmp_path / "suite", pathlib.Path(_libraries.suite_folder())
    shutil.copytree(suite / "common", own / "common")
    model = (suite / "cartpole.xml").read_text()
    (own / "cartpole.xml").write_text(model.replace('mass=".1"', 'mass="2"'))
    heavy = replicant.train(CONFIG, {**SHORT, "task.suite_folder": own},
                            folder=tmp_path / "run").wait(timeout=280)
    returns = heavy.policy().evaluate(1, seed=0)
    assert first_return_by_evaluator(heavy) == pytest.approx(returns[0], rel=1e-3)
    # as the folder of a container, on another machine
    moved = own.rename(tmp_path / "moved")
    with pytest.warns(UserWarning, match=f"no folder {own}, the run's task.suite_folder; the models "
                                         f"of {suite} take its place"):
        policy = heavy.policy()
    assert policy.evaluate(1, seed=0)[0] != pytest.approx(returns[0], rel=1e-2)
    np.testing.assert_array_equal(policy.evaluate(1, seed=0, suite_folder=moved), returns)
    evaluator = [*_process.python("replicant"), "evaluator", "--checkpoint", heavy.folder, "--json"]
    refused = subprocess.run(evaluator, stderr=subprocess.PIPE, text=True, timeout=280)
    assert refused.returncode != 0
    assert "no folder " in refused.stderr and "hint: without suite_folder" in refused.stderr
    subprocess.run([*evaluator, "--set", 'task.suite_folder=""'], stdout=subprocess.DEVNULL,
                   check=True, timeout=280)


def test_the_noise_of_a_policy_is_of_its_seed(run):
    def noise(seed):
        policy = run.policy(seed=seed)
        return [policy.act(np.zeros((8, 5)), explore=0.3).tolist() for _ in range(2)]

    first, second = noise(7)
    assert first != second and noise(7) == [first, second] and noise(8) != [first, second]
    assert noise(None) != noise(None)
    copied = pickle.loads(pickle.dumps(run.policy(seed=7)))
    assert copied.act(np.zeros((8, 5)), explore=0.3).tolist() == first
    with pytest.raises(errors.InvalidArgument, match="seed: got 1.5, want a whole number"):
        run.policy(seed=1.5)


def test_an_evaluation_says_what_of_the_task_it_leaves_out(tmp_path):
    delayed = replicant.train(CONFIG, {**SHORT, "task.disturbances.delays.actions": 2},
                              folder=tmp_path / "run").wait(timeout=280)
    with pytest.warns(UserWarning, match="without the run's task.disturbances; hint: `replicant"):
        delayed.policy().evaluate(1)


def test_a_policy_of_pixels_and_state_sees_what_the_evaluator_sees(tmp_path):
    # the average is evaluated, and exports and policies are of it
    both = replicant.train(CONFIG.with_name("smoke.yaml"),
                           {"learner.limits.max_steps": 40, "task.pixels.state": True,
                            "agent.average_decay": 0.9},
                           folder=tmp_path / "run").wait(timeout=280)
    policy = both.policy()
    observation, _ = policy.make_env(num_envs=2).reset()
    assert {name: value.shape for name, value in observation.items()} == {
        "pixels": (2, 32, 32, 9), "state": (2, 5)}
    assert policy.act(observation).shape == (2, 1)
    assert first_return_by_evaluator(both) == pytest.approx(policy.evaluate(1)[0], rel=1e-3)
    with pytest.raises(errors.InvalidArgument, match='want an observation with "pixels"'):
        policy.act(observation["pixels"])


def test_a_policy_of_pixels_sees_what_the_evaluator_sees(tmp_path):
    pixels = replicant.train(CONFIG.with_name("smoke.yaml"), {"learner.limits.max_steps": 40},
                             folder=tmp_path / "run").wait(timeout=280)
    policy = pixels.policy()
    observation, _ = policy.make_env().reset(seed=1)
    assert observation.shape == (1, 32, 32, 9)
    # other dtypes are taken only with the same numbers
    for dtype in (np.int64, np.float32):
        np.testing.assert_array_equal(policy.act(observation.astype(dtype)), policy.act(observation))
    for other in (observation / 255, observation.astype(int) + 256, observation.astype(int) - 256,
                  observation * np.nan):
        text = re.escape(f"policy: the observation[0, 0, 0, 0] is {other[0, 0, 0, 0]}; want whole "
                         "numbers from 0 to 255")
        with pytest.raises(errors.InvalidArgument, match=text):
            policy.act(other)
    with pytest.raises(errors.InvalidArgument, match="(?s)the observation is array.*want numbers"):
        policy.act(observation.astype(complex))
    assert first_return_by_evaluator(pixels) == pytest.approx(policy.evaluate(1)[0], rel=1e-3)
    # a device that this machine lacks is wanted for pictures alone
    config = pixels.folder / "config.yaml"
    text = config.read_text()
    for key, value, other in (("renderer", "auto", "gl"), ("gl_platform", "auto", "egl"),
                              ("egl_device", "0", "63")):
        assert f"    {key}: {value}\n" in text
        text = text.replace(f"    {key}: {value}\n", f"    {key}: {other}\n")
    config.write_text(text)
    elsewhere = pixels.policy()
    np.testing.assert_array_equal(elsewhere.act(observation), policy.act(observation))
    with pytest.raises(errors.DeviceError, match="(?i)egl"):
        elsewhere.make_env()


def test_the_example_films_a_policy(run, tmp_path):
    examples = pathlib.Path(__file__).parents[2] / "examples/python"
    watch = runpy.run_path(str(examples / "watch_policy.py"))["watch"]
    video = tmp_path / "policy.mp4"
    returns = watch(run.folder, 2, str(video), seed=0, height=32, width=48)
    np.testing.assert_allclose(returns, run.policy().evaluate(2, seed=0))
    assert video.stat().st_size > 1000


def test_a_run_is_resumed_and_stopped(run, tmp_path):
    with pytest.raises(errors.Error, match="max_steps"):
        run.resume().wait(timeout=280)
    # not that of the earlier try, which the same log has
    with pytest.raises(errors.ConfigError) as refused:
        run.resume({"learner.no_such_key": 1}).wait(timeout=280)
    assert "no_such_key" in str(refused.value) and "max_steps" not in str(refused.value)
    with pytest.raises(errors.ConfigError, match="overrides: got 'max_steps'; want a dictionary"):
        run.resume("max_steps")
    longer = run.resume({"learner.limits.max_steps": 90}).wait(timeout=280)
    assert longer.policy().step == 90
    endless = replicant.train(CONFIG, {**SHORT, "learner.limits.max_steps": 10**7},
                              folder=tmp_path / "run")
    while not endless.curves():
        assert endless.is_running()
        # a step of polling, not of waiting for a result
        endless._process.poll()
    assert not endless.stop(timeout=280).is_running()


def test_a_run_of_another_program_is_watched_and_stopped(tmp_path):
    started = replicant.train(CONFIG, {**SHORT, "learner.limits.max_steps": 10**7},
                              folder=tmp_path / "run")
    while not started.curves():
        assert started.is_running()
        started._process.poll()
    with replicant.Run.open(started.folder) as watching:
        assert watching.is_running()
        with pytest.raises(TimeoutError, match="run: still running after 0 s"):
            watching.wait(timeout=0)
        with pytest.raises(errors.Error, match="run: it runs already"):
            watching.resume()
    assert started.is_running()
    copied = pickle.loads(pickle.dumps(started))
    assert copied.stop(timeout=280) is copied
    assert not copied.is_running() and not watching.is_running()
    assert started.wait(timeout=280).policy().step > 0


def test_a_watched_run_that_was_killed_or_failed_is_an_error(run, tmp_path):
    watching = replicant.Run.open(run.folder)
    assert watching.wait() is watching and watching.stop() is watching
    for status, message in (("failed", "the run has failed"), ("running", "its fleet was killed")):
        folder = tmp_path / status
        folder.mkdir()
        (folder / "config.yaml").touch()
        (folder / "state.yaml").write_text(f"status: {status}\nstarts: 1\n")
        # of a process that has ended, and with a file that nobody has
        (folder / "lock").write_text(f"{os.uname().nodename}/{2**22 + 1}")
        ended = replicant.Run.open(folder)
        assert not ended.is_running()
        with pytest.raises(errors.Error) as raised:
            ended.wait()
        assert str(raised.value) == f"{folder}: {message}"
        (tmp_path / f"{status}.log").write_text("the last line\n")
        with pytest.raises(errors.Error) as raised:
            ended.wait()
        assert str(raised.value) == f"the last line\n{folder}: {message}"
        (folder / "lock").write_text("elsewhere/1")
        assert ended.is_running() == (status == "running")


def test_a_bad_key_is_an_error_with_the_fleets_message(tmp_path):
    failing = replicant.train(CONFIG, {"learner.no_such_key": 1}, folder=tmp_path / "run")
    with pytest.raises(errors.ConfigError, match="no_such_key"):
        failing.wait(timeout=280)


def test_a_block_ends_with_the_failure_of_its_training(tmp_path):
    def fail(folder, error=None):
        with replicant.train(CONFIG, {"learner.no_such_key": 1}, folder=folder) as failing:
            failing._process.wait(timeout=280)
            if error is not None:
                raise error

    with pytest.raises(errors.ConfigError, match="no_such_key"):
        fail(tmp_path / "run")
    with pytest.raises(KeyError):
        fail(tmp_path / "other", KeyError())


def test_a_policy_refuses_what_does_not_fit(run, tmp_path):
    policy = run.policy()
    with pytest.raises(errors.InvalidArgument, match=r"of the shape \(3,\), want \(5,\)"):
        policy.act(np.zeros(3))
    with pytest.raises(errors.IoError, match="neither the folder of a run"):
        replicant.Policy.load(tmp_path)
    with pytest.raises(errors.IoError, match="no such folder"):
        replicant.Policy.load(tmp_path / "nothing")


def test_a_young_runs_checkpoints_are_named(tmp_path):
    (tmp_path / "config.yaml").touch()

    def message(given, which="newest"):
        with pytest.raises(errors.IoError) as raised:
            replicant.Policy.load(given, which=which)
        return str(raised.value)

    assert message(tmp_path) == f"{tmp_path}: the run has no checkpoint yet"
    assert message(tmp_path, "best") == f"{tmp_path}: the run has no evaluated policy in best yet"
    best = tmp_path / "best/step-000000000004"
    best.mkdir(parents=True)
    (best / "checkpoint.json").touch()
    assert message(tmp_path) == (
        f"{tmp_path}: the run has no checkpoint yet; hint: which='best'")
    assert message(best.parent) == (
        f"{best.parent}: no checkpoint; hint: {tmp_path}, or a folder step-... in its checkpoints "
        "or best")


def test_the_best_policy_has_the_largest_return(tmp_path):
    # after a crash there may be two, or a damaged one
    (tmp_path / "config.yaml").touch()

    def write(step, text):
        folder = tmp_path / f"best/step-{step:012}"
        folder.mkdir(parents=True)
        (folder / "checkpoint.json").write_text(text)

    for step, text in ((16, "{"), (20, "null"), (24, "[]"), (28, '{"metadata": {"return": null}}')):
        write(step, text)
    with pytest.raises(errors.IoError) as raised:
        _find(tmp_path, "best")
    assert str(raised.value) == f"{tmp_path}: the run has no evaluated policy in best yet"
    for step, value in ((4, 9.5), (8, 10), (12, -3)):
        write(step, f'{{"metadata": {{"return": "{value}"}}}}')
    assert _find(tmp_path, "best") == (tmp_path, tmp_path / "best/step-000000000008")


def test_a_fleet_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setenv("REPLICANT_FLEET", "/nowhere/fleet")
    with pytest.raises(errors.IoError, match="REPLICANT_FLEET: /nowhere/fleet: no such program"):
        replicant.train(CONFIG, folder="/tmp/none")
