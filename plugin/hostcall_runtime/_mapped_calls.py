"""`hostcall.map`: one call for a batch becomes several calls for chunks of it.

A structure is an array, or a list, tuple or dict of structures. Axes are given as for JAX's `vmap`:
a number for all arrays of a structure, None for arrays that are passed whole, or a list, tuple or
dict of these, with one entry for each item of the structure.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hostcall_runtime import _shared_memory
from hostcall_runtime._errors import DeadlineExceededError, ExecutorError
from hostcall_runtime._executor_providers import Provider, worker_count
from hostcall_runtime._executors import Callee, StartedCall, runs_here
from hostcall_runtime._keyword_call import KeywordCall
from hostcall_runtime._locks import Executor

Axes = Any


def check_axes(axes: object) -> None:
    """Check that `axes` holds numbers and None alone, and divides at least one array."""
    leaves = list(_leaves(axes))
    for leaf in leaves:
        if leaf is not None and (isinstance(leaf, bool) or not isinstance(leaf, int)):
            raise TypeError(
                f"hostcall.map: in_axes={axes!r} holds {leaf!r}, which is no axis. Write a number, "
                "None for what is passed whole, or a tuple with one of these for each argument."
            )
    if all(leaf is None for leaf in leaves):
        raise ValueError(f"hostcall.map: in_axes={axes!r} divides none of the arguments.")


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def size_of(value: Any, axes: Axes, who: str) -> int:
    """Return the size of a batch; raise ValueError, which names `who`, if it has none."""
    sizes = {}
    for name, leaf, axis in _with_axes(value, axes, "argument", who):
        if axis is None:
            continue
        shape = np.shape(leaf)
        if not -len(shape) <= axis < len(shape):
            raise ValueError(
                f"{who}: {name} has the shape {shape}, and so no axis {axis} to divide. Say "
                "in_axes=(..., None, ...) for an argument that is passed whole."
            )
        sizes[name] = shape[axis]
    if not sizes:
        raise ValueError(f"{who}: there is no array that in_axes={axes!r} divides.")
    if len({*sizes.values()}) > 1:
        told = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(
            f"{who}: the arguments have different sizes along the axes that are divided: {told}."
        )
    return int(next(iter(sizes.values())))


def part_of(value: Any, axes: Axes, begin: int, end: int) -> Any:
    """Return a batch's elements from `begin` to `end`.

    Arrays share the batch's memory, but those that all parts get whole are copied.
    """
    if isinstance(value, list | tuple | dict):
        pairs = _zipped(value, axes, "", "hostcall.map")
        return _made_like(value, [part_of(item, axis, begin, end) for item, axis in pairs])
    if axes is None:
        return value.copy() if isinstance(value, np.ndarray) else value
    array = np.asarray(value)
    return array[(slice(None),) * (axes % array.ndim) + (slice(begin, end),)]


def joined(parts: Sequence[Any], axes: Axes, who: str) -> Any:
    """Join the results for the parts, along `axes`; those with the axis None are added up.

    Raises:
      ValueError: when they have different structures, or lack the axis; it names `who`.
    """
    first = parts[0]
    if isinstance(axes, list | tuple) and len(axes) == 1 and not isinstance(first, list | tuple):
        axes = axes[0]  # one result, with axes for a list of results
    if isinstance(first, list | tuple | dict):
        if any(type(p) is not type(first) or _keys(p) != _keys(first) for p in parts):
            raise ValueError(f"{who} has returned results of different structures.")
        columns = [list(_zipped(p, axes, "result", who)) for p in parts]
        return _made_like(
            first,
            [joined([p[0] for p in row], row[0][1], who) for row in zip(*columns, strict=True)],
        )
    if all(p is None for p in parts):
        return None
    if axes is None:
        return functools.reduce(np.add, parts)
    try:
        return np.concatenate(parts, axis=axes)
    except ValueError as error:
        shapes = ", ".join(str(np.shape(p)) for p in parts)
        raise ValueError(
            f"{who} has returned results of the shapes {shapes}, which cannot be put together "
            f"along axis {axes}: {error}. The function is called with parts of the batch, and has "
            "to return something for each element, along the first axis."
        ) from error


def _keys(value: Any) -> Any:
    return list(value) if isinstance(value, dict) else len(value)


def _with_axes(value: Any, axes: Axes, name: str, who: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield each array of a structure, with its name in messages and its axis."""
    if isinstance(value, list | tuple | dict):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key, (item, axis) in zip(keys, _zipped(value, axes, name, who), strict=True):
            inner = f"{name}[{key!r}]" if " " in name else f"{name} {key}"
            yield from _with_axes(item, axis, inner, who)
    else:
        yield name, value, axes


def _zipped(value: Any, axes: Axes, name: str, who: str) -> Iterator[tuple[Any, Axes]]:
    """Pair each item of a structure with its axes."""
    items = list(value.values()) if isinstance(value, dict) else list(value)
    if not isinstance(axes, list | tuple | dict):
        return zip(items, [axes] * len(items), strict=True)
    if isinstance(value, dict) and isinstance(axes, dict) and set(axes) == set(value):
        return zip(items, [axes[key] for key in value], strict=True)
    if isinstance(value, dict) or isinstance(axes, dict) or len(axes) != len(items):
        what = f"{name}s" if " " not in name else name
        raise ValueError(
            f"{who}: in_axes={axes!r} does not fit the {what}, a {type(value).__name__} of "
            f"{len(items)}. Write one axis, or None, for each."
        )
    return zip(items, axes, strict=True)


