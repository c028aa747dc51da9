"""replicant.data: recordings, and data sets of them and of runs."""

import subprocess

import gymnasium
import numpy as np
import pytest

pytest.importorskip("h5py")
pytest.importorskip("yaml")

from data_sets import recorded, steps_of  # noqa: E402

from replicant import _process, data, replay  # noqa: E402
from replicant._observation_form import ObservationForm  # noqa: E402
from replicant.data._command import main  # noqa: E402
from replicant.data._import import open_source  # noqa: E402
from replicant.data._recording import Writer  # noqa: E402
from replicant.errors import ConfigError, Error, InvalidArgument  # noqa: E402


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


class Endless(TwoCameras):
    num_open = 0

    def __init__(self):
        Endless.num_open += 1

    def close(self):
        Endless.num_open -= 1

    def step(self, action):
        return *super().step(action)[:2], False, False, {}


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


def test_the_replay_of_a_run_from_pictures_alone_is_exported_without_numbers(tmp_path):
    pytest.importorskip("lz4")
    run = train(tmp_path, "{name: python-environment, pixels: {enabled: true}}",
                REPLICANT_MAKE_ENV=f"{__file__}:TwoCameras")
    count = data.export(run, tmp_path / "m", "minari", make_env=f"{__file__}:TwoCameras")
    source = open_source(data.Mapping.of({"format": "minari", "path": str(tmp_path / "m")}))
    assert len(source) == count > 0
    assert {name: column.shape for name, column in source.columns.items()
            if name.startswith("observations")} == {
        "observations/front": (16, 20, 3), "observations/wrist": (16, 12, 1)}


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


def test_an_export_warns_of_what_it_leaves_out_and_cuts_an_episode_without_end(tmp_path, monkeypatch):
    run = train(tmp_path, "{name: python-environment, action_repeat: 2, pixels: {enabled: true}, "
                "disturbances: {delays: {actions: 2}}}", REPLICANT_MAKE_ENV=f"{__file__}:TwoCameras")
    monkeypatch.setattr("replicant.data._export.MAX_EPISODE_STEPS", 31)
    with pytest.warns(UserWarning) as warned:
        data.export(run, tmp_path / "m", "minari", episodes=1, make_env=Endless)
    assert Endless.num_open == 0
    assert [str(one.message) for one in warned] == [
        "policy: environments without the run's task.disturbances; hint: `replicant evaluator "
        "--checkpoint RUN` evaluates with them",
        "export: an episode had no end after 31 control steps and is cut off there; hint: give the "
        "environment a time limit, such as gymnasium.wrappers.TimeLimit"]
    source = open_source(data.Mapping.of({"format": "minari", "path": str(tmp_path / "m")}))
    played = source.episode(0, None)
    assert played.num_steps == 16 and not played.columns["terminations"].any()
    source.close()


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


def test_a_single_array_of_a_dictionary_keeps_its_name_in_minari(tmp_path):
    for name, column in (("arm", "observations/arm"), ("", "observations")):
        episode = recorded(4, True)
        episode.observations = {name: episode.observations["arm"]}
        Writer(tmp_path / f"r{name}", ([-2.0], [2.0]), 50.0).write(episode)
        data.export(tmp_path / f"r{name}", tmp_path / f"m{name}", "minari")
        minari = open_source(data.Mapping.of({"format": "minari", "path": str(tmp_path / f"m{name}")}))
        assert minari.defaults["observation"] == [column]
        np.testing.assert_array_equal(minari.episode(0, None).columns[column],
                                      episode.observations[name])


def test_a_recording_of_another_environment_is_not_mixed_in(tmp_path):
    Writer(tmp_path, (np.float32([-1]), np.float32([1])), 50.0)
    with pytest.raises(InvalidArgument, match="another recording"):
        Writer(tmp_path, (np.float32([-1]), np.float32([1])), 25.0)


def test_two_recorders_of_one_folder_keep_each_others_episodes(tmp_path):
    first, second = (Writer(tmp_path, ([-2.0], [2.0]), 50.0) for _ in range(2))
    (tmp_path / "episode-000001.part").touch()  # of a recorder that was killed
    files = [writer.write(recorded(length, True)).name
             for writer, length in ((first, 3), (second, 4), (first, 5))]
    assert files == ["episode-000000.npz", "episode-000002.npz", "episode-000003.npz"]
    source = open_source(data.Mapping.of({"format": "recording", "path": str(tmp_path)}))
    assert [source.episode(i, None).num_steps for i in range(3)] == [3, 4, 5]


def test_an_episode_that_cannot_be_written_leaves_no_file(tmp_path):
    writer = Writer(tmp_path, ([-2.0], [2.0]), 50.0)
    broken = recorded(3, True)
    broken.reward = ["much"] * 3
    with pytest.raises(ValueError, match="much"):
        writer.write(broken)
    assert [file.name for file in tmp_path.iterdir()] == ["recording.json"]


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


