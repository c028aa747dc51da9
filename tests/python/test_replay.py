"""replicant.replay: what is written comes back; limits, errors, memory and processes."""

import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import warnings

import gymnasium
import numpy as np
import pytest

from replicant import errors, replay

STATE = replay.Signature(observation=((2,), "float32"), action=((1,), "float32"))


def write_episode(writer, length, start=0.0, signature=STATE):
    """Step t has the observation [start + t, t], the action [-t] and the reward 1."""
    writer.begin()
    for t in range(length):
        assert writer.append([start + t, t], [-t], 1.0)
    assert writer.end([start + length, length])
    assert writer.flush(60)


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


def await_steps(service, count):
    """A reader draws as soon as there is an item: it is made when all steps are there."""
    deadline = time.monotonic() + 60
    while service.status()["counts"]["inserted_steps"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


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


@pytest.mark.parametrize("process", ["thread", "child"])
def test_a_checkpoint_brings_the_steps_back(tmp_path, process):
    options = {"checkpoint_folder": str(tmp_path / "checkpoints"), "process": process}
    with replay.Replay.start(STATE, **options) as service:
        with service.writer() as writer, service.reader(batch_size=2) as reader:
            write_episode(writer, 5)
            reader.sample(timeout=60)
            assert reader.checkpoint(7, timeout=60)
            write_episode(writer, 3)
    with replay.Replay.start(STATE, **options) as service:
        assert service.status()["tables"][0]["size"] == 8
    with replay.Replay.start(STATE, restore_checkpoint=7, **options) as service:
        assert service.status()["tables"][0]["size"] == 5


@pytest.mark.parametrize("process", ["thread", "child"])
def test_metrics_and_periodic_checkpoints_are_kept_up(tmp_path, process):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with replay.Replay.start(STATE, process=process, checkpoint_folder=tmp_path / "checkpoints",
                             checkpoint_interval_s=0.1, metrics_address=address) as service:
        with service.writer() as writer:
            write_episode(writer, 5)
        deadline = time.monotonic() + 60
        while service.status()["checkpoints"]["last"] == 0:
            assert time.monotonic() < deadline
        metrics = b""
        while b'replicant_replay_items{table="default"} 5' not in metrics:
            assert time.monotonic() < deadline
            with urllib.request.urlopen(f"http://{address}/metrics") as page:
                metrics = page.read()
    with pytest.raises(errors.ConfigError, match="shards: got 2, but a program's service is one shard"):
        replay.Replay.start(STATE, shards=2, bind="tcp://127.0.0.1:{shard}", process=process)


@pytest.mark.parametrize("process", ["thread", "child"])
def test_a_last_checkpoint_that_fails_is_an_error(tmp_path, process):
    folder, away = tmp_path / "checkpoints", tmp_path / "away"
    options = {"checkpoint_folder": str(folder)}
    service = replay.Replay.start(STATE, process=process, **options)
    with service.writer() as writer:
        write_episode(writer, 5)
    folder.rename(away)
    with pytest.raises(errors.IoError, match="the last checkpoint was not saved"):
        service.close()
    away.rename(folder)
    service.close()
    with replay.Replay.start(STATE, **options) as service:
        assert service.status()["tables"][0]["size"] == (5 if process == "thread" else 0)


@pytest.mark.parametrize("process", ["thread", "child"])
def test_an_address_is_free_once_its_service_is_closed(process):
    with replay.Replay.start(STATE) as service:
        address = service.endpoint
    for _ in range(3):
        with replay.Replay.start(STATE, bind=address, process=process) as again:
            assert again.endpoint == address


def test_bad_settings_and_shapes_are_refused_with_the_reason():
    with pytest.raises(errors.ConfigError, match="did you mean 'n_step'"):
        replay.Replay.start(STATE, {"default": {"n_steps": 3}})
    with pytest.raises(errors.ConfigError, match="did you mean 'n_step'"):
        replay.Replay.start(STATE, {"default": {"n_steps": 3}}, process="child")
    with replay.Replay.start(STATE) as service:
        writer = service.writer()
        with pytest.raises(errors.InvalidArgument, match=r"append\(\) before begin\(\)"):
            writer.append([0, 0], [0], 0.0)
        writer.begin()
        with pytest.raises(errors.InvalidArgument, match=r"got the shape \(3,\), want \(2,\)"):
            writer.append([0, 0, 0], [0], 0.0)
        reader = service.reader(table="nothing")
        with pytest.raises(errors.CommError, match="nothing"):
            reader.sample(timeout=60)
        writer.close()
        with pytest.raises(errors.CommError, match="already closed"):
            writer.append([0, 0], [0], 0.0)
        other = replay.Writer(service.endpoint, replay.Signature(((3,), "float32"), None))
        other.begin()
        with pytest.raises(errors.CommError):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                other.append([0, 0, 0], None, 0.0)
                other.flush(0.01)


@pytest.mark.parametrize("numbers, message", [
    ({"reward": float("nan")}, "reward nan of step 3 is not finite"),
    ({"reward": 1e300}, "reward inf of step 3 is not finite"),
    ({"reward": 0.0, "discount": 1.5}, r"discount 1.5 of step 3 is outside \[0, 1\]"),
    ({"reward": 0.0, "priority": -1.0}, "priority -1 of step 3 is not finite and >= 0"),
])
def test_a_step_with_wrong_numbers_is_refused_at_once_and_alone(numbers, message):
    with replay.Replay.start(STATE) as service, service.writer() as writer:
        writer.begin()
        for t in range(3):
            assert writer.append([0, t], [0], 0.0, priority=numbers.get("priority") and 1.0)
        with pytest.raises(errors.InvalidArgument, match=message):
            writer.append([0, 3], [0], **numbers)
        assert writer.end([0, 3]) and writer.flush(60)
        assert writer.metrics["acknowledged_steps"] == 3


@pytest.mark.parametrize("observation, action, message", [
    ([0, np.nan], [0], r"observation\[1\]: got nan, want finite numbers of float32"),
    ([-np.inf, 0], [0], r"observation\[0\]: got -inf"),
    ([1e300, 0], [0], r"observation\[0\]: got 1e\+300"),
    ([0, 0], [np.float64("nan")], r"action\[0\]: got nan"),
])
def test_numbers_that_no_network_can_take_are_refused(observation, action, message):
    with replay.Replay.start(STATE) as service, service.writer() as writer:
        writer.begin()
        with warnings.catch_warnings(action="error"):
            with pytest.raises(errors.InvalidArgument, match=message):
                writer.append(observation, action, 0.0)
        assert writer.append([0, 0], [0], 0.0)
        if action == [0]:
            with pytest.raises(errors.InvalidArgument, match=message):
                writer.end(observation)
        assert writer.end([0, 0]) and writer.flush(60)
        assert writer.metrics["acknowledged_steps"] == 1


def test_an_extra_may_be_any_number():
    signature = replay.Signature(((1,), "float32"), ((1,), "float32"), extra=((), "float32"))
    with replay.Replay.start(signature) as service, service.writer() as writer:
        writer.begin()
        assert writer.append([0], [0], 0.0, extra=-np.inf)
        assert writer.end([0], extra=np.nan) and writer.flush(60)


def test_values_that_would_change_are_refused():
    signature = replay.Signature(
        {"pixel": ((2,), "uint8"), "count": ((), "int64"), "flag": ((), "bool")}, ((1,), "float32"))
    good = {"pixel": [0, 255], "count": np.int8(-3), "flag": 1}
    with replay.Replay.start(signature) as service:
        writer = service.writer()
        writer.begin()
        for name, value, message in [
                ("pixel", [0.2, 0.5], "pixel: got float64, want uint8"),
                ("pixel", [-1, 300], "pixel: got -1 to 300, want uint8, 0 to 255"),
                ("count", 1.9, "count: got float64, want int64"),
                ("flag", 2, "flag: got 2 to 2, want bool, 0 to 1")]:
            with pytest.raises(errors.InvalidArgument, match=message):
                writer.append(good | {name: value}, [0], 0.0)
        with pytest.raises(errors.InvalidArgument, match="got complex128, want float32"):
            writer.append(good, [1j], 0.0)
        # an integer action, and one in another precision
        assert writer.append(good, [1], 0.0) and writer.append(good, np.full(1, 0.1), 0.0)
        with pytest.raises(errors.InvalidArgument, match="frame: got one, the signature has none"):
            writer.append(good, [1], 0.0, frame=np.zeros((4, 4)))
        assert writer.end(good) and writer.flush(60)
        observation = service.reader(batch_size=8).sample(timeout=60).observation
        np.testing.assert_array_equal(observation["pixel"], np.tile(np.uint8([0, 255]), (8, 1)))
        assert (observation["count"] == -3).all() and observation["flag"].all()
    signature = replay.Signature(None, ((1,), "float32"), frame=((4, 6, 3), "uint8"))
    with replay.Replay.start(signature) as service:
        writer = service.writer()
        writer.begin()
        for call in (lambda: writer.append(None, [0], 0.0), lambda: writer.end(None)):
            with pytest.raises(errors.InvalidArgument, match="frame: got none"):
                call()


@pytest.mark.parametrize("arguments, message", [
    ({"observation": {"a": gymnasium.spaces.Text(5)}}, "observation/a: got Text .*, want an array"),
    ({"observation": gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)])},
     "observation: got Tuple"),
    ({"observation": ((3,), "float32", "x")}, "observation: got tuple"),
    ({"observation": None, "extra": ((-3,), "float32")}, "extra: got tuple"),
    ({"observation": None, "action": np.array([object()])}, "action: got ndarray"),
    ({"observation": None, "frame": {"a": ((4,), "uint8"), "b": ((4,), "uint8")}},
     "frame: got 2 arrays, want one"),
])
def test_what_a_signature_cannot_have_is_named(arguments, message):
    with pytest.raises(errors.InvalidArgument, match=message):
        replay.Signature(**{"action": ((1,), "float32")} | arguments)


