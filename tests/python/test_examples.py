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
