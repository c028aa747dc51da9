"""What the tests of replicant.replay write."""

import time

from replicant import replay

STATE = replay.Signature(observation=((2,), "float32"), action=((1,), "float32"))


def write_episode(writer, length, start=0.0, signature=STATE):
    """Step t has the observation [start + t, t], the action [-t] and the reward 1."""
    writer.begin()
    for t in range(length):
        assert writer.append([start + t, t], [-t], 1.0)
    assert writer.end([start + length, length])
    assert writer.flush(60)


def await_steps(service, count):
    """A reader draws as soon as there is an item: it is made when all steps are there."""
    deadline = time.monotonic() + 60
    while service.status()["counts"]["inserted_steps"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)

