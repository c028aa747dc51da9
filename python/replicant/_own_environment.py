"""Names of functions that make a user's environments, for other processes."""

import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from replicant.errors import InvalidArgument

TASK = "python-environment"  # task.name of a training with make_env


def name_of(make_env: Callable[[], Any] | str) -> str:
    """The name that finds `make_env` in another process: FILE.py:NAME or MODULE:NAME."""
    if isinstance(make_env, str):
        find(make_env)
        return make_env
    name = getattr(make_env, "__qualname__", "")
    module = sys.modules.get(getattr(make_env, "__module__", ""))
    if not name.isidentifier() or getattr(module, name, None) is not make_env:
        raise InvalidArgument(
            f"make_env: got {make_env!r}, want a function at the top level of a module or of a "
            "file, which every process of the training can import; or its name, FILE.py:NAME")
    if module.__name__ != "__main__":
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)
    if file is None:
        raise InvalidArgument("make_env: a function of an interactive session cannot be imported "
                              "by other processes; hint: put it into a file")
    return f"{pathlib.Path(file).resolve()}:{name}"


def find(name: str) -> Callable[[], Any]:
    """The function that name_of() has named."""
    source, _, attribute = name.rpartition(":")
    if not source:
        raise InvalidArgument(f"make_env: got {name!r}, want FILE.py:NAME or MODULE:NAME")
    if source.endswith(".py"):
        if not pathlib.Path(source).exists():
            raise InvalidArgument(f"make_env: {source}: no such file")
        spec = importlib.util.spec_from_file_location("replicant_own_environment", source)
        module = importlib.util.module_from_spec(spec)
        # for dataclasses and pickles of the file
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(source)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise InvalidArgument(f"make_env: {source} has no function {attribute}")
    return found
