"""Functions in other processes: how they are sent, called and answered.

Executors differ in how they treat an exception, or a result that cannot be sent: by an error of
their own, a dead worker, or a call that never ends. So a worker sends only what is certain to
arrive: a result, or an answer with the reason for its absence. Only executors make a future fail.

Dask's workers may lack hostcall: `run_once_on_dask` and the functions that it calls use none of it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import importlib
import operator
import os
import pickle
import sys
import time
import traceback
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from hostcall_runtime import _locks
from hostcall_runtime._errors import ExecutorError
from hostcall_runtime._keyword_call import KeywordCall
from hostcall_runtime._locks import Executor, Future


def sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, or a reference to it if its name now stands for a callback made of it."""
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
    if getattr(found_by_name(function), "__hostcall_function__", None) is function:
        return DecoratedFunction(function.__module__, function.__qualname__)
    return function


def found_by_name(function: object) -> object:
    """Return the object to which a function's module and qualname lead now, or None."""
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return None
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def has_its_name(function: object) -> bool:
    """Return whether a function's name leads to it, or to the callback that was made of it."""
    found = found_by_name(function)
    return found is not None and getattr(found, "__hostcall_function__", found) is function


@dataclasses.dataclass(frozen=True)
class DecoratedFunction:
    """A reference to the function of a callback that `@hostcall.callback` leaves in a module."""

    module: str
    name: str

    def __call__(self, *args: Any, **by_name: Any) -> object:
        """Call the function."""
        return _function_of(self.module, self.name)(*args, **by_name)

    @property
    def __name__(self) -> str:
        return self.name


@functools.cache
def _function_of(module: str, name: str) -> Callable[..., Any]:
    callback = operator.attrgetter(name)(importlib.import_module(module))
    function: Callable[..., Any] = callback.__hostcall_function__
    return function


class WorkerTracebackError(Exception):
    """The traceback of an exception that a function has raised in a worker."""

    def __str__(self) -> str:
        return f"in a worker of an executor\n\n{self.args[0]}"


def opened(answer: object, description: str, executor: str) -> object:
    """Return the function's result from what the worker has sent, or raise its exception."""
    kind, rest = _read(answer)
    if not kind:
        return answer
    if kind == RAN:
        return opened(rest[0], description, executor)
    if kind == BEGUN:
        raise ExecutorError(lost(description, executor, *rest))
    if kind == UNSENDABLE:
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


def times(answer: object) -> tuple[float, float] | None:
    """Return the times of the call and of its end, by the worker's clock; None if not known."""
    kind, rest = _read(answer)
    return (rest[1], rest[2]) if kind == RAN else None


def is_lost(answer: object) -> bool:
    """Return whether the worker that had begun the call has died."""
    return _read(answer)[0] == BEGUN


def _read(answer: Any) -> tuple[str, list[Any]]:
    """Return the kind of an answer, and the values after it; the kind of a result is ""."""
    is_answer = type(answer) is tuple and len(answer) > 1 and isinstance(answer[0], str)
    if not is_answer or answer[0] != MARK:
        return "", []
    return answer[1], list(answer[2:])


def lost(description: str, executor: str, worker: str) -> str:
    """Explain that a call had begun on a worker that is gone."""
    return (
        f"The worker {worker} of {executor} has begun a call of {description}, and was lost before "
        "its result was here. A worker is lost so when it is killed or has no memory left; its log "
        "may tell more. It is unknown how far the function has come, and hostcall does not call it "
        "again. The next call has the workers that are left, or that come."
    )


def _unsendable(description: str, executor: str, what: str, why: str, text: str) -> str:
    end = f"\n\n{text}" if text else ""
    return (
        f"{description} has {what}, and its worker cannot send that to this process: {why}. Return "
        "arrays or numbers, and raise exceptions that can be pickled and read again. It ran on "
        f"{executor}.{end}"
    )


