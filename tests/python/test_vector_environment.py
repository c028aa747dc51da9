"""Batches of environments from make_env: gymnasium.vector, and EnvPool's face."""

import concurrent.futures
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from replicant import _adapter, errors

LENGTH = 3


class Counter(gymnasium.Env):
    """Observes the number of its steps; ends after LENGTH + `extra` of them. The reward is the
    action."""

    observation_space = gymnasium.spaces.Dict({
        "count": gymnasium.spaces.Box(0, 100, (1,)),
        "seen": gymnasium.spaces.Box(0, 255, (2, 2, 1), np.uint8)})
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, extra):
        self.extra, self.is_closed = extra, False

    def _observe(self):
        return {"count": np.array([self.count], np.float32),
                "seen": np.full((2, 2, 1), self.count, np.uint8)}

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return self._observe(), {}

    def step(self, action):
        self.count += 1
        return self._observe(), float(action[0]), self.count == LENGTH + self.extra, False, {}


def make_batch(mode=AutoresetMode.NEXT_STEP):
    return gymnasium.vector.SyncVectorEnv(
        [lambda extra=extra: Counter(extra) for extra in range(3)], autoreset_mode=mode)


class EnvPool:
    """The part of EnvPool's Gymnasium face that a batch is read by."""

    def __init__(self, batch_size=None):
        self._batch = make_batch()
        self.all_env_ids = np.arange(3)
        self.config = {"num_envs": 3, "batch_size": batch_size or 3}
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        self.send = self.recv = None

    def reset(self):
        return self._batch.reset()

    def step(self, actions):
        return self._batch.step(actions)


def play(members, num_rounds):
    """Rounds of an actor: actions are announced to all, then each steps or, after an end, begins."""
    steps, is_over = [[] for _ in members], [False] * len(members)
    for t in range(num_rounds):
        actions = [0.1 * t + 0.01 * i for i in range(len(members))]
        for member, action in zip(members, actions, strict=True):
            member.announce([action])
        for i, member in enumerate(members):
            if is_over[i]:
                member.reset(7)
                is_over[i] = False
                steps[i].append((int(member.numbers[0]), None))
            else:
                _, reward, _, is_over[i] = member.step([actions[i]])
                assert reward == pytest.approx(actions[i])
                steps[i].append((int(member.numbers[0]), is_over[i]))
            assert (member.pixels == member.numbers[0]).all()
    return steps


@pytest.mark.parametrize("make", [make_batch, EnvPool])
def test_a_batch_is_as_many_environments_with_their_own_episodes(make):
    members = [_adapter.adapt(make) for _ in range(3)]
    for member in members:
        np.testing.assert_array_equal(member.reset(1), [0])
    steps = play(members, 12)
    for extra in range(3):
        # after its last step each begins with the next one, at its own time
        length = LENGTH + extra
        episode = [(t + 1, t + 1 == length) for t in range(length)] + [(0, None)]
        assert steps[extra] == (episode * 12)[:12]
    # the next one is of another batch
    other = _adapter.adapt(make)
    assert other._batch is not members[0]._batch
    for member in (*members, other):
        member.close()


def test_threads_share_a_reset_and_a_step():
    class Slow(gymnasium.vector.VectorWrapper):
        resets, steps = 0, 0

        def reset(self, **keys):
            Slow.resets += 1
            time.sleep(0.02)
            return super().reset(**keys)

        def step(self, actions):
            Slow.steps += 1
            time.sleep(0.02)
            return super().step(actions)

    def make():
        return Slow(make_batch())

    members = [_adapter.adapt(make) for _ in range(3)]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for member, numbers in zip(members, pool.map(lambda m: m.reset(1), members), strict=True):
            np.testing.assert_array_equal(numbers, [0])
            member.announce([0.5])
        for member in pool.map(lambda m: (m.step([0.5]), m)[1], members):
            np.testing.assert_array_equal(member.numbers, [1])
    assert (Slow.resets, Slow.steps) == (1, 1)


def test_one_environment_of_a_batch_plays_alone():
    member = _adapter.adapt(make_batch)
    for _ in range(2):
        member.reset(3)
        lasts = [member.step([0.5])[3] for _ in range(LENGTH)]
        assert lasts == [False] * (LENGTH - 1) + [True]
    member.close()


def test_the_batch_is_closed_with_its_last_environment():
    closed = []

    def make():
        batch = make_batch()
        batch.close_extras = lambda **_: closed.append(batch)
        return batch

    members = [_adapter.adapt(make) for _ in range(2)]
    members[0].close()
    members[0].close()
    assert not closed
    members[1].close()
    assert len(closed) == 1


def test_an_environment_does_not_step_without_the_others():
    members = [_adapter.adapt(make_batch) for _ in range(2)]
    for member in members:
        member.reset(1)
    with pytest.raises(errors.InvalidArgument, match="environment 1 of a batch steps, but others"):
        members[1].step([0.0])
    for member in members:
        member.close()


@pytest.mark.parametrize("make, message", [
    (lambda: make_batch(AutoresetMode.SAME_STEP), "allowed: AutoresetMode.NEXT_STEP"),
    (lambda: make_batch(AutoresetMode.DISABLED), "allowed: AutoresetMode.NEXT_STEP"),
    (lambda: EnvPool(batch_size=2), "batch_size 2 of 3 environments"),
    (lambda: gymnasium.wrappers.vector.NormalizeReward(make_batch()), "learns its scale"),
])
def test_a_batch_that_actors_cannot_step_is_refused(make, message):
    with pytest.raises(errors.ConfigError, match=message):
        _adapter.adapt(make)
