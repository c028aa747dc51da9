"""The example programs run."""

import pathlib
import runpy

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples/python"


def test_random_search_repeats_to_the_bit():
    train = runpy.run_path(str(FOLDER / "random_search.py"))["train"]
    options = {"iterations": 2, "seed": 3, "num_directions": 3, "num_best": 2}
    first = train("cartpole-balance", **options)
    np.testing.assert_array_equal(train("cartpole-balance", **options), first)
    assert len(first) == 2 and min(first) > 0


def test_drqv2_learns_from_its_replay():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    train = runpy.run_path(str(FOLDER / "drqv2.py"))["train"]
    history = train("cartpole-balance", frames=2100, size=24, random_steps=990)
    assert [frames for frames, _ in history] == [1000, 2000, 3000]
    assert all(0 < total <= 1000 for _, total in history)


def test_a_batch_of_states_is_drawn_in_one_call():
    mujoco = pytest.importorskip("mujoco", reason="MuJoCo is not installed")
    program = runpy.run_path(str(FOLDER / "draw_batch.py"))
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><light pos='0 0 3'/><body><freejoint/>"
        "<geom size='.1 .2 .3' type='box'/></body></worldbody></mujoco>")
    states = program["make_states"](model, 5)
    together, _ = program["draw_together"](model, states, 20, 30)
    single, _ = program["draw_one_by_one"](program["render"].Renderer, model, states, 20, 30)
    np.testing.assert_array_equal(together, single)
    assert together.shape == (5, 20, 30, 3) and (together[0] != together[1]).any()
