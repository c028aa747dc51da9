"""replicant.data: Minari's data sets, both ways."""

import json

import gymnasium
import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("yaml")

from data_sets import box, make_minari, steps_of  # noqa: E402

from replicant import data  # noqa: E402
from replicant.data._episode import Recorded  # noqa: E402
from replicant.data._import import open_source  # noqa: E402
from replicant.data._minari import _box  # noqa: E402
from replicant.data._recording import Writer  # noqa: E402
from replicant.errors import InvalidArgument  # noqa: E402


def opened(form, path):
    return open_source(data.Mapping.of({"format": form, "path": str(path)}))


def arrow_twin(folder, to):
    """The data set in the form arrow, as Minari writes it: rows beyond a column's end are zeros."""
    pa = pytest.importorskip("pyarrow")
    feather = pytest.importorskip("pyarrow.feather")

    def column(item, num_rows):
        if isinstance(item, h5py.Group):
            return pa.StructArray.from_arrays([column(part, num_rows) for part in item.values()],
                                              names=list(item))
        if h5py.check_string_dtype(item.dtype):
            return pa.array([text.decode() for text in item[()]])
        rows = item[()]
        rows = np.concatenate([rows, np.zeros((num_rows - len(rows), *rows.shape[1:]), rows.dtype)])
        return pa.array(rows) if rows.ndim == 1 else pa.FixedSizeListArray.from_arrays(
            pa.array(rows.reshape(-1)), int(np.prod(rows.shape[1:])))

    (to / "data").mkdir(parents=True)
    about = json.loads((folder / "data/metadata.json").read_text()) | {"data_format": "arrow"}
    (to / "data/metadata.json").write_text(json.dumps(about))
    with h5py.File(folder / "data/main_data.hdf5") as file:
        for i, group in enumerate(file.values()):
            num_rows = len(group["rewards"]) + 1
            (to / f"data/{i}").mkdir()
            feather.write_feather(pa.table({name: column(item, num_rows)
                                            for name, item in group.items()}),
                                  to / f"data/{i}/part-0.arrow", compression="uncompressed")
    return to


def changed(folder, observation_space, observations, infos=None):
    """A data set of make_minari() with other observations, each with four rows."""
    make_minari(folder, lengths=(3,), terminated=(True,))
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
        for kind, named in (("observations", observations), ("infos", infos or {})):
            for name, rows in named.items():
                file[f"episode_0/{kind}/{name}"] = rows
    file = folder / "data/metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {
        "observation_space": json.dumps({"type": "Dict", "subspaces": observation_space})}))
    return folder


def test_a_dictionary_has_the_order_of_its_space_as_a_recording_has(tmp_path):
    rows = {"velocity": np.full((4, 1), 1.0), "arm/z": np.full((4, 2), 2.0),
            "arm/grip": np.full((4, 1), 3.0)}
    Writer(tmp_path / "r", ([-2.0], [2.0]), 50.0).write(Recorded(
        observations=rows, action=np.zeros((3, 1), np.float32), reward=np.zeros(3),
        terminated=True))
    data.export(tmp_path / "r", tmp_path / "m", "minari")
    arrow = arrow_twin(tmp_path / "m", tmp_path / "a")
    for form, path, prefix in (("recording", tmp_path / "r", "observation"),
                               ("minari", tmp_path / "m", "observations"),
                               ("minari", arrow, "observations")):
        assert opened(form, path).defaults["observation"] == [f"{prefix}/{name}" for name in rows]
        steps, = steps_of(format=form, path=str(path))
        assert steps.observation.tolist() == [[1.0, 2.0, 2.0, 3.0]] * 4


def test_the_actions_of_a_dictionary_have_its_order(tmp_path):
    make_minari(tmp_path / "d", lengths=(3,), terminated=(True,))
    with h5py.File(tmp_path / "d/data/main_data.hdf5", "a") as file:
        del file["episode_0/actions"]
        file["episode_0/actions/a"], file["episode_0/actions/b"] = np.zeros((3, 1)), np.ones((3, 1))
    file = tmp_path / "d/data/metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"action_space": json.dumps(
        {"type": "Dict", "subspaces": {"b": box((1,), -1, 1), "a": box((1,), -1, 1)}})}))
    steps, = steps_of(format="minari", path=str(tmp_path / "d"), action_low=-1, action_high=1)
    assert steps.action.tolist() == [[1.0, 0.0]] * 3


