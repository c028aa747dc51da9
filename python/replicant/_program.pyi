from collections.abc import Callable, Sequence
from typing import Any


def run(
        words: Sequence[str], command: Sequence[str], task: str,
        make_adapter: Callable[[], Any] | None) -> int:
    """Runs the program that the words name, and returns its exit code."""
