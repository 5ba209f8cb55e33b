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

from hostcall_runtime import _shared_memory, _trees
from hostcall_runtime._errors import DeadlineExceededError, ExecutorError
from hostcall_runtime._executors import Callee, Provider, StartedCall, runs_here, worker_count
from hostcall_runtime._keyword_call import KeywordCall
from hostcall_runtime._locks import Executor

Axes = Any


def check_axes(axes: object) -> None:
    """Check that `axes` holds only numbers and None, and divides at least one array."""
    leaves = _trees.leaves(axes)
    for leaf in leaves:
        if leaf is not None and (isinstance(leaf, bool) or not isinstance(leaf, int)):
            raise TypeError(
                f"hostcall.map: in_axes={axes!r} holds {leaf!r}, which is not an axis. Write a "
                "number, None for what is passed whole, or a tuple with one of these for each "
                "argument."
            )
    if all(leaf is None for leaf in leaves):
        raise ValueError(f"hostcall.map: in_axes={axes!r} divides none of the arguments.")


def size_of(value: object, axes: Axes, who: str) -> int:
    """Return the size of a batch, a structure of arrays; raise a ValueError if they disagree."""
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


def part_of(values: tuple[Any, ...], axes: Axes, begin: int, end: int, who: str) -> tuple[Any, ...]:
    """Return a part of a batch, which shares its memory; arrays that all parts have are copied."""

    def part(leaf: object, axis: int | None) -> object:
        if axis is None:
            return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
        array = np.asarray(leaf)
        return array[(slice(None),) * (axis % array.ndim) + (slice(begin, end),)]

    leaves = _with_axes(values, axes, "argument", who)
    parts: tuple[Any, ...] = _trees.pack(values, [part(leaf, axis) for _, leaf, axis in leaves])
    return parts


def joined(parts: Sequence[Any], axes: Axes, who: str) -> object:
    """Join the results for the parts, along `axes`; those with the axis None are added up."""
    first = parts[0]
    if any(_trees.form(part) != _trees.form(first) for part in parts):
        raise ValueError(f"{who} has returned results of different structures.")
    columns = zip(*(_with_axes(part, axes, _RESULT, who) for part in parts), strict=True)
    return _trees.pack(
        first, [_join([leaf for _, leaf, _ in column], column[0][2], who) for column in columns]
    )


_RESULT = "result"  # the beginning of the names of results in messages


def _join(arrays: Sequence[Any], axis: int | None, who: str) -> object:
    if all(array is None for array in arrays):
        return None
    if axis is None:
        return functools.reduce(np.add, arrays)
    try:
        return np.concatenate(arrays, axis=axis)
    except ValueError as error:
        shapes = ", ".join(str(np.shape(array)) for array in arrays)
        raise ValueError(
            f"{who} has returned results of the shapes {shapes}, which cannot be put together "
            f"along axis {axis}: {error}. The function is called with parts of the batch, and has "
            "to return something for each element, along the first axis."
        ) from error


def _with_axes(value: object, axes: Axes, name: str, who: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield each array of a structure, with its name in messages and its axis."""
    is_lone = name.startswith(_RESULT) and not isinstance(value, list | tuple)
    if is_lone and isinstance(axes, list | tuple) and len(axes) == 1:
        axes = axes[0]  # one result, with axes for a list of results
    items = _trees.items(value)
    if items is None:
        yield name, value, axes
        return
    one_for_all = not isinstance(axes, list | tuple | dict)
    if not one_for_all:
        _check_fits(axes, value, name, who)
    for key, item in items:
        inner = f"{name}[{key!r}]" if " " in name else f"{name} {key}"
        yield from _with_axes(item, axes if one_for_all else axes[key], inner, who)


def _check_fits(axes: Any, value: Any, name: str, who: str) -> None:
    of_dicts = [isinstance(one, dict) for one in (axes, value)]
    fits = len(axes) == len(value) if not any(of_dicts) else all(of_dicts) and {*axes} == {*value}
    if not fits:
        what = f"{name}s" if " " not in name else name
        raise ValueError(
            f"{who}: in_axes={axes!r} does not fit the {what}, a {type(value).__name__} of "
            f"{len(value)}. Write one axis, or None, for each."
        )


@dataclasses.dataclass(eq=False)
class MappedFunction:
    """A function of arrays whose calls are divided into `chunks`, or one for each worker."""

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

    def __call__(self, *args: Any, **by_name: Any) -> object:
        """Call the function once for each chunk, and join the results."""
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
            chunks.append((callee, part_of(values, axes, begin, end, self.description)))
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
    """Return what allocates arguments for the executor of a (mapped) function; None for NumPy."""
    provider = provider_of(function) or executor
    if provider is None or retries:  # a repeated call needs unchanged arguments
        return None
    return lambda *array: _shared_memory.empty_argument(provider.present, *array)


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
