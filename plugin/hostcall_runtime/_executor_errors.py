"""What to say where an executor does not make a call."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import pickle
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hostcall_runtime._errors import ExecutorError
from hostcall_runtime._sent_functions import sendable

_MAKE_ONE = (
    "    def workers():\n"
    "        return concurrent.futures.ProcessPoolExecutor(\n"
    '            4, mp_context=multiprocessing.get_context("forkserver")\n'
    "        )\n\n"
    "    hostcall.declare(function, executor=workers)\n"
)
_BY_NAME = (
    "Another process finds a function by its module and name: define it with `def` at the top of "
    "a module. Or run it in a thread, executor=concurrent.futures.ThreadPoolExecutor(4), or on an "
    "executor that sends functions by value, such as loky's."
)


# Seconds for an executor to end its workers, which takes milliseconds.
_PATIENCE = 5.0


class _Provider(Protocol):
    is_made: bool

    def drop(self, executor: Any) -> bool: ...


@dataclasses.dataclass
class Sent:
    """A call that an executor is to make.

    Attributes:
      function: the user's.
      args: its arguments.
      description: what errors call it.
      timeout: how many seconds it may take, or None.
      attempts: how often it has been made, this time included.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    description: str
    timeout: float | None
    attempts: int = 1


def told(
    sent: Sent, provider: _Provider, executor: Any, error: BaseException, in_thread: bool
) -> BaseException:
    """What to raise for what a future tells of: the function's own exception, or what is wrong.

    Args:
      sent: the call.
      provider: gives the executor; it gives another one after this where that has broken.
      executor: what was to make the call.
      error: the future's exception.
      in_thread: whether what the function raises comes another way.
    """
    place = str(error.__cause__)
    in_worker = "in _process_worker" in place  # as the pools of Python and of loky call it
    of_function = error.__traceback__ is not None or in_worker
    if "in _sendback_result" in place:
        text = _unsendable_result(sent, executor, error)
    elif isinstance(error, concurrent.futures.BrokenExecutor) and (in_thread or not of_function):
        text = _broken(sent, executor, error, provider.drop(executor))
    elif "in _feed" in place and not in_worker:
        text = _unsendable(sent, executor, error)
    else:
        return error
    wrong = ExecutorError(text)
    wrong.__cause__ = error
    return wrong


def refused(sent: Sent, executor: Any, error: Exception) -> str:
    """The executor does not take the call."""
    if isinstance(error, concurrent.futures.BrokenExecutor):
        return _broken(sent, executor, error, may_renew=False)
    if isinstance(error, RuntimeError):
        return (
            f"{_name(executor)} was shut down: {error}. It was to run {sent.description}. Call the "
            "program before that, or give a function that makes the executor, which is asked for "
            f"another one then:\n\n{_MAKE_ONE}"
        )
    return _unsendable(sent, executor, error)


def cancelled(sent: Sent, executor: Any) -> str:
    """Somebody has cancelled the call."""
    return (
        f"The call of {sent.description} was cancelled before {_name(executor)} has begun it. Who "
        "shuts an executor down with cancel_futures=True does so; wait for the program before."
    )


def forked(executor: Any) -> str:
    """The executor is one of the parent process."""
    return (
        f"{_name(executor)} belongs to the process that this one was forked from, and its threads "
        "are not here. Give a function that makes the executor, which each process calls for "
        f"itself:\n\n{_MAKE_ONE}"
    )


def no_executor(maker: Any, made: Any) -> str:
    """The user's function has made something else."""
    return (
        f"executor={maker!r} is called to make an executor, and returned {made!r}, which has no "
        f"`submit`. Return one:\n\n{_MAKE_ONE}"
    )


def is_none(given: Any) -> str:
    """What the user gives is no executor."""
    return (
        f"hostcall: executor={given!r} is neither an executor (an object with the methods of "
        "concurrent.futures.Executor) nor a function that makes one. Write "
        "executor=concurrent.futures.ThreadPoolExecutor(4), for one."
    )


