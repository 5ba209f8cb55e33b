"""Calls on Dask's executors: each call begins at most once.

Dask runs a task again if its worker has died, or if its result was lost with the worker that held
it. So a worker asks Dask's scheduler before it calls the function. A plugin of the scheduler knows
which calls have begun, and cancels those whose worker is lost. Workers and scheduler need no
hostcall: cloudpickle sends all the code.
"""

from __future__ import annotations

import functools
import pickle
import uuid
import weakref
from collections.abc import Callable
from typing import Any

from hostcall_runtime import _locks, _processes
from hostcall_runtime._locks import Executor, Future

_lock = _locks.new_lock()
# The clients whose scheduler has the plugin.
_prepared: weakref.WeakSet[Any] = weakref.WeakSet()
# Dask's key for the task of each future that is in use.
_keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def is_dask(executor: Executor) -> bool:
    """Return whether an executor is one of Dask's."""
    return type(executor).__module__.startswith("distributed.")


def client_of(executor: Executor) -> Any:
    """Return the client of one of Dask's executors; None for other executors."""
    return executor._client if is_dask(executor) else None


def is_closed(executor: Executor) -> bool:
    """Return whether it is a Dask executor whose client is closed or has lost its scheduler."""
    return is_dask(executor) and getattr(executor._client, "status", "") != "running"


def submit(executor: Executor, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Submit a call, and return its future; the result is an answer for `_processes.opened`."""
    client = executor._client
    if not is_closed(executor):  # else Dask reports the fault when it is given the call
        with _lock:
            if client not in _prepared:
                client.register_plugin(_plugin())
                _prepared.add(client)
    # Dask merges tasks with one key. Its dashboard shows the part before the last hyphen.
    key = f"{getattr(function, '__name__', 'hostcall')}-{uuid.uuid4().hex}"
    future = executor.submit(_run_once(), function, *args, key=key, retries=0)
    _keys[future] = key
    return future


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

        self.__name__ = function.__name__
        cloudpickle.register_pickle_by_value(_processes)
        try:
            self._packed = cloudpickle.dumps(function)
        finally:
            cloudpickle.unregister_pickle_by_value(_processes)

    def __reduce__(self) -> Any:
        return pickle.loads, (self._packed,)

    def __call__(self, *args: Any) -> Any:
        """Fail: the method exists since Dask checks that the object is callable."""
        raise AssertionError("a worker has the function in its place")


def _run_once() -> Callable[..., Any]:
    with _lock:  # a module's registration in cloudpickle is for all threads
        return _packed_once()


@functools.cache
def _packed_once() -> Callable[..., Any]:
    return _ByValue(_processes.run_once_on_dask)


# The classes are within functions, since cloudpickle sends local classes by value.
def _plugin() -> Any:
    class HostcallPlugin(_calls_that_begin()):  # type: ignore[misc]
        name = "hostcall"
        idempotent = True

        def remove_worker(self, scheduler: Any, worker: str, **how: Any) -> None:
            """End calls that must not be made again, even if no worker is left to report them."""
            for key, (address, by) in list(self.begun.items()):
                task = scheduler.tasks.get(key)
                if address == worker and task is not None and task.state not in ("memory", "erred"):
                    for client in [client.client_key for client in task.who_wants]:
                        scheduler.stimulus_cancel([key], client, False, "lost", by)

    return HostcallPlugin()


def _calls_that_begin() -> Any:
    from distributed.diagnostics.plugin import SchedulerPlugin

    class CallsThatBegin(SchedulerPlugin):  # type: ignore[misc]
        async def start(self, scheduler: Any) -> None:
            # By the key of the call: the worker's address, and its name in messages.
            self.begun: dict[Any, tuple[str, str]] = {}
            self.tasks = scheduler.tasks
            scheduler.handlers["hostcall_begin"] = self.begin

        def transition(self, key: Any, start: str, finish: str, *args: Any, **how: Any) -> None:
            if finish == "forgotten":
                self.begun.pop(key, None)

        def begin(self, key: Any, address: str, by: str) -> str | None:
            """Note who begins a call; return who has begun it before, or that it is over."""
            if key not in self.tasks:
                return "(it was cancelled)"
            earlier = self.begun.get(key)
            if earlier is not None:
                return earlier[1]
            self.begun[key] = (address, by)
            return None

    return CallsThatBegin
