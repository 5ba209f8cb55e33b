"""`executor=`: calls that an executor makes, from `submit` to the result.

The caller waits for the result without Python's lock, so that a call means the same on an executor
as without one. Only the user's function is sent: structures, checks and kept results stay here.

A function on a pool of threads may run a program that makes calls on the same pool, all of whose
threads may wait for such programs. So these calls run where the program makes them: it carries
`_runs.executors_around` to all its threads.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

from hostcall_runtime import (
    _dask_calls,
    _executor_errors,
    _library,
    _locks,
    _processes,
    _runs,
    _shared_memory,
    _threads,
)
from hostcall_runtime._errors import DeadlineExceededError, ExecutorError
from hostcall_runtime._executor_errors import Sent
from hostcall_runtime._executor_providers import Provider, has_threads
from hostcall_runtime._executor_providers import provider_of as provider_of
from hostcall_runtime._locks import Executor, Future
from hostcall_runtime._processes import InWorker, sendable
from hostcall_runtime._shared_memory import Reply

_runtime = _library.load("hostcall_runtime._runtime")


@dataclasses.dataclass
class Row:
    """The counts of one function's calls, and their times in seconds.

    Attributes:
      calls: how many calls have ended.
      unfinished: how many have not.
      waiting, running, sending: the sums of these parts of the calls' times.
    """

    calls: int = 0
    unfinished: int = 0
    waiting: float = 0.0
    running: float = 0.0
    sending: float = 0.0


_lock = _locks.new_lock()
_rows: dict[str, Row] = {}


def rows(*, reset: bool) -> dict[str, Row]:
    """Return the rows by the label of the function; `reset` counts from zero again."""
    with _lock:
        found = {label: dataclasses.replace(row) for label, row in _rows.items()}
        if reset:
            _rows.clear()
            for label, row in found.items():
                if row.unfinished:
                    _rows[label] = Row(unfinished=row.unfinished)
    return found


class Watch:
    """A measurement of one call's times."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._has_ended = False
        self._start = self._handed_over = time.monotonic()
        self._waiting = self._running = 0.0
        with _lock:
            _rows.setdefault(label, Row()).unfinished += 1

    def hand_over(self) -> None:
        """Note that the call is ready for the executor."""
        self._handed_over = time.monotonic()

    def ran(self, began: float, ended: float) -> None:
        """Note the times of the call and of its end, by the clock of the function's machine."""
        self._running += ended - began
        elapsed = time.monotonic() - self._handed_over
        waited = began - self._handed_over
        is_same_clock = 0.0 <= waited <= elapsed - (ended - began)
        self._waiting += waited if is_same_clock else elapsed - (ended - began)

    def end(self) -> None:
        """Note that the call has ended, or that its caller has given it up."""
        total = time.monotonic() - self._start
        with _lock:
            if self._has_ended:
                return
            self._has_ended = True
            row = _rows.setdefault(self._label, Row(unfinished=1))
            row.calls += 1
            row.unfinished -= 1
            row.waiting += self._waiting
            row.running += self._running
            row.sending += max(0.0, total - self._waiting - self._running)


def runs_here(provider: Provider) -> bool:
    """Return whether this code is part of a call on the executor, which has its own threads."""
    return provider in _runs.executors_around.get()


class StartedCall:
    """A call that an executor makes."""

    def __init__(self, callee: Callee, args: tuple[Any, ...]) -> None:
        self._callee = callee
        self._sent = Sent(callee.function, args, callee.description, callee.timeout)
        self._deadline = None if callee.timeout is None else time.monotonic() + callee.timeout
        self._future: Any = None  # None before the call and after its failure
        self._parcel: _shared_memory.Parcel | None = None
        label = callee.label or callee.description
        self._watch = Watch(label) if _runtime.collects_stats() else None
        try:
            self._submit()
        except BaseException:
            self.cancel()
            raise

    def result(self) -> Any:
        """Return or raise the outcome; repeat the call if its worker died and retries are left."""
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
            self._end_watch()

    def cancel(self) -> None:
        """Give the call up: if it has not begun, it never will."""
        if self._future is not None:
            with _locks.Postponed():
                self._future.cancel()
            if self._parcel is not None:
                self._parcel.keep_for(self._future)
        self._end_watch()

    def wait(self) -> None:
        """Wait for the end of the call, and ignore its outcome."""
        if self._future is not None:
            self._ended.wait(None)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.end()

    def _returned(self) -> Any:
        sent, future, task = self._sent, self._future, self._task
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            in_time = self._ended.wait(left)
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
            self._future = None
            is_broken = isinstance(failure, concurrent.futures.BrokenExecutor)
            may_renew = is_broken and self._callee.provider.drop(self._executor)
            try:
                raise _executor_errors.told(sent, self._executor, failure, may_renew)
            finally:
                del failure, future  # they refer to this frame
        if task is None:
            return self._opened(future.result())
        if self._watch is not None:
            self._watch.ran(task.began, task.ended)
        return task.outcome()

    def _opened(self, result: Any) -> Any:
        reply = result if isinstance(result, Reply) else Reply(result)
        if _shared_memory.is_uncalled(reply):
            self._submit()
            return self._returned()
        if self._parcel is None:
            answer = reply.value
        else:
            answer = self._parcel.opened(reply, self._callee.lends)
        if self._watch is not None:
            self._watch.ran(*(_processes.times(answer) or (reply.began, reply.ended)))
        self._sent.is_lost = _processes.is_lost(answer)
        name = _executor_errors.name(self._executor)
        return _processes.opened(answer, self._sent.description, name)

    def _submit(self) -> None:
        """Submit the call; if the executor is over and a new one can be made, submit it to that."""
        for is_last in (False, True):
            self._executor = executor = self._callee.provider.executor()
            if not has_threads(executor) and self._callee.threads_only:
                who = self._callee.description
                raise ExecutorError(_executor_errors.takes_tensors(who, executor))
            try:
                self._hand_to(executor)
            except Exception as raised:
                error = _executor_errors.behind(executor, raised)
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
            self._task = _ThreadTask(self._callee.provider, self._callee.local, sent.args)
            content = (self._task,)
        elif _dask_calls.is_dask(executor):
            submit = functools.partial(_dask_calls.submit, executor)
            content = (sendable(sent.function), sent.args)
        else:
            content = self._content_for(executor)
        if self._watch is not None:
            self._watch.hand_over()
        with _locks.Postponed() if _submits_soon(executor) else contextlib.nullcontext():
            self._future = submit(*content)
            self._ended = _locks.Ended(self._future)

    def _content_for(self, executor: Executor) -> tuple[Any, ...]:
        """Return the function that another process calls, and its arguments."""
        function, args = InWorker(sendable(self._sent.function)), self._sent.args
        counts = self._watch is not None
        if _shared_memory.takes_parcels(executor):
            self._parcel = _shared_memory.Parcel(function, args, counts)
            return self._parcel.content
        return (_shared_memory.timed, function, *args) if counts else (function, *args)


