from collections.abc import Callable, Sequence
from typing import Any


def run(
        words: Sequence[str], executable: str, task: str,
        make_adapter: Callable[[], Any] | None) -> int:
    """Runs the program that the words name, and returns its exit code."""