def is_client(given: Any) -> str:
    """What the user gives has an executor."""
    return (
        f"hostcall: executor={given!r} is no executor, but has one. Write "
        "executor=client.get_executor(pure=False)."
    )


def takes_tensors(who: str, executor: Any) -> str:
    """A function of tensors was to run in another process."""
    return (
        f"hostcall: {who} gives its function tensors, which stay in this process, and "
        f"{_name(executor)} is no ThreadPoolExecutor. Use "
        "executor=concurrent.futures.ThreadPoolExecutor(4), or a function of arrays: "
        "tf.numpy_function, or hostcall.callback with kind='numpy'."
    )


def _broken(sent: Sent, executor: Any, error: BaseException, may_renew: bool) -> str:
    ended = _ended(executor)
    text = f"{_name(executor)} has broken, and {sent.description} has no result: {error}\n"
    text += f"{ended}\n" if ended else ""
    text += (
        "A worker ends so when it is killed, has no memory left, or cannot import the module of "
        f"the function ({getattr(sent.function, '__module__', None)}); the standard error of the "
        f"process may tell more. {_attempts(sent)}"
    )
    if may_renew:
        return f"{text}The next call has a new executor."
    return (
        f"{text}This executor makes no more calls. Give a function that makes it, so that the next "
        f"call has a new one:\n\n{_MAKE_ONE}"
    )


def lost_worker(error: BaseException) -> bool:
    """Whether an ExecutorError says that a worker has died during the call."""
    cause = error.__cause__
    return isinstance(cause, concurrent.futures.BrokenExecutor)


def _attempts(sent: Sent) -> str:
    if sent.attempts > 1:
        return f"The call was made {sent.attempts} times, as often as its retries allow. "
    return (
        "Nobody knows whether the function has run, and hostcall does not call it again: that is "
        "for pure functions alone, with retries=2, for one. "
    )


def _ended(executor: Any) -> str:
    """Which workers have ended of themselves; a pool that breaks ends the others by SIGTERM."""
    workers = getattr(executor, "_processes", None)
    manager = getattr(executor, "_executor_manager_thread", None)
    if not isinstance(workers, Mapping) or not isinstance(manager, threading.Thread):
        return ""
    # It ends as soon as it knows how each has ended, which two threads must not ask at once.
    manager.join(_PATIENCE)
    if manager.is_alive():
        return ""
    codes = {pid: getattr(worker, "exitcode", None) for pid, worker in list(workers.items())}
    how = {pid: code for pid, code in codes.items() if code not in (None, -signal.SIGTERM)}
    return " ".join(f"Its worker process {pid} {_manner(code)}." for pid, code in how.items())


def _manner(code: Any) -> str:
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except (TypeError, ValueError):
        return f"has ended with status {code}"


def _unsendable(sent: Sent, executor: Any, error: BaseException) -> str:
    text = f"{_name(executor)} cannot send "
    try:
        pickle.dumps(sendable(sent.function))
    except Exception:
        return f"{text}the function of {sent.description}: {error}. {_BY_NAME}"
    for index, value in enumerate(sent.args):
        try:
            pickle.dumps(value)
        except Exception:
            return f"{text}argument {index} of {sent.description}: {error}. Pass arrays."
    return (
        f"{_name(executor)} does not make a call of {sent.description}: {type(error).__name__}: "
        f"{error}."
    )


def _unsendable_result(sent: Sent, executor: Any, error: BaseException) -> str:
    return (
        f"{sent.description} has run, and its worker cannot send what it returned or raised to "
        f"this process: {error}. Return arrays or numbers, and raise exceptions that can be "
        f"pickled. The executor is {_name(executor)}."
    )


def _name(executor: Any) -> str:
    return f"the executor ({type(executor).__name__})"
