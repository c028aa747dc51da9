"""replicant.envs: the faces, the lifetime of arrays, seeds, threads and processes."""

import gc
import multiprocessing
import os
import pathlib
import subprocess
import sys
import threading
import warnings

import dm_env
import gymnasium
import numpy as np
import pytest
from absl.testing import absltest
from dm_env import test_utils
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from pendulum import own_task

from replicant import _libraries, envs, errors


def rollout(env, steps, seed=7):
    """Observations and rewards of a batch, [steps, E, ...]."""
    env.action_space.seed(seed)
    observations, rewards = [env.reset()[0]], []
    for _ in range(steps):
        observation, reward, *_ = env.step(env.action_space.sample())
        observations.append(observation)
        rewards.append(reward)
    return np.stack(observations), np.stack(rewards)


# --- Gymnasium ---


@pytest.mark.parametrize("task", envs.tasks())
def test_every_task_passes_gymnasiums_checker(task):
    env = gymnasium.make(f"replicant/{task}-v0", disable_env_checker=True)
    with warnings.catch_warnings():
        # the checker advises against spaces without bounds, which dm_control's arrays have
        warnings.simplefilter("ignore")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_all_51_tasks_are_registered():
    names = [name for name in gymnasium.registry if name.startswith("replicant/")]
    assert len(names) == len(envs.tasks()) == 51


def test_pixels_and_render_pass_gymnasiums_checker():
    env = gymnasium.make("replicant/cheetah-run-v0", disable_env_checker=True, pixels=(32, 40),
                         render_mode="rgb_array")
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (32, 40, 9), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env.unwrapped)
    env.reset(seed=1)
    assert env.render().shape == (240, 320, 3)
    assert env.render().std() > 0


def test_make_vec_of_gymnasium_makes_the_batch():
    env = gymnasium.make_vec("replicant/reacher-easy-v0", num_envs=3,
                             vectorization_mode="vector_entry_point", pixels=(16, 16))
    assert isinstance(env.unwrapped, envs.VectorEnv)
    observation, info = env.reset(seed=3)
    assert observation in env.observation_space
    assert observation.shape == (3, 16, 16, 9) and info == {}


def test_a_batch_equals_single_environments_whatever_the_number_of_threads():
    expected = None
    for threads in (0, 1, 2, 5):
        found = rollout(envs.make_vec("hopper-hop", 4, num_threads=threads, seed=11), 30)
        if expected is None:
            expected = found
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    actions = gymnasium.vector.utils.batch_space(envs.make("hopper-hop").action_space, 4)
    actions.seed(7)
    singles = [envs.make("hopper-hop", seed=11, first_index=i) for i in range(4)]
    start = np.stack([single.reset()[0] for single in singles])
    np.testing.assert_array_equal(start, expected[0][0])
    for t in range(30):
        row = actions.sample()
        steps = [single.step(action) for single, action in zip(singles, row)]
        np.testing.assert_array_equal(np.stack([s[0] for s in steps]), expected[0][t + 1])


def test_reset_with_a_seed_equals_making_with_that_seed():
    made = rollout(envs.make_vec("cartpole-swingup", 3, seed=5), 5)
    env = envs.make_vec("cartpole-swingup", 3, seed=1)
    rollout(env, 4)
    observation, _ = env.reset(seed=5)
    np.testing.assert_array_equal(observation, made[0][0])
    other, _ = env.reset()
    assert not np.array_equal(observation, other)
    each, _ = env.reset(seed=[5, 6, 5])
    np.testing.assert_array_equal(each[0], observation[0])
    np.testing.assert_array_equal(each[2], observation[2])
    assert not np.array_equal(each[1], observation[1])


def test_an_episode_is_truncated_at_its_time_limit_and_starts_again_with_the_next_step():
    env = envs.make_vec(own_task(), 2)
    env.reset()
    ends = []
    for t in range(43):
        _, reward, terminated, truncated, info = env.step(np.zeros((2, 1)))
        assert not terminated.any() and info == {}
        if truncated.any():
            ends.append(t)
    assert ends == [19, 40]  # 20 steps and one that starts an episode
    assert env.counters["episodes"] == 2 * 3


