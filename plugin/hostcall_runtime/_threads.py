"""Calls on a thread of their own, so that the caller can stop waiting for them."""

from __future__ import annotations

import functools
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from hostcall_runtime import _errors, _interception, _library, _locks
from hostcall_runtime._errors import DeadlineExceededError

_runtime = _library.load("hostcall_runtime._runtime")


def within(seconds: float, function: Callable[..., Any], description: str) -> Callable[..., Any]:
    """Wrap `function` so that it fails, with its current stack, if it takes over `seconds`."""
    # Python cannot end a thread: a call that overruns goes on, and its result is thrown away. It
    # does not keep the process alive.

    def call(*args: Any, **kwargs: Any) -> object:
        return ThreadCall(functools.partial(function, *args, **kwargs)).result(seconds, description)

    return call


class Work:
    """A call that another thread makes for this one, with the settings of this one."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
        self._work: tuple[Callable[..., Any], tuple[Any, ...]] | None
        self._work = _interception.carried(function), args
        self._thread = 0
        self._has_ended = False
        self._returned: Any = None
        self.raised: BaseException | None = None

    def __call__(self) -> None:
        self._thread = threading.get_ident()
        assert self._work is not None
        function, args = self._work
        self._work = None  # only the function holds the arguments
        try:
            self._returned = function(*args)
        except BaseException as error:
            self.raised = error
        finally:
            self._has_ended = True

    @property
    def has_begun(self) -> bool:
        """True if the call runs or has run."""
        return self._work is None

    def outcome(self) -> object:
        """Return or raise the outcome of the call, which has ended."""
        if self.raised is not None:
            raised, self.raised = self.raised, None
            try:
                raise raised
            finally:
                del raised  # it refers to this frame
        return self._returned

    def stack(self) -> str:
        """Return the current stack of the call."""
        return stack_of(self._thread, self._has_ended)


class ThreadCall(Work):
    """A call on a thread of the runtime's pool."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(function)
        self._done = _locks.Flag()
        self._began = time.monotonic()
        # The pool's threads do not keep the process alive. A new thread would cost more than most
        # calls do, and TensorFlow keeps memory for every thread that it has seen.
        _runtime.call_on_pool(self)

    def __call__(self) -> None:
        super().__call__()
        self._done.set()

    def result(self, timeout: float | None = None, description: str = "") -> object:
        """Return or raise the call's outcome; raise an error when the time is over."""
        if not self._done.wait(timeout):
            raise DeadlineExceededError(
                f"{description} has not returned within its timeout of {timeout} s. It still runs, "
                "and what it returns will be thrown away. "
                f"{more_time(timeout)} This is where it was:\n{self.stack()}"
            )
        # Where other threads keep Python busy, this one may have seen the end before its time.
        took = self._done.set_at - self._began
        if timeout is not None and took > timeout:
            raise DeadlineExceededError(late(description, timeout, took))
        return self.outcome()


def late(description: str, timeout: float, took: float) -> str:
    """Return the message about a call that has returned, but too late."""
    return (
        f"{description} has not returned within its timeout of {timeout} s. It took {took:.3g} s, "
        f"and its result is thrown away. {more_time(timeout)}"
    )


def more_time(timeout: float | None) -> str:
    """Return the remedy for a call that overran its timeout."""
    longer = 10.0 * (timeout or 0.0)
    return f"If the function may need longer, declare timeout={longer:g}."


def stack_of(thread: int, has_ended: bool) -> str:
    """Return the current stack of a call as text; its thread is 0 if it has not begun."""
    stack = [] if has_ended else _runtime.stack_of(thread)
    summary = traceback.StackSummary.extract(iter(_of_user(stack)))
    summary.reverse()
    return "".join(summary.format()).rstrip() or (
        "(it has ended)" if thread else "(it has not begun)"
    )


def _of_user(stack: list[Any]) -> list[Any]:
    """Return a stack, the innermost frames first, without those that have led to the function."""
    own = [_errors.is_own(frame.f_code.co_filename) for frame, _ in stack]
    if True not in own:
        return stack
    end = len(own) - 1 - own[::-1].index(True)  # the outermost frame of hostcall's
    while end >= 0 and own[end]:
        end -= 1
    return stack[: end + 1] or stack