def _submits_soon(executor: Executor) -> bool:
    """Return whether `submit` only queues a call; in other executors it may run the call."""
    module = getattr(executor.submit, "__module__", None) or ""
    return module.partition(".")[0] in ("concurrent", "loky")


def _late(sent: Sent, executor: Executor, future: Future, task: _ThreadTask | None) -> str:
    text = f"{sent.description} has not returned within its timeout of {sent.timeout} s. "
    if future.cancel():
        if not _tells_what_runs(executor):
            return f"{text}If it has begun on its executor it goes on, and its result is dropped."
        return (
            f"{text}It had not begun on its executor, all of whose workers are busy; it never will."
        )
    text += "It still runs on its executor, and what it returns will be thrown away."
    return text if task is None else f"{text} This is where it was:\n{task.stack()}"


def _tells_what_runs(executor: Executor) -> bool:
    """Return whether a running call's future refuses to be cancelled, as in Python's executors."""
    pools = (concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor)
    kind = type(executor).__module__.partition(".")[0]
    return isinstance(executor, pools) or kind in ("loky", "mpi4py")


class _ThreadTask(_threads.Work):
    """A call on a pool's thread, which keeps the function's exception apart from the pool's."""

    def __init__(
        self, provider: Provider, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        def call(*args: Any) -> Any:
            _runs.executors_around.set(_runs.executors_around.get() | {provider})
            return function(*args)

        super().__init__(call, args)
        self.began = self.ended = 0.0

    def __call__(self) -> None:
        self.began = time.monotonic()
        super().__call__()
        self.ended = time.monotonic()


@dataclasses.dataclass(frozen=True)
class Callee:
    """A function whose calls an executor makes.

    Attributes:
      provider: gives the executor.
      function: the function.
      description: its name in errors.
      timeout: how many seconds a call may take, its time in the executor's queue included; or None.
      in_thread: the function that a thread of this process calls in its place.
      threads_only: whether no other process can run it.
      retries: how often a call is made again if its worker has died.
      lends: whether the results may lie in shared memory, because the caller soon drops them.
      label: the name under which its calls are counted; the description if it is left out.
    """

    provider: Provider
    function: Callable[..., Any]
    description: str
    timeout: float | None = None
    in_thread: Callable[..., Any] | None = None
    threads_only: bool = False
    retries: int = 0
    lends: bool = False
    label: str = ""

    def start(self, *args: Any) -> StartedCall:
        """Start a call, which the executor makes at once or as soon as it can."""
        return StartedCall(self, args)

    @property
    def local(self) -> Callable[..., Any]:
        """The function that a thread of this process calls."""
        return self.in_thread or self.function

    @functools.cached_property
    def at_once(self) -> Callable[..., Any]:
        """The function that the executor's own thread calls: the executor may have no other."""
        if self.timeout is None:
            return self.local
        return _threads.within(self.timeout, self.local, self.description)


def on_executor(callee: Callee) -> Callable[..., Any]:
    """Return a function that calls the callee on its executor, and waits for the result.

    Returns:
      A function with the callee's results and exceptions. It raises DeadlineExceededError when the
      time is over, and ExecutorError when the executor does not make the call.
    """

    def call(*args: Any) -> Any:
        if runs_here(callee.provider):
            return callee.at_once(*args)
        return callee.start(*args).result()

    return call
