"""What the user has configured for the whole process, but for the routes of script ops."""

from __future__ import annotations

import os

PARTITION, ERROR = "partition", "error"
_UNCOMPILABLE = (PARTITION, ERROR)
_ENVIRONMENT = "HOSTCALL_UNCOMPILABLE"


def checked(value: object, what: str = "uncompilable") -> str:
    """`value`, if it says what becomes of functions that XLA refuses.

    Raises:
      ValueError: when it does not.
    """
    if value not in _UNCOMPILABLE:
        choices = ", ".join(map(repr, _UNCOMPILABLE))
        raise ValueError(f"hostcall: {what}={value!r} is none of {choices}.")
    return str(value)


_uncompilable = checked(os.environ.get(_ENVIRONMENT) or PARTITION, _ENVIRONMENT)


def uncompilable() -> str:
    """What becomes of a function that XLA refuses: "partition" or "error"."""
    return _uncompilable


def set_uncompilable(value: str) -> None:
    """Sets it, for functions that XLA refuses from now on.

    Raises:
      ValueError: when it is neither.
    """
    global _uncompilable
    _uncompilable = checked(value)
