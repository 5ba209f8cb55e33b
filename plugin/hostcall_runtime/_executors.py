"""`executor=`: calls that something with the interface of `concurrent.futures.Executor` runs.

Whoever calls waits for the result without Python's lock, so that a call means the same on an
executor as without one. The user's function alone is sent: structures, checks and results that are
kept stay here.
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

from hostcall_runtime import _executor_errors, _executor_stats, _parcels, _threads
from hostcall_runtime._errors import DeadlineExceededError, ExecutorError
from hostcall_runtime._executor_errors import Sent, lost_worker
from hostcall_runtime._sent_functions import sendable


class Provider:
    """Gives the executor of this process: the user's, or what the user's function makes.

    There is one for each object that users give, so that calls of one maker share what it makes.

    Attributes:
      given: the executor, or the function that makes it.
      is_made: whether it is the latter.
    """

    def __init__(self, given: Any) -> None:
        self.given = given
        self.is_made = _is_maker(given)
        self._process = os.getpid()
        self.begin_anew()

    def begin_anew(self) -> None:
        """What holds in a forked child, too, where nothing is left of an executor's threads."""
        self._lock = threading.Lock()
        self._made: Any = None

    def executor(self) -> Any:
        """The executor of this process.

        Raises:
          ExecutorError: when there is none.
        """
        if not self.is_made:
            if self._process != os.getpid():
                raise ExecutorError(_executor_errors.forked(self.given))
            return self.given
        with self._lock:
            if self._made is None:
                made = self.given()
                if _is_maker(made) or not callable(getattr(made, "submit", None)):
                    raise ExecutorError(_executor_errors.no_executor(self.given, made))
                self._made = made
            return self._made

    def drop(self, executor: Any) -> bool:
        """Has the next call make another executor than this one; False where none can be made."""
        with self._lock:
            if self._made is executor:
                self._made = None
        return self.is_made

    @property
    def runs_no_threads(self) -> bool:
        """Whether it is known that the calls run in no thread of this process."""
        return not self.is_made and not _has_threads(self.given)


_providers: weakref.WeakValueDictionary[int, Provider] = weakref.WeakValueDictionary()

# Of the parent's in a forked child: their finalizers may wait for locks that nobody releases there.
_left_behind: list[Any] = []


def _after_fork() -> None:
    for provider in list(_providers.values()):
        _left_behind.append(provider._made)
        provider.begin_anew()


os.register_at_fork(after_in_child=_after_fork)


def provider_of(given: Any) -> Provider | None:
    """What gives the executor for `executor=`; None for None.

    Raises:
      TypeError: when it is neither an executor nor a function that makes one.
    """
    if given is None or isinstance(given, Provider):
        return given
    if hasattr(given, "get_executor"):  # Dask's client
        raise TypeError(_executor_errors.is_client(given))
    if not callable(given) and not callable(getattr(given, "submit", None)):
        raise TypeError(_executor_errors.is_none(given))
    known = _providers.get(id(given))
    if known is None or known.given is not given:
        known = _providers[id(given)] = Provider(given)
    return known


def _is_maker(given: Any) -> bool:
    # A class of executors has a `submit`, too, and makes one.
    return isinstance(given, type) or not callable(getattr(given, "submit", None))


def _has_threads(executor: Any) -> bool:
    return isinstance(executor, concurrent.futures.ThreadPoolExecutor)


@dataclasses.dataclass(frozen=True)
class Callee:
    """A function whose calls an executor makes.

    Attributes:
      provider: gives the executor.
      function: the function.
      description: what to call it in errors.
      timeout: how many seconds a call may take, its time in the executor's queue included; or None.
      in_thread: what a thread of this process calls in its place.
      threads_only: whether no other process can run it.
      retries: how often a call is made again whose worker has died.
      lends: whether the results may lie in shared memory, for somebody who soon drops them.
      label: under which its calls are counted; the description where it is left out.
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
        """A call, which the executor makes at once or as soon as it can."""
        return StartedCall(self, args)

    @property
    def local(self) -> Callable[..., Any]:
        """What a thread of this process calls."""
        return self.in_thread or self.function

    @functools.cached_property
    def at_once(self) -> Callable[..., Any]:
        """What the executor's own thread calls, of which there might be no other."""
        if self.timeout is None:
            return self.local
        return _threads.within(self.timeout, self.local, self.description)


