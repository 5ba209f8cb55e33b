"""The results of a callback: as declared, of any shape, or as calls were seen to return them.

A result is shape-agnostic if it is unused, or if the program takes only its elements and gives them
a shape itself. XLA then gets a vector, and the function's result is made a vector before the check.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from hostcall._ops.structures import BoundedSpec, Spec, is_known
from hostcall._tf import token_registry
from hostcall._tf.graph import attributes, protos
from hostcall._tf.types import NodeDef
from hostcall_runtime import _locks
from hostcall_runtime._errors import counted
from hostcall_runtime._registry import prepared

# The dtype names of TensorFlow's C++, where they differ from Python's.
_NAMES = {"float16": "half", "float32": "float", "float64": "double"}


def of(title: str, description: str, declared: Sequence[Spec]) -> object:
    """Return the runtime's contract for the results of a callback with these known specs."""
    # See csrc/runtime/results.h: `arrays` converts what the callback has returned to
    # arrays, `check_shapes` checks shapes alone. Both raise a ResultError for another result.
    return prepared().ResultContract(
        title=title,
        description=description,
        dtypes=[_NAMES.get(result.dtype.name, result.dtype.name) for result in declared],
        shapes=[_sizes(result.shape) for result in declared],
        bounded=[_bounded(result) for result in declared],
        convert=token_registry.to_array,
    )


def _sizes(shape: tf.TensorShape) -> list[int] | None:
    if shape.rank is None:
        return None
    return [prepared().ANY_SIZE if size is None else size for size in shape.as_list()]


def _bounded(declared: Spec) -> list[bool]:
    if not isinstance(declared, BoundedSpec):
        return []
    return [dim in declared.dynamic_dims for dim in range(len(declared.shape))]


UNUSED = -1  # the number of elements of a result that is not used

# Maps the index of a result to its number of elements, or to UNUSED.
ShapeAgnosticResults = Mapping[int, int]


def shape_agnostic_of(node: NodeDef) -> dict[int, int]:
    """Return the shape-agnostic results that a script op records."""
    return dict(protos.pairs(node, attributes.SHAPE_AGNOSTIC_RESULTS))


def with_vectors(specs: Sequence[Spec], free: ShapeAgnosticResults) -> list[Spec]:
    """Return specs with vectors for shape-agnostic results, unless the shapes are known."""
    return [
        tf.TensorSpec([0 if free[index] == UNUSED else free[index]], spec.dtype)
        if index in free and not is_known(spec)
        else spec
        for index, spec in enumerate(specs)
    ]


def suffix_of(free: ShapeAgnosticResults) -> str:
    """Return a suffix that makes the name of a target with these results unique."""
    return "".join(f"/{index}:{count}" for index, count in sorted(free.items()))


def returning_vectors(
    function: Callable[..., Any], contract: Any, free: ShapeAgnosticResults
) -> Callable[..., Any]:
    """Wrap a function of arrays so that its shape-agnostic results are vectors."""
    return lambda *arrays: _as_vectors(contract.arrays(function(*arrays)), free)


def making_vectors(
    to_arrays: Callable[[Any], list[Any]], free: ShapeAgnosticResults
) -> Callable[[Any], list[Any]]:
    """Wrap a conversion from tensors to arrays in the same way."""
    if not free:
        return to_arrays
    return lambda returned: _as_vectors(to_arrays(returned), free)


def _as_vectors(arrays: Sequence[Any], free: ShapeAgnosticResults) -> list[Any]:
    """Return the arrays with vectors in the place of shape-agnostic ones."""
    found = list(arrays)
    for index, count in free.items():
        if index < len(found) and hasattr(found[index], "reshape"):
            vector = found[index].reshape(-1)
            found[index] = vector[:0] if count == UNUSED else vector
    return found


_lock = _locks.new_lock()


class _Kind(enum.IntEnum):
    """The variation of a size in the calls so far."""

    FIXED = 0
    FOLLOWS = 1  # it has changed together with the shapes of the inputs
    VARIES = 2  # it has changed for the same shapes of the inputs


@dataclasses.dataclass
class _Size:
    largest: int
    kind: _Kind = _Kind.FIXED


class SeenShapes:
    """The shapes seen for one op: a few integers, for any number of calls."""

    def __init__(self) -> None:
        self._calls = 0
        self._latest: tuple[list[Any], list[list[int]]] | None = None
        self._results: list[list[_Size] | None] = []  # None: the rank has changed

    def note(self, inputs: list[Any], results: list[list[int]]) -> None:
        """Record the shapes of the inputs and results of one call."""
        with _lock:
            self._calls += 1
            latest, self._latest = self._latest, (inputs, results)
            if latest is None:
                self._results = [[_Size(size) for size in shape] for shape in results]
            elif latest[1] != results:
                kind = _Kind.VARIES if latest[0] == inputs else _Kind.FOLLOWS
                self._results = [
                    _widened(seen, before, shape, kind)
                    for seen, before, shape in zip(self._results, latest[1], results, strict=True)
                ]

    def added_to(self, known: Sequence[Spec | None]) -> tuple[list[Spec | None], str]:
        """Return the known specs completed by seen sizes, and a remark on their origin."""
        with _lock:
            seen = self._results or [None] * len(known)
            added = [_added(said, sizes) for said, sizes in zip(known, seen, strict=True)]
            calls = counted(self._calls, "call")
        new = [one for one, said in zip(added, known, strict=True) if one is not said]
        if any(isinstance(one, BoundedSpec) for one in new):
            return added, f"the largest size seen so far, in {calls}"
        return added, f"the shape seen so far, in {calls}" if new else ""


def _widened(
    seen: list[_Size] | None, before: list[int], shape: list[int], kind: _Kind
) -> list[_Size] | None:
    if seen is None or len(seen) != len(shape):
        return None
    return [
        one if old == size else _Size(max(one.largest, size), max(one.kind, kind))
        for one, old, size in zip(seen, before, shape, strict=True)
    ]


def _added(said: Spec | None, seen: list[_Size] | None) -> Spec | None:
    if not isinstance(said, tf.TensorSpec) or said.shape.is_fully_defined() or seen is None:
        return said
    static = said.shape.as_list() if said.shape.rank is not None else [None] * len(seen)
    open_dims = [dim for dim, size in enumerate(static) if size is None]
    kinds = [seen[dim].kind for dim in open_dims]
    if _Kind.VARIES in kinds:
        sizes = [
            one.largest if size is None else size for one, size in zip(seen, static, strict=True)
        ]
        changing = [dim for dim in open_dims if seen[dim].kind is not _Kind.FIXED]
        return BoundedSpec(sizes, said.dtype, changing)
    if _Kind.FOLLOWS in kinds:
        return said  # the size follows from the inputs, so a number would be wrong
    return tf.TensorSpec([one.largest for one in seen], said.dtype)
