"""`executor=`: calls that something with the interface of `concurrent.futures.Executor` runs.

Whoever calls waits for the result without Python's lock, so that a call means the same on an
executor as without one. The user's function alone is sent: structures, checks and results that are
kept stay here.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from hostcall_runtime import _executor_errors, _threads
from hostcall_runtime._errors import DeadlineExceededError, ExecutorError
from hostcall_runtime._executor_errors import Sent
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


def on_executor(
    provider: Provider,
    function: Callable[..., Any],
    description: str,
    timeout: float | None = None,
    in_thread: Callable[..., Any] | None = None,
    threads_only: bool = False,
) -> Callable[..., Any]:
    """What calls `function` on an executor and waits for it.

    Args:
      provider: gives the executor.
      function: the function.
      description: what to call it in errors.
      timeout: how many seconds a call may take, its time in the executor's queue included; or None.
      in_thread: what a thread of this process calls in its place.
      threads_only: whether no other process can run it.

    Returns:
      A function with the results and exceptions of `function`. It raises DeadlineExceededError when
      the time is over, and ExecutorError where the executor does not make the call.
    """
    local = in_thread or function
    at_once = local if timeout is None else _threads.within(timeout, local, description)

    def call(*args: Any) -> Any:
        if getattr(_own, "provider", None) is provider:
            return at_once(*args)  # the executor might have no other thread for it
        sent = Sent(function, args, description, timeout)
        executor, future, task = _submit(provider, sent, local, threads_only)
        try:
            failure = future.exception(timeout)
        except concurrent.futures.TimeoutError:
            raise DeadlineExceededError(_late(sent, future, task)) from None
        except concurrent.futures.CancelledError as error:
            raise ExecutorError(_executor_errors.cancelled(sent, executor)) from error
        except BaseException:  # Ctrl-C
            future.cancel()
            raise
        if failure is not None:
            try:
                raise _executor_errors.told(sent, provider, executor, failure, task is not None)
            finally:
                del failure, future  # which refer to this frame
        return future.result() if task is None else task.result()

    return call


def _submit(
    provider: Provider, sent: Sent, local: Callable[..., Any], threads_only: bool
) -> tuple[Any, Any, _ThreadTask | None]:
    """The executor, its future, and the task where a thread of this process runs it."""
    for is_last in (False, True):
        executor = provider.executor()
        task = None
        if _has_threads(executor):
            task = _ThreadTask(provider, local, sent.args)
        elif threads_only:
            raise ExecutorError(_executor_errors.takes_tensors(sent.description, executor))
        try:
            if task is not None:
                return executor, executor.submit(task), task
            # Dask takes calls with equal arguments for one, if nobody says that they are not.
            how = {"pure": False} if type(executor).__module__.startswith("distributed.") else {}
            return executor, executor.submit(sendable(sent.function), *sent.args, **how), None
        except Exception as error:
            # It has not begun, so that another executor may run it.
            may_renew = isinstance(error, RuntimeError) and provider.drop(executor)
            if is_last or not may_renew:
                text = _executor_errors.refused(sent, executor, error)
                raise ExecutorError(text) from error
    raise AssertionError("one of the two has returned or raised")


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

    def __call__(self) -> None:
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
