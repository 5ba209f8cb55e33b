"""Calls in the workers of executors: what is sent, and what the answers of workers mean."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

from hostcall_runtime import _worker_side
from hostcall_runtime._errors import ExecutorError


@dataclasses.dataclass(frozen=True)
class InWorker:
    """What calls a function in a worker that can import hostcall_runtime.

    Attributes:
      function: the function.
    """

    function: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        """Calls the function; returns its result, or an answer for `opened`."""
        return _worker_side.run(self.function, *args)


class WorkerTracebackError(Exception):
    """Holds the traceback of an exception that a function has raised in a worker."""

    def __str__(self) -> str:
        return f"in a worker of an executor\n\n{self.args[0]}"


def opened(answer: Any, description: str, executor: str) -> Any:
    """What the function has returned.

    Args:
      answer: what the worker has sent.
      description: what to call the call in errors.
      executor: what to call the executor.

    Raises:
      BaseException: what the function has raised.
      ExecutorError: when there is no result for another reason.
    """
    kind, rest = _read(answer)
    if not kind:
        return answer
    if kind == _worker_side.RAN:
        return opened(rest[0], description, executor)
    if kind == _worker_side.BEGUN:
        raise ExecutorError(lost(description, executor, *rest))
    if kind == _worker_side.UNSENDABLE:
        raise ExecutorError(_unsendable(description, executor, *rest))
    packed, text = rest
    try:
        error = pickle.loads(packed)
    except Exception as why:
        raised = f"raised {text.rstrip().rpartition(chr(10))[2]}"
        raise ExecutorError(_unsendable(description, executor, raised, repr(why), text)) from why
    error.__cause__ = WorkerTracebackError(text)
    try:
        raise error
    finally:
        del error  # it refers to this frame


def times(answer: Any) -> tuple[float, float] | None:
    """When the function was called and has returned, by the worker's clock; None if not said."""
    kind, rest = _read(answer)
    return (rest[1], rest[2]) if kind == _worker_side.RAN else None


def is_lost(answer: Any) -> bool:
    """Whether the worker that had begun the call has died."""
    return _read(answer)[0] == _worker_side.BEGUN


def _read(answer: Any) -> tuple[str, list[Any]]:
    """Its kind, and what follows; "" for a result."""
    is_answer = type(answer) is tuple and len(answer) > 1 and isinstance(answer[0], str)
    if not is_answer or answer[0] != _worker_side.MARK:
        return "", []
    return answer[1], list(answer[2:])


def lost(description: str, executor: str, worker: str) -> str:
    """What to say of a call that has begun on a worker that is gone."""
    return (
        f"The worker {worker} of {executor} has begun a call of {description}, and was lost before "
        "its result was here. A worker is lost so when it is killed or has no memory left; its log "
        "may tell more. Nobody knows how far the function has come, and hostcall does not call it "
        "again. The next call has the workers that are left, or that come."
    )


def _unsendable(description: str, executor: str, what: str, why: str, text: str) -> str:
    end = f"\n\n{text}" if text else ""
    return (
        f"{description} has {what}, and its worker cannot send that to this process: {why}. Return "
        "arrays or numbers, and raise exceptions that can be pickled and read again. It ran on "
        f"{executor}.{end}"
    )
