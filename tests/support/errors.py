"""Functions that raise."""

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
