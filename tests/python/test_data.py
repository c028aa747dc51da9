"""replicant.data: data sets in."""

import json
import pathlib

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("yaml")

from data_sets import make_minari, message_of, steps_of  # noqa: E402

from replicant import data, replay  # noqa: E402
from replicant.data._command import main  # noqa: E402
from replicant.data._import import open_source  # noqa: E402
from replicant.data._mapping import Converter  # noqa: E402
from replicant.errors import ConfigError, InvalidArgument, IoError  # noqa: E402


def make_robomimic(file: pathlib.Path, has_next=True, dones=(0, 0, 1)):
    with h5py.File(file, "w") as out:
        demo = out.create_group("data/demo_0")
        demo["obs/x"] = np.arange(3.0)[:, None]
        if has_next:
            demo["next_obs/x"] = np.arange(1.0, 4.0)[:, None]
        demo["actions"] = np.array([[0.5], [-0.5], [1.0]])
        demo["rewards"] = np.array([0.0, 0.0, 1.0])
        demo["dones"] = np.array(dones)
    return file


def test_minari_becomes_steps_with_actions_between_minus_one_and_one(tmp_path):
    make_minari(tmp_path / "d")
    first, second = steps_of(format="minari", path=str(tmp_path / "d"))
    np.testing.assert_array_equal(first.observation, np.arange(4)[:, None] * np.ones((1, 2)))
    assert first.observation.dtype == np.float32 and first.frame is None
    np.testing.assert_array_equal(first.action, np.full((3, 1), -0.5))
    np.testing.assert_array_equal(first.reward, [0, 1, 2])
    np.testing.assert_array_equal(first.discount, [1, 1, 1])
    np.testing.assert_array_equal(second.discount, [1, 1, 1, 1, 0])


def test_action_repeat_takes_each_kth_observation_and_the_mean_reward(tmp_path):
    make_minari(tmp_path / "d", lengths=(5,), terminated=(True,))
    steps, = steps_of(format="minari", path=str(tmp_path / "d"), action_repeat=2, reward_scale=10.0)
    np.testing.assert_array_equal(steps.observation[:, 0], [0, 2, 4, 5])
    np.testing.assert_array_equal(steps.reward, [5, 25, 40])  # of 0 1, 2 3, 4
    np.testing.assert_array_equal(steps.discount, [1, 1, 0])
    summed, = steps_of(format="minari", path=str(tmp_path / "d"), action_repeat=2,
                       reward_of_repeat="sum")
    np.testing.assert_array_equal(summed.reward, [1, 5, 4])


