"""Calls of the ops that stand for XLA's own, and of those that only XLA has kernels for."""
# ruff: noqa: E731 - each call has a short function of its own

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call, apply, raw, traced
from tests.kernels.data import Data, ints, words

# What runs these without XLA compiles them for XLA all the same.
XLA_ALONE = "an op of XLA's"


_one = functools.partial(Call, ulps=64, scale=ARRAY, kind=XLA_ALONE)


def _by(op: str, inputs: tuple[Any, ...], function: Callable[..., Any]) -> Call:
    return _one(op, inputs, function=function)


def _shapes(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 4, 3)
    yield _one("XlaSetDynamicDimensionSize", (x, ints(0), ints(2)))
    removed = lambda x, n: raw("XlaRemoveDynamicDimensionSize")(
        input=raw("XlaSetDynamicDimensionSize")(input=x, dim_index=0, size=n), dim_index=0
    )
    yield _by("XlaRemoveDynamicDimensionSize", (x, ints(2)), removed)
    yield _one("XlaSetBound", (ints(2), ints(4)))
    bounded = lambda x, n: x[: raw("XlaSetBound")(input=n, bound=3)]
    yield _by("StridedSlice", (x, ints(2)), bounded)
    yield _one("XlaBroadcastHelper", (x, data.normal(np.float32, 3), ints([1])))
    yield _one("XlaOptimizationBarrier", ([x, ints(3)],))
    yield _one("XlaSharding", (x,))
    attrs: dict[str, Any] = {"exponent_bits": 5, "mantissa_bits": 7}
    yield _one("XlaReducePrecision", (x,), attrs)
    yield _one("XlaReplicaId", ())
    parts = [x, x + np.float32(1)]
    yield _one("XlaConcatND", (parts,), {"num_concats": [2, 1], "paddings": [1, 0]})
    yield _one("XlaSplitND", (x,), {"N": 2, "num_splits": [2, 1], "paddings": [0, 0]})
    attrs = {"min_range": 0.0, "max_range": 1.0, "mode": "MIN_COMBINED", "transpose_output": False}
    yield _one("XlaDequantize", (np.array([[1, 2], [3, 4]], np.uint32),), attrs)


def _products(data: Data) -> Iterator[Call]:
    from tensorflow.compiler.xla import xla_data_pb2

    dims = xla_data_pb2.DotDimensionNumbers(
        lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]
    )
    inputs = data.normal(np.float32, 3, 4), data.normal(np.float32, 4, 5)
    attrs: dict[str, Any] = {"dimension_numbers": dims.SerializeToString(), "precision_config": ""}
    yield _one("XlaDot", inputs, attrs)
    yield _one("XlaDotV2", inputs, {**attrs, "preferred_element_type": tf.float32})
    dims = xla_data_pb2.ConvolutionDimensionNumbers(
        input_batch_dimension=0, input_feature_dimension=2, input_spatial_dimensions=[1],
        output_batch_dimension=0, output_feature_dimension=2, output_spatial_dimensions=[1],
        kernel_input_feature_dimension=1, kernel_output_feature_dimension=2,
        kernel_spatial_dimensions=[0],
    )  # fmt: skip
    arrays = data.normal(np.float32, 2, 6, 3), data.normal(np.float32, 3, 3, 4)
    windows = ints([1]), ints([[0, 0]]), ints([1]), ints([1]), ints(1)
    attrs = {"dimension_numbers": dims.SerializeToString(), "precision_config": ""}
    yield _one("XlaConv", (*arrays, *windows), attrs)
    yield _one("XlaConvV2", (*arrays, *windows), {**attrs, "preferred_element_type": tf.float32})
    square = data.normal(np.float32, 3, 3)
    square = square + square.T
    attrs = {"max_iter": 100, "epsilon": 1e-6}
    yield _one("XlaSelfAdjointEig", (square,), {**attrs, "lower": True})
    yield _one("XlaSvd", (square,), {**attrs, "precision_config": ""})


def _of_two(function: Callable[..., Any]) -> Any:
    spec = tf.TensorSpec([], tf.float32)
    return traced(function, spec, spec)


def _reducer() -> Any:
    return _of_two(lambda a, b: a + b)


