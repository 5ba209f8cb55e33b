"""`hostcall.map`: one call as many, each of which has a part of the batch."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any

from hostcall_runtime import _batches, _parcels
from hostcall_runtime._errors import DeadlineExceededError, ExecutorError
from hostcall_runtime._executor_providers import worker_count
from hostcall_runtime._executor_types import Executor
from hostcall_runtime._executors import Callee, Provider, StartedCall, runs_here
from hostcall_runtime._keyword_call import KeywordCall


class MappedFunction:
    """A function of arrays whose calls are divided among the workers of an executor.

    Attributes:
      function: the user's, which is called with chunks.
      provider: gives the executor.
      in_axes: along which axes the arguments are divided, as in `_batches`.
      chunks: how many there are at most; None for as many as workers.
      description: what to call it in errors.
      out_axes: along which axes the results are put together.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        provider: Provider,
        in_axes: Any,
        chunks: int | None,
        description: str,
        out_axes: Any = 0,
    ) -> None:
        self.function = function
        self.provider = provider
        self.in_axes = in_axes
        self.chunks = chunks
        self.description = description
        self.out_axes = out_axes
        self._retries = 0
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        # Messages name the function and where it is defined, and its parameters are the same.
        self.__wrapped__ = function

    def with_retries(self, retries: int) -> MappedFunction:
        """The same, which makes the call of a chunk again whose worker has died."""
        same = copy.copy(self)
        same._retries = retries
        return same

    def __call__(self, *args: Any, **by_name: Any) -> Any:
        """Calls the function once for each chunk, and puts the results together.

        Raises:
          ValueError: when the arguments cannot be divided so, or the results not be put together.
          ExecutorError: when the executor does not make a call.
        """
        function, values, axes = self._arguments(args, by_name)
        size = _batches.size_of(values, axes, self.description)
        count = max(1, min(size, self.chunks or _workers_of(self.provider.executor())))
        bounds = [size * number // count for number in range(count + 1)]
        chunks = []
        for number in range(count):
            begin, end = bounds[number : number + 2]
            which = f"chunk {number + 1} of {count} (elements {begin} to {end - 1})"
            callee = Callee(
                self.provider,
                function,
                f"{which} of {self.description}" if size else self.description,
                retries=self._retries,
                lends=count > 1,  # the results are put together at once
                label=self.description,
            )
            part = _batches.part(values, axes, begin, end)
            chunks.append((callee, _batches.copied_where_whole(part, axes)))
        returned = _run_here(chunks) if runs_here(self.provider) else _run(chunks)
        return (
            returned[0]
            if count == 1
            else _batches.joined(returned, self.out_axes, self.description)
        )

    def _arguments(
        self, args: tuple[Any, ...], by_name: dict[str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
        """What is called by position, with which arguments, and their axes."""
        named = {name: value for name, value in by_name.items() if hasattr(value, "dtype")}
        if not by_name:
            return self.function, args, self.in_axes
        fixed = {name: value for name, value in by_name.items() if name not in named}
        axes = self.in_axes
        if not isinstance(axes, list | tuple):
            axes = (axes,) * len(args)
        function = KeywordCall(self.function, tuple(named), fixed)
        return function, (*args, *named.values()), (*axes, *[0] * len(named))


def repeating(function: Callable[..., Any], retries: int) -> Callable[..., Any]:
    """`function`, where it is mapped with so many retries for each chunk."""
    if isinstance(function, KeywordCall):
        inner = repeating(function.function, retries)
        if inner is not function.function:
            return KeywordCall(inner, function.names, function.fixed)
    if retries and isinstance(function, MappedFunction):
        return function.with_retries(retries)
    return function


def provider_of(function: object) -> Provider | None:
    """What gives the executor that makes the calls of a mapped function in parts."""
    while isinstance(function, KeywordCall):
        function = function.function
    return function.provider if isinstance(function, MappedFunction) else None


def argument_memory(
    function: Callable[..., Any], executor: Provider | None, retries: int
) -> Callable[..., Any] | None:
    """What makes arrays for large arguments of calls that other processes may make.

    Args:
      function: the user's, or one that is mapped.
      executor: runs the calls; None where a mapped function has an executor make them in parts.
      retries: how often a call is made again.

    Returns:
      A function of a shape and a dtype, as `_parcels.empty_for` says; None where there is none.
    """
    executor = provider_of(function) or executor
    if executor is None or retries:  # the arguments have to be as they were
        return None
    return _parcels.empty_for(executor)


_Chunk = tuple[Callee, tuple[Any, ...]]


def _run_here(chunks: Sequence[_Chunk]) -> list[Any]:
    """On the executor's own thread, of which there might be no other."""
    returned = []
    for callee, args in chunks:
        try:
            returned.append(callee.at_once(*args))
        except Exception as error:
            _note(error, callee)
            raise
    return returned


def _run(chunks: Sequence[_Chunk]) -> list[Any]:
    """All of them at once; if one fails, no other begins any more, and none is left running."""
    calls: list[StartedCall] = []
    returned = []
    try:
        for callee, args in chunks:
            calls.append(callee.start(*args))
        for call in calls:
            returned.append(call.result())
    except BaseException as error:
        for call in calls:
            call.cancel()
        if isinstance(error, Exception):  # and not Ctrl-C
            for call in calls:
                call.wait()
            _note(error, chunks[len(returned)][0])
        raise
    return returned


def _note(error: Exception, callee: Callee) -> None:
    """Has an exception say which chunk it is of."""
    if not isinstance(error, ExecutorError | DeadlineExceededError):  # which do already
        error.add_note(f"This was {callee.description}.")


def _workers_of(executor: Executor) -> int:
    """How many calls the executor makes at once, where it says so; else one for each CPU."""
    count = worker_count(executor)
    if count is not None:
        return count
    client: Any = getattr(executor, "_client", None)  # Dask's
    if hasattr(client, "nthreads"):
        return max(1, int(sum(client.nthreads().values())))
    return os.cpu_count() or 1
