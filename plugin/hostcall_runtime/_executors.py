"""`executor=`: the executor of this process, and calls that it makes, from `submit` to the result.

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
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from hostcall_runtime import (
    _executor_errors,
    _library,
    _locks,
    _processes,
    _runs,
    _shared_memory,
    _threads,
)
from hostcall_runtime._errors import DeadlineExceededError, ExecutorError
from hostcall_runtime._executor_errors import MAKE_ONE, Sent
from hostcall_runtime._locks import Executor, Future
from hostcall_runtime._processes import sendable
from hostcall_runtime._shared_memory import Reply

_runtime = _library.load("hostcall_runtime._runtime")


class Provider:
    """The source of this process's executor: `given` itself, or what it makes if a function."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self.is_made = _is_maker(given)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Reset the state, also in a forked child, where an executor's threads are gone."""
        self._lock = threading.Lock()
        self._made: Any = None

    def executor(self) -> Executor:
        """Return the executor of this process, made if necessary, or raise an ExecutorError."""
        if not self.is_made:
            return _of_this_process(self.given)
        with self._lock:
            if self._made is None:
                made = self.given()
                if _is_maker(made) or not callable(getattr(made, "submit", None)):
                    raise ExecutorError(
                        f"executor={self.given!r} is called to make an executor, and returned "
                        f"{made!r}, which has no `submit`. Return one:\n\n{MAKE_ONE}"
                    )
                self._made = _of_this_process(made)
            return self._made

    @property
    def present(self) -> Executor | None:
        """The executor, or None if it has not been made yet."""
        return self._made if self.is_made else self.given

    def drop(self, executor: Executor) -> bool:
        """Let the next call make another executor; return False if none can be made."""
        with self._lock:
            if self._made is executor:
                self._made = None
        return self.is_made

    @property
    def runs_no_threads(self) -> bool:
        """True if the calls are known to run in no thread of this process."""
        return not self.is_made and not has_threads(self.given)

    @property
    def has_several_workers(self) -> bool:
        """True if calls may run at once: unless the executor is known to have one worker."""
        return self.is_made or worker_count(self.given) != 1


_providers: weakref.WeakValueDictionary[int, Provider] = weakref.WeakValueDictionary()

# In a forked child, the parent's executors (Dask's clients): their threads are not here. Finalizers
# may wait for locks that stay taken, so that they are kept.
_left_behind: list[Any] = []


def _after_fork() -> None:
    for provider in list(_providers.values()):
        if provider.present is not None:
            _left_behind.append(_processes.client_of(provider.present) or provider.present)
        provider.begin_anew()


os.register_at_fork(after_in_child=_after_fork)


def _of_this_process(executor: Executor) -> Executor:
    source = _processes.client_of(executor) or executor
    if any(source is left for left in _left_behind):
        raise ExecutorError(
            f"{_executor_errors.name(executor)} belongs to the process that this one was forked "
            "from, and its threads are not here. Give a function that makes the executor, which "
            f"each process calls for itself:\n\n{MAKE_ONE}"
        )
    return executor


def provider_of(given: object) -> Provider | None:
    """Return the provider of `executor=`, None for None; raise a TypeError for anything else."""
    if given is None or isinstance(given, Provider):
        return given
    if hasattr(given, "get_executor"):  # Dask's client
        raise TypeError(
            f"hostcall: executor={given!r} is not an executor, but has one. Write "
            "executor=client.get_executor(pure=False)."
        )
    if not callable(given) and not callable(getattr(given, "submit", None)):
        raise TypeError(
            f"hostcall: executor={given!r} is neither an executor (an object with the methods of "
            "concurrent.futures.Executor) nor a function that makes one. Write, for example, "
            "executor=concurrent.futures.ThreadPoolExecutor(4)."
        )
    known = _providers.get(id(given))
    if known is None or known.given is not given:
        known = _providers[id(given)] = Provider(given)
    return known


def _is_maker(given: object) -> bool:
    # A class of executors has a `submit`, too, but makes an executor.
    return isinstance(given, type) or not callable(getattr(given, "submit", None))


def worker_count(executor: Executor) -> int | None:
    """Return how many calls an executor makes at once, or None if no attribute tells."""
    for attribute in ("_max_workers", "num_workers"):  # concurrent.futures and loky; mpi4py
        count = getattr(executor, attribute, None)
        if isinstance(count, int) and count > 0:
            return count
    return None


def has_threads(executor: Executor) -> bool:
    """Return whether an executor's calls run in threads of this process."""
    return isinstance(executor, concurrent.futures.ThreadPoolExecutor)


