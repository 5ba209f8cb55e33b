"""The results that a function returns, as the leaves that a program expects.

As for JAX's own callbacks, the leaves count, and not the containers that they are in: NumPy's
functions return named tuples, and many functions lists for tuples. Dictionaries are compared by
their keys, which JAX does not do: it takes the values of an OrderedDict in the order in which they
were inserted, and those of a dict in the order of the keys.

While JAX has no numbers of 64 bits, results that have them, such as Python's numbers, get 32, as
for JAX's own callbacks. An integer that does not fit is an error: JAX would take another one.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from hostcall_runtime._errors import ResultError

# JAX's PyTreeDef. JAX's package has no types.
Tree = Any

_LEAF = jax.tree.structure(0)
# The dtypes that JAX has for those of 64 bits, complex numbers twice that, by kind and size.
_NARROW = {
    (wide.kind, wide.itemsize): np.dtype(f"{wide.kind}{wide.itemsize // 2}")
    for wide in map(np.dtype, (np.int64, np.uint64, np.float64, np.complex128))
}
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)


def leaves_for(declared: Tree, returned: object) -> list[Any] | None:
    """Return the leaves of what a function returned, in the declared order; None if they differ."""
    leaves: list[Any]
    leaves, tree = jax.tree.flatten(returned)
    if tree == declared:
        return leaves
    order = _order(declared, tree)
    return None if order is None else [leaves[index] for index in order]


def converted(lone: bool, narrows: bool, description: str, returned: Any) -> object:
    """Return what the runtime is to store of results that are not as declared."""
    # `lone` says that one array is declared: a function may return it in a container. Otherwise
    # they are a list. `narrows` says that JAX has no numbers of 64 bits.
    if lone:
        leaves = jax.tree.leaves(returned)
        if len(leaves) != 1:
            return returned  # the runtime tells of any other number, in its own words
        returned = leaves
    return [_narrowed(value, description) for value in returned] if narrows else returned


def _narrowed(value: object, description: str) -> object:
    """Return a number or an array of 64 bits as an array of 32, and any other value unchanged."""
    array = np.asarray(value)
    narrow = _NARROW.get((array.dtype.kind, array.dtype.itemsize))
    if narrow is None:
        return value
    narrowed = array.astype(narrow)
    if narrow.kind in "iu" and (narrowed != array).any():
        raise ResultError(
            f"a result holds an integer that does not fit {narrow}, and JAX has no larger ones: "
            f'write jax.config.update("jax_enable_x64", True) at the start of the program, and '
            f"declare {array.dtype}: {description}."
        )
    return narrowed


def _order(declared: Tree, returned: Tree) -> tuple[int, ...] | None:
    """Return which leaf of `returned` belongs to each leaf of `declared`, or None."""
    with contextlib.suppress(TypeError):  # what a node keeps of itself may have no hash
        return _known_order(declared, returned)
    return _found_order(declared, returned)


def _found_order(declared: Tree, returned: Tree) -> tuple[int, ...] | None:
    if declared.num_leaves != returned.num_leaves:
        return None
    order = [0] * declared.num_leaves
    for (wanted, keys), (found, others) in zip(_leaves(declared), _leaves(returned), strict=True):
        if any(key != other for key, other in zip(keys, others, strict=False)):
            return None
        order[wanted] = found
    return tuple(order)


_known_order = functools.lru_cache(maxsize=256)(_found_order)


def _leaves(
    tree: Tree, index: int = 0, keys: tuple[object, ...] = ()
) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Yield the index of each leaf and the keys that lead to it, all dictionaries sorted alike."""
    data = tree.node_data()
    if data is None:
        if tree == _LEAF:
            yield index, keys
        return
    kind, details = data
    entries = []
    for child in tree.children():
        entries.append((child, index))
        index += child.num_leaves
    if kind not in _MAPPINGS:
        for child, first in entries:
            yield from _leaves(child, first, keys)
        return
    names = details[1] if kind is collections.defaultdict else details
    for name, (child, first) in sorted(
        zip(names, entries, strict=True), key=lambda pair: repr(pair[0])
    ):
        yield from _leaves(child, first, (*keys, name))