def test_same_step_autoreset_gives_the_last_observation_apart():
    next_step = envs.make_vec(own_task(), 2)
    same_step = envs.make_vec(own_task(), 2, autoreset_mode=AutoresetMode.SAME_STEP)
    assert same_step.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    next_step.reset()
    first, _ = same_step.reset()
    for _ in range(19):
        next_step.step(np.ones((2, 1)))
        *_, info = same_step.step(np.ones((2, 1)))
        assert info == {}
    last, reward, _, truncated, _ = next_step.step(np.ones((2, 1)))
    start, same_reward, _, same_truncated, info = same_step.step(np.ones((2, 1)))
    assert info["final_obs"].dtype == object
    np.testing.assert_array_equal(np.stack(info["final_obs"]), last)
    np.testing.assert_array_equal(info["_final_obs"], [True, True])
    np.testing.assert_array_equal(same_reward, reward)
    np.testing.assert_array_equal(same_truncated, truncated)
    np.testing.assert_array_equal(start, first)  # its start is the default pose


def test_last_observations_are_an_object_of_each_environment_that_ended():
    options = {"flatten": False, "autoreset_mode": AutoresetMode.SAME_STEP}
    env = envs.make_vec(own_task(), 3, **options)
    env.reset()
    for _ in range(10):
        env.step(np.ones((3, 1)))
    env.reset(options={"reset_mask": np.array([False, True, False])})
    for _ in range(10):
        observation, *_, info = env.step(np.ones((3, 1)))
    np.testing.assert_array_equal(info["_final_obs"], [True, False, True])
    assert info["final_obs"][1] is None
    last = info["final_obs"][2]
    assert last.keys() == observation.keys()
    for name, start in observation.items():
        assert last[name].shape == start[2].shape
        assert not np.array_equal(last[name], start[2])
    kept = {name: array.copy() for name, array in last.items()}
    for _ in range(5):
        env.step(np.ones((3, 1)))
    for name, array in kept.items():
        np.testing.assert_array_equal(last[name], array)


WARNINGS = """
import mujoco, numpy as np
seen = []
mujoco.set_mju_user_warning(seen.append)
from pendulum import PENDULUM, own_task
from replicant import envs, errors
env = envs.make_vec(own_task(mjcf=PENDULUM.replace("-2 2", "-1e14 1e14")), 2)
env.reset()
try:
    for _ in range(5):
        env.step(np.full((2, 1), 1e14))
except errors.Error as error:
    print("step:", error)
print("of the environment:", len(seen) > 0)
seen.clear()
model = mujoco.MjModel.from_xml_string(PENDULUM)
data = mujoco.MjData(model)
data.qvel[0] = float("nan")
mujoco.mj_step(model, data)
print("of the program:", len(seen))
"""


def test_a_programs_own_handler_of_mujocos_warnings_stays():
    result = subprocess.run([sys.executable, "-c", WARNINGS], cwd=pathlib.Path(__file__).parent,
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-2:] == ["of the environment: True", "of the program: 1"]


def test_disabled_autoreset_wants_a_reset_by_mask():
    env = envs.make_vec(own_task(), 3, autoreset_mode="Disabled")
    env.reset()
    for _ in range(10):
        env.step(np.ones((3, 1)))
    before, *_ = env.step(np.ones((3, 1)))
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    assert np.abs(after[1]).max() == 0
    for _ in range(9):
        *_, truncated, _ = env.step(np.ones((3, 1)))
    np.testing.assert_array_equal(truncated, [True, False, True])
    with pytest.raises(errors.InvalidArgument) as refused:
        env.step(np.ones((3, 1)))
    assert str(refused.value) == (
        "step: the episode of environment 0 is over; hint: reset(options={'reset_mask': mask}), or "
        "another autoreset_mode")


