"""Configurations as the programs of a run read them, before their values are checked."""

import os
from collections.abc import Iterable, Sequence
from typing import Any


def read(file: str | os.PathLike, settings: Sequence[str]) -> dict[str, Any]:
    """The file with its bases and settings, KEY=VALUE as --set takes them: dictionaries and lists
    of texts, None for no value. Paths of models and data are absolute. Error for a file that cannot
    be read."""
    from replicant._libraries import load_program

    return load_program().read_config(os.fspath(file), settings)


def settings_of(arguments: Sequence[str]) -> list[str]:
    """The settings among the arguments of a fleet."""
    found = []
    words = iter(arguments)
    for word in words:
        if word == "--set":
            found.append(next(words, ""))
        elif word.startswith("--set="):
            found.append(word.removeprefix("--set="))
    return found


def part(config: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """What the configuration holds of these dotted keys; for a key that reaches into a list, the
    whole list."""
    chosen: dict[str, Any] = {}
    for key in keys:
        source, target = config, chosen
        *parents, name = key.split(".")
        for parent in parents:
            if not isinstance(source.get(parent), dict):
                name = parent
                break
            source, target = source[parent], target.setdefault(parent, {})
        if name in source:
            target[name] = source[name]
    return chosen
