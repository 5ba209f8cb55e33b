"""Which regions a program will have, as far as that is known before XLA compiles it."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from hostcall._compiler.partition.partitioner import Partitioner
from hostcall._compiler.regions import writing
from hostcall._compiler.regions.references import NotWholeError
from hostcall_runtime import _library

# Stands for a size that tracing leaves open, and that XLA knows.
_SOME_SIZE = 3

# The shape of a value, by the names of its function and its own.
ShapeOf = Callable[[str, str], tf.TensorShape]


def foreseen_program(
    partitioner: Partitioner, entry: str, shape_of: ShapeOf
) -> writing.Program | None:
    """The program that a function becomes with its host ops; None where it will be partitioned.

    Args:
      partitioner: what would partition it.
      entry: the name of the function.
      shape_of: what tracing knows of shapes.
    """
    try:
        program = writing.write(partitioner.library, entry, partitioner.host_ops, "__foreseen")
    except NotWholeError:
        return None
    infer = _library.load("hostcall._tensorflow").infer_region_shapes
    for function, region in zip(program.functions, program.regions, strict=True):
        shapes = [_as_compiled(shape_of(region.function, value)) for value in region.inputs]
        if not infer(function.SerializeToString(), shapes):
            return None
    return program


def _as_compiled(shape: tf.TensorShape) -> list[int] | None:
    if shape.rank is None:
        return None
    return [_SOME_SIZE if size is None else size for size in shape.as_list()]
