"""The interception of calls of Python functions, for `hostcall.record` and `replay`.

Targets get other functions only while a recorder or replay is active: otherwise it costs nothing.
Programs read a target's function at each call, so programs compiled earlier are reached too.
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

# The scopes that autograph adds to the names of functions defined in a function that it converts.
_AUTOGRAPH_SCOPES = re.compile(r"outer_factory\.<locals>\.inner_factory\.<locals>\.|\btf__")

Function = Callable[..., Any]
Given = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class CallSite:
    """A place that calls a function."""

    name: str  # the user's name for the function, or `module:qualname`: the same in each process
    description: str  # the function and the call for a message, with the file and line of both
    function: Any = None
    node: str = ""  # tells the place from others that call a function of this name
    ordered: bool = True
    # Makes the framework's tensor from an array, if the function returns tensors.
    to_tensor: Callable[[Any], Any] | None = None
    # Makes arrays from the function's results, if these may be containers of arrays.
    to_arrays: Callable[[Any], Any] | None = None
    # Keeps an empty tape residual and returns its handle, which is the last result.
    new_handle: Callable[[], int] | None = None
    takes_handle: bool = False  # whether the first argument is the handle of a tape residual


class Interceptor(Protocol):
    """A recorder or replay, which answers calls."""

    def call(self, site: CallSite, function: Function, args: Sequence[Any], given: Given) -> Any:
        """Return the result of a call; `given` has `out` if the function writes its results."""


@dataclasses.dataclass(eq=False)
class _Intercepted:
    """A stand-in for a function, whose calls the interceptor answers."""

    interceptor: Interceptor
    site: CallSite
    function: Function

    def __call__(self, *args: Any, **given: Any) -> object:
        return self.interceptor.call(self.site, self.function, args, given)


class _Nesting(threading.local):
    is_within = False


_nesting = _Nesting()
_lock = _locks.new_lock()
_active: Interceptor | None = None
_targets: weakref.WeakSet[Any] = weakref.WeakSet()


@contextlib.contextmanager
def within_call() -> Iterator[None]:
    """Mark this thread as running the function of a call, whose own calls are not intercepted."""
    # They are part of its work: a replay does not run the function, and so does not see them.
    before = _nesting.is_within
    _nesting.is_within = True
    try:
        yield
    finally:
        _nesting.is_within = before


def is_within_call() -> bool:
    """Return whether this thread runs the function of a call."""
    return _nesting.is_within


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` for a call by another thread, as part of this call with its settings."""
    function = _runs.Starter.here().bound(function)
    if not _nesting.is_within:
        return function

    def run(*args: Any, **given: Any) -> object:
        with within_call():
            return function(*args, **given)

    return run


def is_active() -> bool:
    """Return whether an interceptor is active."""
    return _active is not None


def start(interceptor: Interceptor) -> None:
    """Let `interceptor` answer all calls from now on; no other one may be active."""
    global _active
    with _lock:
        assert _active is None
        _active = interceptor
        for target in list(_targets):
            _exchange(target, interceptor)


def stop() -> None:
    """Give the targets their functions back."""
    global _active
    with _lock:
        _active = None
        for target in list(_targets):
            if not hasattr(target, "host_function"):
                target.answer(None)
            elif isinstance(target.host_function, _Intercepted):
                target.host_function = target.host_function.function


def know(target: object) -> None:
    """Include a target that programs will call, or native code, which has an `answer` instead."""
    if not (hasattr(target, "host_function") or hasattr(target, "answer")):
        return  # only its name is registered
    with _lock:
        _targets.add(target)
        # Under the lock: else `stop` might come first, and the target would answer with this one.
        if _active is not None:
            _exchange(target, _active)


def around(site: Callable[[], CallSite], function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` so that the active interceptor, if any, answers its calls at the site."""
    interceptor = _active
    return function if interceptor is None else _Intercepted(interceptor, site(), function)


def _exchange(target: Any, interceptor: Interceptor) -> None:
    if not hasattr(target, "host_function"):
        target.answer(functools.partial(_answer, interceptor, target.site))
        return
    function = target.host_function
    if not isinstance(function, _Intercepted):
        site = getattr(target, "site", None) or CallSite(target.title, target.description)
        target.host_function = _Intercepted(interceptor, site, function)


def _answer(
    interceptor: Interceptor, site: CallSite, args: list[Any], run: Callable[[], Any]
) -> list[Any] | tuple[int, str]:
    """Return the results of a call of native code, or its status code and message."""
    try:
        returned = interceptor.call(site, lambda *_: run(), args, {})
        return [] if returned is NotImplemented else [np.asarray(result) for result in returned]
    except Exception as error:
        return _errors.describe(error)


def name_of(function: Any) -> str:
    """Return `module:qualname` of a function without its wrappers, or of a callable's class."""
    inner: Any = None
    while inner is not function:
        inner = function
        is_partial = isinstance(function, functools.partial)
        function = function.func if is_partial else inspect.unwrap(function)
    named = function if getattr(function, "__qualname__", None) else type(function)
    qualname = without_autograph(named.__qualname__)
    return f"{getattr(named, '__module__', None) or 'builtins'}:{qualname}"


def without_autograph(qualname: str) -> str:
    """Return the name that a function has in the user's code, from its `__qualname__`."""
    return _AUTOGRAPH_SCOPES.sub("", qualname)
