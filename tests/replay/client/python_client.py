"""What a service must answer to examples/replay_alone/replay_client.py; run by
python_client_test as `python_client.py SCRIPTS ENDPOINT CASE`. Each case says which
service it wants."""

import struct
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import replay_client  # noqa: E402


def observation(episode, t):
    return struct.pack("<QQ", episode, t)


def write_episode(writer, episode, num_steps, frame=lambda t: None):
    """Of arrays that are written into again, as those of an environment may be."""
    seen, action, picture = np.zeros(2, "<u8"), np.zeros(1, "<u8"), frame(0)
    writer.begin()
    for t in range(num_steps + 1):
        seen[:], action[:] = (episode, t), t
        if picture is not None:
            picture[:] = frame(t)
        if t < num_steps:
            writer.append(seen, action, float(t + 1), 1.0, picture)
    writer.end(seen, picture)


def check_rows(batch, episode, num_steps, n_step):
    rows = batch["observation"].view("<u8")
    step = batch["step"].astype("u8")
    assert (rows[:, 0] == episode).all() and (rows[:, 1] == step).all(), rows
    following = batch["next_observation"].view("<u8")
    assert (following[:, 1] == np.minimum(step + n_step, num_steps)).all(), following


def basic(client):
    """16 + 8 bytes; table "t" with n_step 2, discount 0.5, exponent 1, 6 items to
    sample."""
    info = client.describe()
    assert info["observation_bytes"] == 16 and info["action_bytes"] == 8, info
    assert info["tables"] == {"t": {"n_step": 2, "stack": 1, "discount": 0.5,
                                    "window": 0, "period": 1}}, info

    writer = replay_client.Writer(client, group_steps=4)
    write_episode(writer, 7, 6)
    assert writer.last_ack == {"state": 0, "last_sequence": 2,
                               "credits": info["credits"], "dropped": []}, writer.last_ack
    assert (writer.steps, writer.dropped) == (6, 0)

    batch = client.sample("t", 64)
    assert batch["state"] == 0 and batch["table_size"] == 6, batch
    assert batch["total_steps"] == client.status()["counts"]["inserted_steps"], batch
    check_rows(batch, 7, 6, 2)
    step = batch["step"].astype("u8")
    assert (batch["action"].view("<u8")[:, 0] == step).all()
    # R = r_{t+1} + 0.5 r_{t+2}, but for the last step
    reward = np.where(step == 5, 6.0, (step + 1) + 0.5 * (step + 2))
    np.testing.assert_allclose(batch["reward"], reward)
    np.testing.assert_allclose(batch["discount"], 0.5 ** batch["n"])

    # all weight on one item
    slots, first = np.unique(batch["slot"], return_index=True)
    keys = {"slot": slots, "generation": batch["generation"][first]}
    priorities = [0.0] * (len(slots) - 1) + [1.0]
    assert client.update("t", keys, priorities) == len(slots)
    assert len(slots) == 6 and (client.sample("t", 8)["slot"] == slots[-1]).all()

    try:
        client.sample("others", 1)
        raise SystemExit("no error")
    except replay_client.ServiceError as error:
        assert str(error) == "error 6: replay.sample: no table 'others'; allowed: t"
    assert client.status()["counts"]["inserted_steps"] == 6
    check_refusals(client)
    client.checkpoint(17)
    writer.close()


def check_refusals(client):
    """A step or a chunk that is refused leaves the writer as it was."""
    writer = replay_client.Writer(client, group_steps=4)
    writer.begin()
    writer.append(observation(8, 0), struct.pack("<Q", 0), 0.0)
    for numbers in ((float("nan"),), (1e300,), (0.0, 1.5), (0.0, 1.0, None, -1.0)):
        try:
            writer.append(observation(8, 1), struct.pack("<Q", 1), *numbers)
            raise SystemExit(f"{numbers} were taken")
        except ValueError:
            pass
    writer.end(observation(8, 1))
    bad = replay_client.encode_chunk(
        writer.info, 9, 0, [(observation(9, 0), struct.pack("<Q", 0), float("inf"), 1.0)])
    try:
        writer.insert([bad])
        raise SystemExit("a reward of inf was taken")
    except replay_client.ServiceError as error:
        assert "reward inf of step 0 is not finite" in str(error), error
    write_episode(writer, 10, 6)
    assert (writer.steps, writer.dropped) == (7, 1)
    writer.close()


