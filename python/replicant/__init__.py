"""Replicant: control tasks with fast pixels, a prioritized replay and trained policies.

replicant.envs    the Control Suite and your own tasks, as Gymnasium and dm_env environments
replicant.errors  the exceptions

Each part is loaded when it is first used.
"""

import importlib
from importlib.metadata import version as _version

__version__ = _version("replicant")

_PARTS = {"envs": "replicant.envs", "errors": "replicant.errors"}
__all__ = sorted(_PARTS)


def __getattr__(name):
    if name in _PARTS:
        return importlib.import_module(_PARTS[name])
    raise AttributeError(f"module 'replicant' has no attribute '{name}'")
