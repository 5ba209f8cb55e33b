"""Trees: lists, tuples, namedtuples and dicts, in one another. Everything else is a leaf.

The leaves of a dict come in the sorted order of its keys, as in TensorFlow's nests and JAX's
pytrees. Code that has a framework uses the framework's own functions where users may pass classes
that they have registered there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable
from typing import Any


def items(tree: object) -> list[tuple[Any, Any]] | None:
    """Return the keys or indices of a tree's parts, with the parts; None for a leaf."""
    if isinstance(tree, dict):
        return [(key, tree[key]) for key in _keys(tree)]
    return list(enumerate(tree)) if isinstance(tree, list | tuple) else None


def leaves(tree: object, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """Return the leaves of a tree, among them each part for which `is_leaf` is true."""
    parts = None if is_leaf is not None and is_leaf(tree) else items(tree)
    return [tree] if parts is None else [one for _, part in parts for one in leaves(part, is_leaf)]


def pack(tree: object, leaves: Iterable[Any]) -> Any:
    """Return the same tree with other leaves."""
    remaining = iter(leaves)
    return map_leaves(lambda _: next(remaining), tree)


def map_leaves(
    function: Callable[[Any], Any], tree: object, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Return the same tree with `function(leaf)` for each leaf."""
    if is_leaf is not None and is_leaf(tree):
        return function(tree)
    if isinstance(tree, dict):
        same = copy.copy(tree)  # the order of its keys, and its class, stay
        same.update((key, map_leaves(function, tree[key], is_leaf)) for key in _keys(tree))
        return same
    if isinstance(tree, list | tuple):
        parts = [map_leaves(function, part, is_leaf) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(tree)


def form(tree: object, of_leaf: Callable[[Any], Hashable] = lambda _: None) -> Hashable:
    """Return a key that is equal for trees of the same classes, keys and `of_leaf(leaf)`."""
    if isinstance(tree, dict):
        return type(tree), *((key, form(part, of_leaf)) for key, part in tree.items())
    if isinstance(tree, list | tuple):
        return type(tree), *(form(part, of_leaf) for part in tree)
    return of_leaf(tree)


def _keys(tree: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(tree)
    except TypeError:  # keys of several classes
        return list(tree)
