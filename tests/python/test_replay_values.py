"""replicant.replay: settings, signatures and values that are refused."""

import time
import warnings

import gymnasium
import numpy as np
import pytest

from replicant import errors, replay
from replay_steps import STATE


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


def test_a_number_may_be_an_array_of_one():
    with replay.Replay.start(STATE) as service, service.writer() as writer:
        writer.begin()
        assert writer.append([0, 0], [0], np.full((1, 1), 2.5), np.zeros(1),
                             priority=np.array([3], np.int8))
        for name in ("reward", "discount", "priority"):
            with pytest.raises(errors.InvalidArgument) as raised:
                writer.append([0, 1], [0], **{"reward": 0.0, name: [1.0, 2.0]})
            assert str(raised.value) == (
                f"the {name} is [1.0, 2.0]; want a number, or an array of one")
        assert writer.end([0, 1]) and writer.flush(60)
        with service.reader(batch_size=1) as reader:
            batch = reader.sample(timeout=60)
    assert (batch.reward[0], batch.discount[0], batch.priority[0]) == (2.5, 0.0, 3.0)


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
