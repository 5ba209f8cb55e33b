"""The results that a function returns, as the leaves that a program expects.

As for JAX's own callbacks, the leaves count, and not the containers that they are in: NumPy's
functions return named tuples, and many functions lists for tuples. Dictionaries are compared by
their keys, which JAX does not do: it takes the values of an OrderedDict in the order in which they
were inserted, and those of a dict in the order of the keys.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

# JAX's PyTreeDef. JAX's package has no types.
Tree = Any

_LEAF = jax.tree.structure(0)
_ARRAYS = (np.ndarray, np.generic)
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)


def leaves_for(declared: Tree, returned: object) -> list[Any] | None:
    """Return the leaves of what a function returned, in the declared order; None if they differ."""
    leaves: list[Any]
    leaves, tree = jax.tree.flatten(returned)
    if tree == declared:
        return leaves
    order = _order(declared, tree)
    return None if order is None else [leaves[index] for index in order]


def single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function for which one array is declared: it may return it in a container."""

    def call(*arrays: Any) -> Any:
        returned = function(*arrays)
        if isinstance(returned, _ARRAYS):
            return returned
        leaves = jax.tree.leaves(returned)
        # The runtime tells of any other number, in its own words.
        return leaves[0] if len(leaves) == 1 else returned

    return call


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
