"""Errors of calls that an executor does not make: their causes and messages."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import pickle
import sys
import types
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from hostcall_runtime import _processes
from hostcall_runtime._errors import ExecutorError
from hostcall_runtime._locks import Executor, Future
from hostcall_runtime._processes import sendable


def behind(executor: Executor, error: Exception) -> Exception:
    """Return the cause of a refused call; a pool that breaks meanwhile names a closed pipe."""
    if isinstance(error, OSError) and isinstance(executor, concurrent.futures.ProcessPoolExecutor):
        return BrokenProcessPool(str(error))
    return error


MAKE_ONE = (
    "    def workers():\n"
    "        return concurrent.futures.ProcessPoolExecutor(\n"
    '            4, mp_context=multiprocessing.get_context("forkserver")\n'
    "        )\n\n"
    "    hostcall.declare(function, executor=workers)\n"
)
_BY_NAME = (
    "Another process finds a function by its module and name: define it with `def` at the top of "
    "a module. Or run it on an executor that sends functions by value, such as loky's, or in a "
    "thread. Write:\n    executor=concurrent.futures.ThreadPoolExecutor(4)"
)
_BY_VALUE = (
    "It refers to something that stays in its process, such as a lock, a file or a connection: let "
    "the function make or open that itself."
)


@dataclasses.dataclass
class Sent:
    """A call that an executor is to make; `attempts` counts this time, too."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    description: str
    timeout: float | None
    attempts: int = 1
    is_lost: bool = False


def told(sent: Sent, executor: Executor, error: BaseException, may_renew: bool) -> BaseException:
    """Return the error to raise for the exception of a future, which is never the function's."""
    if not isinstance(error, Exception):
        return error  # Ctrl-C in a worker
    if isinstance(error, concurrent.futures.BrokenExecutor):
        sent.is_lost = True
        text = _broken(sent, executor, error, may_renew)
    elif "in _sendback_result" in str(error.__cause__):
        text = (
            f"{sent.description} has run, and its worker cannot send what it returned or raised to "
            f"this process: {error}. Return arrays or numbers, and raise exceptions that can be "
            f"pickled. The executor is {name(executor)}."
        )
    else:
        text = _unsendable(sent, executor, error)
    wrong = ExecutorError(text)
    wrong.__cause__ = error
    return wrong


def refused(sent: Sent, executor: Executor, error: Exception) -> str:
    """Explain that the executor does not take the call."""
    if isinstance(error, concurrent.futures.BrokenExecutor):
        return _broken(sent, executor, error, may_renew=False)
    if isinstance(error, RuntimeError) or _processes.is_closed(executor):
        return (
            f"{name(executor)} was shut down: {str(error).rstrip('.')}. It was to run "
            f"{sent.description}. Call the program before that, or give a function that makes the "
            f"executor, which is asked for another one then:\n\n{MAKE_ONE}"
        )
    return _unsendable(sent, executor, error)


def cancelled(sent: Sent, executor: Executor, future: Future) -> str:
    """Explain that the call was cancelled."""
    text = f"The call of {sent.description} was cancelled"
    if _processes.is_dask(executor):
        if worker := _processes.lost_worker(executor, future):
            sent.is_lost = True
            return _processes.lost(sent.description, name(executor), worker)
        return (
            f"{text}: {name(executor)}, its client or its cluster was closed, or the connection to "
            "its scheduler is lost. It is unknown how far the function has come. Wait for the "
            "program before you close them."
        )
    return (
        f"{text} before {name(executor)} has begun it. Shutting an executor down with "
        "cancel_futures=True does that; wait for the program before."
    )


def name(executor: Executor) -> str:
    """Return the name of an executor in messages."""
    return f"the executor ({type(executor).__name__})"


def takes_tensors(who: str, executor: Executor) -> str:
    """Explain that a function of tensors cannot run in another process."""
    return (
        f"hostcall: {who} gives its function tensors, which stay in this process, and "
        f"{name(executor)} is not a ThreadPoolExecutor. Use "
        "executor=concurrent.futures.ThreadPoolExecutor(4), or a function of arrays: "
        "tf.numpy_function, or hostcall.callback with kind='numpy'."
    )


def _broken(sent: Sent, executor: Executor, error: BaseException, may_renew: bool) -> str:
    text = (
        f"{name(executor)} has broken, and {sent.description} has no result: {error}\n"
        "A worker ends so when it is killed, has no memory left, or cannot import the module of "
        f"the function ({getattr(sent.function, '__module__', None)}); the standard error of the "
        f"process may tell more. {_attempts(sent)}"
    )
    if may_renew:
        return f"{text}The next call has a new executor."
    return (
        f"{text}This executor makes no more calls. Give a function that makes it, so that the next "
        f"call has a new one:\n\n{MAKE_ONE}"
    )


def _attempts(sent: Sent) -> str:
    if sent.attempts > 1:
        return f"The call was made {sent.attempts} times, as often as its retries allow. "
    return (
        "It is unknown whether the function has run, and hostcall does not call it again. To have "
        "it called again, declare a pure function with retries=2. "
    )


def _unsendable(sent: Sent, executor: Executor, error: BaseException) -> str:
    text = f"{name(executor)} cannot send "
    pickler = pickler_of(executor)
    if why := _refuses(pickler, sendable(sent.function)):
        advice = _BY_NAME if pickler is pickle else _BY_VALUE
        return f"{text}the function of {sent.description}: {why}. {advice}"
    for index, value in enumerate(sent.args):
        if why := _refuses(pickler, value):
            return f"{text}argument {index} of {sent.description}: {why}. Pass arrays."
    return (
        f"{name(executor)} does not make a call of {sent.description}: {type(error).__name__}: "
        f"{error}"
    )


def pickler_of(executor: Executor) -> types.ModuleType:
    """Return the module by whose rules an executor pickles."""
    of_mpi = type(executor).__module__.startswith("mpi4py.")
    if of_mpi or isinstance(executor, concurrent.futures.ProcessPoolExecutor):
        return pickle
    return sys.modules.get("cloudpickle", pickle)  # which loky, Dask and Ray have imported


def _refuses(pickler: Any, value: object) -> str:
    try:
        pickler.dumps(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
