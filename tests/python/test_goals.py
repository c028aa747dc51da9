"""Environments with goals, and the selection of arrays, as the adapter reads them."""

import threading

import gymnasium
import numpy as np
import pytest

from replicant import _adapter, errors
from replicant._observation_form import ObservationForm

BOX = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)


class Goals(gymnasium.Env):
    """The step's number in its info counts in its reward."""

    observation_space = gymnasium.spaces.Dict(
        {"observation": BOX, "achieved_goal": BOX, "desired_goal": BOX})
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.count += 1
        seen = {**self.observation_space.sample(), "achieved_goal": np.array([self.count, 0.0])}
        return seen, 0.0, self.count == 3, False, {"count": self.count}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return 10 * info["count"] - np.linalg.norm(achieved_goal - desired_goal)


class Ending(Goals):
    def compute_terminated(self, achieved_goal, desired_goal, info):
        return np.allclose(achieved_goal, desired_goal)


def played(environment):
    adapter = _adapter.Adapter(gymnasium.wrappers.TimeLimit(environment, 10))
    adapter.reset(1)
    for _ in range(3):
        adapter.step([0.0])
    return adapter


def test_a_reward_of_another_goal_is_of_its_step():
    adapter = played(Goals())
    assert adapter.has_goals and adapter.goal_size() == 2
    assert adapter.achieved_goal(2) == [2.0, 0.0]
    assert adapter.goal_reward(1, [4.0, 4.0]) == (5.0, 1.0)
    assert adapter.goal_reward(2, [2.0, 0.0]) == (20.0, 1.0)
    # the environment's own end
    assert adapter.goal_reward(3, [3.0, 1.0]) == (29.0, 0.0)
    adapter.reset(2)
    with pytest.raises(IndexError):
        adapter.goal_reward(1, [0.0, 0.0])


def test_a_reward_of_another_goal_has_the_info_of_its_step():
    class Reusing(Goals):
        """One dictionary for all steps, with an array and what cannot be copied."""

        info = {"count": np.zeros(1), "lock": threading.Lock()}

        def step(self, action):
            seen, *rest, info = super().step(action)
            self.info["count"][:] = info["count"]
            return seen, *rest, self.info

    adapter = played(Reusing())
    assert [adapter.goal_reward(step, [step, 0.0])[0] for step in (1, 2, 3)] == [10.0, 20.0, 30.0]


def test_the_agent_need_not_see_the_achieved_goal():
    adapter = played(Goals())
    adapter.form.select(["observation", "desired_goal"])
    adapter.reset(1)
    assert adapter.step([0.0])[0].size == 4
    assert adapter.achieved_goal(1) == [1.0, 0.0]


def test_an_environment_without_an_achieved_goal_has_no_goals():
    class Hidden(Goals):
        observation_space = gymnasium.spaces.Dict({"observation": BOX, "desired_goal": BOX})

    assert not _adapter.Adapter(Hidden()).has_goals


def test_an_end_by_another_goal_is_the_environments():
    adapter = played(Ending())
    assert adapter.goal_reward(1, [1.0, 0.0])[1] == 0.0
    assert adapter.goal_reward(3, [2.0, 1.0])[1] == 1.0


def test_a_reward_that_is_no_number_is_refused():
    class Wrong(Goals):
        def compute_reward(self, achieved_goal, desired_goal, info):
            return None

    with pytest.raises(errors.InvalidArgument, match=(
            r"the result of compute_reward\(\) is None; want a number")):
        played(Wrong()).goal_reward(1, [0.0, 0.0])


def test_selected_arrays_are_read_in_their_order():
    spaces = gymnasium.spaces
    space = spaces.Dict({
        "a": spaces.Box(-1, 1, (2,)), "b": spaces.Dict({"c": spaces.Box(-1, 1, (1,))}),
        "left": spaces.Box(0, 255, (4, 4, 3), np.uint8),
        "right": spaces.Box(0, 255, (4, 4, 3), np.uint8)})
    form = ObservationForm(space)
    form.select(["right", "b/c", "a", "left"])
    one = space.sample()
    np.testing.assert_array_equal(form.flat(one), [*one["b"]["c"], *one["a"]])
    np.testing.assert_array_equal(form.pixels(one), [one["right"], one["left"]])
    form.select(["b/c"])
    assert form.size == 1 and not form.images
    form.select([])
    assert form.size == 1
