"""Calls on the executors of Dask, each of which begins once at most.

Dask runs a task again where its worker has died, and where its result was lost with the worker that
held it. So a worker asks Dask's scheduler before it calls the function: a plugin of the scheduler's
knows which calls have begun, and cancels those whose worker is lost. Workers and scheduler need no
hostcall: cloudpickle sends all of it.
"""

from __future__ import annotations

import functools
import os
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
# In a forked child: those of its parent, whose threads are not here.
_of_parent: weakref.WeakSet[Any] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: _of_parent.update(list(_prepared)))
# Of futures that somebody waits for, what Dask calls their tasks.
_keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def is_dask(executor: Executor) -> bool:
    """Whether an executor is one of Dask's."""
    return type(executor).__module__.startswith("distributed.")


def is_closed(executor: Executor) -> bool:
    """Whether it is an executor of Dask's whose client is closed or has lost its scheduler."""
    return is_dask(executor) and getattr(executor._client, "status", "") != "running"


def submit(executor: Executor, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The future of a call; it comes to an answer for `_worker_calls.opened`."""
    client = executor._client
    if not is_closed(executor):  # else Dask says what is wrong when it is given the call
        with _lock:
            if client not in _prepared:
                client.register_plugin(_plugin())
                _prepared.add(client)
    # Dask takes tasks of one key for one. Its dashboard shows what comes before the last hyphen.
    key = f"{getattr(function, '__name__', 'hostcall')}-{uuid.uuid4().hex}"
    future = executor.submit(_run_once(), function, *args, key=key, retries=0)
    _keys[future] = key
    return future


def lost_worker(executor: Executor, future: Future) -> str:
    """The worker with which a call was lost that is cancelled; "" where there is none."""
    key = _keys.get(future)
    for one in list(executor._futures):  # of which Dask's own holds the reason
        error: Any = getattr(getattr(one, "_state", None), "exception", None)
        if one.key == key and getattr(error, "reason", None) == "lost":
            return str(error.msg)
    return ""


def is_of_parent(executor: Executor) -> bool:
    """Whether its client has been used before this process was forked."""
    return is_dask(executor) and executor._client in _of_parent


class _ByValue:
    """A function, which a worker gets without looking for its module."""

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
        """Dask asks whether it is callable."""
        raise AssertionError("a worker has the function in its place")


def _run_once() -> Callable[..., Any]:
    with _lock:  # cloudpickle knows a module as registered, or does not, for all threads
        return _packed_once()


@functools.cache
def _packed_once() -> Callable[..., Any]:
    return _ByValue(_processes.run_once_on_dask)


# Classes within functions, since cloudpickle sends such as they are.
def _plugin() -> Any:
    class HostcallPlugin(_calls_that_begin()):  # type: ignore[misc]
        name = "hostcall"
        idempotent = True

        def remove_worker(self, scheduler: Any, worker: str, **how: Any) -> None:
            """Ends calls that nobody may make again, also where no worker is left to say so."""
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
            # By the key of the call: the worker's address, and what to call the worker.
            self.begun: dict[Any, tuple[str, str]] = {}
            self.tasks = scheduler.tasks
            scheduler.handlers["hostcall_begin"] = self.begin

        def transition(self, key: Any, start: str, finish: str, *args: Any, **how: Any) -> None:
            if finish == "forgotten":
                self.begun.pop(key, None)

        def begin(self, key: Any, address: str, by: str) -> str | None:
            """Notes who begins a call; returns who has begun it before, or that it is over."""
            if key not in self.tasks:
                return "(it was cancelled)"
            earlier = self.begun.get(key)
            if earlier is not None:
                return earlier[1]
            self.begun[key] = (address, by)
            return None

    return CallsThatBegin