def test_values_of_another_structure_are_named():
    signature = replay.Signature({"a": ((), "float32"), "b": ((2,), "float32")}, None)
    with replay.Replay.start(signature) as service:
        writer = service.writer()
        writer.begin()
        for value, message in [
                ({"a": 1.0}, r"observation/b: got \['a'\], want a dictionary with 'b'"),
                (np.zeros(3), "observation/a: got ndarray, want a dictionary with 'a'"),
                ({"a": 1.0, "b": [[1], [1, 2]]}, "observation/b: .*inhomogeneous"),
                ({"a": object(), "b": [1, 2]}, "observation/a: got object, want float32")]:
            with pytest.raises(errors.InvalidArgument, match=message):
                writer.append(value, None, 0.0)


def test_settings_may_be_paths_and_numbers_of_numpy(tmp_path):
    tables = {"default": {"n_step": np.int64(3), "discount": np.float32(0.5)}}
    with replay.Replay.start(STATE, tables, checkpoint_folder=tmp_path / "replay"):
        assert (tmp_path / "replay").exists()
    with pytest.raises(errors.InvalidArgument, match="Replay.start: got object .*, want numbers"):
        replay.Replay.start(STATE, seed=object())


def test_a_service_with_keys_lets_in_who_is_listed(tmp_path):
    for name in ("service", "client", "stranger"):
        replay.make_keys(tmp_path / f"{name}.key", tmp_path / f"{name}.public")
    client = {"key_file": tmp_path / "client.key", "server_key_file": tmp_path / "service.public"}
    with replay.Replay.start(STATE, key_file=str(tmp_path / "service.key"),
                             allowed_clients_file=str(tmp_path / "client.public")) as service:
        with service.writer(**client) as writer:
            write_episode(writer, 8)
        with service.reader(batch_size=4, **client) as reader:
            assert len(reader.sample(timeout=60)) == 4
        assert service.status(60, **client)["tables"][0]["size"] == 8
        with pytest.raises(errors.CommError, match="only one of the two sides has CURVE keys"):
            service.status(60)
        with pytest.raises(errors.CommError, match="refused this side's CURVE key"):
            service.status(60, **client | {"key_file": tmp_path / "stranger.key"})
    with pytest.raises(errors.InvalidArgument, match="server_key_file: .*got no key_file"):
        service.status(server_key_file=tmp_path / "service.public")