def _windows(data: Data) -> Iterator[Call]:
    x, zero = data.normal(np.float32, 4, 6), np.float32(0)
    reduced = lambda x, zero: raw("XlaReduceWindow")(
        input=x, init_value=zero, window_dimensions=ints([2, 2]), window_strides=ints([1, 2]),
        base_dilations=ints([1, 1]), window_dilations=ints([1, 1]),
        padding=ints([[0, 0], [0, 0]]), computation=_reducer(),
    )  # fmt: skip
    scattered = lambda x, source, zero: raw("XlaSelectAndScatter")(
        operand=x, window_dimensions=ints([2, 2]), window_strides=ints([2, 2]),
        padding=ints([[0, 0], [0, 0]]), source=source, init_value=zero,
        scatter=_reducer(), select=_of_two(lambda a, b: a >= b),
    )  # fmt: skip
    yield _by("XlaReduceWindow", (x, zero), reduced)
    yield _by("XlaSelectAndScatter", (x, data.normal(np.float32, 2, 3), zero), scattered)
    attrs: Any = lambda: {"dimensions_to_reduce": [1], "reducer": _reducer()}
    yield _by("XlaReduce", (x, zero), lambda *pair: apply("XlaReduce", pair, attrs()))
    for op in ("XlaVariadicReduce", "XlaVariadicReduceV2"):
        yield _by(op, (x, zero), lambda x, zero, op=op: apply(op, ([x], [zero]), attrs()))


def _slices(data: Data) -> Iterator[Call]:
    from tensorflow.compiler.xla import xla_data_pb2

    x = data.normal(np.float32, 4, 6)
    yield _one("XlaDynamicSlice", (x, ints([1, 2]), ints([2, 3])))
    update = data.normal(np.float32, 2, 3)
    yield _one("XlaDynamicUpdateSlice", (x, update, ints([1, 2])))
    pads = ints([1, 0]), ints([0, 2]), ints([0, 1])
    yield _one("XlaPad", (x, np.float32(0), *pads))
    dims = xla_data_pb2.GatherDimensionNumbers(
        offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1
    )
    attrs = {"dimension_numbers": dims.SerializeToString(), "indices_are_sorted": False}
    yield _one("XlaGather", (x, ints([0, 2, 3]), ints([1, 6])), attrs)
    scattered = xla_data_pb2.ScatterDimensionNumbers(
        update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0],
        index_vector_dim=1,
    )  # fmt: skip
    function = lambda x, i, u: raw("XlaScatter")(
        operand=x, scatter_indices=i, updates=u, update_computation=_reducer(),
        dimension_numbers=scattered.SerializeToString(), indices_are_sorted=False,
    )  # fmt: skip
    yield _by("XlaScatter", (x, ints([0, 2]), data.normal(np.float32, 2, 6)), function)


def _sorts(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 7)
    yield _one("XlaSort", (x,))
    yield _one("XlaKeyValueSort", (x, data.normal(np.int32, 7)))

    less: Any = lambda: _of_two(lambda a, b: a < b)
    variadic = lambda x: raw("XlaVariadicSort")(
        inputs=[x], dimension=0, comparator=less(), is_stable=True
    )
    yield _by("XlaVariadicSort", (x,), variadic)
    inputs = ints(1), np.array([5, 6, 7], np.uint64), ints([3, 2])
    yield Call("XlaRngBitGenerator", inputs, {"dtype": tf.uint32}, kind=XLA_ALONE)


def _functions(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 4)
    branches = lambda x, condition: raw("XlaIf")(
        cond=condition, inputs=[x], Tout=[x.dtype],
        then_branch=traced(lambda x: x + 1, x), else_branch=traced(lambda x: x * 2, x),
    )  # fmt: skip

    def loop(x: Any) -> Any:
        specs = tf.TensorSpec([], tf.int32), tf.TensorSpec(x.shape, x.dtype)
        until = traced(lambda i, x: i < 3, *specs)
        step = traced(lambda i, x: (i + 1, x * 2), *specs)
        return raw("XlaWhile")(input=[tf.constant(0), x], cond=until, body=step)

    yield _by("XlaIf", (x, np.array(True)), branches)
    yield _by("XlaWhile", (x,), loop)


def _plain(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 4)

    def after(x: Any, op: str, **attrs: Any) -> Any:
        with tf.control_dependencies([raw(op)(**attrs)]):
            return tf.identity(x)

    yield Call("IdentityN", ([x, ints(3)],), ulps=0)
    for op, function in {
        "NoOp": lambda x: after(x, "NoOp"),
        "ControlTrigger": lambda x: after(x, "ControlTrigger"),
        "Assert": lambda x: after(x, "Assert", condition=True, data=[x]),
    }.items():
        yield Call(op, (x,), function=tf.function(function, autograph=False), ulps=0)
    yield Call("FakeParam", (), {"dtype": tf.float32, "shape": [2]}, shapes_only=True)
    yield Call("DeviceIndex", (), {"device_names": ["CPU"]}, shapes_only=True)


def _segments(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 5, 3)
    for name in words("Sum Prod Max Min"):
        yield _one(f"Segment{name}V2", (x, ints([0, 0, 2, 2, 3]), ints(4)))


PARTS = (_shapes, _products, _windows, _slices, _sorts, _functions, _plain, _segments)
