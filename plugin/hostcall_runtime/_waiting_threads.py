"""Who waits for calls that nobody waits for, and whether one of those waits for itself.

A function that nobody waits for may run a program that hands over calls of its own. No call runs
before the function has returned, so that such a program must not wait for room. On the thread of
the function that is easily told. But a program may make its calls on threads of XLA's and
TensorFlow's, of which nobody knows who has started the program. There it is found out by counting.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
import threading
from collections.abc import Callable, Iterator
from typing import Any

from hostcall_runtime import _library

_runtime = _library.load("hostcall_runtime._runtime")

_PYTHON = os.path.join(sysconfig.get_path("stdlib"), "")
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))

_inside = threading.local()
# The threads of Python's on which such functions run.
_functions: set[int] = set()
# Of threads that Python has not started, the one that has waited longest first.
_waiting: list[Waiting] = []


def marking(function: Callable[..., Any], note: Callable[[int], object]) -> Callable[..., Any]:
    """`function`, which nobody waits for: while it runs, this is known of its thread.

    Args:
      function: the function.
      note: takes the id of the thread.
    """

    def run(*args: Any) -> Any:
        thread = threading.get_ident()
        if is_inside():
            return function(*args)
        note(thread)
        _inside.is_so = True
        _functions.add(thread)
        try:
            return function(*args)
        finally:
            _inside.is_so = False
            _functions.discard(thread)

    return run


def is_inside() -> bool:
    """Whether this thread runs such a function."""
    return getattr(_inside, "is_so", False)


class Waiting:
    """A thread that waits until calls have ended."""

    def may_be_nested(self) -> bool:
        """Whether one of those that wait was started by a function that nobody waits for.

        It is told for the one that has waited longest, if more wait than Python's other threads
        can have started: each of these waits for one program at a time, or for none.
        """
        return bool(_waiting) and _waiting[0] is self and len(_waiting) > _starters()


@contextlib.contextmanager
def one_more() -> Iterator[Waiting]:
    """Counts this thread among those that wait, if Python has not started it."""
    waiting = Waiting()
    if not _is_pythons(threading.current_thread()):
        _waiting.append(waiting)
    try:
        yield waiting
    finally:
        if waiting in _waiting:
            _waiting.remove(waiting)


def forget() -> None:
    """In a forked child nobody waits."""
    _waiting.clear()
    _functions.clear()


os.register_at_fork(after_in_child=forget)


def _is_pythons(thread: threading.Thread) -> bool:
    return not isinstance(thread, threading._DummyThread)


def _starters() -> int:
    """How many threads of Python's may run a program that does not belong to such a function."""
    threads = [thread.ident for thread in threading.enumerate() if _is_pythons(thread)]
    return sum(not (thread in _functions or _waits_in_python(thread or 0)) for thread in threads)


def _waits_in_python(thread: int) -> bool:
    """Whether the thread is in Python's own library, as those are that wait for a lock or work."""
    stack = _runtime.stack_of(thread)
    file = stack[0][0].f_code.co_filename if stack else ""
    return file.startswith(_PYTHON) and not any(part in file for part in _PACKAGES)