def test_held_batches_keep_their_numbers_and_outlive_their_reader():
    signature = replay.Signature(((2,), "float32"), ((1,), "float32"), frame=((8, 8, 3), "uint8"))
    with replay.Replay.start(signature) as service:
        writer, reader = service.writer(), service.reader(batch_size=8)
        writer.begin()
        rng = np.random.default_rng(2)
        for t in range(50):
            assert writer.append([t, t], [t], t, frame=rng.integers(0, 255, (8, 8, 3), np.uint8))
        assert writer.end([50, 50], frame=np.zeros((8, 8, 3), np.uint8))
        held, copies, addresses = [], [], set()
        for k in range(40):
            batch = reader.sample(timeout=60)
            addresses.add(batch.frames.ctypes.data)
            part = [batch.frames, batch.observation[2:], batch.reward, batch][k % 4]
            if k % 5 == 0:
                held.append(part)
                copies.append(np.array(getattr(part, "next_frames", part)))
            del batch, part
        reader.close()
        del reader
        gc.collect()
        for part, copy in zip(held, copies):
            np.testing.assert_array_equal(getattr(part, "next_frames", part), copy)
        assert len(addresses) <= 8 + 2 + 4


def _use_after_fork(writer, reader, service, results):
    for call in (writer.begin, lambda: reader.sample(0.1)):
        try:
            call()
        except errors.Error as error:
            results.put(str(error))
    endpoint, signature = service.endpoint, service.signature
    with replay.Writer(endpoint, signature) as own:
        write_episode(own, 3)
    results.put("written")


