"""Callbacks that have to run on a thread of their own."""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Callable
from typing import Any

from hostcall_runtime import _interception, _library, _locks
from hostcall_runtime._errors import DeadlineExceededError

_runtime = _library.load("hostcall_runtime._runtime")


def within(seconds: float, function: Callable[..., Any], description: str) -> Callable[..., Any]:
    """`function`, which fails when it has not returned after so many seconds.

    Python cannot end a thread: a call that overruns goes on, and what it returns is thrown away. It
    does not keep the process alive.

    Args:
      seconds: how long a call may take.
      function: the function.
      description: what to call it in the error.

    Returns:
      A function that raises DeadlineExceededError, with the stack that the late call has then.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        started = Call(functools.partial(function, *args, **kwargs))
        try:
            return started.result(seconds)
        except _NotDoneError:
            raise DeadlineExceededError(
                f"{description} has not returned within its timeout of {seconds} s. It still runs, "
                f"and what it returns will be thrown away. This is where it was:\n{started.stack()}"
            ) from None

    return call


class _NotDoneError(Exception):
    pass


class Call:
    """A call on another thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = _interception.carried(function)
        self._done = _locks.Flag()
        self._returned: Any = None
        self._raised: BaseException | None = None
        self._thread = 0
        # The pool's threads do not keep the process alive. A new thread for each call would cost
        # more than most calls, and memory that TensorFlow keeps of every thread that it has seen.
        _runtime.call_on_pool(self._work)

    def result(self, timeout: float | None) -> Any:
        """What the call returns or raises; _NotDoneError when the time is over."""
        if not self._done.wait(timeout):
            raise _NotDoneError
        if self._raised is not None:
            raise self._raised
        return self._returned

    def stack(self) -> str:
        """Where the call is now."""
        return stack_of(self._thread, self._done.is_set())

    def _work(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._returned = self._function()
        except BaseException as error:
            self._raised = error
        finally:
            self._done.set()


def stack_of(thread: int, has_ended: bool) -> str:
    """Where a call is now.

    Args:
      thread: the id of its thread, or 0 where it has none yet.
      has_ended: whether the thread has left it.
    """
    stack = [] if has_ended else _runtime.stack_of(thread)
    summary = traceback.StackSummary.extract(iter(stack))
    summary.reverse()
    return "".join(summary.format()) or ("(it has ended)" if thread else "(it has not begun)")
