"""The function that makes a user's environments: its name, by which other processes find it."""

import ast
import importlib
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from replicant.errors import Error, InvalidArgument

TASK = "python-environment"  # task.name of a training with make_env
VARIABLE = "REPLICANT_MAKE_ENV"  # names the function in the processes of a training

_GUARD = 'if __name__ == "__main__":'
# the files and modules that find() imports at this moment
_under_import: list[str] = []


def check_not_importing() -> None:
    """Raises Error if a training is started by a file that is only imported for its make_env."""
    if _under_import:
        raise Error(f"{_under_import[-1]}: a training starts while the file is imported, as every "
                    f"process of a training imports it for make_env; hint: start it below "
                    f"'{_GUARD}'")


def name_of(make_env: Callable[[], Any] | str) -> str:
    """The name that finds `make_env` in another process, whatever its working folder:
    FILE:NAME or MODULE:NAME."""
    if isinstance(make_env, str):
        name = absolute(make_env)
        source, _ = _parts(name)
        if _is_file(source):
            _check_guard(source)
        find(name)
        return name
    name = getattr(make_env, "__qualname__", "")
    module = sys.modules.get(getattr(make_env, "__module__", None) or "")
    if not name.isidentifier() or getattr(module, name, None) is not make_env:
        raise InvalidArgument(
            f"make_env: got {make_env!r}, want a function at the top level of a module or of a "
            "file, which every process of the training can import; or its name, FILE.py:NAME")
    source = _source_of(module)
    _check_guard(source if _is_file(source) else getattr(module, "__file__", None))
    return f"{source}:{name}"


def _source_of(module: ModuleType) -> str:
    """The module's name, or its file if only this process knows it by its name."""
    # the program itself; in a process of multiprocessing's spawn its copy
    if module.__name__ not in ("__main__", "__mp_main__"):
        return module.__name__
    # python -m PACKAGE.MODULE; a folder or an archive is no package
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name not in ("__main__", "__mp_main__"):
        return spec.name
    file = getattr(module, "__file__", None)
    # a notebook has none or its own; standard input has "<stdin>"
    if file is None or file.endswith(".ipynb") or not os.path.isfile(file):
        raise InvalidArgument("make_env: a function of a notebook, of an interactive session or of "
                              "standard input cannot be imported by other processes; hint: put it "
                              "into a file")
    return str(pathlib.Path(file).resolve())


def _is_file(source: str) -> bool:
    return source.endswith(".py") or os.sep in source


def _check_guard(file: str | None) -> None:
    """Raises InvalidArgument if importing `file` would start a training again: if its own top
    level is running, and not below a guard."""
    if file is None:
        return
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and os.path.isfile(frame.f_code.co_filename) and (
                os.path.samefile(frame.f_code.co_filename, file)):
            if not _is_guarded(file, frame.f_lineno):
                raise InvalidArgument(
                    f"{file}:{frame.f_lineno}: starts a training whenever the file is imported, "
                    f"as every process of a training imports it for make_env; hint: put it below "
                    f"'{_GUARD}'")
            return
        frame = frame.f_back


def _is_guarded(file: str, line: int) -> bool:
    """Whether the statement at `line` lies below a condition about __name__."""
    try:
        tree = ast.parse(pathlib.Path(file).read_bytes())
    except SyntaxError:  # changed since it was started
        return True
    for node in ast.walk(tree):
        if not isinstance(node, ast.If):
            continue
        test = list(ast.walk(node.test))
        if not any(isinstance(part, ast.Name) and part.id == "__name__" for part in test):
            continue
        # "if __name__ != ...: sys.exit()" guards what follows
        is_exit = any(isinstance(part, ast.NotEq) for part in test)
        if node.body[0].lineno <= line and (line <= node.end_lineno or is_exit):
            return True
    return False


def _parts(name: str) -> tuple[str, str]:
    source, _, attribute = name.rpartition(":")
    if not source:
        raise InvalidArgument(f"make_env: got {name!r}, want FILE.py:NAME or MODULE:NAME")
    return source, attribute


def absolute(name: str) -> str:
    """The name that means the same in any working folder."""
    source, attribute = _parts(name)
    return f"{pathlib.Path(source).resolve()}:{attribute}" if _is_file(source) else name


def find(name: str) -> Callable[[], Any]:
    """The function that name_of() has named."""
    source, attribute = _parts(name)
    _under_import.append(source)
    try:
        module = _import_file(source) if _is_file(source) else _import_module(source)
        found = getattr(module, attribute, None)
    finally:
        _under_import.pop()
    if not callable(found):
        raise InvalidArgument(f"make_env: {source} has no function {attribute}; hint: it stands at "
                              f"the top level, not below '{_GUARD}'")
    return found


def _import_module(name: str) -> ModuleType:
    main = sys.modules["__main__"]
    # the running program is not run again
    is_main = name == getattr(getattr(main, "__spec__", None), "name", None)
    return main if is_main else importlib.import_module(name)


def _import_file(file: str) -> ModuleType:
    if not os.path.isfile(file):
        raise InvalidArgument(f"make_env: {file}: no such file")
    main = sys.modules["__main__"]
    # a notebook or an interactive session has no file
    if os.path.isfile(own := getattr(main, "__file__", None) or "") and os.path.samefile(own, file):
        return main
    name = "replicant_own_environment"
    # the loader of Python files, whatever the file is called
    loader = importlib.machinery.SourceFileLoader(name, file)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    # for dataclasses and pickles of the file
    sys.modules[name] = module
    loader.exec_module(module)
    return module