def test_a_forked_child_makes_its_own_clients():
    context = multiprocessing.get_context("fork")
    with replay.Replay.start(STATE) as service:
        writer, reader = service.writer(), service.reader(batch_size=2)
        results = context.Queue()
        child = context.Process(target=_use_after_fork, args=(writer, reader, service, results))
        child.start()
        assert f"made in process {os.getpid()}" in results.get(timeout=60)
        assert f"made in process {os.getpid()}" in results.get(timeout=60)
        assert results.get(timeout=60) == "written"
        child.join(60)
        assert child.exitcode == 0
        assert len(reader.sample(timeout=60)) == 2


def test_a_fork_does_not_hold_up_a_child_service():
    context = multiprocessing.get_context("fork")
    service = replay.Replay.start(STATE, process="child")
    fork = context.Process(target=time.sleep, args=(60,))
    fork.start()
    began = time.monotonic()
    service.close()
    assert time.monotonic() - began < 30
    fork.kill()
    fork.join()


def await_end(pid):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.05)
    raise AssertionError("the child process still runs")


@pytest.mark.parametrize("fork", ["", "os.fork() or time.sleep(60)"])
def test_a_child_service_ends_with_its_parent(fork):
    program = f"""
import os, signal, time
from replicant import replay
service = replay.Replay.start(replay.Signature(((2,), "float32"), None), process="child")
print(service._server.pid, flush=True)
{fork}
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                          start_new_session=True) as parent:
        pid = int(parent.stdout.readline())
        parent.wait(60)
        try:
            await_end(pid)
        finally:
            if fork:
                os.killpg(parent.pid, signal.SIGKILL)
