"""Calls on executors, from `submit` until there is a result, or none can come any more."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from hostcall_runtime import (
    _crowded_pools,
    _dask_calls,
    _dead_workers,
    _executor_errors,
    _executor_stats,
    _interception,
    _interrupts,
    _parcels,
    _threads,
    _worker_calls,
)
from hostcall_runtime._errors import DeadlineExceededError, ExecutorError
from hostcall_runtime._executor_errors import Sent
from hostcall_runtime._executor_providers import Provider, has_threads
from hostcall_runtime._executor_types import Executor, Future
from hostcall_runtime._sent_functions import sendable
from hostcall_runtime._worker_calls import InWorker

# Seconds after which it is asked whether somebody still knows of a call.
_PERIOD = 2.0


class Callee(Protocol):
    """A function whose calls an executor makes: see `_executors.Callee`."""

    @property
    def provider(self) -> Provider: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def description(self) -> str: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def threads_only(self) -> bool: ...
    @property
    def retries(self) -> int: ...
    @property
    def lends(self) -> bool: ...
    @property
    def label(self) -> str: ...
    @property
    def local(self) -> Callable[..., Any]: ...
    @property
    def at_once(self) -> Callable[..., Any]: ...


def runs_here(provider: Provider) -> bool:
    """Whether this is a thread of the executor's own."""
    return getattr(_own, "provider", None) is provider


class StartedCall:
    """A call that an executor makes."""

    def __init__(self, callee: Callee, args: tuple[Any, ...]) -> None:
        self._callee = callee
        self._sent = Sent(callee.function, args, callee.description, callee.timeout)
        self._deadline = None if callee.timeout is None else time.monotonic() + callee.timeout
        self._future: Any = None  # of a call that goes on, or has returned
        self._parcel: _parcels.Parcel | None = None
        self._watch = _executor_stats.watch(callee.label or callee.description)
        try:
            self._submit()
        except BaseException:
            self.cancel()
            raise

    def result(self) -> Any:
        """What the call returns or raises; made again where its worker has died and it may be."""
        try:
            while True:
                try:
                    return self._returned()
                except ExecutorError:
                    if self._sent.attempts > self._callee.retries or not self._sent.is_lost:
                        raise
                self._sent.attempts += 1
                self._sent.is_lost = False
                self._submit()
        finally:
            self._watch.end()

    def cancel(self) -> None:
        """Gives the call up: if it has not begun, it never will."""
        if self._future is not None:
            with _interrupts.Postponed():
                self._future.cancel()
            if self._parcel is not None:
                self._parcel.keep_for(self._future)
        self._watch.end()

    def wait(self) -> None:
        """Waits for the end of a call whose outcome nobody wants to know."""
        if self._future is not None:
            self._ends_before(None)

    def _returned(self) -> Any:
        sent, future, task = self._sent, self._future, self._task
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            if task is not None and _crowded_pools.gives_back(
                self._executor, future, self._ended, task, left
            ):
                return self._callee.at_once(*sent.args)
            in_time = self._ends_before(self._deadline)
            failure = future.exception() if in_time else None
        except concurrent.futures.CancelledError as error:
            text = _executor_errors.cancelled(sent, self._executor, future)
            raise ExecutorError(text) from error
        except BaseException:  # Ctrl-C
            self.cancel()
            raise
        if not in_time:
            text = _late(sent, self._executor, future, task)
            self.cancel()
            raise DeadlineExceededError(text)
        if failure is not None:
            provider, executor = self._callee.provider, self._executor
            self._future = None
            try:
                raise _executor_errors.told(sent, provider, executor, failure)
            finally:
                del failure, future  # which refer to this frame
        if task is not None:
            self._watch.ran(task.began, task.ended)
            return task.result()
        return self._opened(future.result())

    def _ends_before(self, deadline: float | None) -> bool:
        """Whether the call ends before that time, if there is one; waits for it."""
        while True:
            left = _PERIOD
            if deadline is not None:
                left = min(left, max(0.0, deadline - time.monotonic()))
            if self._ended.wait(left):
                return True
            if left < _PERIOD:
                return False
            _dead_workers.end_forgotten(self._executor, self._future)

    def _opened(self, reply: Any) -> Any:
        if _parcels.is_uncalled(reply):
            self._submit()
            return self._returned()
        if self._parcel is None:
            answer = _parcels.value(reply)
        else:
            answer = self._parcel.opened(reply, self._callee.lends)
        self._watch.ran(*(_worker_calls.times(answer) or _parcels.times(reply)))
        self._sent.is_lost = _worker_calls.is_lost(answer)
        name = _executor_errors.name(self._executor)
        return _worker_calls.opened(answer, self._sent.description, name)

    def _submit(self) -> None:
        """Hands the call over, where it has not begun to another executor that can be made."""
        for is_last in (False, True):
            self._executor = executor = self._callee.provider.executor()
            if not has_threads(executor) and self._callee.threads_only:
                who = self._callee.description
                raise ExecutorError(_executor_errors.takes_tensors(who, executor))
            try:
                self._hand_to(executor)
            except Exception as raised:
                error = _dead_workers.behind(executor, raised)
                is_over = isinstance(error, RuntimeError) or _dask_calls.is_closed(executor)
                may_renew = is_over and self._callee.provider.drop(executor)
                if is_last or not may_renew:
                    text = _executor_errors.refused(self._sent, executor, error)
                    raise ExecutorError(text) from error
            else:
                return

    def _hand_to(self, executor: Executor) -> None:
        sent, submit = self._sent, executor.submit
        self._task: _ThreadTask | None = None
        self._parcel = None
        content: tuple[Any, ...]
        if has_threads(executor):
            local = _interception.carried(self._callee.local)
            self._task = _ThreadTask(self._callee.provider, executor, local, sent.args)
            content = (self._task,)
        elif _dask_calls.is_dask(executor):
            submit = functools.partial(_dask_calls.submit, executor)
            content = (sendable(sent.function), sent.args)
        else:
            content = self._content_for(executor)
        self._watch.hand_over()
        with _interrupts.Postponed() if _submits_soon(executor) else contextlib.nullcontext():
            self._future = submit(*content)
            self._ended = _interrupts.Ended(self._future)
        sent.workers = _dead_workers.workers_of(executor)

    def _content_for(self, executor: Executor) -> tuple[Any, ...]:
        """What another process calls, and with which arguments."""
        function, args = InWorker(sendable(self._sent.function)), self._sent.args
        if _parcels.takes_parcels(executor):
            self._parcel = _parcels.Parcel(function, args, self._watch.counts)
            return self._parcel.content
        return (_parcels.timed, function, *args) if self._watch.counts else (function, *args)


