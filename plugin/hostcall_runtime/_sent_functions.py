"""Functions on their way to another process, which finds them by module and name."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from hostcall_runtime._keyword_call import KeywordCall


def sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, or where its name stands for a callback that is made of it, what finds it."""
    if isinstance(function, KeywordCall):
        inner = sendable(function.function)
        if inner is function.function:
            return function
        return KeywordCall(inner, function.names, function.fixed)
    if isinstance(function, types.MethodType):
        inner = sendable(function.__func__)
        if inner is function.__func__:
            return function
        return functools.partial(inner, function.__self__)
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules:
        return function
    try:
        found = operator.attrgetter(name)(sys.modules[module])
    except AttributeError:
        return function
    if getattr(found, "__hostcall_function__", None) is function:
        return DecoratedFunction(module, name)
    return function


@dataclasses.dataclass(frozen=True)
class DecoratedFunction:
    """The function of a callback that a module has under a name, as `@hostcall.callback` leaves it.

    Attributes:
      module, name: where the callback is.
    """

    module: str
    name: str

    def __call__(self, *args: Any, **by_name: Any) -> Any:
        """Calls the function."""
        return _function_of(self.module, self.name)(*args, **by_name)

    @property
    def __name__(self) -> str:
        return self.name


@functools.cache
def _function_of(module: str, name: str) -> Any:
    callback = operator.attrgetter(name)(importlib.import_module(module))
    return callback.__hostcall_function__
