"""The error of exported programs."""

from __future__ import annotations

from collections.abc import Iterable

from hostcall_runtime._errors import ProgramError as ProgramError


def listed(problems: Iterable[str]) -> str:
    """Problems as the lines of a list."""
    return "\n".join(f"  - {problem}" for problem in problems)