def test_a_single_environment_wants_a_reset():
    env = envs.make(own_task())
    for call in (lambda: None, lambda: [env.step(np.ones(1)) for _ in range(20)]):
        call()
        with pytest.raises(errors.InvalidArgument) as refused:
            env.step(np.ones(1))
        assert str(refused.value) == "step: the episode of environment 0 is over; hint: reset()"
        env.reset()


def test_the_first_reset_takes_a_mask_of_all_environments():
    env = envs.make_vec(own_task(), 2, autoreset_mode="Disabled")
    with pytest.raises(errors.InvalidArgument) as refused:
        env.reset(options={"reset_mask": np.array([True, False])})
    assert str(refused.value) == "reset_mask: the first reset must include all environments"
    first, _ = env.reset(options={"reset_mask": np.array([True, True])})
    np.testing.assert_array_equal(first, np.zeros((2, 2)))  # its start is the default pose
    assert env.counters["episodes"] == 2


@pytest.mark.parametrize("options", [{}, {"pixels": (16, 16), "state": True}])
def test_a_reset_by_mask_keeps_rows_that_the_caller_has_written_into(options):
    env = envs.make_vec("cartpole-balance", 3, autoreset_mode="Disabled", seed=2, **options)
    env.reset()
    before, *_ = env.step(np.ones((3, 1)))
    parts = before if options else {"": before}
    copies = {name: part.copy() for name, part in parts.items()}
    for part in parts.values():
        part[:] = 7
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    for name, part in (after if options else {"": after}).items():
        np.testing.assert_array_equal(part[[0, 2]], copies[name][[0, 2]])
        assert not np.array_equal(part[1], copies[name][1])


def test_a_reset_by_mask_does_not_observe_the_others_again():
    calls = []
    task = own_task(observation=lambda physics: {"calls": float(calls.append(0) or len(calls))})
    env = envs.make_vec(task, 3, autoreset_mode="Disabled")
    first, _ = env.reset()
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(after[[0, 2]], first[[0, 2]])
    assert after[1] == first.max() + 1


def test_names_of_arrays_are_dm_controls_and_views_of_one_memory():
    env = envs.make_vec("reacher-easy", 3, flatten=False, seed=1)
    assert list(env.single_observation_space) == ["position", "to_target", "velocity"]
    observation, _ = env.reset()
    assert observation in env.observation_space
    assert observation["position"].base is observation["velocity"].base
    flat, _ = envs.make_vec("reacher-easy", 3, seed=1).reset()
    np.testing.assert_array_equal(np.concatenate(
        [observation[name] for name in ("position", "to_target", "velocity")], axis=1), flat)


def test_pixels_and_state_come_together():
    env = envs.make_vec("cartpole-balance", 2, pixels=(20, 30), state=True, frame_stack=2)
    observation, _ = env.reset()
    assert observation["pixels"].shape == (2, 20, 30, 6)
    assert observation["state"].shape == (2, 5)


def test_several_cameras_are_an_image_each():
    options = {"seed": 4, "frame_stack": 2, "num_threads": 0}
    both = envs.make_vec("cheetah-run", 2, pixels=[(20, 30), (16, 16)], camera=["side", "back"],
                         state=True, **options)
    side = envs.make_vec("cheetah-run", 2, pixels=(20, 30), camera="side", **options)
    back = envs.make_vec("cheetah-run", 2, pixels=(16, 16), camera=1, **options)
    assert list(both.single_observation_space) == ["pixels/back", "pixels/side", "state"]
    for env in (both, side, back):
        observation, _ = env.reset()
    action = np.full((2, 6), 0.5)
    for _ in range(3):
        observation, first, second = (env.step(action)[0] for env in (both, side, back))
        assert observation in both.observation_space
        np.testing.assert_array_equal(observation["pixels/side"], first)
        np.testing.assert_array_equal(observation["pixels/back"], second)
    alike = envs.make("cheetah-run", pixels=(8, 8), camera=["side", "back"], seed=4)
    assert alike.observation_space["pixels/back"].shape == (8, 8, 9)
    spec = envs.load("cheetah-run", pixels=(8, 8), camera=["side", "back"]).observation_spec()
    assert list(spec) == ["pixels/side", "pixels/back"]


