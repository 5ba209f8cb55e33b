"""`wait=False`: calls of functions without results, for which no program waits.

The program hands over what a function is to be called with, and goes on. The calls run one by one,
in the order in which they were handed over.
"""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Callable
from typing import Any

from hostcall_runtime import (
    _at_exit,
    _call_queue,
    _interception,
    _late_errors,
    _waiting_threads,
)
from hostcall_runtime._unawaited_calls import DROP_OLDEST, WAIT, Call, Line

USUAL_SIZE = 16


def line_for(wait: object, queue: object, when_full: object) -> Line | None:
    """A new line for the calls of a function, or None where programs wait for them.

    Args:
      wait: as in `hostcall.declare`.
      queue: likewise.
      when_full: likewise.

    Raises:
      TypeError: when `wait` is no bool.
      ValueError: when `queue` is no positive number, there is no such `when_full`, or programs wait
        and one of the two is given.
    """
    if not isinstance(wait, bool):
        raise TypeError(f"hostcall: wait={wait!r} is neither True nor False.")
    if when_full not in (WAIT, DROP_OLDEST):
        raise ValueError(
            f'hostcall: when_full={when_full!r} is neither "{WAIT}" nor "{DROP_OLDEST}".'
        )
    if wait:
        for name, value, usual in (("queue", queue, None), ("when_full", when_full, WAIT)):
            if value != usual:
                raise ValueError(
                    f"hostcall: {name}={value!r} is for calls that nobody waits for. Write "
                    f"wait=False, {name}={value!r}, or take it away."
                )
        return None
    if queue is None:
        return Line(USUAL_SIZE, str(when_full))
    if not isinstance(queue, numbers.Integral) or isinstance(queue, bool) or queue <= 0:
        raise ValueError(f"hostcall: queue={queue!r} is no positive number of calls.")
    return Line(int(queue), str(when_full))


# For functions that are declared anew wherever they are called, as by `hostcall.jax.call`.
_lines_of: weakref.WeakValueDictionary[tuple[object, ...], _LineOf] = weakref.WeakValueDictionary()


class _LineOf(Line):
    """A line that keeps its function, whose id nothing else can have meanwhile."""

    def __init__(self, function: Callable[..., Any], like: Line) -> None:
        super().__init__(like.size, like.when_full)
        self.function = function


def line_of(
    function: Callable[..., Any], wait: object, queue: object, when_full: object
) -> Line | None:
    """As `line_for`, and the same one each time for the same function."""
    new = line_for(wait, queue, when_full)
    if new is None:
        return None
    key = id(function), new.size, new.when_full
    known = _lines_of.get(key)
    if known is None:
        known = _lines_of[key] = _LineOf(function, new)
    return known


def marking(line: Line, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of whose calls it is known in this process that nobody waits for them."""

    def note(thread: int) -> None:
        line.thread = thread

    return _waiting_threads.marking(function, note)


def handing_over(
    line: Line, function: Callable[..., Any], provider: Any, description: str, label: str
) -> Callable[..., None]:
    """What a program calls in the place of a function whose calls it does not wait for.

    Args:
      line: the calls of the function.
      function: makes a call: the user's function, on an executor and within its timeout where there
        are such.
      provider: gives the executor, or None.
      description: the function and the call, as errors name them.
      label: the function.

    Returns:
      A function that raises what earlier calls have raised.
    """
    line.label = label

    def hand_over(*args: Any) -> None:
        _late_errors.raise_all(_late_errors.take(line))
        queue = _call_queue.queue_of(provider)
        _at_exit.prepare(queue, provider)
        queue.put(Call(line, _interception.carried(function), args, description))

    return hand_over


def barrier(timeout: float | None = None) -> None:
    """Waits until all calls that were handed over before have ended.

    These are the calls of functions with `wait=False`, in TensorFlow's programs and JAX's. Errors
    that nobody was told of are raised here.

    Args:
      timeout: how many seconds to wait, or None.

    Raises:
      TimeoutError: when the time is over. The calls go on.
      RuntimeError: when one of these calls is the caller, which would wait for itself.
      Exception: what a call has raised, as the object that it was; several are raised as an
        `ExceptionGroup`.

    Examples:
      >>> losses = []
      >>> @hostcall.callback(result=[], wait=False)
      ... def log(loss):
      ...     losses.append(float(loss))
      >>> @tf.function(jit_compile=True)
      ... def step(x):
      ...     log(x * x)
      ...     return x + 1.0
      >>> x = step(step(1.0))
      >>> hostcall.barrier()
      >>> losses
      [1.0, 4.0]
    """
    if _waiting_threads.is_inside():
        raise RuntimeError(_late_errors.INSIDE)
    _at_exit.finish_programs()
    unfinished = _call_queue.wait_for(_call_queue.latest(), timeout)
    if unfinished:
        raise TimeoutError(
            f"hostcall.barrier() has waited for {timeout} s. {_at_exit.described(unfinished)}"
        )
    _late_errors.raise_all(_late_errors.take())
