"""The user's settings for the whole process, except the routes of script ops."""

from __future__ import annotations

import os
from collections.abc import Collection

from hostcall_runtime import _library

PARTITION, ERROR = "partition", "error"
_UNCOMPILABLE = (PARTITION, ERROR)
_ENVIRONMENT = "HOSTCALL_UNCOMPILABLE"
_BOUND_ENVIRONMENT = "HOSTCALL_MAX_COMPILATIONS"
_ASSERTIONS_ENVIRONMENT = "HOSTCALL_ASSERTIONS"

# TensorFlow's auto-clustering gives up a cluster after the same number.
_BOUND = 10


def checked(value: object, what: str = "uncompilable") -> str:
    """Return `value`, if it is a treatment of functions that XLA refuses.

    Raises:
      ValueError: when it is not.
    """
    return _one_of(value, _UNCOMPILABLE, what)


def _one_of(value: object, choices: Collection[str], what: str) -> str:
    if value not in choices:
        raise ValueError(
            f"hostcall: {what}={value!r} is not one of {', '.join(map(repr, choices))}."
        )
    return str(value)


_uncompilable = checked(os.environ.get(_ENVIRONMENT) or PARTITION, _ENVIRONMENT)


def uncompilable() -> str:
    """Return the treatment of functions that XLA refuses: "partition" or "error"."""
    return _uncompilable


def set_uncompilable(value: str) -> None:
    """Set the treatment of functions that XLA refuses from now on.

    Raises:
      ValueError: when `value` is neither "partition" nor "error".
    """
    global _uncompilable
    _uncompilable = checked(value)


def checked_bound(value: object, what: str = "max_compilations") -> int:
    """Return `value` as an int, if it is a number of compilations of one cluster.

    Raises:
      ValueError: when it is not.
    """
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
        raise ValueError(f"hostcall: {what}={value!r} is no count: give a positive int.")
    return value


_max_compilations = checked_bound(os.environ.get(_BOUND_ENVIRONMENT) or _BOUND, _BOUND_ENVIRONMENT)


def max_compilations() -> int:
    """Return the number of combinations of sizes for which one cluster is compiled."""
    return _max_compilations


def set_max_compilations(value: int) -> None:
    """Set this number for all clusters, from their next call on.

    Raises:
      ValueError: when `value` is no positive int.
    """
    global _max_compilations
    _max_compilations = checked_bound(value)
    _library.load("hostcall._tensorflow").set_max_compilations(_max_compilations)


STOCK, CHECKED = "stock", "checked"
_DYNAMIC_SIZES = (STOCK, CHECKED)
_DYNAMIC_SIZES_ENVIRONMENT = "HOSTCALL_DYNAMIC_SIZES"


def checked_sizes(value: object, what: str = "dynamic_sizes") -> str:
    """Return `value`, if it is a treatment of functions that XLA compiles without hostcall.

    Raises:
      ValueError: when it is not.
    """
    return _one_of(value, _DYNAMIC_SIZES, what)


_dynamic_sizes = checked_sizes(
    os.environ.get(_DYNAMIC_SIZES_ENVIRONMENT) or STOCK, _DYNAMIC_SIZES_ENVIRONMENT
)


def dynamic_sizes() -> str:
    """Return the treatment of functions that stock XLA compiles: "stock" or "checked"."""
    return _dynamic_sizes


def set_dynamic_sizes(value: str) -> None:
    """Set the treatment of functions that stock XLA compiles from now on.

    Raises:
      ValueError: when `value` is neither "stock" nor "checked".
    """
    global _dynamic_sizes
    _dynamic_sizes = checked_sizes(value)
    _library.load("hostcall._tensorflow").set_checks_sizes(_dynamic_sizes == CHECKED)


_assertions = os.environ.get(_ASSERTIONS_ENVIRONMENT, "0") not in ("", "0")


def assertions() -> bool:
    """Return whether compiled functions check assertions, which XLA would drop."""
    return _assertions


def set_assertions(value: bool) -> None:
    """Set whether functions that are compiled from now on check assertions."""
    global _assertions
    _assertions = bool(value)
    _library.load("hostcall._tensorflow").set_checks_assertions(_assertions)