def test_robomimic_takes_its_last_observation_from_next_obs(tmp_path):
    file = make_robomimic(tmp_path / "demo.hdf5")
    steps, = steps_of(format="robomimic", path=str(file))
    np.testing.assert_array_equal(steps.observation[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(steps.action[:, 0], [0.5, -0.5, 1.0])
    np.testing.assert_array_equal(steps.discount, [1, 1, 0])


def test_an_episode_without_last_observation_keeps_its_last_step_only_if_it_terminates(tmp_path,
                                                                                       capsys):
    file = make_robomimic(tmp_path / "demo.hdf5", has_next=False)
    steps, = steps_of(format="robomimic", path=str(file))
    np.testing.assert_array_equal(steps.observation[:, 0], [0, 1, 2, 2])
    np.testing.assert_array_equal(steps.reward, [0, 0, 1])
    cut, = steps_of(format="robomimic", path=str(file), terminated={"constant": False})
    np.testing.assert_array_equal(cut.observation[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(cut.reward, [0, 0])
    assert (steps.num_left_out, cut.num_left_out) == (0, 1)
    mapping = tmp_path / "map.yaml"
    mapping.write_text(f"format: robomimic\npath: {file}\nterminated: {{constant: false}}\n")
    assert main(["import", str(mapping), "--to", str(tmp_path / "prior")]) == 0
    assert capsys.readouterr().out == (
        f"{tmp_path}/prior: 1 episodes, 2 steps; the last step of 1 left out: no observation after "
        "it\n")


def test_robomimics_data_of_a_whole_episode_is_no_column(tmp_path):
    file = make_robomimic(tmp_path / "demo.hdf5")
    with h5py.File(file, "a") as out:
        out["data/demo_0/initial_state/robot/joint_position"] = np.zeros((1, 7))  # Isaac Lab's
        out["data/demo_0/src_demo_inds"] = np.arange(2)  # MimicGen's, of two subtasks
    steps, = steps_of(format="robomimic", path=str(file))
    np.testing.assert_array_equal(steps.observation[:, 0], [0, 1, 2, 3])
    with h5py.File(file, "a") as out:
        out["data/demo_0/obs/y"] = np.zeros((2, 1))
    assert message_of(InvalidArgument, format="robomimic", path=str(file)) == (
        f"{file}: demo_0: obs/y has 2 rows, want 3")


def test_functions_and_constants_give_what_is_missing(tmp_path):
    make_minari(tmp_path / "d", lengths=(3,), terminated=(False,))
    (tmp_path / "rules.py").write_text(
        "def reward(columns):\n    return columns['observations/arm'][1:, 0]\n"
        "def broken(columns):\n    return columns['nothing']\n")
    (tmp_path / "map.yaml").write_text(
        "format: minari\npath: d\nreward: {function: 'rules.py:reward'}\n"
        "terminated: {constant: true}\n")
    mapping = data.Mapping.load(tmp_path / "map.yaml")
    source = open_source(mapping)
    converter = Converter(mapping, source)
    steps = converter.steps(source.episode(0, converter.names))
    np.testing.assert_array_equal(steps.reward, [1, 2, 3])
    np.testing.assert_array_equal(steps.discount, [1, 1, 0])
    mapping.reward = {"function": "rules.py:broken"}
    broken = Converter(mapping, source)
    with pytest.raises(InvalidArgument) as raised:
        broken.steps(source.episode(0, broken.names))
    assert str(raised.value) == (f"{tmp_path}/d/data/main_data.hdf5: episode 0: the function of "
                                 "reward raised KeyError: 'nothing'")


def test_an_import_is_what_a_reader_draws(tmp_path):
    pixels = [np.random.default_rng(i).integers(0, 256, (n + 1, 8, 6, 3), np.uint8)
              for i, n in enumerate((3, 5))]
    make_minari(tmp_path / "d", pixels=pixels)
    (tmp_path / "map.yaml").write_text(
        "format: minari\npath: d\nobservation: observations/arm\nframe: observations/camera\n")
    seen = []
    job = data.import_data(tmp_path / "map.yaml", tmp_path / "prior",
                           lambda job: seen.append((job.done, job.num_steps)))
    assert (job.total, job.num_steps, seen) == (2, 8, [(1, 3), (2, 8)])
    assert not (tmp_path / "prior.part").exists() and not (tmp_path / "prior/spill").exists()
    # by which a run knows pictures of other sides
    about = json.loads((tmp_path / "prior/prior.json").read_text())
    assert about["frame_shapes"] == [[8, 6, 3]]
    # and actions of other bounds
    assert (about["action_low"], about["action_high"]) == ([-2.0], [2.0])
    assert about["columns"] == {"observation": ["observations/arm"],
                                "frame": ["observations/camera"], "action": ["actions"]}
    signature = replay.Signature(observation=((2,), "float32"), action=((1,), "float32"),
                                 frame=((8, 6, 3), "uint8"))
    tables = {"default": {"n_step": 1, "max_size": 1 << 24, "sampler": "uniform"}}
    with replay.Replay.start(signature, tables, checkpoint_folder=tmp_path / "prior") as service:
        assert service.status()["tables"][0]["size"] == 8
        with service.reader(batch_size=64) as reader:
            batch = reader.sample(60)
    for i in range(64):
        episode, step = divmod(int(batch.observation[i, 0]), 100)
        assert batch.reward[i] == step
        np.testing.assert_array_equal(batch.frames[i, 0], pixels[episode][step])
        np.testing.assert_array_equal(batch.next_frames[i, 0], pixels[episode][step + 1])
        assert batch.discount[i] == np.float32(0 if (episode, step) == (1, 4) else 0.99)


def test_pictures_alone_are_imported_without_numbers(tmp_path):
    pixels = [np.full((4, 8, 6, 3), 7, np.uint8)]
    make_minari(tmp_path / "d", lengths=(3,), terminated=(False,), pixels=pixels)
    mapping = data.Mapping.of({"format": "minari", "path": str(tmp_path / "d"), "observation": [],
                               "frame": "observations/camera"})
    data.import_data(mapping, tmp_path / "prior")
    signature = replay.Signature(None, ((1,), "float32"), ((8, 6, 3), "uint8"))
    tables = {"default": {"n_step": 1, "max_size": 1 << 24, "sampler": "uniform"}}
    with replay.Replay.start(signature, tables, checkpoint_folder=tmp_path / "prior") as service:
        with service.reader(batch_size=4) as reader:
            batch = reader.sample(60)
    assert batch.observation is None and (batch.frames == 7).all()
    assert (batch.action == -0.5).all()


def test_an_import_needs_less_memory_than_its_steps(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)  # noise: no codec shrinks it
    pixels = [rng.integers(0, 256, (31, 64, 64, 3), np.uint8) for _ in range(6)]  # 2.3 MB
    make_minari(tmp_path / "d", lengths=[30] * 6, terminated=[False] * 6, pixels=pixels)
    mapping = data.Mapping.of({"format": "minari", "path": str(tmp_path / "d"),
                               "frame": "observations/camera"})
    monkeypatch.setattr("replicant.data._import._MEMORY", 1 << 20)
    monkeypatch.setattr("replicant.data._import._SAVE_S", 0.0)
    data.import_data(mapping, tmp_path / "prior")
    assert not (tmp_path / "prior/spill").exists()
    signature = replay.Signature(((2,), "float32"), ((1,), "float32"), ((64, 64, 3), "uint8"))
    tables = {"default": {"n_step": 1, "max_size": 1 << 24, "sampler": "uniform"}}
    with replay.Replay.start(signature, tables, checkpoint_folder=tmp_path / "prior") as service:
        assert service.status()["tables"][0]["size"] == 180
        with service.reader(batch_size=64) as reader:
            batch = reader.sample(60)
    for row in range(64):
        episode, step = divmod(int(batch.observation[row, 0]), 100)
        np.testing.assert_array_equal(batch.frames[row, 0], pixels[episode][step])


def test_a_stopped_import_goes_on_and_a_finished_one_is_not_overwritten(tmp_path, monkeypatch):
    make_minari(tmp_path / "d", lengths=(3, 5, 2), terminated=(False, True, False))
    mapping = data.Mapping.of({"format": "minari", "path": str(tmp_path / "d")})
    monkeypatch.setattr("replicant.data._import._SAVE_S", 0.0)

    class Stop(Exception):
        pass

    def stop(job):
        if job.done == 2:
            raise Stop

    with pytest.raises(Stop):
        data.import_data(mapping, tmp_path / "prior", stop)
    assert not (tmp_path / "prior").exists()
    other = data.Mapping.of({"format": "minari", "path": str(tmp_path / "d"), "episodes": 1})
    with pytest.raises(ConfigError) as raised:
        data.import_data(other, tmp_path / "prior")
    assert str(raised.value) == (f"{tmp_path}/prior.part: a part of an import by another mapping; "
                                 "remove it")
    done = []
    job = data.import_data(mapping, tmp_path / "prior", lambda job: done.append(job.done))
    assert (done, job.num_steps) == ([3], 10)
    with pytest.raises(IoError) as raised:
        data.import_data(mapping, tmp_path / "prior")
    assert str(raised.value) == (f"{tmp_path}/prior: exists; choose another folder, or remove it")
    signature = replay.Signature(observation=((2,), "float32"), action=((1,), "float32"))
    tables = {"default": {"n_step": 1, "max_size": 1 << 24, "sampler": "uniform"}}
    with replay.Replay.start(signature, tables, checkpoint_folder=tmp_path / "prior") as service:
        assert service.status()["tables"][0]["size"] == 10


def test_ctrl_c_ends_an_import_in_one_line_and_the_command_goes_on(tmp_path, monkeypatch, capsys):
    make_minari(tmp_path / "d")
    file = tmp_path / "mapping.yaml"
    file.write_text("format: minari\npath: d\n", encoding="utf-8")
    words = ["import", str(file), "--to", str(tmp_path / "prior")]

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Converter, "steps", interrupt)
        assert main(words) == 130
    assert capsys.readouterr().err == "replicant data: stopped; hint: the same command goes on\n"
    assert main(words) == 0


def test_what_is_missing_is_named_with_how_to_give_it(tmp_path):
    path = str(make_robomimic(tmp_path / "demo.hdf5"))
    with h5py.File(path, "a") as file:
        del file["data/demo_0/rewards"]
    has = "it has actions float64[1], dones int64[], obs/x float64[1]"
    assert message_of(ConfigError, format="robomimic", path=path) == (
        f"{path}: no reward; {has}; give reward: COLUMN, reward: {{constant: 0.0}} or reward: "
        "{function: FILE.py:NAME}")
    assert message_of(ConfigError, format="robomimic", path=path, reward={"constant": 0},
                      observation=["obs/y"]) == f"{path}: no column 'obs/y'; {has}"


@pytest.mark.parametrize(("keys", "message"), [
    ({"path": "x"}, "map.yaml: format: missing"),
    ({"format": "minari", "path": "x", "actoin": 1},
     "map.yaml: actoin: unknown key; did you mean 'action'?"),
    ({"format": "csv", "path": "x"},
     "map.yaml: format: got 'csv', want minari, lerobot, robomimic, recording"),
    ({"format": "minari", "path": "x", "action_repeat": 0},
     "map.yaml: action_repeat: got 0, want a number of at least 1"),
    ({"format": "minari", "path": "x", "reward": {"constnat": 0}},
     "map.yaml: reward: got {'constnat': 0}, want a column, {constant: NUMBER} or {function: "
     "FILE.py:NAME}"),
])
def test_a_mapping_that_cannot_be_used_is_named_by_its_key(keys, message):
    with pytest.raises(ConfigError) as raised:
        data.Mapping.of(keys, "map.yaml")
    assert str(raised.value) == message


@pytest.mark.parametrize(("lines", "message"), [
    ("path: d\n\npath: e", ":4: path: given twice"),
    ("path: d\nreward: {constant: 1,\n  constant: 2}", ":4: constant: given twice"),
    # what YAML 1.1 and 1.2 read differently
    ("path: d\nclip_actions: yes", ": clip_actions: got 'yes', want true or false"),
    ("path: d\naction_repeat: 010", ": action_repeat: got '010', want a number of at least 1"),
    ("path: d\nepisodes: 1_000", ": episodes: got '1_000', want a number of at least 1"),
    ("path: d\nreward_scale: 1:30", ": reward_scale: got '1:30', want a finite number"),
    ("path: d\nreward_scale: .inf", ": reward_scale: got inf, want a finite number"),
    ("path: 1e3", ": path: got 1000, want text; hint: put it in quotes"),
    ("path: [", ": while parsing a flow node"),
])
def test_a_mapping_file_that_may_mean_something_else_is_refused(lines, message, tmp_path):
    (tmp_path / "map.yaml").write_text(f"format: minari\n{lines}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        data.Mapping.load(tmp_path / "map.yaml")
    assert str(raised.value).splitlines()[0] == f"{tmp_path}/map.yaml{message}"


@pytest.mark.parametrize(("low", "given"), [
    ("-010", "-010"), ("-1_0", "-1_0"), ("'1_0'", "1_0"), ("['-1']", ["-1"]), ("true", True),
    ("[1, [2, 3]]", [1, [2, 3]]), ("[-1, -1]", [-1, -1]), (".inf", np.inf)])
def test_bounds_of_actions_that_are_no_numbers_are_refused(low, given, tmp_path):
    make_minari(tmp_path / "d")
    (tmp_path / "map.yaml").write_text(f"format: minari\npath: d\naction_low: {low}\n",
                                       encoding="utf-8")
    mapping = data.Mapping.load(tmp_path / "map.yaml")
    with pytest.raises(ConfigError) as raised:
        Converter(mapping, open_source(mapping))
    assert str(raised.value) == (
        f"{tmp_path}/d: the bounds of the actions are {(given, None)}, want finite numbers, low < "
        "high, one or 1 each")


def test_a_mapping_file_has_the_numbers_of_a_configuration(tmp_path):
    (tmp_path / "map.yaml").write_text("""
format: minari
path: '1e3'
observation: [2026-01-02, no, "7"]
reward_scale: 1e-2
reward: {constant: -.5e-3}
action_low: [-1, +2.5e1, 0, 5.]
terminated: ~
clip_actions: true
action_repeat: 1.0
episodes: 1e3
""", encoding="utf-8")
    mapping = data.Mapping.load(tmp_path / "map.yaml")
    assert mapping.path == str(tmp_path / "1e3")
    assert mapping.observation == ["2026-01-02", "no", "7"]
    assert (mapping.reward_scale, mapping.reward) == (0.01, {"constant": -0.0005})
    assert mapping.action_low == [-1, 25, 0, 5]
    assert mapping.terminated is None and mapping.clip_actions is True
    assert mapping.action_repeat == 1 and mapping.episodes == 1000


def test_a_fault_in_the_data_is_named_with_file_and_episode_and_imports_nothing(tmp_path):
    folder = make_minari(tmp_path / "d")
    keys = {"format": "minari", "path": str(folder)}
    file = folder / "data/main_data.hdf5"
    assert message_of(InvalidArgument, **keys, action_high=0.5) == (
        f"{file}: episode 1: step 0: number 0 of the action is 1, want -2 to 0.5; hint: action_low "
        "and action_high, or clip_actions: true")
    with h5py.File(file, "a") as out:
        out["episode_1/rewards"][2] = np.nan
    assert message_of(InvalidArgument, **keys) == (
        f"{file}: episode 1: step 2: the reward is nan")
    with h5py.File(file, "a") as out:
        rewards = out["episode_1/rewards"][:].astype(np.float64)
        del out["episode_1/rewards"]
        out["episode_1/rewards"] = [*rewards[:2], 1e39, *rewards[3:]]
    assert message_of(InvalidArgument, **keys) == (
        f"{file}: episode 1: step 2: the reward is 1e+39, which float32 cannot hold")
    (tmp_path / "map.yaml").write_text("format: minari\npath: d\n")
    assert main(["import", str(tmp_path / "map.yaml"), "--to", str(tmp_path / "prior")]) == 1
    assert not (tmp_path / "prior").exists()
    with h5py.File(file, "a") as out:
        del out["episode_1/actions"]
        out["episode_1/actions"] = np.zeros((5, 2), np.float32)
        out["episode_1/rewards"][2] = 0.0
    assert message_of(InvalidArgument, **keys) == (
        f"{file}: episode 1: actions has the shape [2], want [1] as in the first episode")
    with h5py.File(file, "a") as out:
        del out["episode_1/actions"]
    assert message_of(InvalidArgument, **keys).startswith(f"{file}: episode 1: no actions; it has ")


def test_a_termination_is_0_or_1(tmp_path):
    folder = make_minari(tmp_path / "d", lengths=(3,), terminated=(True,))
    file = folder / "data/main_data.hdf5"
    for value, text in ((3.0, "3"), (0.5, "0.5"), (np.nan, "nan"), (-1.0, "-1")):
        with h5py.File(file, "a") as out:
            del out["episode_0/terminations"]
            out["episode_0/terminations"] = np.array([0.0, 0.0, value])
        assert message_of(InvalidArgument, format="minari", path=str(folder)) == (
            f"{file}: episode 0: step 2: terminated is {text}, want 0 or 1")


def test_a_truncated_file_is_named(tmp_path):
    folder = make_minari(tmp_path / "d")
    file = folder / "data/main_data.hdf5"
    file.write_bytes(file.read_bytes()[:1000])
    assert message_of(IoError, format="minari", path=str(folder)).startswith(f"{file}: ")
    assert message_of(IoError, format="minari", path=str(tmp_path)).startswith(
        f"{tmp_path}: no Minari data set: ")
