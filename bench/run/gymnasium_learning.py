#!/usr/bin/env python3
"""Trains a task of Gymnasium, by a fleet of this package or by Stable-Baselines3.

    PYTHON bench/run/gymnasium_learning.py [--task HalfCheetah-v5] [--pixels] [--goals]
        [--peer sac | --peer td3] [--frames 100000] [--seed 1] [--folder FOLDER] [--set KEY=JSON]...

PYTHON has this package (or stable-baselines3 for --peer), gymnasium and MuJoCo. Prints CSV: frames
(steps of the environment), seconds since the start, the mean return of five episodes without
exploration, and of goals the share of episodes that ended at the goal. The recipe is `state`.

--pixels   64 x 64 pixels of the task's own render(), drawn by the ray caster: the recipe `pixels`
--goals    a task of Gymnasium-Robotics, with goals in hindsight; --peer uses HerReplayBuffer. With
           --pixels the arm is seen from nearer, the goal is numbers alone and not drawn
--peer     with the library's default settings, MultiInputPolicy for goals, on --threads threads
"""

import argparse
import json
import os
import time

import gymnasium
import numpy as np

EPISODES = 5


def make():
    args = parse()
    if args.goals:
        import gymnasium_robotics
        gymnasium.register_envs(gymnasium_robotics)
    if not args.pixels:
        return gymnasium.make(args.task)
    from gymnasium.wrappers import AddRenderObservation
    from replicant import render
    render.install()
    env = gymnasium.make(args.task, render_mode="rgb_array", width=64, height=64)
    if args.goals:
        env.unwrapped.mujoco_renderer.default_cam_config["distance"] = 1.4
        env.unwrapped.model.site("target0").rgba[3] = 0
    return AddRenderObservation(env, render_only=False, render_key="pixels", obs_key="state")


def goals(batch_size):
    """An update of a batch for each step, which each of five copies shares."""
    return {"replay.tables.default.rate_limiter.samples_per_insert": batch_size / 5, **GOALS}


GOALS = {
    "replay.tables.default.discount": 0.95,
    "actors.hindsight.goals": 4,
    "actors.exploration.random_steps": 1000,
}
PIXELS = {
    "task.action_repeat": 1,
    "task.observations": ["pixels"],
    "agent.distribution.range": "running",
    "actors.exploration.random_steps": 2000,
}


def train(args):
    import replicant
    recipe, settings = "state", goals(256) if args.goals else {}
    if args.pixels:
        recipe, settings = "pixels", PIXELS
        if args.goals:
            settings = {**PIXELS, **goals(128), "replay.tables.default.n_step": 1,
                        "task.pixels.state": True,
                        "task.observations": ["pixels", "desired_goal"]}
    given = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in args.set)}
    overrides = {
        **settings, "run.seed": args.seed, "learner.limits.max_frames": args.frames,
        "learner.limits.max_seconds": 0,
        "evaluation.interval_frames": args.frames // 20, "evaluation.episodes": EPISODES, **given}
    os.environ["GYMNASIUM_LEARNING"] = " ".join(
        [f"--task={args.task}"] + ["--goals"] * args.goals + ["--pixels"] * args.pixels)
    seen = 0
    with replicant.train(recipe, overrides, folder=args.folder, make_env=make) as run:
        while True:
            is_running = run.is_running()
            found = run.evaluations()
            for i in range(seen, len(found.get("return", []))):
                print(",".join(f"{found[name][i]:g}" for name in ["frames", "seconds", "return"]),
                      flush=True)
                seen += 1
            if not is_running:
                break
            time.sleep(1)
        run.wait()


def train_peer(args):
    import stable_baselines3
    import torch
    torch.set_num_threads(args.threads)
    kind = getattr(stable_baselines3, args.peer.upper())
    settings = {"replay_buffer_class": stable_baselines3.HerReplayBuffer} if args.goals else {}
    model = kind("MultiInputPolicy" if args.goals else "MlpPolicy", make(), seed=args.seed,
                 device="cpu", **settings)
    test, start = make(), time.perf_counter()
    for i in range(20):
        model.learn(args.frames // 20, reset_num_timesteps=i == 0)
        returns, reached = [], []
        for episode in range(EPISODES):
            observation, _ = test.reset(seed=1000 * args.seed + episode)
            total, is_over, info = 0.0, False, {}
            while not is_over:
                action, _ = model.predict(observation, deterministic=True)
                observation, reward, terminated, truncated, info = test.step(action)
                total += reward
                is_over = terminated or truncated
            returns.append(total)
            reached.append(info.get("is_success", np.nan))
        print(f"{model.num_timesteps},{time.perf_counter() - start:.1f},{np.mean(returns):g},"
              f"{np.mean(reached):g}", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="HalfCheetah-v5")
    parser.add_argument("--pixels", action="store_true")
    parser.add_argument("--goals", action="store_true")
    parser.add_argument("--peer", choices=["sac", "td3"])
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", default="runs/gymnasium")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON")
    # a process of a fleet makes its environment by this file, too
    given = os.environ.get("GYMNASIUM_LEARNING")
    return parser.parse_args(given.split() if given else None)


if __name__ == "__main__":
    arguments = parse()
    (train_peer if arguments.peer else train)(arguments)
