"""Plays episodes with the policy of a run and films the first of them.

    python watch_policy.py RUN [--episodes 5] [--video policy.mp4]

Needs the program ffmpeg.
"""

import argparse

import numpy as np

import replicant
from replicant import envs


def watch(run, num_episodes, video, seed=1, height=240, width=320):
    """Returns the episodes' returns, float64 [num_episodes]."""
    policy = replicant.Policy.load(run)
    env = policy.make_env(num_episodes, render_mode="rgb_array", render_size=(height, width))
    observation, _ = env.reset(seed=seed)
    film = envs.VideoWriter(video, height, width,
                            frames_per_second=env.metadata["render_fps"])
    returns, is_over = np.zeros(num_episodes), np.zeros(num_episodes, bool)
    while not is_over.all():
        if not is_over[0]:
            film.write(env.render()[0])
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        returns += np.where(is_over, 0.0, reward)
        is_over |= terminated | truncated
    film.finish()
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--video", default="policy.mp4")
    arguments = parser.parse_args()
    returns = watch(arguments.run, arguments.episodes, arguments.video)
    print(f"returns {np.round(returns, 1)}, mean {returns.mean():.1f}; {arguments.video}")