def on_executor(callee: Callee) -> Callable[..., Any]:
    """What calls a function on an executor and waits for it.

    Returns:
      A function with the results and exceptions of the callee's. It raises DeadlineExceededError
      when the time is over, and ExecutorError where the executor does not make the call.
    """

    def call(*args: Any) -> Any:
        if runs_here(callee.provider):
            return callee.at_once(*args)
        return callee.start(*args).result()

    return call


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
        self._watch = _executor_stats.watch(callee.label or callee.description)
        try:
            self._submit()
        except BaseException:
            self._watch.end()
            raise

    def result(self) -> Any:
        """What the call returns or raises; made again where its worker has died and it may be."""
        try:
            while True:
                try:
                    return self._returned()
                except ExecutorError as error:
                    if self._sent.attempts > self._callee.retries or not lost_worker(error):
                        raise
                self._sent.attempts += 1
                self._submit()
        finally:
            self._watch.end()

    def cancel(self) -> None:
        """Gives the call up: if it has not begun, it never will."""
        if self._future is None:
            return
        self._future.cancel()
        if self._parcel is not None:
            self._parcel.keep_for(self._future)
        self._watch.end()

    def wait(self) -> None:
        """Waits for the end of a call whose outcome nobody wants to know."""
        with contextlib.suppress(concurrent.futures.CancelledError):
            if self._future is not None:
                self._future.exception()

    def _returned(self) -> Any:
        sent, future, task = self._sent, self._future, self._task
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            failure = future.exception(left)
        except concurrent.futures.TimeoutError:
            text = _late(sent, future, task)
            self.cancel()
            raise DeadlineExceededError(text) from None
        except concurrent.futures.CancelledError as error:
            raise ExecutorError(_executor_errors.cancelled(sent, self._executor)) from error
        except BaseException:  # Ctrl-C
            self.cancel()
            raise
        if failure is not None:
            provider, executor = self._callee.provider, self._executor
            self._future = None
            try:
                raise _executor_errors.told(sent, provider, executor, failure, task is not None)
            finally:
                del failure, future  # which refer to this frame
        if task is not None:
            self._watch.ran(task.began, task.ended)
            return task.result()
        return self._opened(future.result())

    def _opened(self, reply: Any) -> Any:
        if _parcels.is_uncalled(reply):
            self._submit()
            return self._returned()
        self._watch.ran(*_parcels.times(reply))
        if self._parcel is None:
            return _parcels.value(reply)
        return self._parcel.opened(reply, self._callee.lends)

    def _submit(self) -> None:
        """Hands the call over, where it has not begun to another executor that can be made."""
        for is_last in (False, True):
            self._executor = executor = self._callee.provider.executor()
            if not _has_threads(executor) and self._callee.threads_only:
                who = self._callee.description
                raise ExecutorError(_executor_errors.takes_tensors(who, executor))
            try:
                self._future = self._handed_to(executor)
            except Exception as error:
                may_renew = isinstance(error, RuntimeError) and self._callee.provider.drop(executor)
                if is_last or not may_renew:
                    text = _executor_errors.refused(self._sent, executor, error)
                    raise ExecutorError(text) from error
            else:
                return

    def _handed_to(self, executor: Any) -> Any:
        """The executor's future."""
        args = self._sent.args
        self._task: _ThreadTask | None = None
        self._parcel: _parcels.Parcel | None = None
        if _has_threads(executor):
            self._task = _ThreadTask(self._callee.provider, self._callee.local, args)
            self._watch.hand_over()
            return executor.submit(self._task)
        function = sendable(self._sent.function)
        if _parcels.takes_parcels(executor):
            self._parcel = _parcels.Parcel(function, args, self._watch.counts)
            self._watch.hand_over()
            return executor.submit(*self._parcel.content)
        self._watch.hand_over()
        if self._watch.counts:
            function, args = _parcels.timed, (function, *args)
        # Dask takes calls with equal arguments for one, if nobody says that they are not.
        how = {"pure": False} if type(executor).__module__.startswith("distributed.") else {}
        return executor.submit(function, *args, **how)


def _late(sent: Sent, future: Any, task: _ThreadTask | None) -> str:
    text = f"{sent.description} has not returned within its timeout of {sent.timeout} s. "
    if future.cancel():
        return (
            f"{text}It had not begun on its executor, all of whose workers are busy; it never will."
        )
    text += "It still runs on its executor, and what it returns will be thrown away."
    return text if task is None else f"{text} This is where it was:\n{task.stack()}"


# On a thread of an executor: whose call runs there.
_own = threading.local()


class _ThreadTask:
    """A call on a thread of this process, whose exceptions are not those of the executor."""

    def __init__(
        self, provider: Provider, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self._work: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, args)
        self._provider = provider
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
            self._returned = function(*args)
        except BaseException as error:
            self._raised = error
        finally:
            self._has_ended = True
            self.ended = time.monotonic()
            _own.provider = None

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