# The first item of an answer, which is a tuple: any worker can make and send one.
MARK = "hostcall: no result"
# The kinds, and the values after them: the exception as bytes and its traceback; the object that
# could not be sent, why, and the traceback or ""; the worker that has begun the call before; a
# result or an answer, and the times of the call and of its end, by the worker's clock.
RAISED, UNSENDABLE, BEGUN, RAN = "raised", "unsendable", "begun", "ran"

_PLAIN = (np.generic, int, float, complex, str, bytes, type(None))


def run(function: Callable[..., Any], *args: Any) -> object:
    """Call the function; return its result, or an answer."""
    try:
        value = function(*map(_own, args))
    except BaseException as error:
        trace = error.__traceback__ and error.__traceback__.tb_next  # from the function on
        text = "".join(traceback.format_exception(type(error), error, trace))
        try:
            return MARK, RAISED, _sent(error), text
        except Exception as why:
            return MARK, UNSENDABLE, f"raised {type(error).__name__}", repr(why), text
    try:
        if not _is_plain(value):
            _sent(value)
    except Exception as why:
        return MARK, UNSENDABLE, f"returned a {type(value).__name__}", repr(why), ""
    return value


def run_once_on_dask(function: Callable[..., Any], *args: Any) -> object:
    """Do the same as `run` in a Dask worker, unless another worker has begun the call."""
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    this = {"address": worker.address, "by": f"{worker.address} (process {os.getpid()})"}
    key = worker.get_current_task()
    earlier = sync(worker.loop, worker.scheduler.hostcall_begin, key=key, **this)
    if earlier is not None:
        return MARK, BEGUN, earlier
    began = time.monotonic()
    value = run(function, *args)
    return MARK, RAN, value, began, time.monotonic()


def _own(value: Any) -> object:
    """Copy read-only arrays, which some executors lend: the function may write to arguments."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    if type(value) in (list, tuple):
        return type(value)(map(_own, value))
    if type(value) is dict:
        return {key: _own(item) for key, item in value.items()}
    return value


def _is_plain(value: Any) -> bool:
    """Return whether any executor can send the value, as is true of almost all results."""
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    if type(value) is np.ndarray:
        return not value.dtype.hasobject
    return isinstance(value, _PLAIN)


def _sent(value: object) -> bytes:
    """Return the value as bytes, after a check that they can be read."""
    # The executors that send with cloudpickle have imported it.
    packed: bytes = sys.modules.get("cloudpickle", pickle).dumps(value)
    pickle.loads(packed)
    return packed


# Dask runs a task again if its worker has died, or if its result was lost with the worker. So a
# worker asks Dask's scheduler before it calls the function. A plugin of the scheduler knows which
# calls have begun, and cancels those whose worker is lost. Workers and scheduler need no hostcall:
# cloudpickle sends all the code.

_lock = _locks.new_lock()
# The clients whose scheduler has the plugin.
_prepared: weakref.WeakSet[Any] = weakref.WeakSet()
# Dask's key for the task of each future that is in use.
_keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def is_dask(executor: Executor) -> bool:
    """Return whether an executor is one of Dask's."""
    return type(executor).__module__.startswith("distributed.")


def client_of(executor: Executor) -> object:
    """Return the client of one of Dask's executors; None for other executors."""
    return executor._client if is_dask(executor) else None


def is_closed(executor: Executor) -> bool:
    """Return whether it is a Dask executor whose client is closed or has lost its scheduler."""
    return is_dask(executor) and getattr(executor._client, "status", "") != "running"


def submit(executor: Executor, function: Callable[..., Any], args: tuple[Any, ...]) -> Future:
    """Submit a call, and return its future; the result is an answer for `opened`."""
    client = executor._client
    if not is_closed(executor):  # else Dask reports the fault when it is given the call
        with _lock:
            if client not in _prepared:
                client.register_plugin(_plugin())
                _prepared.add(client)
    # Dask merges tasks with one key. Its dashboard shows the part before the last hyphen.
    key = f"{getattr(function, '__name__', 'hostcall')}-{uuid.uuid4().hex}"
    future = _submitted(executor, _run_once(), function, *args, key=key)
    _keys[future] = key
    return future


