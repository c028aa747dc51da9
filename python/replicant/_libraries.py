"""Loads the shared libraries of other packages before the modules that need them.

The dynamic linker finds a loaded library by its name, wherever its file lies.
"""

import contextlib
import ctypes
import importlib.util
import os
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

# The structures of this version, such as mjModel and mjData, are compiled into the modules; their
# layout differs from version to version.
MUJOCO = "3.17.0"
_NEED = ("the Control Suite and envs.Task need it, but not replicant.replay, nor trainings with "
         "make_env and their policies")


def _find_mujoco() -> Path:
    """MuJoCo's library in the package mujoco. ImportError if there is none that can be used."""
    try:
        spec = importlib.util.find_spec("mujoco")
    except (ImportError, ValueError):  # hidden on purpose
        spec = None
    folders = [Path(name) for name in spec.submodule_search_locations or []] if spec else []
    found = [file for folder in folders for file in sorted(folder.glob("libmujoco.so.*"))]
    if not folders:
        raise ImportError(f"MuJoCo {MUJOCO} is not installed; {_NEED}; hint: pip install "
                          "'WHEEL[mujoco]'")
    is_whole = found and any(any(folder.glob("_structs*.so")) for folder in folders)
    if not is_whole:
        raise ImportError(f"MuJoCo in {folders[0]} lacks files: pip removes them when it installs "
                          "MuJoCo 4 over an older version; hint: install into a new environment")
    wanted = [file for file in found if file.name == f"libmujoco.so.{MUJOCO}"]
    if not wanted:
        version = found[0].name.removeprefix("libmujoco.so.")
        raise ImportError(f"MuJoCo {version} is installed in {folders[0]}, and this build of "
                          f"replicant supports {MUJOCO}; {_NEED}; hint: pip install "
                          f"mujoco=={MUJOCO} into another environment")
    return wanted[0]


def load_mujoco():
    """Loads MuJoCo's library from the package mujoco, without importing that package. ImportError
    if it is missing or has another version."""
    # global, so that the modules find the functions
    ctypes.CDLL(str(_find_mujoco()), ctypes.RTLD_GLOBAL)


@contextlib.contextmanager
def mujoco_if_any():
    """Modules that are imported in this context have MuJoCo if it can be used, and otherwise say
    what is missing when they need it."""
    flags = sys.getdlopenflags()
    try:
        load_mujoco()
    except ImportError:
        # functions that are missing may stay unbound
        sys.setdlopenflags(os.RTLD_LAZY)
    try:
        yield
    finally:
        sys.setdlopenflags(flags)


def load_onednn():
    """Loads oneDNN's library from the package onednn-cpu-gomp."""
    try:
        listed = files("onednn-cpu-gomp")
    except PackageNotFoundError:
        listed = None
    if not listed:
        raise ImportError("libdnnl.so.3 was not found; hint: pip install onednn-cpu-gomp==2023.2.0")
    # from Python 3.12 on, files that do not exist are not listed
    libraries = [f.locate().resolve() for f in listed if f.name == "libdnnl.so.3"]
    if not libraries or not libraries[0].exists():
        raise ImportError("libdnnl.so.3 was not found; pip's --target leaves it out; hint: install "
                          "with --prefix, or into an environment")
    library = libraries[0]
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        # a minimal system has no libgomp, which comes with compilers
        raise ImportError(f"oneDNN cannot be loaded: {error}; hint: install the system's package "
                          "libgomp1") from None


def load_program():
    """The module replicant._program, which holds the programs of a run. ImportError without
    oneDNN."""
    load_onednn()
    with mujoco_if_any():
        from replicant import _program
    return _program


def suite_folder() -> str:
    """The folder with the Control Suite's models: REPLICANT_SUITE_MODELS, or the package's own."""
    return os.environ.get("REPLICANT_SUITE_MODELS") or str(Path(__file__).parent / "suite")
