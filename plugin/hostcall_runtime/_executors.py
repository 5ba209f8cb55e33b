"""`executor=`: calls that something with the interface of `concurrent.futures.Executor` runs.

Whoever calls waits for the result without Python's lock, so that a call means the same on an
executor as without one. The user's function alone is sent: structures, checks and results that are
kept stay here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from hostcall_runtime import _threads
from hostcall_runtime._executor_providers import Provider as Provider
from hostcall_runtime._executor_providers import provider_of as provider_of
from hostcall_runtime._started_calls import StartedCall as StartedCall
from hostcall_runtime._started_calls import runs_here as runs_here


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
