"""Which functions are recorded: all, or those that the user has chosen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from hostcall_runtime import _interception
from hostcall_runtime._interception import Site

Chosen = str | Callable[..., Any]


def are_alike(one: str, other: str) -> bool:
    """Whether two names may be those of one function.

    It may have moved to another module. Of a function that is defined in another one, autograph
    knows the last scopes alone, and a user may write no more than its own name.
    """
    one, other = one.rpartition(":")[2], other.rpartition(":")[2]
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


class Selection:
    """Some functions.

    Attributes:
      names: theirs; None for all functions.
    """

    def __init__(self, names: Iterable[str] | None) -> None:
        self.names = None if names is None else frozenset(names)
        self._found: set[str] = set()
        self._chosen_by = functools.cache(self._find)

    def has(self, site: Site) -> bool:
        """Whether a call is of one of them, or of the gradient of one."""
        return self.names is None or self._chosen_by(site.name) is not None

    def without_calls(self) -> list[str]:
        """The names of which `has` was not asked."""
        return sorted((self.names or frozenset()) - self._found)

    def _find(self, full: str) -> str | None:
        called = full.partition("/gradient")[0]
        for name in self.names or ():
            # With a module it is that one.
            if called == name or (":" not in name and are_alike(name, called)):
                self._found.add(name)
                return name
        return None


ALL = Selection(None)


def read(only: Iterable[Chosen] | None) -> Selection:
    """The selection that a user has made, by names, functions and callbacks.

    Raises:
      TypeError: when it is neither.
      ValueError: when it is empty.
    """
    if only is None:
        return ALL
    if isinstance(only, str) or callable(only):
        only = [only]
    names = [_name_of(chosen) for chosen in only]
    if not names:
        raise ValueError(
            "hostcall.record: only=[] leaves no function to record. Leave it out to record all."
        )
    return Selection(names)


def _name_of(chosen: object) -> str:
    if isinstance(chosen, str):
        return chosen
    if not callable(chosen):
        raise TypeError(
            f"hostcall.record: only= is for functions and their names, and {chosen!r} is neither."
        )
    function = getattr(chosen, "__hostcall_function__", None)
    if function is None:
        return _interception.name_of(chosen)
    return getattr(chosen, "name", None) or _interception.name_of(function)