def test_the_parts_of_a_tuple_have_their_order(tmp_path):
    parts = {f"_index_{i}": np.full((4, 1), float(i)) for i in range(11)}
    space = {"type": "Tuple", "subspaces": [box((1,), -9, 9)] * 11}
    folder = changed(tmp_path / "d", {"all": space},
                     {f"all/{name}": rows for name, rows in parts.items()})
    steps, = steps_of(format="minari", path=str(folder))
    assert steps.observation.tolist() == [[float(i) for i in range(11)]] * 4


def test_text_and_infos_of_other_lengths_are_left_out(tmp_path):
    spaces = {"word": {"type": "Text", "min_length": 1, "max_length": 9, "charset": "abc"},
              "arm": box((2,), -9, 9), "bits": {"type": "MultiBinary", "n": 3}}
    words = np.array(["a", "b", "c", "a"], h5py.string_dtype())
    folder = changed(
        tmp_path / "d", spaces,
        {"word": words, "arm": np.full((4, 2), 0.5), "bits": np.ones((4, 3), np.int8)},
        infos={"success": np.array([0.0, 0.0, 1.0]), "speed": np.arange(4.0), "seeds": np.zeros(2)})
    hdf5 = opened("minari", folder)
    assert {name: column.num_extra for name, column in hdf5.columns.items()} == {
        "observations/arm": 1, "observations/bits": 1, "actions": 0, "infos/speed": 1,
        "infos/success": 0, "rewards": 0, "terminations": 0, "truncations": 0}
    hdf5.close()
    steps, = steps_of(format="minari", path=str(folder), reward="infos/success")
    assert steps.reward.tolist() == [0.0, 0.0, 1.0]
    assert steps.observation.tolist() == [[0.5, 0.5, 1.0, 1.0, 1.0]] * 4
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        for name in ("success", "seeds"):  # arrow has no rows of other numbers
            del file[f"episode_0/infos/{name}"]
    arrow = opened("minari", arrow_twin(folder, tmp_path / "a"))
    hdf5 = opened("minari", folder)
    assert arrow.defaults == hdf5.defaults and arrow.columns == hdf5.columns
    for name, rows in hdf5.episode(0, None).columns.items():
        np.testing.assert_array_equal(arrow.episode(0, None).columns[name], rows)


def test_infos_of_any_kind_are_left_out_of_arrow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    folder = arrow_twin(make_minari(tmp_path / "d"), tmp_path / "a")
    for i, num_rows in ((0, 4), (1, 6)):
        file = folder / f"data/{i}/part-0.arrow"
        with pa.ipc.open_file(file) as table:
            table = table.read_all()
        infos = pa.StructArray.from_arrays(
            [pa.array([None] * num_rows), pa.array([[1.0] * row for row in range(num_rows)]),
             pa.array([1.0, None] * (num_rows // 2)), pa.array(range(num_rows))],
            names=["none", "ragged", "gaps", "count"])
        pa.feather.write_feather(table.append_column("infos", infos), file, "uncompressed")
    source = opened("minari", folder)
    assert [name for name in source.columns if name.startswith("infos")] == ["infos/count"]
    with pytest.raises(InvalidArgument) as raised:
        source.episode(1, ["infos/gaps"])
    assert str(raised.value) == (f"{folder}/data/1: episode 1: infos/gaps: its rows differ in "
                                 "length, or have gaps")


@pytest.mark.parametrize(("dtype", "low", "high"), [
    ("bool", 0, 1), ("uint8", 0, 255), ("int8", -128, 127), ("uint16", 0, 65535),
    ("int64", -2**63, 2**63 - 1), ("uint64", 0, 2**64 - 1), ("float32", -np.inf, np.inf),
    ("float64", -np.inf, np.inf)])
def test_the_space_of_an_export_holds_every_number_of_its_type(dtype, low, high):
    space = json.loads(json.dumps(_box(np.zeros((5, 2), dtype))))
    assert (space["low"], space["high"]) == ([low] * 2, [high] * 2)
    # as Minari makes it
    loaded = gymnasium.spaces.Box(np.array(space["low"], dtype), np.array(space["high"], dtype),
                                  tuple(space["shape"]), np.dtype(space["dtype"]))
    assert all(loaded.contains(np.full(2, bound, dtype)) for bound in (low, high))
    assert loaded == gymnasium.spaces.Box(low, high, (2,), np.dtype(dtype))
