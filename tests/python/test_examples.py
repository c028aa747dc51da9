"""The example programs run."""

import pathlib
import runpy

import numpy as np

FOLDER = pathlib.Path(__file__).parents[2] / "examples/python"


def test_random_search_repeats_to_the_bit():
    train = runpy.run_path(str(FOLDER / "random_search.py"))["train"]
    options = {"iterations": 2, "seed": 3, "num_directions": 3, "num_best": 2}
    first = train("cartpole-balance", **options)
    np.testing.assert_array_equal(train("cartpole-balance", **options), first)
    assert len(first) == 2 and min(first) > 0
