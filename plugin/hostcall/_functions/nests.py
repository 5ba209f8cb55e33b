"""Structures in the order of `tf.nest`: a leaf, or a list, tuple or dict of structures.

Whoever has a framework uses that one's own, which knows more kinds of structures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def flatten(structure: Any) -> list[Any]:
    """The leaves of a structure; those of a dict in the order of its keys."""
    return list(_leaves(structure))


def pack(structure: Any, leaves: Sequence[Any]) -> Any:
    """The same structure with other leaves."""
    remaining = iter(leaves)
    return map_leaves(lambda _: next(remaining), structure)


def map_leaves(function: Callable[[Any], Any], structure: Any) -> Any:
    """The same structure with `function(leaf)` for each leaf."""
    if isinstance(structure, dict):
        mapped = {key: map_leaves(function, structure[key]) for key in sorted(structure)}
        return {key: mapped[key] for key in structure}
    if isinstance(structure, list | tuple):
        items = [map_leaves(function, item) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return function(structure)


def _leaves(structure: Any) -> Iterator[Any]:
    if isinstance(structure, dict):
        structure = [structure[key] for key in sorted(structure)]
    if isinstance(structure, list | tuple):
        for item in structure:
            yield from _leaves(item)
    else:
        yield structure
