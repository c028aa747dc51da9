"""Data sets that the tests of replicant.data make, and what it says of them."""

import json
import pathlib

import h5py
import numpy as np
import pytest

from replicant import data
from replicant.data._episode import Recorded
from replicant.data._import import open_source
from replicant.data._mapping import Converter


def box(shape, low, high, dtype="float32"):
    return {"type": "Box", "dtype": dtype, "shape": list(shape),
            "low": np.full(shape, low).tolist(), "high": np.full(shape, high).tolist()}


def make_minari(folder: pathlib.Path, lengths=(3, 5), terminated=(False, True), pixels=None):
    """A Minari data set whose numbers say where they stand: observation = 100 episode + step."""
    (folder / "data").mkdir(parents=True)
    with h5py.File(folder / "data/main_data.hdf5", "w") as file:
        for i, (length, ends) in enumerate(zip(lengths, terminated, strict=True)):
            group = file.create_group(f"episode_{i}")
            group["observations/arm"] = (100 * i + np.arange(length + 1))[:, None] * np.ones((1, 2))
            if pixels is not None:
                group["observations/camera"] = pixels[i]
            group["actions"] = np.full((length, 1), 2.0 * (i % 2) - 1.0, np.float32)
            group["rewards"] = np.arange(length, dtype=float)
            group["terminations"] = [False] * (length - 1) + [ends]
            group["truncations"] = [False] * (length - 1) + [not ends]
    spaces = {"arm": box((2,), -9, 9, "float64")}
    if pixels is not None:
        spaces["camera"] = box(pixels[0].shape[1:], 0, 255, "uint8")
    (folder / "data/metadata.json").write_text(json.dumps({
        "total_episodes": len(lengths), "total_steps": sum(lengths), "data_format": "hdf5",
        "observation_space": json.dumps({"type": "Dict", "subspaces": spaces}),
        "action_space": json.dumps(box((1,), -2, 2))}))
    return folder


def steps_of(**keys):
    mapping = data.Mapping.of(keys)
    source = open_source(mapping)
    try:
        converter = Converter(mapping, source)
        return [converter.steps(source.episode(i, converter.names)) for i in range(len(source))]
    finally:
        source.close()


def message_of(error, **keys):
    with pytest.raises(error) as raised:
        steps_of(**keys)
    return str(raised.value)


def recorded(length, terminated, seed=0):
    rng = np.random.default_rng(seed)
    return Recorded(observations={"arm": rng.normal(size=(length + 1, 2)),
                                  "camera": rng.integers(0, 256, (length + 1, 9, 7, 3), np.uint8)},
                    action=rng.uniform(-2, 2, (length, 1)).astype(np.float32),
                    reward=rng.normal(size=length), terminated=terminated)
