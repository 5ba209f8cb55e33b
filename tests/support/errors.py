"""Functions that raise, and what errors say."""

from collections.abc import Callable
from typing import Any


class DetailedError(ValueError):
    def __init__(self, text: str, code: int = 7) -> None:
        super().__init__(text)
        self.code = code


def raising(error: BaseException) -> Callable[..., Any]:
    def raise_it(x: Any) -> Any:
        raise error

    return raise_it


def assert_says(text: Any, *parts: str) -> None:
    """The text, or that of an error, has all these parts."""
    for part in parts:
        assert part in str(text), f"{part!r} is missing in: {text}"
