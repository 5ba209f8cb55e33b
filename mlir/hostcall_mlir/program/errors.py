"""The error of exported programs."""

from __future__ import annotations

from collections.abc import Iterable


class ProgramError(ValueError):
    """A exported program that cannot be loaded: its files or its functions are not as they should.

    The text says what is wrong, where, and what to do about it.

    Examples:
      >>> try:
      ...     hostcall_mlir.load("nowhere")
      ... except hostcall_mlir.ProgramError as error:
      ...     print(str(error).split(".")[0])
      nowhere: the directory does not exist
    """


def listed(problems: Iterable[str]) -> str:
    """Problems as the lines of a list."""
    return "\n".join(f"  - {problem}" for problem in problems)
