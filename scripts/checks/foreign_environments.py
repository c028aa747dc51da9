"""Environments of other packages that scripts/checks/python_environments trains, and the training.

    python foreign_environments.py NAME FOLDER SECONDS
"""

import sys
from importlib.metadata import version


def metaworld():
    import gymnasium
    import metaworld  # noqa: F401  registers its tasks

    return gymnasium.make("Meta-World/MT1", env_name="reach-v3", seed=0)


def robosuite():
    import robosuite
    from robosuite.wrappers import GymWrapper

    return GymWrapper(robosuite.make("Lift", robots="Panda", reward_shaping=True, horizon=50,
                                     has_renderer=False, has_offscreen_renderer=False,
                                     use_camera_obs=False))


def gymnasium_robotics():
    import gymnasium
    import gymnasium_robotics  # noqa: F401  registers its tasks

    return gymnasium.make("FetchReachDense-v4")


def mujoco_4():
    import gymnasium

    return gymnasium.make("InvertedPendulum-v5")


# rewards of a step, from which the range of values follows; control steps of an action
REWARDS = {metaworld: (0, 10), robosuite: (0, 1), gymnasium_robotics: (-1, 0), mujoco_4: (0, 1)}
ACTION_REPEAT = {metaworld: 4, robosuite: 1, gymnasium_robotics: 1, mujoco_4: 1}
DISCOUNT = 0.97


def random_return(make, episodes=3):
    env = make()
    env.action_space.seed(1)
    total = 0.0
    for episode in range(episodes):
        env.reset(seed=episode)
        is_over = False
        while not is_over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += reward
            is_over = terminated or truncated
    env.close()
    return total / episodes


def main(name, folder, seconds):
    import replicant

    make = globals()[name]
    try:
        from replicant import envs

        suite = f"works, {len(envs.tasks())} tasks"
    except ImportError as error:
        suite = f"refused: {error}"
    low, high = (reward / (1 - DISCOUNT) for reward in REWARDS[make])
    run = replicant.train("cartpole_swingup_state", {
        "task.action_repeat": ACTION_REPEAT[make],
        "agent.distribution.v_min": low, "agent.distribution.v_max": high,
        "replay.tables.default.discount": DISCOUNT,
        # slow environments make few steps in a minute
        "replay.tables.default.rate_limiter.min_size_to_sample": 100,
        "actors.exploration.random_steps": 100,
        "evaluation.episodes": 2,
        # robosuite is imported for minutes beside other programs
        "fleet.start_timeout_s": 900.0,
        "learner.limits.max_seconds": float(seconds)}, folder=folder, make_env=make)
    run.wait()
    returns = run.evaluations().get("return", [])
    if len(returns) == 0:
        sys.exit(f"{name}: no evaluation in {seconds} s; hint: --seconds")
    policy = run.policy(which="best").evaluate(3, seed=1)
    print(f"{name}: mujoco {version('mujoco')}, numpy {version('numpy')}; "
          f"{run.curves()['step'][-1]:.0f} updates; return of random actions "
          f"{random_return(make):.1f}, of evaluations {[round(float(r), 1) for r in returns]}, "
          f"of the best policy {policy.mean():.1f}")
    print(f"{name}: the Control Suite: {suite}")


if __name__ == "__main__":
    main(*sys.argv[1:])
