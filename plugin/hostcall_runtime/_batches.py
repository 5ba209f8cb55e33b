"""Structures of arrays that are divided along an axis, and put together again.

A structure is an array, or a list, tuple or dict of structures. Axes are given as for JAX's `vmap`:
a number for all arrays of a structure, None for arrays that are passed whole, or a list, tuple or
dict of these in the place of a structure's own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Axes = Any


def check_axes(axes: object) -> None:
    """Checks that something says along which axes arrays are divided.

    Raises:
      TypeError: when it holds anything but numbers and None.
      ValueError: when nothing is divided.
    """
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
    """The size of a batch.

    Args:
      value: a structure of arrays.
      axes: of their axes.
      who: divides them, for messages.

    Raises:
      ValueError: when an array has no such axis, or the arrays disagree.
    """
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


def part(value: Any, axes: Axes, begin: int, end: int) -> Any:
    """The elements of a batch from one to another; arrays share the memory of the whole ones."""
    if isinstance(value, list | tuple | dict):
        return _made_like(
            value, [part(v, a, begin, end) for v, a in _zipped(value, axes, "", "hostcall.map")]
        )
    if axes is None:
        return value
    array = np.asarray(value)
    return array[(slice(None),) * (axes % array.ndim) + (slice(begin, end),)]


def copied_where_whole(value: Any, axes: Axes) -> Any:
    """A part, with copies of the arrays that all parts share."""
    if isinstance(value, list | tuple | dict):
        return _made_like(
            value, [copied_where_whole(v, a) for v, a in _zipped(value, axes, "", "hostcall.map")]
        )
    return value.copy() if axes is None and isinstance(value, np.ndarray) else value


def joined(parts: Sequence[Any], axes: Axes, who: str) -> Any:
    """What the function has returned for each part, put together.

    Args:
      parts: structures of arrays.
      axes: along which they are concatenated; those of None are added up.
      who: has returned them, for messages.

    Raises:
      ValueError: when they have different structures, or no such axis.
    """
    first = parts[0]
    if isinstance(axes, list | tuple) and len(axes) == 1 and not isinstance(first, list | tuple):
        axes = axes[0]  # a lone result, where there might have been several
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
    """Each array of a structure, with how messages call it, and its axis."""
    if isinstance(value, list | tuple | dict):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key, (item, axis) in zip(keys, _zipped(value, axes, name, who), strict=True):
            inner = f"{name}[{key!r}]" if " " in name else f"{name} {key}"
            yield from _with_axes(item, axis, inner, who)
    else:
        yield name, value, axes


def _zipped(value: Any, axes: Axes, name: str, who: str) -> Iterator[tuple[Any, Axes]]:
    """Each item of a structure, with its axes."""
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