def test_a_number_is_both_sides_of_a_picture():
    assert envs.make("cheetah-run", pixels=8).observation_space.shape == (8, 8, 9)
    for pixels in (True, 8.5, [8, (8, 8)]):
        with pytest.raises(ValueError, match="pixels: got .*, want .height, width., a number for "):
            envs.make("cheetah-run", pixels=pixels, camera=["side", "back"])


def test_a_task_in_two_words_is_named():
    with pytest.raises(errors.InvalidArgument, match=r"hint: envs.load\('cartpole-swingup'\)"):
        envs.load("cartpole", "swingup")


def test_cameras_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"pixels: got \[\(8, 8\)\] for 2 cameras, want \(height"):
        envs.make("cheetah-run", pixels=[(8, 8)], camera=["side", "back"])
    with pytest.raises(errors.InvalidArgument, match="no camera 'top'; allowed: -1"):
        envs.make("cheetah-run", pixels=(8, 8), camera=["side", "top"])
    with pytest.raises(errors.InvalidArgument, match="want each camera once"):
        envs.make("cheetah-run", pixels=(8, 8), camera=["side", "side"])


def test_half_of_a_batch_steps_while_the_other_is_used():
    whole = envs.make_vec("walker-walk", 4, seed=2, num_threads=0)
    halves = envs.make_vec("walker-walk", 4, seed=2, num_threads=2)
    whole.reset()
    halves.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (10, 4, 6))
    for action in actions:
        expected, expected_reward, *_ = whole.step(action)
        halves.send(action[[0, 2]], [0, 2])
        halves.send(action[[3, 1]], [3, 1])
        seen = []
        for _ in range(2):
            observation, reward, _, _, info = halves.recv(2)
            ids = info["env_id"]
            np.testing.assert_array_equal(observation, expected[ids])
            np.testing.assert_array_equal(reward, expected_reward[ids])
            seen += list(ids)
        assert sorted(seen) == [0, 1, 2, 3]
    with pytest.raises(errors.InvalidArgument, match="1 environments requested, but 0 are under way"):
        halves.recv(1)


def test_a_reset_by_mask_keeps_what_was_received():
    env = envs.make_vec("cartpole-balance", 3, seed=2)
    env.reset()
    env.send(np.ones((3, 1)), [0, 1, 2])
    rows = {}
    for _ in range(3):
        observation, *_, info = env.recv(1)
        rows[int(info["env_id"][0])] = observation[0].copy()
        # its memory may be used again
        del observation
    after, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
    assert not np.array_equal(after[0], rows[0])
    np.testing.assert_array_equal(after[1:], [rows[1], rows[2]])


@pytest.mark.parametrize("call, message", [
    # a mask in place of numbers, and numbers in place of a mask
    (lambda e: e.send(np.zeros((2, 1)), [True, False]), "env_ids: got .*bool, want int32"),
    (lambda e: e.send(np.zeros((2, 1)), [0.7, 1.2]), "env_ids: got .*float64, want int32"),
    (lambda e: e.send(np.zeros((2, 1)), [2**32, 1]), "env_ids: got .*int64, want int32"),
    (lambda e: e.reset(options={"reset_mask": [0, 1]}), "reset_mask: got .*int64, want bool"),
    (lambda e: e.step(np.zeros((2, 1), complex)), "actions: got .*complex128, want float64"),
    (lambda e: e.step([["1"], ["0"]]), "actions: got .*<U1, want float64"),
    (lambda e: e.reset(seed=1.5), "seed: got 1.5, want a whole number"),
    (lambda e: e.reset(seed="12"), "seed: got '12', want a whole number"),
])
def test_arrays_of_another_kind_are_refused(call, message):
    env = envs.make_vec("cartpole-swingup", 2)
    env.reset(seed=np.int64(1))
    with pytest.raises(errors.InvalidArgument, match=f"(?s){message}"):
        call(env)
    # nothing has moved
    again = envs.make_vec("cartpole-swingup", 2, seed=[1, 1])
    again.reset()
    for dtype in (np.float32, int):
        np.testing.assert_array_equal(env.step(np.ones((2, 1), dtype))[0],
                                      again.step(np.ones((2, 1)))[0])


