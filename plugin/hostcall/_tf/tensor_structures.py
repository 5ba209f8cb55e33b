"""Structures of tensors, and the TypeSpecs of their leaves."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import composite_tensor as _composite_tensor
from tensorflow.python.framework import tensor as _tensor
from tensorflow.python.framework import type_spec as _type_spec
from tensorflow.python.util import nest as _nest
from tensorflow.python.util import variable_utils as _variable_utils

CompositeTensor = _composite_tensor.CompositeTensor
TypeSpec = _type_spec.TypeSpec
flatten_up_to = _nest.flatten_up_to
convert_variables_to_tensors = _variable_utils.convert_variables_to_tensors


def type_spec_of(value: Any) -> Any:
    """The TypeSpec of a composite tensor."""
    return _type_spec.type_spec_from_value(value)


def is_within(spec: Any, wanted: Any) -> bool:
    """Whether all values that one TypeSpec stands for are among those of another; names apart."""
    if isinstance(spec, _tensor.TensorSpec) and isinstance(wanted, _tensor.TensorSpec):
        same: bool = spec.dtype == wanted.dtype and spec.shape.is_subtype_of(wanted.shape)
        return same
    return bool(spec.is_subtype_of(wanted))


def paths_of(structure: Any) -> list[tuple[Any, ...]]:
    """The indices and keys that lead to each leaf of a structure."""
    return [path for path, _ in _nest.flatten_with_tuple_paths(structure)]
