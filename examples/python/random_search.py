"""Augmented random search on a Control Suite task, in one file, with NumPy alone.

    python random_search.py [--task cartpole-balance] [--iterations 100] [--seed 1]

Each iteration tries N directions, forwards and backwards, in 2 N environments at once, and moves a
linear policy towards the better ones.

Source: algorithm 2 (V2-t) of arXiv:1803.07055.
"""

import argparse
import time

import numpy as np

from replicant import envs


class Normalizer:
    """Running mean and standard deviation of observations, [O]."""

    def __init__(self, size):
        self.count, self.mean, self.sum_of_squares = 1e-4, np.zeros(size), np.zeros(size)

    def update(self, observations):
        # Chan's update of the moments by a batch's moments
        count, mean = len(observations), observations.mean(axis=0)
        delta, total = mean - self.mean, self.count + count
        self.sum_of_squares += (((observations - mean) ** 2).sum(axis=0)
                                + delta**2 * self.count * count / total)
        self.mean = self.mean + delta * count / total
        self.count = total

    def __call__(self, observations):
        deviation = np.sqrt(self.sum_of_squares / self.count)
        return (observations - self.mean) / np.maximum(deviation, 1e-6)


def returns_of(env, policies, normalizer):
    """Returns of one episode with each policy [E, A, O], float64 [E]."""
    observation, _ = env.reset()
    returns, is_over = np.zeros(env.num_envs), np.zeros(env.num_envs, bool)
    while not is_over.all():
        normalizer.update(observation)
        action = np.einsum("eao,eo->ea", policies, normalizer(observation))
        observation, reward, terminated, truncated, _ = env.step(np.clip(action, -1, 1))
        returns += np.where(is_over, 0.0, reward)
        is_over |= terminated | truncated
    return returns


def train(task, iterations, seed, num_directions=16, num_best=8, step_size=0.02, noise=0.05):
    rng = np.random.default_rng(seed)
    env = envs.make_vec(task, 2 * num_directions, action_repeat=4, seed=seed)
    size = env.single_observation_space.shape[0]
    policy = np.zeros((env.single_action_space.shape[0], size))
    normalizer = Normalizer(size)
    start, history = time.perf_counter(), []
    for iteration in range(iterations):
        directions = rng.normal(size=(num_directions, *policy.shape))
        tried = np.concatenate([policy + noise * directions, policy - noise * directions])
        returns = returns_of(env, tried, normalizer)
        forwards, backwards = np.split(returns, 2)
        best = np.argsort(np.maximum(forwards, backwards))[-num_best:]
        deviation = np.concatenate([forwards[best], backwards[best]]).std() + 1e-8
        step = np.einsum("n,nao->ao", (forwards - backwards)[best], directions[best])
        policy += step_size / (num_best * deviation) * step
        history.append(returns.mean())
        if iteration % 10 == 9 or iteration + 1 == iterations:
            print(f"iteration {iteration + 1}: return {np.mean(history[-10:]):.1f}, "
                  f"{time.perf_counter() - start:.0f} s", flush=True)
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="cartpole-balance")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    train(arguments.task, arguments.iterations, arguments.seed)