def test_a_mask_while_some_are_under_way_is_refused():
    env = envs.make_vec("cartpole-balance", 2, seed=1)
    env.reset()
    env.send(np.ones((1, 1)), [0])
    with pytest.raises(errors.InvalidArgument, match="reset_mask: 1 environments are under way"):
        env.reset(options={"reset_mask": np.array([False, True])})
    *_, info = env.recv()
    np.testing.assert_array_equal(info["env_id"], [0])


@pytest.mark.parametrize("name, value, number", [
    ("pixels", (84.5, 84), 84.5), ("action_repeat", 2.5, 2.5), ("num_envs", "2", "'2'"),
    ("first_index", None, None), ("num_threads", 1.0, 1.0), ("render_size", (10, 20.5), 20.5),
    ("render_size", [240, (1, 2)], (1, 2)), ("pixels", [(84, (1, 2))], (1, 2)),
    ("egl_device", None, None)])
def test_options_that_are_no_whole_numbers_are_refused(name, value, number):
    with pytest.raises(errors.InvalidArgument) as refused:
        envs.make_vec("cartpole-balance", **{name: value})
    assert str(refused.value) == f"{name}: got {number}, want a whole number"


@pytest.mark.parametrize("options, message", [
    ({"gl_platform": None}, "gl_platform: got None, want 'auto', 'osmesa', 'egl' or "
     "'egl-surfaceless'"),
    ({"gl_platform": "foo"}, "gl_platform: got 'foo', want 'auto', 'osmesa', 'egl' or "
     "'egl-surfaceless'"),
    ({"renderer": None}, "renderer: got None, want 'auto', 'raycast' or 'gl'"),
    ({"action_repeat_reward": "max"}, "action_repeat_reward: got 'max', want 'sum' or 'mean'"),
    ({"egl_device": -1}, "egl_device: got -1, want 0 to 63"),
    ({"egl_device": 2**40}, f"egl_device: got {2**40}, want 0 to 63"),
    ({"action_repeat": 2**40}, f"action_repeat: got {2**40}, want {-2**31} to {2**31 - 1}"),
    ({"suite_folder": 3}, "suite_folder: got 3, want a path"),
])
def test_an_option_outside_its_range_is_refused(options, message):
    with pytest.raises(errors.InvalidArgument) as refused:
        envs.make_vec("cartpole-balance", **options)
    assert str(refused.value) == message


def test_a_suite_folder_may_begin_at_home(tmp_path, monkeypatch):
    (tmp_path / "suite").symlink_to(_libraries.suite_folder())
    monkeypatch.setenv("HOME", str(tmp_path))
    observation, _ = envs.make("cartpole-balance", suite_folder="~/suite", seed=1).reset()
    np.testing.assert_array_equal(observation, envs.make("cartpole-balance", seed=1).reset()[0])


@pytest.mark.parametrize("size", [240, (240,), (240, 320, 3)])
def test_a_size_that_is_no_pair_is_refused(size):
    with pytest.raises(errors.InvalidArgument) as refused:
        envs.make_vec("cartpole-balance", render_size=size)
    assert str(refused.value) == f"render_size: got {size}, want (height, width)"


def test_a_second_thread_in_a_call_is_refused():
    entered, go_on = threading.Event(), threading.Event()

    def reward(physics):
        entered.set()
        assert go_on.wait(60)
        return 1.0

    env = envs.make_vec(own_task(reward=reward), 2, num_threads=1, render_mode="rgb_array")
    env.reset()
    actions = np.zeros((2, 1))
    thread = threading.Thread(target=env.step, args=(actions,))
    thread.start()
    try:
        assert entered.wait(60)
        for call in (lambda: env.step(actions), env.reset, lambda: env.reset(seed=1), env.render,
                     lambda: env.send(actions, [0, 1]), lambda: env.recv(1)):
            with pytest.raises(errors.Error) as refused:
                call()
            assert str(refused.value) == (
                "another call of these environments is under way; hint: one thread at a time, and "
                "none from a task's own functions")
    finally:
        go_on.set()
        thread.join()
    np.testing.assert_array_equal(env.step(actions)[1], [1.0, 1.0])


