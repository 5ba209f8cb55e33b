"""What is wrong with a function that a saved graph names."""

from __future__ import annotations

from hostcall_runtime._errors import LoweringError


class SavedFunctionError(LoweringError):
    """A function that a saved graph names is not found, or must not be imported."""