class Samples(gymnasium.Env):
    """Observes samples of its space, dictionaries in another order than it; ends after three."""

    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, space):
        self.observation_space = space

    def _see(self):
        self.count += 1
        seen = self.observation_space.sample()
        return dict(reversed(seen.items())) if isinstance(seen, dict) else seen

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        self.count = 0
        return self._see(), {}

    def step(self, action):
        return self._see(), 0.5, self.count == 4, False, {}


@pytest.mark.parametrize("space", [
    gymnasium.spaces.Dict({
        "front": gymnasium.spaces.Box(0, 255, (3, 16, 20), np.uint8),
        "grip": gymnasium.spaces.Discrete(3, start=-1),
        "joint": gymnasium.spaces.Box(-1, 1, (2, 2), np.float32),
        "wrist": gymnasium.spaces.Box(0, 255, (16, 12), np.uint8)}),
    gymnasium.spaces.MultiDiscrete([3, 2]),
    gymnasium.spaces.Box(0, 255, (16, 20), np.uint8)])
def test_a_recording_has_what_a_run_sees(tmp_path, space):
    envs = pytest.importorskip("replicant.envs")
    seen = []

    def act(observation):
        seen.append(observation)
        return np.zeros(1, np.float32)

    envs.record(Samples(space), act, tmp_path / "r", 1, seed=1)
    form = ObservationForm(space)
    steps, = steps_of(format="recording", path=str(tmp_path / "r"), frame=[
        f"observation/{image.name}" if form.is_dict else "observation" for image in form.images])
    if form.parts:
        np.testing.assert_array_equal(steps.observation[:-1], [form.flat(one) for one in seen])
    if form.images:
        np.testing.assert_array_equal(
            steps.frame[:-1].reshape(len(seen), -1),
            [np.concatenate([p.ravel() for p in form.pixels(one)]) for one in seen])


class Careless(gymnasium.Env):
    """Writes into its action, and gives its reward as an array of one number."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    reward = np.full((1, 1), 0.5)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        action *= 0
        return np.zeros(1, np.float32), self.reward, False, True, {}


def test_a_recording_has_the_action_and_reward_that_were_given(tmp_path):
    envs = pytest.importorskip("replicant.envs")
    environment = Careless()
    envs.record(environment, lambda _: np.full(1, 0.25, np.float32), tmp_path / "r", 1)
    source = open_source(data.Mapping.of({"format": "recording", "path": str(tmp_path / "r")}))
    episode = source.episode(0, None).columns
    assert (episode["action"].tolist(), episode["reward"].tolist()) == ([[0.25]], [0.5])
    environment.reward = None
    with pytest.raises(InvalidArgument) as raised:
        envs.record(environment, lambda _: np.zeros(1), tmp_path / "r", 1)
    assert str(raised.value) == "the reward is None; want a number, or an array of one"


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


@pytest.mark.parametrize(("options", "words", "message"), [
    ({"episodes": 5}, ["--episodes", "5"],
     "episodes: got 5, but {r} is a recording; only a run takes it"),
    ({"which": "best"}, ["--which", "best"],
     "which: got 'best', but {r} is a recording; only a run takes it"),
    ({"make_env": "a.py:b"}, ["--make-env", "a.py:b"],
     "make_env: got 'a.py:b', but {r} is a recording; only a run takes it"),
    ({"pictures": "video"}, ["--pictures", "video"],
     "pictures: got 'video' with the format 'minari'; only lerobot's can be chosen"),
    ({"fps": 20.0}, ["--fps", "20"],
     "fps: got 20.0 with the format 'minari'; want a number above 0, of lerobot only"),
])
def test_an_option_that_does_nothing_for_a_recording_is_refused(tmp_path, capsys, options, words,
                                                                message):
    Writer(tmp_path / "r", ([-2.0], [2.0]), 50.0).write(recorded(4, True))
    message = message.format(r=tmp_path / "r")
    with pytest.raises(ConfigError) as raised:
        data.export(tmp_path / "r", tmp_path / "m", "minari", **options)
    assert str(raised.value) == message
    assert main(["export", str(tmp_path / "r"), "--to", str(tmp_path / "m"), "--format", "minari",
                 *words]) == 1
    assert capsys.readouterr().err == f"replicant data: {message}\n"
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(("options", "message"), [
    ({"which": "best"}, "which: got 'best' without episodes, which the policy would play; hint: "
     "episodes=N, or --episodes N"),
    ({"episodes": 0}, "episodes: got 0, want a number of at least 1"),
])
def test_an_option_that_does_nothing_for_a_run_is_refused(tmp_path, options, message):
    (tmp_path / "config.yaml").touch()
    with pytest.raises(ConfigError) as raised:
        data.export(tmp_path, tmp_path / "m", "minari", **options)
    assert str(raised.value) == message


def test_episodes_with_goals_in_hindsight_are_not_exported(tmp_path):
    (tmp_path / "config.yaml").write_text("actors: {hindsight: {goals: 4}}\n")
    with pytest.raises(ConfigError) as raised:
        data.export(tmp_path, tmp_path / "m", "minari")
    assert str(raised.value) == (
        f"{tmp_path}: its replay holds episodes with other goals than they had "
        "(actors.hindsight.goals: 4); hint: episodes=N, or --episodes N, which its policy plays")
