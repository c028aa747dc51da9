"""replicant.replay: what is written comes back; windows, priorities and limits."""

import sys
import threading
import time

import gymnasium
import numpy as np
import pytest

from replicant import errors, replay
from replay_steps import STATE, await_steps, write_episode


@pytest.mark.parametrize("process", ["thread", "child"])
def test_what_is_written_is_sampled_as_n_step_transitions(process):
    tables = {"default": {"n_step": 2, "discount": 0.5, "sampler": "uniform"}}
    with replay.Replay.start(STATE, tables, process=process) as service:
        with service.writer() as writer:
            write_episode(writer, 8)
        # A reader draws as soon as there is an item, so it comes when all are there.
        with service.reader(batch_size=64) as reader:
            batch = reader.sample(timeout=60)
            t = batch.observation[:, 1]
            np.testing.assert_array_equal(batch.observation[:, 0], t)
            np.testing.assert_array_equal(batch.action[:, 0], -t)
            steps = np.minimum(2, 8 - t)
            np.testing.assert_array_equal(batch.next_observation[:, 1], t + steps)
            np.testing.assert_array_equal(batch.reward, np.where(steps == 2, 1.5, 1.0))
            np.testing.assert_array_equal(batch.discount, 0.5 ** steps)
            np.testing.assert_array_equal(batch.probability, np.full(64, 1 / 8))
            np.testing.assert_array_equal(batch.weight, np.ones(64))
            assert len(batch) == 64 and batch.total_steps == 8
        assert service.status()["tables"][0]["size"] == 8


def test_nested_observations_of_mixed_types_come_back():
    structure = {"eye": {"gaze": ((3,), "float64"), "shut": ((), "bool")}, "id": ((), "int16"),
                 "touch": ((2, 2), "float32")}
    signature = replay.Signature(observation=structure, action=gymnasium.spaces.Discrete(5))
    with replay.Replay.start(signature) as service:
        writer, reader = service.writer(), service.reader(batch_size=16)
        rng = np.random.default_rng(0)
        steps = [{"eye": {"gaze": rng.normal(size=3), "shut": bool(i % 2)}, "id": i - 3,
                  "touch": rng.normal(size=(2, 2))} for i in range(7)]
        writer.begin()
        for i, step in enumerate(steps[:-1]):
            assert writer.append(step, i % 5, 0.0)
        assert writer.end(steps[-1])
        batch = reader.sample(timeout=60)
        for row in range(16):
            step = steps[batch.observation["id"][row] + 3]
            following = steps[batch.observation["id"][row] + 4]
            np.testing.assert_array_equal(batch.observation["eye"]["gaze"][row],
                                          step["eye"]["gaze"])
            assert batch.observation["eye"]["shut"][row] == step["eye"]["shut"]
            np.testing.assert_allclose(batch.next_observation["touch"][row], following["touch"],
                                       rtol=1e-6)
            assert batch.action[row] == (batch.observation["id"][row] + 3) % 5
            assert batch.action.dtype == np.int64


def test_frames_are_stored_once_and_come_back_stacked():
    signature = replay.Signature(None, ((1,), "float32"), frame=((4, 6, 3), "uint8"))
    frames = np.random.default_rng(1).integers(0, 255, (10, 4, 6, 3), dtype=np.uint8)
    with replay.Replay.start(signature, {"default": {"stack": 3}}) as service:
        writer, reader = service.writer(), service.reader(batch_size=32)
        writer.begin()
        for t in range(9):
            assert writer.append(None, [t], 0.0, frame=frames[t])
        assert writer.end(None, frame=frames[9])
        batch = reader.sample(timeout=60)
        assert batch.observation is None
        assert batch.frames.shape == (32, 3, 4, 6, 3)
        for row in range(32):
            t = int(batch.action[row, 0])
            for k in range(3):
                np.testing.assert_array_equal(batch.frames[row, k], frames[max(0, t - 2 + k)])
                np.testing.assert_array_equal(batch.next_frames[row, k], frames[max(0, t - 1 + k)])


