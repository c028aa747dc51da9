from collections.abc import Callable, Sequence
from typing import Any


def run(
        words: Sequence[str], command: Sequence[str], task: str,
        make_adapter: Callable[[], Any] | None) -> int:
    """Runs the program that the words name, and returns its exit code."""


def read_config(file: str, settings: Sequence[str]) -> dict[str, Any]:
    """The configuration of a file, its bases and settings, KEY=VALUE as --set takes them, before
    its values are checked: dictionaries and lists of texts, None for no value. Paths of models and
    data are absolute."""