def pixels(client):
    """16 + 8 + 300 bytes; table "t" with n_step 2 and stack 3, which holds episode
    1, of 10 steps, of another client. A byte i of a frame is its pixel()."""

    def frame(episode, t):
        return ((np.arange(300) // 8 + episode * 7 + t * 13) % 256).astype("u1")

    def check(batch, episode, num_steps):
        check_rows(batch, episode, num_steps, 2)
        assert batch["frames"].shape == (len(batch["step"]), 3, 300)
        for i, t in enumerate(batch["step"].astype(int)):
            for name, end in (("frames", t), ("next_frames", t + batch["n"][i])):
                for j in range(3):
                    wanted = frame(episode, max(0, int(end) - 2 + j))
                    assert (batch[name][i, j] == wanted).all(), (name, t, j)

    check(client.sample("t", 64), 1, 10)
    with replay_client.Writer(client, group_steps=4) as writer:
        write_episode(writer, 2, 10, lambda t: frame(2, t))
    batch = client.sample("t", 256)
    is_own = batch["observation"].view("<u8")[:, 0] == 2
    assert 0 < is_own.sum() < 256
    for name in ("observation", "next_observation", "step", "n", "frames",
                 "next_frames"):
        batch[name] = batch[name][is_own]
    check(batch, 2, 10)


def windows(client):
    """16 + 8 + 300 bytes; table "t" with windows of 4 steps, period 3 and stack 3,
    which holds episode 1, of 11 steps, of another client."""
    assert client.describe()["tables"]["t"]["window"] == 4
    batch = client.sample("t", 64)
    assert set(batch["step"]) == {0, 3, 6, 9}, batch["step"]
    for i, t in enumerate(batch["step"].astype(int)):
        k = min(4, 11 - t)
        assert batch["mask"][i].tolist() == [j < k for j in range(4)]
        rows = batch["observation"][i].view("<u8")
        assert rows[: k + 1, 1].tolist() == list(range(t, t + k + 1)), rows
        assert not rows[k + 1 :].any() and not batch["action"][i, k:].any()
        actions = batch["action"][i].view("<u8")[:k, 0]
        assert actions.tolist() == [1000 + j for j in range(t, t + k)], actions
        rewards = [float(j % 3) for j in range(t, t + k)] + [0.0] * (4 - k)
        assert batch["step_reward"][i].tolist() == rewards
        assert batch["step_discount"][i].tolist() == [1.0] * k + [0.0] * (4 - k)
        for j in range(7):
            wanted = ((np.arange(300) // 8 + 7 + max(0, t - 2 + j) * 13) % 256
                      if j < 3 + k else np.zeros(300))
            assert (batch["frames"][i, j] == wanted).all(), (t, j)


def restart(client):
    """16 + 8 bytes; table "t" of 6 items to sample. The service is replaced once."""
    writer = replay_client.Writer(client, group_steps=4)
    num_after = 0
    while num_after < 3:
        write_episode(writer, 1, 6)
        try:
            # a new service may have none of these items
            client.sample("t", 4, wait_ms=10)
        except replay_client.RequestLost:
            pass
        num_after += client.num_hellos > 1
    assert client.sample("t", 4)["state"] == 0
    print(f"{client.num_hellos} hellos")


def beat(client):
    """16 + 8 bytes. The service counts silence by a clock of its own."""
    writer = replay_client.Writer(client, group_steps=1)
    writer.begin()
    writer.append(observation(1, 0), struct.pack("<Q", 0), 1.0)
    print("idle", flush=True)
    sys.stdin.readline()
    writer.append(observation(1, 1), struct.pack("<Q", 1), 1.0)
    assert (writer.steps, writer.dropped) == (2, 0), writer.last_ack
    assert client.num_hellos == 1


case = sys.argv[3]
with replay_client.Client(sys.argv[2], timeout_s=60.0,
                          heartbeat_s=0.05 if case == "beat" else 1.0) as opened:
    globals()[case](opened)
print("ok")