def test_a_call_from_a_tasks_own_function_is_refused():
    env = envs.make_vec(own_task(reward=lambda physics: env.render()), render_mode="rgb_array")
    env.reset()
    with pytest.raises(errors.Error, match="^another call of these environments is under way; .*, "
                       "and none from a task's own functions$"):
        env.step(np.zeros((1, 1)))


def test_copies_without_a_seed_differ():
    first, second = (envs.make_vec("cartpole-balance").reset()[0] for _ in range(2))
    assert not np.array_equal(first, second)
    first, second = (envs.load("cartpole-balance").reset().observation for _ in range(2))
    assert not np.array_equal(first["position"], second["position"])


def test_a_seed_and_a_mask_exclude_each_other():
    env = envs.make_vec("cartpole-balance", 2)
    env.reset()
    with pytest.raises(ValueError, match="a seed makes all environments anew"):
        env.reset(seed=1, options={"reset_mask": np.array([True, False])})


def test_actions_of_a_wrong_shape_or_not_finite_are_refused():
    env = envs.make_vec("cartpole-balance", 2)
    env.reset()
    with pytest.raises(ValueError, match=r"actions have the shape \(2\), want \(2, 1\)"):
        env.step(np.zeros(2))
    with pytest.raises(errors.InvalidArgument, match=r"action\[0\] is nan, but must be finite"):
        env.step(np.array([[0.0], [np.nan]]))
    with pytest.raises(errors.InvalidArgument, match="did you mean 'cheetah-run'"):
        envs.make_vec("cheeta-run")
    with pytest.raises(errors.InvalidArgument, match="ActionRepeat: count must be >= 1, got 0"):
        envs.make_vec("cartpole-balance", action_repeat=0)
    with pytest.raises(errors.InvalidArgument, match="2 seeds for 3 environments"):
        envs.make_vec("cartpole-balance", 3, seed=[1, 2])


# --- dm_env ---


class DmEnvironmentTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """dm_env's own test helpers."""

    def make_object_under_test(self):
        return envs.load("finger-spin", seed=4)

    def make_action_sequence(self):
        spec = self.environment.action_spec()
        return iter([np.full(spec.shape, 0.1, spec.dtype)] * 1003)


def test_a_batch_of_dm_env_has_the_numbers_of_gymnasiums():
    batch = envs.load("hopper-stand", 3, seed=1)
    env = envs.make_vec("hopper-stand", 3, seed=1, flatten=False)
    step = batch.reset()
    observation, _ = env.reset()
    np.testing.assert_array_equal(step.step_type, [0, 0, 0])
    for _ in range(5):
        action = np.full((3, 4), 0.3)
        step = batch.step(action)
        observation, reward, *_ = env.step(action)
        np.testing.assert_array_equal(step.reward, reward)
        np.testing.assert_array_equal(step.discount, np.ones(3))
        for name, array in observation.items():
            np.testing.assert_array_equal(step.observation[name], array)
    assert list(batch.observation_spec()) == list(observation)


def test_dm_env_draws_pixels_and_pictures():
    env = envs.load("ball_in_cup-catch", pixels=(24, 24))
    step = env.reset()
    assert step.step_type == dm_env.StepType.FIRST and step.reward is None
    env.observation_spec()["pixels"].validate(step.observation["pixels"])
    assert env.render(height=10, width=20).shape == (10, 20, 3)


# --- memory ---


def test_held_arrays_keep_their_numbers():
    env = envs.make_vec("cheetah-run", 2, pixels=(16, 16), state=True, flatten=False, seed=1)
    env.reset()
    held, copies = [], []
    for t in range(30):
        step = env.step(np.full((2, 6), np.sin(t)))
        observation = step[0]
        # an array, a view, a view of a view, a DLPack export, a memoryview
        parts = [observation["pixels"], observation["position"][1], observation["velocity"][0][2:],
                 np.from_dlpack(observation["pixels"]), memoryview(step[1])]
        part = parts[t % len(parts)]
        held.append(part)
        copies.append(np.array(part))
        del observation, parts, part, step
    for part, copy in zip(held, copies):
        np.testing.assert_array_equal(np.asarray(part), copy)


