"""Results that may have any shape, or any with so many elements: nothing in a program looks at it.

Such a result is not used, or the program takes the elements alone and gives them a shape itself.
XLA is told of a vector then, and the function's results are made vectors before they are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks import result_contract
from hostcall._callbacks.specs import BoundedSpec, Spec
from hostcall._tf import attributes, protos
from hostcall._tf.types import NodeDef

# In the place of a number of elements.
UNUSED = -1

# By the numbers of the results: how many elements each has, or UNUSED.
FreeShapes = Mapping[int, int]


def write(node: NodeDef, free: FreeShapes) -> None:
    """Writes onto a script op which of its results have free shapes."""
    numbers = protos.integer_list([n for pair in sorted(free.items()) for n in pair])
    node.attr[attributes.FREE_SHAPES].list.CopyFrom(numbers)


def of_node(node: NodeDef) -> dict[int, int]:
    """What `write` has left on a node."""
    if attributes.FREE_SHAPES not in node.attr:
        return {}
    numbers = node.attr[attributes.FREE_SHAPES].list.i
    return dict(zip(numbers[::2], numbers[1::2], strict=True))


def completed(specs: Sequence[Spec], free: FreeShapes) -> list[Spec]:
    """Specs with vectors for the results of free shape, unless their shapes are known after all."""
    return [
        tf.TensorSpec([_length(free[index])], spec.dtype) if _is_open(spec, index, free) else spec
        for index, spec in enumerate(specs)
    ]


def _is_open(spec: Spec, index: int, free: FreeShapes) -> bool:
    known = isinstance(spec, BoundedSpec) or spec.shape.is_fully_defined()
    return index in free and not known


def _length(count: int) -> int:
    return 0 if count == UNUSED else count


def suffix(free: FreeShapes) -> str:
    """What tells the name of a target with these results of free shape from those of others."""
    return "".join(f"/{index}:{count}" for index, count in sorted(free.items()))


def returning_vectors(
    function: Callable[..., Any], spec: result_contract.Callback, free: FreeShapes
) -> Callable[..., Any]:
    """A function of arrays, whose results of free shape are vectors."""
    if not free:
        return function
    any_shape = [tf.TensorSpec(None, dtype) for dtype in spec.outputs.dtypes]
    contract = result_contract.of(spec, any_shape)

    def call(*arrays: Any) -> list[Any]:
        return _as_vectors(contract.arrays(function(*arrays)), free)

    return call


def making_vectors(
    to_arrays: Callable[[Any], list[Any]], free: FreeShapes
) -> Callable[[Any], list[Any]]:
    """The same for what makes arrays of the results of a function of tensors."""
    if not free:
        return to_arrays
    return lambda returned: _as_vectors(to_arrays(returned), free)


def _as_vectors(arrays: Sequence[Any], free: FreeShapes) -> list[Any]:
    """Arrays with vectors in the place of those of free shape."""
    found = list(arrays)
    for index, count in free.items():
        if index < len(found) and hasattr(found[index], "reshape"):
            vector = found[index].reshape(-1)
            found[index] = vector[:0] if count == UNUSED else vector
    return found
