"""What is wrong with a function that a saved graph names."""

from __future__ import annotations

import dataclasses

from hostcall_runtime._errors import LoweringError


class SavedFunctionError(LoweringError):
    """A function that a saved graph names is not found, or must not be imported."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """Why a function cannot be called, and what to write."""

    reason: str
    line: str