def test_memory_is_used_again_once_nobody_holds_it():
    env = envs.make_vec("cheetah-run", 2, pixels=(16, 16))
    env.reset()
    addresses = set()
    for _ in range(50):
        observation, *_ = env.step(np.zeros((2, 6)))
        addresses.add(observation.ctypes.data)
    assert len(addresses) <= 3
    many = [env.step(np.zeros((2, 6)))[0] for _ in range(20)]
    assert len({array.ctypes.data for array in many}) == 20


def test_arrays_outlive_their_environment():
    env = envs.make_vec("cheetah-run", 2, seed=1)
    observation, _ = env.reset()
    copy = observation.copy()
    env.close()
    del env
    gc.collect()
    np.testing.assert_array_equal(observation, copy)


def test_a_closed_batch_with_steps_under_way_ends():
    env = envs.make_vec(own_task(), 4, num_threads=2)
    env.reset()
    env.send(np.zeros((4, 1)), [0, 1, 2, 3])
    env.close()


# --- processes ---


def _step_forked(env, results):
    try:
        env.step(np.zeros((2, 1)))
    except errors.Error as error:
        results.put(str(error))
    del env
    gc.collect()
    inner = envs.make_vec("cartpole-balance", 2, num_threads=2)
    inner.reset(seed=3)
    results.put(float(inner.step(np.zeros((2, 1)))[1][0]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_environments_work_in_a_child_that_makes_them(method):
    context = multiprocessing.get_context(method)
    results = context.Queue()
    env = envs.make_vec("cartpole-balance", 2, num_threads=2) if method == "fork" else None
    if env is not None:
        env.reset()
    target = _step_forked if method == "fork" else _step_spawned
    child = context.Process(target=target, args=(env, results) if method == "fork" else (results,))
    child.start()
    if method == "fork":
        assert f"made in process {os.getpid()}" in results.get(timeout=60)
    reward = results.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    own = envs.make_vec("cartpole-balance", 2)
    own.reset(seed=3)
    assert reward == own.step(np.zeros((2, 1)))[1][0]


def _step_spawned(results):
    env = envs.make_vec("cartpole-balance", 2, num_threads=2)
    env.reset(seed=3)
    results.put(float(env.step(np.zeros((2, 1)))[1][0]))


# --- pictures ---


def test_a_video_of_a_batch_is_written(tmp_path):
    env = envs.make_vec("walker-walk", 2, render_mode="rgb_array", render_size=(32, 48))
    env.reset()
    file = tmp_path / "walk.mp4"
    video = envs.VideoWriter(file, 32, 48, 40.0)
    for _ in range(5):
        env.step(np.zeros((2, 6)))
        video.write(env.render()[1])
    with pytest.raises(errors.InvalidArgument, match=r"got a frame of uint8 \(48, 32, 3\), want"):
        video.write(np.zeros((48, 32, 3), np.uint8))
    with pytest.raises(errors.InvalidArgument, match="got a frame of float64"):
        video.write(np.zeros((32, 48, 3)))
    video.finish()
    assert file.stat().st_size > 500


# --- Gymnasium's wrappers, as a user puts them around ---


def test_gymnasiums_wrappers_work_unchanged():
    env = gymnasium.make_vec("replicant/cartpole-balance-v0", num_envs=2,
                             vectorization_mode="vector_entry_point", action_repeat=20)
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    env = gymnasium.wrappers.vector.NormalizeObservation(env)
    env.reset(seed=1)
    lengths = []
    for _ in range(52):
        observation, _, _, truncated, info = env.step(env.action_space.sample())
        assert np.isfinite(observation).all()
        if truncated.any():
            lengths += list(info["episode"]["l"])
    assert lengths == [50, 50]