@pytest.mark.parametrize("room_frames", [1000, 20])
def test_kept_frames_make_the_same_stacks(room_frames):
    signature = replay.Signature(None, ((1,), "float32"), frame=((4, 4, 1), "uint8"))
    tables = {"default": {"n_step": 1, "stack": 3, "sampler": "uniform"}}
    with replay.Replay.start(signature, tables) as service:
        writer = service.writer()
        reader = service.reader(batch_size=64, frame_store_bytes=room_frames * (16 + 8))
        for _ in range(5):
            writer.begin()
            for t in range(20):
                assert writer.append(None, [t], 1.0, frame=np.full((4, 4, 1), t, np.uint8))
            assert writer.end(None, frame=np.full((4, 4, 1), 20, np.uint8))
            assert writer.flush(60)
            for _ in range(4):
                batch = reader.sample(timeout=60)
                t = batch.action[:, 0]
                for j in range(3):
                    wanted = np.maximum(0, t - 2 + j)
                    np.testing.assert_array_equal(batch.frames[:, j, 0, 0, 0], wanted)
                    np.testing.assert_array_equal(
                        batch.next_frames[:, j, 3, 3, 0], np.maximum(0, t - 1 + j))


def test_writers_in_threads_do_not_mix_their_rows():
    signature = replay.Signature({"id": ((), "float32"), "image": ((32, 32), "float32")},
                                 ((1,), "float32"))

    def write(service, number):
        observation = {"id": number, "image": np.full((32, 32), number)}
        with service.writer() as writer:
            writer.begin()
            for _ in range(300):
                assert writer.append(observation, [number], 0.0)
            assert writer.end(observation) and writer.flush(60)

    # threads take turns as often as they can
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with replay.Replay.start(signature, {"default": {"sampler": "uniform"}}) as service:
            threads = [threading.Thread(target=write, args=(service, k)) for k in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            await_steps(service, 4 * 300)
            batch = service.reader(batch_size=2048).sample(timeout=60)
    finally:
        sys.setswitchinterval(interval)
    number = batch.action[:, 0]
    np.testing.assert_array_equal(batch.observation["id"], number)
    np.testing.assert_array_equal(batch.observation["image"].min((1, 2)), number)
    np.testing.assert_array_equal(batch.observation["image"].max((1, 2)), number)


WINDOWS = {"windows": {"window": 4, "period": 2, "stack": 3, "sampler": "uniform"},
           "default": {"n_step": 2, "stack": 3, "sampler": "uniform"}}


@pytest.mark.parametrize("terminates", [False, True])
def test_windows_hold_each_step_and_each_frame_once(terminates):
    signature = replay.Signature({"t": ((), "int32"), "joints": ((2,), "float64")},
                                 ((1,), "float32"), frame=((4, 6, 3), "uint8"),
                                 extra={"core": ((5,), "float32")})
    frames = np.random.default_rng(1).integers(1, 255, (10, 4, 6, 3), dtype=np.uint8)
    with replay.Replay.start(signature, WINDOWS) as service:
        writer = service.writer()
        writer.begin()
        for t in range(9):
            discount = 0.0 if terminates and t == 8 else 1.0
            assert writer.append({"t": t, "joints": [t, -t]}, [t], 1.0 + t, discount,
                                 frame=frames[t], extra={"core": np.full(5, 10 + t)})
        assert writer.end({"t": 9, "joints": [9, -9]}, frame=frames[9],
                          extra={"core": np.full(5, 19)})
        await_steps(service, 9)
        batch = service.reader(batch_size=64, table="windows").sample(timeout=60)
        assert isinstance(batch, replay.Windows) and len(batch) == 64
        assert batch.observation["joints"].shape == (64, 5, 2)
        assert batch.action.shape == (64, 4, 1) and batch.frames.shape == (64, 7, 4, 6, 3)
        assert batch.extra["core"].shape == (64, 5, 5)
        stacks = batch.stacks()
        assert stacks.shape == (64, 5, 3, 4, 6, 3) and np.shares_memory(stacks, batch.frames)
        begins = batch.observation["t"][:, 0]
        assert set(begins) == {0, 2, 4, 6, 8}
        for row, begin in enumerate(begins):
            steps = np.arange(begin, min(begin + 4, 9))
            k = len(steps)
            np.testing.assert_array_equal(batch.mask[row], np.arange(4) < k)
            np.testing.assert_array_equal(batch.reward[row], [*(1.0 + steps), *[0.0] * (4 - k)])
            last = 0.0 if terminates and steps[-1] == 8 else 1.0
            np.testing.assert_array_equal(
                batch.discount[row], [*[1.0] * (k - 1), last, *[0.0] * (4 - k)])
            np.testing.assert_array_equal(batch.action[row, :k, 0], steps)
            assert not batch.action[row, k:].any()
            for i in range(k + 1):
                assert batch.observation["t"][row, i] == begin + i
                np.testing.assert_array_equal(batch.extra["core"][row, i],
                                              np.full(5, 10 + begin + i))
                for j in range(3):
                    np.testing.assert_array_equal(stacks[row, i, j],
                                                  frames[max(0, begin + i - 2 + j)])
            assert not batch.observation["joints"][row, k + 1:].any()
            assert not batch.frames[row, 3 + k:].any()
        # the other table has the same steps
        batch = service.reader(batch_size=16).sample(timeout=60)
        assert isinstance(batch, replay.Batch)
        np.testing.assert_array_equal(batch.extra["core"][:, 0], 10 + batch.observation["t"])
        np.testing.assert_array_equal(batch.next_extra["core"][:, 0],
                                      10 + batch.next_observation["t"])


def test_priorities_steer_windows():
    tables = {"default": {"window": 3, "period": 3, "priority_exponent": 1.0}}
    with replay.Replay.start(STATE, tables) as service:
        writer = service.writer()
        writer.begin()
        for t in range(9):
            assert writer.append([0, t], [0], 0.0, priority=1.0 if t == 3 else 0.0)
        assert writer.end([0, 9])
        await_steps(service, 9)
        reader = service.reader(batch_size=8, prefetch=1)
        batch = reader.sample(timeout=60)
        assert (batch.observation[:, 0, 1] == 3).all()
        reader.update_priorities(batch, np.full(8, 2.0))
        np.testing.assert_array_equal(batch.observation[0, :, 1], [3, 4, 5, 6])


def test_wrong_windows_are_refused():
    with pytest.raises(errors.ConfigError, match=r"n_step 9 is outside \[1, window 8\]"):
        replay.Replay.start(STATE, {"default": {"window": 8, "n_step": 9}})
    with pytest.raises(errors.ConfigError, match=r"period 9 is outside \[1, window 8\]"):
        replay.Replay.start(STATE, {"default": {"window": 8, "period": 9}})
    signature = replay.Signature(((2,), "float32"), ((1,), "float32"), extra=((4,), "float32"))
    with replay.Replay.start(signature) as service:
        writer = service.writer()
        writer.begin()
        with pytest.raises(errors.InvalidArgument, match="extra: got none, the signature has one"):
            writer.append([0, 0], [0], 0.0)


def test_priorities_steer_the_draws():
    tables = {"default": {"priority_exponent": 1.0}}
    with replay.Replay.start(STATE, tables) as service:
        writer = service.writer()
        writer.begin()
        for t in range(4):
            assert writer.append([0, t], [0], 0.0, priority=float(t))
        assert writer.end([0, 4])
        assert writer.flush(60)
        reader = service.reader(batch_size=200, prefetch=1, importance_exponent=1.0)
        batch = reader.sample(timeout=60)
        # in proportion to 0, 1, 2, 3
        assert set(batch.observation[:, 1]) == {1, 2, 3}
        np.testing.assert_allclose(batch.probability, batch.observation[:, 1] / 6)
        np.testing.assert_allclose(batch.weight, 1 / batch.observation[:, 1], rtol=1e-6)
        for other, text in ((np.ones((200, 1)), r"float64 \[200, 1\]"), (np.ones(199), r"\[199\]"),
                            (np.ones(200, complex), r"complex128 \[200\]")):
            with pytest.raises(errors.InvalidArgument, match=f"priorities: got .*{text}, want a "
                               r"number for each item of the batch, \[200\]"):
                reader.update_priorities(batch, other)
        with pytest.raises(errors.InvalidArgument, match="priority inf must be finite"):
            reader.update_priorities(batch, np.full(200, 1e300))
        reader.update_priorities(batch, np.where(batch.observation[:, 1] == 2, 1.0, 0.0))
        deadline = time.monotonic() + 60
        while set(reader.sample(timeout=60).observation[:, 1]) != {2}:
            assert time.monotonic() < deadline


@pytest.mark.parametrize("priority_exponent", [0.0, 0.6])
def test_priorities_that_are_all_zero_draw_uniformly(priority_exponent):
    tables = {"default": {"sampler": "prioritized", "n_step": 1,
                          "priority_exponent": priority_exponent}}
    with replay.Replay.start(STATE, tables) as service:
        writer = service.writer()
        writer.begin()
        for t in range(4):
            assert writer.append([0, t], [0], 0.0, priority=0.0)
        assert writer.end([0, 4])
        assert writer.flush(60)
        reader = service.reader(batch_size=64, prefetch=1, importance_exponent=1.0)
        for _ in range(3):
            batch = reader.sample(timeout=60)
            counts = np.bincount(batch.observation[:, 1].astype(int), minlength=4)
            # 16 of each are expected; a fair draw of 64 leaves this range once in 10^5
            assert counts.min() >= 2 and counts.max() <= 36, counts
            np.testing.assert_array_equal(batch.probability, np.full(64, 1 / 4))
            np.testing.assert_array_equal(batch.weight, np.ones(64))
            reader.update_priorities(batch, np.zeros(64))


def test_a_queue_gives_every_item_once_in_order():
    tables = {"queue": {"sampler": "fifo", "max_times_sampled": 1, "max_size": 4,
                        "rate_limiter": {"mode": "queue"}}}
    with replay.Replay.start(STATE, tables) as service:
        writer = service.writer(group_steps=1)
        reader = service.reader(table="queue", batch_size=2)
        writer.begin()
        for t in range(12):
            assert writer.append([0, t], [0], 0.0)
        assert writer.end([0, 12])
        seen = [t for _ in range(6) for t in reader.sample(timeout=60).observation[:, 1]]
        assert seen == list(range(12))
        assert reader.sample(timeout=0.3) is None


def test_a_rate_limiter_holds_readers_up_and_says_why():
    tables = {"default": {"rate_limiter": {"mode": "min_size", "min_size_to_sample": 5}}}
    with replay.Replay.start(STATE, tables) as service:
        writer, reader = service.writer(), service.reader(batch_size=2)
        write_episode(writer, 4)
        assert reader.sample(timeout=0.3) is None
        deadline = time.monotonic() + 60
        while "why" not in (service.status()["tables"][0]["sample_wait"] or {}):
            assert time.monotonic() < deadline
        write_episode(writer, 1)
        assert len(reader.sample(timeout=60)) == 2


def test_a_full_queue_gives_the_episode_up_after_the_timeout():
    writer = replay.Writer("tcp://127.0.0.1:1", STATE, group_steps=1, queue_groups=2)
    writer.begin()
    assert writer.append([0, 0], [0], 0.0) and writer.append([0, 1], [0], 0.0)
    assert not writer.append([0, 2], [0], 0.0, timeout=0.05)
    assert not writer.append([0, 3], [0], 0.0)
    assert writer.metrics["dropped_episodes"] == 1
    assert not writer.flush(0.05) or writer.metrics["queued_groups"] == 0