def _made_like(value: Any, items: list[Any]) -> Any:
    if isinstance(value, dict):
        return dict(zip(value, items, strict=True))
    if hasattr(value, "_fields"):
        return type(value)(*items)
    return items if isinstance(value, list) else tuple(items)


@dataclasses.dataclass(eq=False)
class MappedFunction:
    """A function of arrays whose calls are divided among the workers of an executor.

    Attributes:
      function: the user's function, which is called with chunks.
      provider: gives the executor.
      in_axes: the axes along which the arguments are divided.
      chunks: the largest number of chunks; None for as many as workers.
      description: its name in errors.
      out_axes: the axes along which the results are joined.
      retries: how often the call of a chunk is made again if its worker has died.
    """

    function: Callable[..., Any]
    provider: Provider
    in_axes: Any
    chunks: int | None
    description: str
    out_axes: Any = 0
    retries: int = 0

    def __post_init__(self) -> None:
        self.__name__ = getattr(self.function, "__name__", type(self.function).__name__)
        # For messages, which name the function and its definition, and for its parameters.
        self.__wrapped__ = self.function

    def __call__(self, *args: Any, **by_name: Any) -> Any:
        """Call the function once for each chunk, and join the results.

        Raises:
          ValueError: when the arguments cannot be divided, or the results cannot be joined.
          ExecutorError: when the executor does not make a call.
        """
        function, values, axes = self._arguments(args, by_name)
        size = size_of(values, axes, self.description)
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
                retries=self.retries,
                lends=count > 1,  # the results are joined at once
                label=self.description,
            )
            chunks.append((callee, part_of(values, axes, begin, end)))
        returned = _run_here(chunks) if runs_here(self.provider) else _run(chunks)
        return returned[0] if count == 1 else joined(returned, self.out_axes, self.description)

    def _arguments(
        self, args: tuple[Any, ...], by_name: dict[str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
        """Return the function to call by position, its arguments, and their axes."""
        if not by_name:
            return self.function, args, self.in_axes
        named = {name: value for name, value in by_name.items() if hasattr(value, "dtype")}
        fixed = {name: value for name, value in by_name.items() if name not in named}
        axes = self.in_axes
        if not isinstance(axes, list | tuple):
            axes = (axes,) * len(args)
        function = KeywordCall(self.function, tuple(named), fixed)
        return function, (*args, *named.values()), (*axes, *[0] * len(named))


def repeating(function: Callable[..., Any], retries: int) -> Callable[..., Any]:
    """Give a mapped function `retries` for each chunk; return other functions unchanged."""
    if isinstance(function, KeywordCall):
        inner = repeating(function.function, retries)
        if inner is not function.function:
            return KeywordCall(inner, function.names, function.fixed)
    if retries and isinstance(function, MappedFunction):
        return dataclasses.replace(function, retries=retries)
    return function


def provider_of(function: object) -> Provider | None:
    """Return the provider of a mapped function's executor; None for other functions."""
    while isinstance(function, KeywordCall):
        function = function.function
    return function.provider if isinstance(function, MappedFunction) else None


def argument_memory(
    function: Callable[..., Any], executor: Provider | None, retries: int
) -> Callable[..., Any] | None:
    """Return `_shared_memory.empty_for` the executor of a (mapped) function; None for NumPy's."""
    executor = provider_of(function) or executor
    if executor is None or retries:  # a repeated call needs unchanged arguments
        return None
    return _shared_memory.empty_for(executor)


_Chunk = tuple[Callee, tuple[Any, ...]]


def _run_here(chunks: Sequence[_Chunk]) -> list[Any]:
    """Run the chunks on this thread of the executor, which may have no other thread."""
    returned = []
    for callee, args in chunks:
        try:
            returned.append(callee.at_once(*args))
        except Exception as error:
            _note(error, callee)
            raise
    return returned


def _run(chunks: Sequence[_Chunk]) -> list[Any]:
    """Run all chunks at once; after a failure, begin no other chunk and wait for those that run."""
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
        if isinstance(error, Exception):  # not Ctrl-C
            for call in calls:
                call.wait()
            _note(error, chunks[len(returned)][0])
        raise
    return returned


def _note(error: Exception, callee: Callee) -> None:
    """Add a note that names the chunk to an exception."""
    if not isinstance(error, ExecutorError | DeadlineExceededError):  # these name it already
        error.add_note(f"This was {callee.description}.")


def _workers_of(executor: Executor) -> int:
    """Return how many calls the executor makes at once, or the number of CPUs if unknown."""
    count = worker_count(executor)
    if count is not None:
        return count
    client: Any = getattr(executor, "_client", None)  # Dask's
    if hasattr(client, "nthreads"):
        return max(1, int(sum(client.nthreads().values())))
    return os.cpu_count() or 1
