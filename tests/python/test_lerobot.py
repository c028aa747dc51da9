"""replicant.data: LeRobotDataset v3, both ways."""

import json

import gymnasium
import numpy as np
import pytest

pytest.importorskip("h5py")
pytest.importorskip("yaml")

from data_sets import message_of, recorded, steps_of  # noqa: E402

from replicant import data  # noqa: E402
from replicant._adapter import control_timestep_s  # noqa: E402
from replicant.data._command import main  # noqa: E402
from replicant.data._import import open_source  # noqa: E402
from replicant.data._recording import Writer  # noqa: E402
from replicant.errors import ConfigError, InvalidArgument, IoError  # noqa: E402


def make_lerobot(tmp_path, pictures):
    """Two episodes with slopes as pictures, exported from a recording."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("PIL")
    if pictures == "video":
        pytest.importorskip("av")
    y, x = np.mgrid[0:64, 0:72]
    writer = Writer(tmp_path / "r", (np.float32([-2.0]), np.float32([2.0])), 12.5)
    episodes = []
    for seed, length in enumerate((5, 8)):
        episode = recorded(length, seed == 0, seed)
        episode.observations["camera"] = np.stack(
            [np.stack([x * 3, y * 3 + step, np.full_like(x, 90 * seed)], -1)
             for step in range(length + 1)]).astype(np.uint8)
        writer.write(episode)
        episodes.append(episode)
    data.export(tmp_path / "r", tmp_path / "lr", "lerobot", pictures=pictures)
    return str(tmp_path / "lr"), episodes


@pytest.mark.parametrize("pictures", ["png", "video"])
def test_an_export_to_lerobot_comes_back(tmp_path, pictures):
    path, episodes = make_lerobot(tmp_path, pictures)
    source = open_source(data.Mapping.of({"format": "lerobot", "path": path}))
    assert source.frames_per_second == 12.5 and len(source) == 2
    for index in (1, 0, 1):  # in any order, from files that hold both
        got, wanted = source.episode(index, None).columns, episodes[index]
        length = len(wanted.action)  # the format has no last observation
        np.testing.assert_array_equal(got["observation.arm"], wanted.observations["arm"][:length])
        np.testing.assert_array_equal(got["action"], wanted.action.reshape(-1))
        np.testing.assert_array_equal(got["next.reward"], wanted.reward.astype(np.float32))
        assert got["next.terminated"].tolist() == [False] * (length - 1) + [wanted.terminated]
        error = np.abs(got["observation.images.camera"].astype(int)
                       - wanted.observations["camera"][:length])
        # 30 of AV1's CRF
        assert error.max() == 0 if pictures == "png" else error.mean() < 4
    source.close()


def test_the_rate_of_a_data_set_is_given_where_the_source_does_not_say_it(tmp_path):
    pytest.importorskip("pyarrow")
    Writer(tmp_path / "r", ([-2.0], [2.0]), None).write(recorded(4, True))
    with pytest.raises(ConfigError) as raised:
        data.export(tmp_path / "r", tmp_path / "lr", "lerobot")
    assert str(raised.value) == (
        "the environment does not say how many steps a second has, which the format needs; hint: "
        "fps=N, or --fps N; an environment says it by dt or by metadata['render_fps']")
    assert main(["export", str(tmp_path / "r"), "--to", str(tmp_path / "lr"), "--format", "lerobot",
                 "--fps", "20"]) == 0
    source = open_source(data.Mapping.of({"format": "lerobot", "path": str(tmp_path / "lr")}))
    assert source.frames_per_second == 20.0
    source.close()


def test_gymnasiums_rate_of_pictures_is_that_of_the_steps():
    class Environment(gymnasium.Env):
        metadata = {"render_fps": 25}

    assert control_timestep_s(Environment()) == 0.04
    Environment.dt = 0.5
    assert control_timestep_s(Environment()) == 0.5


def test_lerobot_becomes_steps_once_the_mapping_gives_what_it_lacks(tmp_path):
    path, episodes = make_lerobot(tmp_path, "png")
    keys = {"format": "lerobot", "path": path, "frame": "observation.images.camera"}
    assert "no terminated; it has observation.arm float64[2], action float32[], " in message_of(ConfigError, **keys)
    assert message_of(ConfigError, **keys, terminated="next.terminated") == (
        f"{path}: no bounds of the actions; give action_low and action_high, numbers or lists")
    first, second = steps_of(**keys, terminated="next.terminated", action_low=-2, action_high=2)
    assert len(first.action) == 5 and len(first.frame) == 6 and first.discount[-1] == 0
    assert len(second.action) == 7 and len(second.frame) == 8 and second.discount[-1] == 1
    np.testing.assert_array_equal(second.frame, episodes[1].observations["camera"][:8])


def test_a_fault_of_lerobots_files_is_named_with_file_and_episode(tmp_path):
    path, _ = make_lerobot(tmp_path, "video")
    keys = {"format": "lerobot", "path": path, "frame": "observation.images.camera",
            "terminated": "next.terminated", "action_low": -2, "action_high": 2}
    video = tmp_path / "lr/videos/observation.images.camera/chunk-000/file-000.mp4"
    whole = video.read_bytes()
    info = tmp_path / "lr/meta/info.json"
    text = info.read_text()
    table = tmp_path / "lr/data/chunk-000/file-000.parquet"

    info.write_text(text.replace('"fps": 12.5', '"fps": 10'))
    assert message_of(InvalidArgument, **keys) == (
        f"{table}: episode 0: step 1 is at 0.08 s, and fps 10 of meta/info.json makes it 0.1 s")
    info.write_text(text.replace('"v3.0"', '"v2.1"'))
    assert message_of(InvalidArgument, **keys) == (
        f"{info}: codebase_version is v2.1, want v3; hint: convert it with lerobot")
    info.write_text(text)
    video.write_bytes(whole[:len(whole) // 2])
    assert message_of(IoError, **keys).startswith(f"{video}: episode 0: ")
    video.write_bytes(b"no video")
    assert message_of(IoError, **keys).startswith(f"{video}: episode 0: ")
    video.unlink()
    assert message_of(IoError, **keys) == f"{video}: episode 0: no such video"
    table.write_bytes(table.read_bytes()[:200])
    assert message_of(IoError, **keys).startswith(f"{table}: episode 0: ")


def rewrite(file, name, array):
    """Another column in the place of one of a parquet file."""
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(file)
    parquet.write_table(table.set_column(table.column_names.index(name), name, [array]), file)


@pytest.mark.parametrize("rows", [
    [[1.0], [2.0, 3.0, 4.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],  # ten numbers, as of five pairs
    [[1.0, None], [2.0, 3.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    [None, [1.0, 2.0, 2.0, 3.0], [1.0, 2.0], [3.0, 4.0], []],
    [[[1.0], [2.0]], [[1.0, 2.0], []], [[1.0], [2.0]], [[1.0], [2.0]], [[1.0], [2.0]]],
])
def test_rows_of_different_lengths_are_refused_whatever_their_sum(tmp_path, rows):
    pa = pytest.importorskip("pyarrow")
    Writer(tmp_path / "r", ([-2.0], [2.0]), 50.0).write(recorded(5, True))
    data.export(tmp_path / "r", tmp_path / "lr", "lerobot")
    file = tmp_path / "lr/data/chunk-000/file-000.parquet"
    rewrite(file, "observation.arm", pa.array(rows))
    assert message_of(InvalidArgument, format="lerobot", path=str(tmp_path / "lr")) == (
        f"{file}: episode 0: observation.arm: its rows differ in length, or have gaps")


def test_a_column_with_gaps_that_nobody_names_is_left_out(tmp_path):
    pa = pytest.importorskip("pyarrow")
    path, _ = make_lerobot(tmp_path, "png")
    file = tmp_path / "lr/data/chunk-000/file-000.parquet"
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(file)
    parquet.write_table(table.append_column("subtask", pa.array([None, *range(12)])), file)
    info = tmp_path / "lr/meta/info.json"
    about = json.loads(info.read_text())
    about["features"]["subtask"] = {"dtype": "int64", "shape": [1], "names": None}
    info.write_text(json.dumps(about))
    source = open_source(data.Mapping.of({"format": "lerobot", "path": path}))
    assert [name for name in source.columns if "." not in name] == ["action"]
    with pytest.raises(InvalidArgument) as raised:
        source.episode(0, ["subtask"])
    assert str(raised.value) == (
        f"{file}: episode 0: subtask: its rows differ in length, or have gaps")


def test_arrays_of_two_dimensions_are_what_info_json_says(tmp_path):
    pytest.importorskip("PIL")
    parquet = pytest.importorskip("pyarrow.parquet")
    episode = recorded(5, True)
    rng = np.random.default_rng(0)
    shapes = {"mass": (1,), "arm": (2,), "one": (1, 1), "hand": (2, 3), "finger": (2, 3, 4)}
    episode.observations = {name: rng.normal(size=(6, *shape)) for name, shape in shapes.items()}
    Writer(tmp_path / "r", ([-2.0], [2.0]), 50.0).write(episode)
    data.export(tmp_path / "r", tmp_path / "lr", "lerobot")
    features = json.loads((tmp_path / "lr/meta/info.json").read_text())["features"]
    file = tmp_path / "lr/data/chunk-000/file-000.parquet"
    types = {field.name: str(field.type).replace("element: ", "item: ")
             for field in parquet.read_schema(file)}
    wanted = {"mass": "double", "arm": "fixed_size_list<item: double>[2]",
              "one": "list<item: list<item: double>>", "hand": "list<item: list<item: double>>",
              "finger": "list<item: list<item: list<item: double>>>"}
    source = open_source(data.Mapping.of({"format": "lerobot", "path": str(tmp_path / "lr")}))
    for name, shape in shapes.items():
        assert features[f"observation.{name}"]["shape"] == list(shape)
        assert types[f"observation.{name}"] == wanted[name]
        np.testing.assert_array_equal(
            source.episode(0, None).columns[f"observation.{name}"].reshape(5, *shape),
            episode.observations[name][:5])


def test_arrays_of_two_dimensions_are_read_and_written_as_the_package_datasets_has_them(tmp_path):
    pytest.importorskip("PIL")
    datasets = pytest.importorskip("datasets")
    hand = np.arange(36.0, dtype=np.float32).reshape(6, 2, 3)
    episode = recorded(5, True)
    episode.observations = {"hand": hand, "mass": hand[:, 0, :1]}
    Writer(tmp_path / "r", ([-2.0], [2.0]), 50.0).write(episode)
    data.export(tmp_path / "r", tmp_path / "lr", "lerobot")
    file = tmp_path / "lr/data/chunk-000/file-000.parquet"
    # the features that lerobot makes of info.json
    features = datasets.Features({
        "observation.hand": datasets.Array2D((2, 3), "float32"),
        "observation.mass": datasets.Value("float32"), "action": datasets.Value("float32"),
        "next.reward": datasets.Value("float32"), "next.done": datasets.Value("bool"),
        "next.terminated": datasets.Value("bool"), "timestamp": datasets.Value("float32"),
        **{name: datasets.Value("int64") for name in
           ("frame_index", "episode_index", "index", "task_index")}})
    loaded = datasets.Dataset.from_parquet(str(file), features=features,
                                           cache_dir=str(tmp_path / "cache"))
    assert loaded["observation.hand"][:] == hand[:5].tolist()
    # and the file that datasets writes, whose columns have a type of its own
    loaded.to_parquet(str(file))
    source = open_source(data.Mapping.of({"format": "lerobot", "path": str(tmp_path / "lr")}))
    np.testing.assert_array_equal(source.episode(0, None).columns["observation.hand"], hand[:5])
