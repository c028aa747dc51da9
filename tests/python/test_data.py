"""replicant.data: data sets in and out."""

import json
import pathlib
import subprocess

import gymnasium
import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("yaml")

from replicant import _process, data, replay  # noqa: E402
from replicant.data._command import main  # noqa: E402
from replicant.data._episode import Recorded  # noqa: E402
from replicant.data._import import open_source  # noqa: E402
from replicant.data._mapping import Converter  # noqa: E402
from replicant.data._recording import Writer  # noqa: E402
from replicant.errors import ConfigError, Error, InvalidArgument, IoError  # noqa: E402


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


def test_an_episode_without_last_observation_keeps_its_last_step_only_if_it_terminates(tmp_path):
    file = make_robomimic(tmp_path / "demo.hdf5", has_next=False)
    steps, = steps_of(format="robomimic", path=str(file))
    np.testing.assert_array_equal(steps.observation[:, 0], [0, 1, 2, 2])
    np.testing.assert_array_equal(steps.reward, [0, 0, 1])
    cut, = steps_of(format="robomimic", path=str(file), terminated={"constant": False})
    np.testing.assert_array_equal(cut.observation[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(cut.reward, [0, 0])


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


class TwoCameras(gymnasium.Env):
    """Two pictures of other sizes, one of them grey, and nested arrays, all of them noise."""

    dt = 0.1
    observation_space = gymnasium.spaces.Dict({
        "arm": gymnasium.spaces.Dict({
            "grip": gymnasium.spaces.Discrete(3),
            "joint": gymnasium.spaces.Box(-1, 1, (2,), np.float32)}),
        "front": gymnasium.spaces.Box(0, 255, (16, 20, 3), np.uint8),
        "wrist": gymnasium.spaces.Box(0, 255, (16, 12), np.uint8)})
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)

    def _see(self):
        self.count += 1
        rng = self.np_random
        return {"arm": {"grip": int(rng.integers(3)),
                        "joint": rng.uniform(-1, 1, 2).astype(np.float32)},
                "front": rng.integers(0, 256, (16, 20, 3), np.uint8),
                "wrist": rng.integers(0, 256, (16, 12), np.uint8)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._see(), {}

    def step(self, action):
        return self._see(), float(action[0]), self.count == 12, False, {}


def train(folder, task, **environment):
    """A short run in one process."""
    (folder / "run.yaml").write_text(
        f"run: {{name: run, dir: {folder / 'run'}}}\ntask: {task}\n"
        "agent: {networks: {encoder: {kind: custom, channels: [2], kernels: [6], strides: [6]}, "
        "embedding_size: 4, policy_hidden_sizes: [8], critic_hidden_sizes: [8]}, "
        "distribution: {range: running}}\n"
        "replay: {tables: {default: {rate_limiter: {samples_per_insert: 2, min_size_to_sample: 30, "
        "error_buffer: 32}}}}\n"
        "learner: {batch_size: 4, limits: {max_steps: 20}}\nevaluation: {enabled: false}\n")
    done = subprocess.run(
        [*_process.python("replicant"), "lockstep", "--config", str(folder / "run.yaml")],
        env={**_process.environment(), **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.mark.parametrize("kind", ["own", "suite"])
def test_the_steps_of_a_run_with_two_cameras_come_back_from_its_export(tmp_path, kind):
    from replicant.data._replay_folder import ReplayFolder

    pytest.importorskip("lz4")
    if kind == "own":
        make_env = f"{__file__}:TwoCameras"
        run = train(tmp_path, "{name: python-environment, pixels: {enabled: true, state: true}}",
                    REPLICANT_MAKE_ENV=make_env)
        numbers, frames, size = ["arm/grip", "arm/joint"], ["front", "wrist"], 5
    else:
        pytest.importorskip("replicant.envs")
        make_env = None
        run = train(tmp_path, "{name: cartpole-swingup, action_repeat: 100, pixels: {enabled: true, "
                    "cameras: [fixed, lookatcart], heights: [16, 16], widths: [20, 12], state: true}}")
        numbers, frames, size = ["state"], ["pixels/fixed", "pixels/lookatcart"], 5
    count = data.export(run, tmp_path / "m", "minari", make_env=make_env)
    mapping = data.Mapping.of({
        "format": "minari", "path": str(tmp_path / "m"),
        "observation": [f"observations/{name}" for name in numbers],
        "frame": [f"observations/{name}" for name in frames]})
    data.import_data(mapping, tmp_path / "prior")
    wanted, got = ReplayFolder(run / "replay"), ReplayFolder(tmp_path / "prior")
    assert len(wanted) == len(got) == count > 0 and wanted.shape == got.shape
    assert got.shape["observation_bytes"] == 4 * size
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(one["observation"], other["observation"])
        np.testing.assert_array_equal(one["frame"], other["frame"])
        np.testing.assert_array_equal(one["reward"], other["reward"])
        np.testing.assert_array_equal(one["discount"] == 0, other["discount"] == 0)
        # to the bounds and back
        np.testing.assert_allclose(one["action"], other["action"], atol=1e-6)


def test_the_policy_of_a_run_with_make_env_plays_its_export(tmp_path):
    make_env = f"{__file__}:TwoCameras"
    run = train(tmp_path, "{name: python-environment, action_repeat: 2, pixels: {enabled: true, "
                "state: true, frame_stack: 2}}", REPLICANT_MAKE_ENV=make_env)
    assert data.export(run, tmp_path / "m", "minari", episodes=2, make_env=make_env) == 2
    source = open_source(data.Mapping.of({"format": "minari", "path": str(tmp_path / "m")}))
    for seed in range(2):
        played = source.episode(seed, None).columns
        env, newest = TwoCameras(), []
        newest.append(env.reset(seed=seed)[0])
        for action, reward, terminated in zip(played["actions"], played["rewards"],
                                              played["terminations"], strict=True):
            rewards = []
            for _ in range(2):
                observation, one, is_over, _, _ = env.step(action)
                rewards.append(one)
                if is_over:
                    break
            newest.append(observation)
            assert (reward, terminated) == (np.mean(rewards), is_over)
        np.testing.assert_array_equal(played["observations/front"], [o["front"] for o in newest])
        np.testing.assert_array_equal(played["observations/wrist"][..., 0],
                                      [o["wrist"] for o in newest])
        np.testing.assert_array_equal(played["observations/arm/joint"],
                                      [o["arm"]["joint"] for o in newest])
        np.testing.assert_array_equal(played["observations/arm/grip"],
                                      np.eye(3)[[o["arm"]["grip"] for o in newest]])
    source.close()


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


def test_a_truncated_file_is_named(tmp_path):
    folder = make_minari(tmp_path / "d")
    file = folder / "data/main_data.hdf5"
    file.write_bytes(file.read_bytes()[:1000])
    assert message_of(IoError, format="minari", path=str(folder)).startswith(f"{file}: ")
    assert message_of(IoError, format="minari", path=str(tmp_path)).startswith(
        f"{tmp_path}: no Minari data set: ")


def recorded(length, terminated, seed=0):
    rng = np.random.default_rng(seed)
    return Recorded(observations={"arm": rng.normal(size=(length + 1, 2)),
                                  "camera": rng.integers(0, 256, (length + 1, 9, 7, 3), np.uint8)},
                    action=rng.uniform(-2, 2, (length, 1)).astype(np.float32),
                    reward=rng.normal(size=length), terminated=terminated)


def test_a_recording_comes_back_and_so_does_its_export_to_minari(tmp_path):
    episodes = [recorded(4, True, 1), recorded(6, False, 2)]
    bounds = np.float32([-2.0]), np.float32([2.0])
    for episode in episodes:  # a recording grows
        writer = Writer(tmp_path / "r", bounds, 50.0)
        writer.write(episode)
    recording = open_source(data.Mapping.of({"format": "recording", "path": str(tmp_path / "r")}))
    assert recording.frames_per_second == 50.0
    assert data.export(tmp_path / "r", tmp_path / "m", "minari") == 2
    minari = open_source(data.Mapping.of({"format": "minari", "path": str(tmp_path / "m")}))
    for i, episode in enumerate(episodes):
        for source, names in ((recording, ("observation", "action", "reward")),
                              (minari, ("observations", "actions", "rewards"))):
            got = source.episode(i, None).columns
            for name, rows in episode.observations.items():
                stored = got[f"{names[0]}/{name}"]
                assert stored.dtype == rows.dtype
                np.testing.assert_array_equal(stored, rows)
            np.testing.assert_array_equal(got[names[1]], episode.action)
            np.testing.assert_array_equal(got[names[2]], episode.reward)
        assert minari.episode(i, None).columns["terminations"][-1] == episode.terminated
        assert minari.episode(i, None).columns["truncations"][-1] != episode.terminated
    np.testing.assert_array_equal(minari.bounds, [[-2.0], [2.0]])


def test_a_recording_of_another_environment_is_not_mixed_in(tmp_path):
    Writer(tmp_path, (np.float32([-1]), np.float32([1])), 50.0)
    with pytest.raises(InvalidArgument, match="another recording"):
        Writer(tmp_path, (np.float32([-1]), np.float32([1])), 25.0)


def test_the_whole_episodes_of_a_replays_folder_come_back(tmp_path):
    from replicant.data._replay_folder import ReplayFolder

    pytest.importorskip("lz4")
    signature = replay.Signature(observation=((2,), "float32"), action=((1,), "float32"),
                                 frame=((8, 6, 3), "uint8"))
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 4, (60, 8, 6, 3), np.uint8)  # few values: LZ4 shrinks them
    with replay.Replay.start(signature, checkpoint_folder=tmp_path / "replay") as service:
        with service.writer(group_steps=4) as writer:
            for episode, length in enumerate((10, 3, 6)):
                writer.begin()
                for step in range(length):
                    writer.append([episode, step], [step / 100], float(step),
                                  0.0 if (episode, step) == (1, 2) else 1.0,
                                  frame=frames[20 * episode + step])
                if episode < 2:  # the last one goes on
                    writer.end([episode, length], frame=frames[20 * episode + length])
            assert writer.flush(60)
    folder = ReplayFolder(tmp_path / "replay")
    assert (len(folder), folder.num_partial, folder.num_steps) == (2, 1, 13)
    for index, episode in enumerate(folder):
        length = (10, 3)[index]
        np.testing.assert_array_equal(episode["observation"],
                                      [[index, step] for step in range(length + 1)])
        np.testing.assert_array_equal(episode["action"][:, 0],
                                      np.arange(length, dtype=np.float32) / np.float32(100))
        np.testing.assert_array_equal(episode["reward"], np.arange(length))
        assert episode["discount"][-1] == (1.0 if index == 0 else 0.0)
        np.testing.assert_array_equal(
            episode["frame"].reshape(-1, 8, 6, 3), frames[20 * index:20 * index + length + 1])
    folder.close()


def test_record_keeps_the_newest_frame_of_a_stack(tmp_path):
    envs = pytest.importorskip("replicant.envs")
    env = envs.make("pendulum-swingup", action_repeat=100, pixels=(16, 20), frame_stack=2)
    seen = []

    def act(observation):
        seen.append(observation[..., 3:].copy())
        return np.zeros(1, np.float32)

    envs.record(env, act, tmp_path / "r", 1, seed=1, newest_frame=True)
    env.close()
    source = open_source(data.Mapping.of({"format": "recording", "path": str(tmp_path / "r"),
                                          "frame": "observation"}))
    stored = source.episode(0, None).columns["observation"]
    assert stored.shape == (11, 16, 20, 3)
    np.testing.assert_array_equal(stored[:10], seen)
    assert source.frames_per_second == 0.5  # 100 control steps of 0.02 s


def test_record_plays_a_function_and_an_export_needs_a_known_format(tmp_path):
    envs = pytest.importorskip("replicant.envs")
    env = envs.make("pendulum-swingup", action_repeat=50)
    envs.record(env, lambda observation: np.full(1, 0.25, np.float32), tmp_path / "r", 2, seed=3)
    source = open_source(data.Mapping.of({"format": "recording", "path": str(tmp_path / "r")}))
    first = source.episode(0, None)
    assert first.num_steps == 20 and first.terminated is False
    np.testing.assert_array_equal(first.columns["action"], np.full((20, 1), 0.25))
    observation, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first.columns["observation"][0], observation)
    env.close()
    with pytest.raises(Error, match="format: got 'csv', want minari, lerobot"):
        data.export(tmp_path / "r", tmp_path / "x", "csv")


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
