"""Parts of scripts/checks/data_formats; each runs in the environment of one package.

    data_formats.py write FOLDER      replicant and minari: exports, and reads Minari's data sets
    data_formats.py lerobot FOLDER    lerobot: reads the exports, trains on one, makes a data set
    data_formats.py read FOLDER       replicant: reads what lerobot has made
"""

import pathlib
import sys

import numpy as np

BOUND = np.float32([2.0, 2.0])
LENGTHS = (12, 7, 30)
CAMERAS = {"camera": 80, "views/wrist": 64}  # by name: width of the pictures


def pictures(episode, count, width=80):
    y, x = np.mgrid[0:64, 0:width]
    return np.stack([np.stack([x * 3, (y * 3 + step * 5) % 256, np.full_like(x, 40 * episode)], -1)
                     for step in range(count)]).astype(np.uint8)


def episodes():
    from replicant.data import Recorded

    rng = np.random.default_rng(0)
    for index, length in enumerate(LENGTHS):
        arm = rng.normal(size=(length + 1, 3)).astype(np.float32)
        yield Recorded(
            observations={"arm": arm, **{name: pictures(index, length + 1, width)
                                         for name, width in CAMERAS.items()}},
            action=np.clip(arm[:-1, 1:] - arm[:-1, :1], -2, 2),
            reward=rng.normal(size=length), terminated=index == 0)


def nested(observations):
    """As minari has them: "views/wrist" in a dictionary of "views"."""
    return {"arm": observations["arm"], "camera": observations["camera"],
            "views": {"wrist": observations["views/wrist"]}}


def at(observations, name):
    for part in name.split("/"):
        observations = observations[part]
    return observations


def recorded(folder, index):
    return np.load(folder / f"recording/episode-{index:06}.npz")


def say(*words):
    print("data_formats:", *words, flush=True)


def write(folder):
    import minari
    from minari.data_collector import EpisodeBuffer

    from replicant import data
    from replicant.data import _minari
    from replicant.data._recording import Writer

    writer = Writer(folder / "recording", (-BOUND, BOUND), 12.5)
    for episode in episodes():
        writer.write(episode)
    data.export(folder / "recording", folder / "minari", "minari")
    read = minari.MinariDataset(folder / "minari/data")
    for index, episode in enumerate(read.iterate_episodes()):
        wanted = recorded(folder, index)
        for name in ("arm", *CAMERAS):
            np.testing.assert_array_equal(at(episode.observations, name),
                                          wanted[f"observation/{name}"])
        np.testing.assert_array_equal(episode.actions, wanted["action"])
        np.testing.assert_array_equal(episode.rewards, wanted["reward"])
        assert episode.terminations[-1] == wanted["terminated"]
        assert episode.truncations[-1] == wanted["truncated"]
    say(f"minari {minari.__version__} reads our export, {read.total_episodes} episodes: equal")
    data.export(folder / "recording", folder / "lerobot-png", "lerobot")
    data.export(folder / "recording", folder / "lerobot-video", "lerobot", pictures="video")

    buffers = [EpisodeBuffer(
        id=None, seed=None, options=None, observations=nested(episode.observations),
        actions=episode.action, rewards=list(episode.reward),
        terminations=[False] * (len(episode.action) - 1) + [episode.terminated],
        truncations=[False] * (len(episode.action) - 1) + [not episode.terminated], infos={})
        for episode in episodes()]
    for form in ("hdf5", "arrow", "parquet"):
        for is_jpeg in (False, True):
            name = f"check/{form}-{'jpeg' if is_jpeg else 'raw'}-v0"
            made = minari.create_dataset_from_buffers(
                name, buffers, observation_space=read.observation_space,
                action_space=read.action_space, data_format=form, jpeg_encoding=is_jpeg)
            source = _minari.Source(str(made.spec.data_path))
            for index, episode in enumerate(made.iterate_episodes()):
                got = source.episode(index, None).columns
                for part in ("arm", *CAMERAS):
                    np.testing.assert_array_equal(got[f"observations/{part}"],
                                                  at(episode.observations, part))
                np.testing.assert_array_equal(got["actions"], episode.actions)
                np.testing.assert_array_equal(got["rewards"], episode.rewards)
            source.close()
            say(f"we read minari's {form}, pictures as {'JPEG' if is_jpeg else 'they are'}: equal")


