"""Control tasks: the DeepMind Control Suite's 51, and your own from MJCF files.

    from replicant import envs
    env = envs.make_vec("cheetah-run", num_envs=16, pixels=(84, 84), frame_stack=3, action_repeat=2)
    observation, info = env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

make_vec   a batch with Gymnasium's VectorEnv face
make       one environment with Gymnasium's Env face
load       one environment, or a batch, with dm_env's face
tasks      the names of the tasks
Recorder   a wrapper that records episodes; record() plays and records some
Task       a task of your own in Python

The environments are written in C++ and step on separate threads without the GIL.

Arrays. A call returns arrays that it wrote into directly. They keep their numbers as long as you,
a view of them or a DLPack export refers to them; their memory is used again afterwards.

Seeds. Environment i of seed s draws from its own stream. The numbers do not depend on the number
of threads, and an episode's numbers do not depend on earlier episodes. Without a seed the operating
system draws one.

Processes. Threads do not survive a fork: an environment that is used in a forked child raises
Error. Make it in the child, or start children by the method "spawn".

Importing this module registers every task with Gymnasium as replicant/DOMAIN-TASK-v0.
"""

from replicant._libraries import load_mujoco as _load_mujoco

_load_mujoco()

from replicant._envs import Physics, VideoWriter, tasks  # noqa: E402
from replicant.envs._dm_env import DmEnvironment, DmVectorEnvironment, load  # noqa: E402
from replicant.envs._gymnasium import Env, VectorEnv, make, make_vec, register  # noqa: E402
from replicant.envs._recorder import Recorder, record  # noqa: E402
from replicant.envs._task import Task  # noqa: E402

__all__ = [
    "DmEnvironment", "DmVectorEnvironment", "Env", "Physics", "Recorder", "Task", "VectorEnv", "VideoWriter",
    "load", "make", "make_vec", "record", "register", "tasks",
]

register()
