"""Replicant: control tasks with fast pixels, a prioritized replay and trained policies.

replicant.envs    the Control Suite and your own tasks, as Gymnasium and dm_env environments
replicant.replay  a replay service, its writers and readers
replicant.data    data sets in and out
replicant.render  pictures of any MuJoCo model without OpenGL, as mujoco.Renderer draws them
replicant.Policy  a trained policy
replicant.train   starts a training; replicant.Run is one
replicant.errors  the exceptions

Each part is loaded when it is first used.
"""

import importlib
from importlib.metadata import version as _version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicant import data, envs, errors, render, replay
    from replicant._policy_of_run import Policy
    from replicant._train import Run, train

__version__ = _version("replicant")

_MODULES = ("data", "envs", "errors", "render", "replay")
_NAMES = {"Policy": "replicant._policy_of_run", "Run": "replicant._train", "train": "replicant._train"}
__all__ = sorted((*_MODULES, *_NAMES))


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"replicant.{name}")
    if name in _NAMES:
        found = globals()[name] = getattr(importlib.import_module(_NAMES[name]), name)
        return found
    raise AttributeError(f"module 'replicant' has no attribute '{name}'")