def lerobot(folder):
    import torch

    import lerobot as package
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    for kind in ("png", "video"):
        read = LeRobotDataset("check/check", root=folder / f"lerobot-{kind}")
        row, worst, mean = 0, 0, []
        for index, length in enumerate(LENGTHS):
            wanted = recorded(folder, index)
            for step in range(length):
                item = read[row]
                row += 1
                np.testing.assert_array_equal(item["action"], wanted["action"][step])
                np.testing.assert_array_equal(item["observation.arm"],
                                              wanted["observation/arm"][step])
                assert item["next.reward"].item() == np.float32(wanted["reward"][step])
                assert item["next.done"].item() == (step == length - 1)
                for name in CAMERAS:
                    picture = item[f"observation.images.{name.replace('/', '.')}"].numpy()
                    error = abs((picture * 255).round().astype(int).transpose(1, 2, 0)
                                - wanted[f"observation/{name}"][step])
                    worst, mean = max(worst, error.max()), [*mean, error.mean()]
        assert row == len(read) == sum(LENGTHS)
        # 30 of CRF on slopes
        assert worst == 0 if kind == "png" else np.mean(mean) < 4
        say(f"lerobot {package.__version__} reads our export, {kind}: numbers equal, pictures of "
            f"{len(CAMERAS)} cameras differ by {np.mean(mean):.2f} of 255 in the mean, at most {worst}")
    train(torch, LeRobotDataset("check/check", root=folder / "lerobot-png"))
    make(LeRobotDataset, folder)


def train(torch, read):
    """A plain loop of PyTorch: the action as a linear function of the numbers."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    losses = []
    for _ in range(10):
        for batch in torch.utils.data.DataLoader(read, batch_size=16, shuffle=True):
            loss = torch.nn.functional.mse_loss(model(batch["observation.arm"]), batch["action"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    say(f"a DataLoader on our export trains: loss {np.mean(losses[:4]):.3f} to "
        f"{np.mean(losses[-4:]):.3f}")


def make(dataset, folder):
    """A data set by lerobot, as videos, and what its own loader gives of it."""
    made = dataset.create(repo_id="check/made", root=folder / "made", fps=10, features={
        "observation.state": {"dtype": "float32", "shape": (3,), "names": None},
        "observation.images.front": {"dtype": "video", "shape": (64, 80, 3),
                                     "names": ["height", "width", "channels"]},
        "action": {"dtype": "float32", "shape": (2,), "names": None}})
    rng = np.random.default_rng(1)
    for index, length in enumerate(LENGTHS):
        for picture in pictures(index, length):
            made.add_frame({"observation.state": rng.normal(size=3).astype(np.float32),
                            "observation.images.front": picture,
                            "action": rng.uniform(-1, 1, 2).astype(np.float32), "task": "push"})
        made.save_episode()
    made.finalize()
    read = dataset("check/made", root=folder / "made")
    items = [read[row] for row in range(len(read))]
    np.savez(folder / "made.npz", state=np.stack([item["observation.state"] for item in items]),
             action=np.stack([item["action"] for item in items]),
             picture=np.stack([(item["observation.images.front"].numpy() * 255).round()
                               for item in items]).astype(np.uint8).transpose(0, 2, 3, 1))


def read(folder):
    from replicant.data import _lerobot

    wanted = np.load(folder / "made.npz")
    source = _lerobot.Source(str(folder / "made"))
    first, worst = 0, 0
    for index, length in enumerate(LENGTHS):
        got = source.episode(index, None).columns
        rows = slice(first, first + length)
        np.testing.assert_array_equal(got["observation.state"], wanted["state"][rows])
        np.testing.assert_array_equal(got["action"], wanted["action"][rows])
        error = abs(got["observation.images.front"].astype(int) - wanted["picture"][rows])
        worst = max(worst, int(error.max()))
        first += length
    # two conversions of YUV to RGB, which round differently
    assert worst <= 2
    say(f"we read lerobot's data set as its loader does: numbers equal, pictures within {worst}")


if __name__ == "__main__":
    {"write": write, "lerobot": lerobot, "read": read}[sys.argv[1]](pathlib.Path(sys.argv[2]))
