"""Loads the shared libraries of other packages before the modules that need them.

The dynamic linker finds a loaded library by its name, wherever its file lies.
"""

import ctypes
import importlib.util
import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path


def load_mujoco():
    """Loads MuJoCo's library from the package mujoco, without importing that package."""
    spec = importlib.util.find_spec("mujoco")
    folder = Path(spec.submodule_search_locations[0]) if spec else None
    found = sorted(folder.glob("libmujoco.so.*")) if folder else []
    if not found:
        raise ImportError("libmujoco.so was not found; hint: pip install mujoco==3.17.0")
    if found[0].name != "libmujoco.so.3.17.0":
        raise ImportError(f"{found[0]}: want MuJoCo 3.17.0; hint: pip install mujoco==3.17.0")
    ctypes.CDLL(str(found[0]))


def load_onednn():
    """Loads oneDNN's library from the package onednn-cpu-gomp."""
    try:
        found = [f for f in files("onednn-cpu-gomp") or [] if f.name == "libdnnl.so.3"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise ImportError("libdnnl.so.3 was not found; hint: pip install onednn-cpu-gomp==2023.2.0")
    ctypes.CDLL(str(found[0].locate().resolve()))


def suite_folder() -> str:
    """The folder with the Control Suite's models: REPLICANT_SUITE_MODELS, or the package's own."""
    return os.environ.get("REPLICANT_SUITE_MODELS") or str(Path(__file__).parent / "suite")