def _submitted(executor: Any, *call: Any, key: str) -> Future:
    """Do as the `submit` of one of Dask's executors, whose futures may stay pending for ever."""
    if executor._shutdown:
        raise RuntimeError("cannot schedule new futures after shutdown")
    task = executor._client.submit(*call, **executor._kwargs | {"key": key, "retries": 0})
    executor._futures.add(task)
    future: Future = concurrent.futures.Future()

    def cancel_task(done: Future) -> None:
        if done.cancelled() and task.status != "cancelled":
            task.cancel()

    future.add_done_callback(cancel_task)
    executor._client.loop.add_callback(_copy_outcome, task, future)
    return future


async def _copy_outcome(task: Any, future: Future) -> None:
    """Give a future the outcome of a task of Dask's, when it has one."""
    try:
        outcome = await task._result(raiseit=False)
        status = task.status
    except Exception:
        status = "cancelled"  # for example with its client, while the result was fetched
    if future.cancelled():
        return
    if status == "finished":
        future.set_result(outcome)
    elif status == "cancelled":
        future.cancel()
        future.set_running_or_notify_cancel()  # for those who wait
    else:
        future.set_exception(outcome[1].with_traceback(outcome[2]))


def lost_worker(executor: Executor, future: Future) -> str:
    """Return the worker with which a cancelled call was lost; "" if no worker was lost."""
    key = _keys.get(future)
    for one in list(executor._futures):  # Dask's own future holds the reason
        error: Any = getattr(getattr(one, "_state", None), "exception", None)
        if one.key == key and getattr(error, "reason", None) == "lost":
            return str(error.msg)
    return ""


class _ByValue:
    """A function that is pickled by value, so that a worker does not need its module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import cloudpickle

        this = sys.modules[__name__]
        self.__name__ = function.__name__
        cloudpickle.register_pickle_by_value(this)
        try:
            self._packed = cloudpickle.dumps(function)
        finally:
            cloudpickle.unregister_pickle_by_value(this)

    def __reduce__(self) -> tuple[object, ...]:
        return pickle.loads, (self._packed,)

    def __call__(self, *args: Any) -> NoReturn:
        """Fail: the method exists since Dask checks that the object is callable."""
        raise AssertionError("a worker has the function in its place")


@functools.cache
def _run_once() -> Callable[..., Any]:
    with _lock:  # a module's registration in cloudpickle is for all threads
        return _ByValue(run_once_on_dask)


def _plugin() -> object:
    from distributed.diagnostics.plugin import SchedulerPlugin

    # A local class, since cloudpickle sends these by value.
    class HostcallPlugin(SchedulerPlugin):  # type: ignore[misc]
        name = "hostcall"
        idempotent = True

        async def start(self, scheduler: Any) -> None:
            # By the key of the call: the worker's address until the call has ended, and its name
            # in messages.
            self.begun: dict[Any, tuple[str, str]] = {}
            self.tasks = scheduler.tasks
            scheduler.handlers["hostcall_begin"] = self.begin

        def transition(self, key: object, start: str, finish: str, *args: Any, **how: Any) -> None:
            has_ended = finish in ("memory", "erred", "forgotten")
            begun = self.begun.pop(key, None) if has_ended else None
            if begun is not None and finish != "forgotten":
                self.begun[key] = "", begun[1]

        def begin(self, key: object, address: str, by: str) -> str | None:
            """Note who begins a call; return who has begun it before, or that it is over."""
            if key not in self.tasks:
                return "(it was cancelled)"
            mine = address, by
            known = self.begun.setdefault(key, mine)
            return None if known is mine else known[1]

        def remove_worker(self, scheduler: Any, worker: str, **how: Any) -> None:
            """End calls that must not be made again, even if no worker is left to report them."""
            # Not those that have ended: where the result is lost, Dask makes the call again, and
            # `begin` ends it.
            for key, (address, by) in list(self.begun.items()):
                task = scheduler.tasks.get(key)
                if address == worker and task is not None:
                    for client in list(task.who_wants):
                        scheduler.stimulus_cancel([key], client.client_key, False, "lost", by)

    return HostcallPlugin()
