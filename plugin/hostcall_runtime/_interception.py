"""Where somebody else can answer the calls of Python functions: `hostcall.record` and `replay`.

Nobody is asked for it while nobody answers: the functions that targets have are exchanged for that
time. Programs read a target's function at each call, so those compiled before are reached too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hostcall_runtime import _errors, _locks, _runs

# What autograph puts around the names of functions that are defined in functions it has converted.
_AUTOGRAPH_SCOPES = re.compile(r"outer_factory\.<locals>\.inner_factory\.<locals>\.|\btf__")


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """What is known of a place that calls a function.

    Attributes:
      name: of the function, the same in each process: what the user has called it, or
        `module:qualname`.
      description: the function and the call for a message, with the file and line of both.
      function: the user's, where that is known.
      node: what tells the place from others that call a function of this name.
      ordered: whether the calls run in the order of the program.
      to_tensor: makes the framework's tensor of an array, where the function returns such.
      new_handle: where the last result is the handle of a tape residual: keeps an empty residual,
        and returns its handle.
      takes_handle: whether the first argument is such a handle.
    """

    name: str
    description: str
    function: Any = None
    node: str = ""
    ordered: bool = True
    to_tensor: Callable[[Any], Any] | None = None
    new_handle: Callable[[], int] | None = None
    takes_handle: bool = False


class Interceptor(Protocol):
    """Who answers calls."""

    def call(
        self,
        site: Site,
        function: Callable[..., Any],
        args: Sequence[Any],
        given: Mapping[str, Any],
    ) -> Any:
        """What a call returns.

        Args:
          site: where it is made.
          function: what is called for it while nobody answers.
          args: the arguments.
          given: `out`, where the function writes its results itself.
        """


class _Intercepted:
    """What stands in the place of a function."""

    def __init__(self, interceptor: Interceptor, site: Site, function: Callable[..., Any]) -> None:
        self.interceptor = interceptor
        self.site = site
        self.function = function

    def __call__(self, *args: Any, **given: Any) -> Any:
        return self.interceptor.call(self.site, self.function, args, given)


class _Nesting(threading.local):
    is_within = False


_nesting = _Nesting()

_lock = _locks.new_lock()
_active: Interceptor | None = None
_targets: weakref.WeakSet[Any] = weakref.WeakSet()


@contextlib.contextmanager
def within_call() -> Iterator[None]:
    """While this thread runs the function of a call.

    What a function calls in turn is part of what it does. Who does not run the function does not
    see these calls, and so nobody is to be told of them.
    """
    before = _nesting.is_within
    _nesting.is_within = True
    try:
        yield
    finally:
        _nesting.is_within = before


def is_within_call() -> bool:
    """Whether this thread runs the function of a call."""
    return _nesting.is_within


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which another thread calls for this one: as part of the same call.

    It sees the settings of this thread.
    """
    function = _runs.Starter().bound(function)
    if not _nesting.is_within:
        return function

    def run(*args: Any, **given: Any) -> Any:
        with within_call():
            return function(*args, **given)

    return run


def is_active() -> bool:
    """Whether somebody answers calls."""
    return _active is not None


def start(interceptor: Interceptor) -> None:
    """Has all calls answered by `interceptor` from now on; nobody may be active."""
    global _active
    with _lock:
        assert _active is None
        _active = interceptor
        targets = list(_targets)
    for target in targets:
        _exchange(target, interceptor)


def stop() -> None:
    """Gives the targets their functions back."""
    global _active
    with _lock:
        _active = None
        targets = list(_targets)
    for target in targets:
        if not hasattr(target, "host_function"):
            target.answer(None)
        elif isinstance(target.host_function, _Intercepted):
            target.host_function = target.host_function.function


def know(target: Any) -> None:
    """Includes a target that programs will call, or native code, which has an `answer` instead."""
    if not (hasattr(target, "host_function") or hasattr(target, "answer")):
        return  # what only has its name registered
    with _lock:
        _targets.add(target)
        interceptor = _active
    if interceptor is not None:
        _exchange(target, interceptor)


def around(site: Callable[[], Site], function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose calls go to who answers them, where somebody does.

    Args:
      site: tells where the call is made.
      function: what is called for it.
    """
    interceptor = _active
    return function if interceptor is None else _Intercepted(interceptor, site(), function)


def _exchange(target: Any, interceptor: Interceptor) -> None:
    if not hasattr(target, "host_function"):
        target.answer(functools.partial(_answer, interceptor, target.site))
        return
    function = target.host_function
    if not isinstance(function, _Intercepted):
        site = getattr(target, "site", None) or Site(target.title, target.description)
        target.host_function = _Intercepted(interceptor, site, function)


def _answer(
    interceptor: Interceptor, site: Site, args: list[Any], run: Callable[[], Any]
) -> list[Any] | tuple[int, str]:
    """The results of a call of native code, or its status code and message."""
    try:
        returned = interceptor.call(site, lambda *_: run(), args, {})
        return [] if returned is NotImplemented else [np.asarray(result) for result in returned]
    except Exception as error:
        return _errors.describe(error)


def name_of(function: Any) -> str:
    """`module:qualname` of a function, or of what an object that is called is made of."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = inspect.unwrap(function)
        else:
            break
    named = function if getattr(function, "__qualname__", None) else type(function)
    qualname = without_autograph(named.__qualname__)
    return f"{getattr(named, '__module__', None) or 'builtins'}:{qualname}"


def without_autograph(qualname: str) -> str:
    """The name that a function has in the user's code, from its `__qualname__`."""
    return _AUTOGRAPH_SCOPES.sub("", qualname)
