"""Helpers that the tests of the source lines in errors share."""

from collections.abc import Callable
from typing import Any

import numpy as np


def raise_below_zero(x: Any) -> Any:
    """A callback that returns what it is given, and raises for negative numbers."""
    if float(x) < 0.0:
        raise ValueError("negative")
    return np.float32(x)


def here(offset: int, function: Callable[..., Any]) -> str:
    """The line `offset` lines after the first of a function, as messages have it."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"
