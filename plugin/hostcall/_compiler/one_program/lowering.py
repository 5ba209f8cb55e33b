"""Lowering of one script op: to a custom call, or to a constant if the call can be folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from hostcall._ops import lookup, requested_routes, result_contract, result_shapes
from hostcall._ops.array_specs import NativeSpec
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec, ResidualMode
from hostcall._ops.structures import BoundedSpec, Spec
from hostcall._tf.graph import attributes, protos
from hostcall._tf.types import NodeDef
from hostcall_runtime import _interception
from hostcall_runtime._errors import LoweringError, NotInProgramError

# The most bytes of all folded results: a program holds its constants while TensorFlow keeps it.
_LARGEST = 1 << 20

# Dtypes that XLA packs, and TensorFlow's tensors do not.
_PACKED = ("int2", "uint2", "int4", "uint4")

# An input as the kernel describes it: dtype enum, sizes or bounds, and a flag for each bound.
Operand = tuple[int, list[int], list[bool]]


class BoundedShape(NamedTuple):
    """A shape in XLA: for each dimension its size or bound, and whether it is a bound."""

    dims: list[int]
    dynamic: list[bool]


class LoweredCall(NamedTuple):
    """The custom call that the XLA kernel emits for a script op. It reads fields by these names."""

    target: str
    attributes: str  # an MLIR dictionary
    has_side_effect: bool
    operands: list[int]  # the numbers of the op's inputs in the call
    results: list[BoundedShape]
    foldable: bool  # whether the results may be constants of the program, if all inputs are


def lower(serialized: bytes, operands: Sequence[Operand]) -> LoweredCall:
    """Lower a script op for XLA, or raise a LoweringError; this has no lasting effect."""
    node = protos.node_def_pb2.NodeDef.FromString(serialized)
    spec = lookup.existing_spec_of(node)
    specs = [_as_spec(operand) for operand in operands]
    results = [*result_shapes.resolve(spec, node, specs)]
    free = result_contract.shape_agnostic_of(node)
    _check_out(spec, results)
    _check_predicted(spec, node, results)
    if isinstance(spec, EagerSpec) and spec.differentiable:
        results.append(tf.TensorSpec([], tf.int64))  # the handle of the tape residual
    passed = [i for i in range(len(specs)) if i not in spec.shape_only]
    operands_passed = [specs[i] for i in passed]
    spec.check_call(operands_passed, results)
    pairs = {} if isinstance(spec, NativeSpec) else _pairs(operands_passed, results)
    callback = spec.target_id(_residual_mode(spec, node), free)
    foldable = not free and _is_foldable(spec, specs, results)
    return LoweredCall(
        target=spec.custom_call,
        attributes=_attributes(callback, pairs),
        has_side_effect=node.op != "PyFuncStateless",
        operands=passed,
        results=[
            BoundedShape(list(s.shape), [i in _dynamic_dims(s) for i in range(s.shape.rank)])
            for s in results
        ],
        foldable=foldable,
    )


def evaluate(serialized: bytes, inputs: Sequence[bytes]) -> list[bytes] | None:
    """Fold a script op whose inputs are constants, for the XLA kernel."""
    # Inputs and results are serialized TensorProtos. The result is None if the function raises or
    # its results do not fit the specs: the program fails only if it reaches the call.
    node = protos.node_def_pb2.NodeDef.FromString(serialized)
    spec = lookup.existing_spec_of(node)
    tensors = [protos.tensor_pb2.TensorProto.FromString(tensor) for tensor in inputs]
    operands = [tf.TensorSpec(tensor.tensor_shape, tensor.dtype) for tensor in tensors]
    results = result_shapes.resolve(spec, node, operands)
    try:
        returned = spec.host_function(ResidualMode.NO)(*map(_constant, tensors))
        values = returned if isinstance(returned, list | tuple) else [returned]
        arrays = [np.asarray(value) for value in values]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
    known = [(result.dtype.as_numpy_dtype, tuple(result.shape)) for result in results]
    if [(array.dtype, array.shape) for array in arrays] != known:
        return None
    return [_proto(array, spec) for array, spec in zip(arrays, results, strict=True)]


def _constant(tensor: tf.Tensor) -> object:
    array = tf.make_ndarray(tensor)
    return array if array.ndim else array[()]  # as everywhere, a NumPy scalar for rank 0


def _proto(array: np.ndarray, spec: Spec) -> bytes:
    serialized: bytes = protos.tensor_pb2.TensorProto(
        dtype=spec.dtype.as_datatype_enum,
        tensor_shape=spec.shape.as_proto(),
        tensor_content=array.tobytes(),
    ).SerializeToString()
    return serialized


def _is_foldable(spec: CallbackSpec, operands: Sequence[Spec], results: Sequence[Spec]) -> bool:
    """Return whether the results may be constants if the operands are."""
    if spec.options.table is None or _interception.is_active():
        return False  # a recording or a replay needs each call
    specs = [*operands, *results]
    if any(not isinstance(s, tf.TensorSpec) or s.dtype.name in _PACKED for s in specs):
        return False
    return bool(sum(s.shape.num_elements() * s.dtype.size for s in results) <= _LARGEST)


def _check_out(spec: CallbackSpec, results: Sequence[Spec]) -> None:
    if spec.options.out and any(isinstance(result, BoundedSpec) for result in results):
        raise LoweringError(
            f"hostcall: {spec.description} is declared with out=True, so that the arrays for its "
            "results are made before the call, and with a BoundedSpec, whose size only the call "
            "tells. Remove one of the two."
        )


def _check_predicted(spec: CallbackSpec, node: NodeDef, results: Sequence[Spec]) -> None:
    """Refuse bounded sizes that the rewriting did not foresee: their uses are not checked."""
    if attributes.PREDICTED not in node.attr:
        return  # compiled in a way that does not rewrite functions
    predicted = protos.pairs(node, attributes.PREDICTED)
    for index, result in enumerate(results):
        if any((index, dim) not in predicted for dim in _dynamic_dims(result)):
            asked_for = requested_routes.asked(node) == requested_routes.CUSTOM_CALL
            error = LoweringError if asked_for else NotInProgramError
            raise error(
                f"hostcall: the size of result {index} of {spec.description} is only bounded, "
                f"{result}, for inputs of the sizes that XLA compiles for, and could not be seen "
                "to be so before, when hostcall chose the route. Declare a BoundedSpec for inputs "
                "of all sizes, or say hostcall.declare(function, result=..., route='partition')."
            )


def _as_spec(operand: Operand) -> Spec:
    dtype, dims, dynamic = operand
    if any(dynamic):
        return BoundedSpec(dims, tf.as_dtype(dtype), [i for i, d in enumerate(dynamic) if d])
    return tf.TensorSpec(dims, tf.as_dtype(dtype))


def _residual_mode(spec: CallbackSpec, node: NodeDef) -> ResidualMode:
    if not isinstance(spec, EagerSpec) or not spec.differentiable:
        return ResidualMode.NO
    if attributes.RECORD in node.attr:
        return ResidualMode(node.attr[attributes.RECORD].i)
    # Compiled in a way that does not rewrite functions.
    return ResidualMode.ESCAPING if spec.gradient_wanted else ResidualMode.NO


def _dynamic_dims(spec: Spec) -> tuple[int, ...]:
    return spec.dynamic_dims if isinstance(spec, BoundedSpec) else ()


def _attributes(callback: int, pairs: Mapping[str, Sequence[int]]) -> str:
    """Return the custom call's attributes as an MLIR dictionary; the handler defines them."""
    arrays = [f"{name} = {_array(numbers)}" for name, numbers in pairs.items()]
    return f"{{{', '.join([f'callback = {callback} : i64', *arrays])}}}"


def _pairs(operands: Sequence[Spec], results: Sequence[Spec]) -> dict[str, list[int]]:
    return {
        "dynamic_operands": _dynamic_pairs(operands),
        "dynamic_results": _dynamic_pairs(results),
        "sub_byte_operands": _sub_byte_pairs(operands),
        "sub_byte_results": _sub_byte_pairs(results),
    }


def _dynamic_pairs(specs: Sequence[Spec]) -> list[int]:
    return [n for i, spec in enumerate(specs) for dim in _dynamic_dims(spec) for n in (i, dim)]


def _sub_byte_pairs(specs: Sequence[Spec]) -> list[int]:
    codes = {"int4": 21, "uint4": 22}  # FFI element types
    kinds = [codes.get(spec.dtype.name) for spec in specs]
    return [n for i, code in enumerate(kinds) if code is not None for n in (i, code)]


def _array(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>"