def _submits_soon(executor: Executor) -> bool:
    """Whether it only hands a call over, where another one may make it and take long."""
    module = getattr(executor.submit, "__module__", None) or ""
    return module.partition(".")[0] in ("concurrent", "loky")


def _late(sent: Sent, executor: Executor, future: Future, task: _ThreadTask | None) -> str:
    text = f"{sent.description} has not returned within its timeout of {sent.timeout} s. "
    if future.cancel():
        if not _tells_what_runs(executor):
            return f"{text}If it has begun on its executor it goes on, and returns to nobody."
        return (
            f"{text}It had not begun on its executor, all of whose workers are busy; it never will."
        )
    text += "It still runs on its executor, and what it returns will be thrown away."
    return text if task is None else f"{text} This is where it was:\n{task.stack()}"


def _tells_what_runs(executor: Executor) -> bool:
    """Whether nobody can cancel a future of a call that runs, as with Python's own executors."""
    pools = (concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor)
    kind = type(executor).__module__.partition(".")[0]
    return isinstance(executor, pools) or kind in ("loky", "mpi4py")


# On a thread of an executor: whose call runs there.
_own = threading.local()


class _ThreadTask:
    """A call on a thread of this process, whose exceptions are not those of the executor."""

    def __init__(
        self,
        provider: Provider,
        pool: Executor,
        function: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        self._work: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, args)
        self._provider = provider
        self._pool = pool
        self._thread = 0
        self._has_ended = False
        self._returned: Any = None
        self._raised: BaseException | None = None
        self.began = self.ended = 0.0

    def __call__(self) -> None:
        self.began = time.monotonic()
        self._thread = threading.get_ident()
        _own.provider = self._provider
        assert self._work is not None
        function, args = self._work
        self._work = None  # the arguments are the function's alone
        try:
            with _crowded_pools.Running(self._pool):
                self._returned = function(*args)
        except BaseException as error:
            self._raised = error
        finally:
            self._has_ended = True
            self.ended = time.monotonic()
            _own.provider = None

    @property
    def has_begun(self) -> bool:
        """Whether a thread of the pool has taken the call."""
        return self._thread != 0

    def result(self) -> Any:
        """What the call, which has ended, has returned or raised."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            try:
                raise raised
            finally:
                del raised  # it refers to this frame
        return self._returned

    def stack(self) -> str:
        """Where the call is now."""
        return _threads.stack_of(self._thread, self._has_ended)