@dataclasses.dataclass
class CallTimes:
    """The calls of one function, ended or not, and the sums of the parts of their times."""

    calls: int = 0
    unfinished: int = 0
    waiting: float = 0.0
    running: float = 0.0
    sending: float = 0.0


_lock = _locks.new_lock()
_rows: dict[str, CallTimes] = {}


def rows(*, reset: bool) -> dict[str, CallTimes]:
    """Return the rows by the label of the function; `reset` counts from zero again."""
    with _lock:
        found = {label: dataclasses.replace(row) for label, row in _rows.items()}
        if reset:
            _rows.clear()
            for label, row in found.items():
                if row.unfinished:
                    _rows[label] = CallTimes(unfinished=row.unfinished)
    return found


class Watch:
    """A measurement of one call's times."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._has_ended = False
        self._start = self._handed_over = time.monotonic()
        self._waiting = self._running = 0.0
        with _lock:
            _rows.setdefault(label, CallTimes()).unfinished += 1

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
            row = _rows.setdefault(self._label, CallTimes(unfinished=1))
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
        self._began = time.monotonic()
        self._deadline = None if callee.timeout is None else self._began + callee.timeout
        self._future: Any = None  # None before the call and after its failure
        self._parcel: _shared_memory.Parcel | None = None
        label = callee.label or callee.description
        self._watch = Watch(label) if _runtime.collects_stats() else None
        try:
            self._submit()
        except BaseException:
            self.cancel()
            raise

    def result(self) -> object:
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

    def _returned(self) -> object:
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
        self._check_time()
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

    def _check_time(self) -> None:
        """Raise an error where the call has ended after its time."""
        if self._deadline is not None and self._ended.came_after(self._deadline):
            assert self._callee.timeout is not None
            took = time.monotonic() - self._began
            text = _threads.late(self._sent.description, self._callee.timeout, took)
            self.cancel()
            raise DeadlineExceededError(text)

    def _opened(self, result: object) -> object:
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
                is_over = isinstance(error, RuntimeError) or _processes.is_closed(executor)
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
        elif _processes.is_dask(executor):
            submit = functools.partial(_processes.submit, executor)
            content = (sendable(sent.function), sent.args)
        else:
            content = self._content_for(executor)
        if self._watch is not None:
            self._watch.hand_over()
        with _locks.Postponed() if _submits_soon(executor) else contextlib.nullcontext():
            self._future = submit(*content)
            _wake_manager(executor)
            self._ended = _locks.Ended(self._future)

    def _content_for(self, executor: Executor) -> tuple[Any, ...]:
        """Return the function that another process calls, and its arguments."""
        function = functools.partial(_processes.run, sendable(self._sent.function))
        args = self._sent.args
        counts = self._watch is not None
        if _shared_memory.takes_parcels(executor):
            self._parcel = _shared_memory.Parcel(function, args, counts)
            return self._parcel.content
        return (_shared_memory.timed, function, *args) if counts else (function, *args)


def _submits_soon(executor: Executor) -> bool:
    """Return whether `submit` only queues a call; in other executors it may run the call."""
    module = getattr(executor.submit, "__module__", None) or ""
    return module.partition(".")[0] in ("concurrent", "loky")


def _wake_manager(executor: Executor) -> None:
    """Let the manager of a pool of processes see the workers that `submit` has just started.

    `submit` wakes it before it starts a missing worker, whose end it would not see otherwise.
    """
    wakeup = getattr(executor, "_executor_manager_thread_wakeup", None)
    if wakeup is not None:
        with contextlib.suppress(OSError):  # shut down
            wakeup.wakeup()


def _late(sent: Sent, executor: Executor, future: Future, task: _ThreadTask | None) -> str:
    text = f"{sent.description} has not returned within its timeout of {sent.timeout} s. "
    if future.cancel():
        if not _tells_what_runs(executor):
            return f"{text}If it has begun on its executor it goes on, and its result is dropped."
        return (
            f"{text}It had not begun on its executor, all of whose workers are busy; it never will."
        )
    text += "It still runs on its executor, and what it returns will be thrown away. "
    text += _threads.more_time(sent.timeout)
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
        def call(*args: Any) -> object:
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
    """A function whose calls an executor makes."""

    provider: Provider
    function: Callable[..., Any]
    description: str
    timeout: float | None = None  # includes the time in the executor's queue
    in_thread: Callable[..., Any] | None = None  # what a thread of this process calls instead
    threads_only: bool = False
    retries: int = 0
    lends: bool = False  # whether results are dropped soon, so that they may lie in shared memory
    label: str = ""  # under which calls are counted; "" for the description

    def __call__(self, *args: Any) -> object:
        """Call the function on its executor, and wait for the result."""
        if runs_here(self.provider):
            return self.at_once(*args)
        return self.start(*args).result()

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
