"""The executor of this process: the user's own, or one that the user's function makes."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import weakref
from typing import Any

from hostcall_runtime import _dask_calls, _executor_errors
from hostcall_runtime._errors import ExecutorError
from hostcall_runtime._locks import Executor


class Provider:
    """A source of this process's executor: the user's own, or one that a function makes.

    Each object that users give has one provider, so that all its calls share one executor.

    Attributes:
      given: the executor, or the function that makes it.
      is_made: whether `given` is a function that makes the executor.
    """

    def __init__(self, given: Any) -> None:
        self.given = given
        self.is_made = _is_maker(given)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Reset the state, also in a forked child, where an executor's threads are gone."""
        self._lock = threading.Lock()
        self._made: Any = None

    def executor(self) -> Any:
        """Return the executor of this process, which is made if necessary.

        Raises:
          ExecutorError: when this process has no executor.
        """
        if not self.is_made:
            return _of_this_process(self.given)
        with self._lock:
            if self._made is None:
                made = self.given()
                if _is_maker(made) or not callable(getattr(made, "submit", None)):
                    raise ExecutorError(_executor_errors.no_executor(self.given, made))
                self._made = _of_this_process(made)
            return self._made

    @property
    def present(self) -> Any:
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
            _left_behind.append(_dask_calls.client_of(provider.present) or provider.present)
        provider.begin_anew()


os.register_at_fork(after_in_child=_after_fork)


def _of_this_process(executor: Executor) -> Executor:
    source = _dask_calls.client_of(executor) or executor
    if any(source is left for left in _left_behind):
        raise ExecutorError(_executor_errors.forked(executor))
    return executor


def provider_of(given: Any) -> Provider | None:
    """Return the provider of the executor for `executor=`; None for None.

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
