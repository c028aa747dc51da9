"""The package's recipes: configurations that are ready to run, by name.

A recipe lies in recipes/NAME.yaml, also of a folder there ("distracting/easy"), and takes shared
parts from recipes/base. The first line of the file is a comment that says what it trains.
"""

import difflib
import os
import pathlib
import re

from replicant.errors import ConfigError, IoError

FOLDER = pathlib.Path(__file__).parent / "recipes"
_ANY_TASK = "pixels"  # the recipe for tasks that have none of their own


def names() -> list[str]:
    files = (path.relative_to(FOLDER) for path in FOLDER.rglob("*.yaml"))
    return sorted(file.with_suffix("").as_posix() for file in files if file.parts[0] != "base")


def about(name: str) -> str:
    """What a recipe trains, without the details."""
    with (FOLDER / f"{name}.yaml").open(encoding="utf-8") as file:
        return re.split(r"[;:.] ", file.readline().removeprefix("# ").strip())[0].rstrip(".")


def tasks() -> list[str]:
    """The Control Suite's tasks; MuJoCo is not needed for their names."""
    from replicant._libraries import mujoco_if_any

    with mujoco_if_any():
        from replicant import _envs
    return _envs.tasks()


def find(name: str | os.PathLike) -> tuple[pathlib.Path, dict[str, str]]:
    """The configuration that a name stands for, and settings that go with it.

    name  the path of a YAML file; the name of a recipe; or the name of a task, which is trained
          from pixels: by its own recipe, or by the one for any task

    IoError for a file that does not exist, ConfigError for any other name.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise ConfigError(f"config: got {name!r:.100}; want the path of a YAML file, or the name of "
                          "a recipe or a task; hint: keys and their values are the second argument")
    text = os.fspath(name)
    path = pathlib.Path(text)
    if text in names():
        return FOLDER / f"{text}.yaml", {}
    if not isinstance(name, str) or os.sep in text or path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            close = [name for name in (path.stem, f"{path.parent.name}/{path.stem}")
                     if name in names()]
            hint = (f"the package has this recipe by the name {close[-1]}" if close
                    else "replicant train --list prints the names of recipes")
            raise IoError(f"{text}: no such file; hint: {hint}")
        return path, {}
    own = text.replace("-", "_") + "_pixels"
    if text in tasks():
        if own in names():
            return FOLDER / f"{own}.yaml", {}
        return FOLDER / f"{_ANY_TASK}.yaml", {"run.name": own, "task.name": text}
    close = difflib.get_close_matches(text, [*names(), *tasks()], n=3)
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    raise ConfigError(f"'{text}' is not a recipe, a task or a YAML file{meant}; "
                      "hint: replicant train --list prints the names")
