"""Calls whose values may be refused and that the other tables lack: indices as inputs, empties."""
# ruff: noqa: E731 - each call has a short function of its own

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from tests.kernels.call import Call
from tests.kernels.calls_state import _FLOATS, _PAIR, _SQUARE, _Array, _listed, _of, _stacked
from tests.kernels.data import Data, ints
from tests.kernels.rows import Each, row, rows

_KINDS = (np.int32, np.int64)
ODD = "empty arrays and policies"

one, many = (functools.partial(make, kind=ODD) for make in (row, rows))

_AT: dict[str, Callable[[Any, Any], Any]] = {
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x[:, i],
    "x[i, i]": lambda x, i: x[i, i],
    "x[..., i]": lambda x, i: x[..., i],
    "x[i, 1:]": lambda x, i: x[i, 1:],
    "x[i:i + 2]": lambda x, i: x[i : i + 2],
    "x[tf.newaxis, i]": lambda x, i: x[tf.newaxis, i],
}


def _graph(function: Callable[..., Any]) -> Any:
    return tf.function(function, autograph=False)


def _indexed(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 4, 5)
    for kind, (note, function) in itertools.product(_KINDS, _AT.items()):
        yield Call("StridedSlice", (x, np.array(1, kind)), function=function, note=note)
        gradient = lambda x, i, function=function: tf.gradients(function(x, i), x)
        yield Call("StridedSliceGrad", (x, np.array(1, kind)), function=_graph(gradient), note=note)
    for kind in _KINDS:
        i = np.array(1, kind)
        assign = lambda x, i: tf.raw_ops.TensorStridedSliceUpdate(
            input=x, begin=[i], end=[i + 1], strides=tf.ones([1], i.dtype), value=x[0],
            shrink_axis_mask=1,
        )  # fmt: skip
        yield Call("TensorStridedSliceUpdate", (x, i), function=assign, note="x[i]")
        yield Call("ResourceStridedSliceAssign", (x, i), function=_assigned(), note="x[i]")
        begin = lambda x, i: tf.slice(x, [i, 0], [2, 3])
        yield Call("Slice", (x, i), function=begin, note="a size of two")
        rest = lambda x, i: tf.slice(x, [i, 0], [-1, 3])
        yield Call("Slice", (x, i), function=rest, note="the rest")


def _assigned() -> Callable[[Any, Any], Any]:
    variables: list[Any] = []

    def function(x: Any, i: Any) -> Any:
        if not variables:
            with tf.init_scope():
                variables.append(ResourceVariable(np.zeros((4, 5), np.float32)))
        (variable,) = variables
        done = tf.raw_ops.ResourceStridedSliceAssign(
            ref=variable.handle, begin=[i], end=[i + 1], strides=tf.ones([1], i.dtype), value=x[0],
            shrink_axis_mask=1,
        )  # fmt: skip
        with tf.control_dependencies([done] if done is not None else []):
            return variable.read_value()

    return _graph(function)


_ODD_CALLS = (
    many("GatherV2", ((0, 4), [0, 2], 0), ((3, 0), [0, 2], 0), ((3, 0, 2), [[0, 2]], 0),
         ((2, 0, 3), [0], 1), ((0, 3), [0, 1], 1), Tparams=tf.float32),
    many("GatherV2", ((0, 3, 2), np.zeros((0, 2)), 1), ((2, 3, 0), [[0, 1], [1, 2]], 1),
         batch_dims=1, Tparams=tf.float32),
    many("GatherNd", ((3, 0), [[0], [2]]), ((0, 3), [[0], [2]]), ((0, 3), np.zeros((0, 1))),
         ((0,), np.zeros((2, 0))), Tparams=tf.float32),
    one("ResourceGather", (3, 0), [0, 2], dtype=tf.float32),
    many("ScatterNd", ([[0], [2]], (2, 0), [4, 0]), ([[0], [2]], (2, 3), [0, 3]),
         (np.zeros((2, 0)), (2, 3), [3]), T=tf.float32),
    many("TensorScatterUpdate TensorScatterAdd", ((4, 0), [[0], [2]], (2, 0)),
         ((0, 3), [[0], [2]], (2, 3)), T=tf.float32),
    many("UnsortedSegmentSum UnsortedSegmentMax", ((5, 0), [0, 1, 2, 0, 1], 3), ((2, 3), [0, 1], 2),
         T=tf.float32),
    many("ReverseSequence", ((3, 4, 0), [0, 2, 4]), ((0, 4), []), seq_dim=1, batch_dim=0,
         T=tf.float32),
    one("ResourceScatterAdd ResourceScatterUpdate", (4, 0), [0, 2], (2, 0), dtype=tf.float32),
    one("ResourceScatterNdAdd ResourceScatterNdUpdate", (4, 0), [[0], [2]], (2, 0), T=tf.float32),
    many("FloorDiv FloorMod TruncateDiv Div", ((0, 2), [1, 2]), ((3, 1), [[1, 2]]), ((), (0,)),
         T=tf.int32),
    many("Pow", ([2, 3], [1, 2]), ((3, 1), [[1, 2]]), ((), (0,)), T=Each(tf.int32, tf.int64)),
    one("SparseSoftmaxCrossEntropyWithLogits", (0, 3), [], T=tf.float32),
    one("GatherNd", (3, 4), [[0], [2]], Tparams=tf.float32,
        bad_indices_policy=Each("ERROR", "IGNORE")),
    one("ScatterNd", [[0], [2]], (2, 3), [4, 3], T=tf.float32,
        bad_indices_policy=Each("ERROR", "IGNORE")),
    one("TensorScatterUpdate TensorScatterAdd", (4, 3), [[0], [2]], (2, 3), T=tf.float32,
        bad_indices_policy=Each("ERROR", "IGNORE")),
    one("MatrixInverse Cholesky", (2, 0, 0), T=tf.float32),
    one("OneHot", [], 4, 1.0, 0.0, T=tf.float32),
)  # fmt: skip


def _asserted(x: Any, *conditions: Any) -> Any:
    made = [tf.raw_ops.Assert(condition=condition, data=[x]) for condition in conditions]
    with tf.control_dependencies([op for op in made if op is not None]):
        return tf.identity(x)


def _assertions(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 3)
    yes = np.array(True)
    yield Call("Assert", (x, yes), function=_graph(_asserted), note="one")
    yield Call("Assert", (x, yes, yes), function=_graph(_asserted), note="two")
    numbers = lambda x: tf.raw_ops.CheckNumericsV2(tensor=x, message="m")
    yield Call("CheckNumericsV2", (x,), function=numbers)


def _arrays(data: Data) -> Iterator[Call]:
    for dtype in (np.float32, np.int32):
        x = data.normal(dtype, 3, 2)
        for op, inputs, use in (
            ("TensorArrayReadV3", (ints(1),), _read),
            ("TensorArrayWriteV3", (ints(1),), _written),
            ("TensorArrayGatherV3", (ints([2, 0]),), _gathered),
            ("TensorArrayScatterV3", (ints([0, 2, 1]),), _scattered),
            ("TensorArraySplitV3", (np.array([2, 2, 2], np.int64),), _split),
            ("TensorArrayV3", (ints(3),), _sized),
        ):
            yield Call(op, (x, *inputs), function=_graph(use), note=np.dtype(dtype).name)


def _read(x: Any, i: Any) -> Any:
    array = _Array(x).scattered()
    return array.use("Read", index=i, **array.dtype)


def _written(x: Any, i: Any) -> Any:
    array = _Array(x)
    for n in (0, 2):
        array.filled("Write", index=n, value=x[n])
    return array.filled("Write", index=i, value=x[1]).gathered()


def _gathered(x: Any, indices: Any) -> Any:
    array = _Array(x).scattered()
    return array.use("Gather", indices=indices, **array.dtype, **array.shape)


def _scattered(x: Any, indices: Any) -> Any:
    return _Array(x).filled("Scatter", indices=indices, value=x).gathered()


def _split(x: Any, lengths: Any) -> Any:
    array = _Array(x)
    return array.filled("Split", value=tf.reshape(x, [6]), lengths=lengths).gathered()


def _sized(x: Any, size: Any) -> Any:
    handle, flow = tf.raw_ops.TensorArrayV3(
        size=size, dtype=x.dtype, element_shape=tf.TensorShape([2])
    )
    flow = tf.raw_ops.TensorArrayWriteV3(handle=handle, index=2, value=x[2], flow_in=flow)
    return tf.raw_ops.TensorArrayReadV3(handle=handle, index=2, flow_in=flow, dtype=x.dtype)


def _lists(data: Data) -> Iterator[Call]:
    x, row = data.normal(np.float32, 4, 2), data.normal(np.float32, 2)
    long = np.array([2, 2], np.int64)
    for op, inputs, make in (
        ("TensorListReserve", (ints(3), ints(1)), _unset),
        ("TensorListReserve", (row, ints(3), ints(1)), _reserved),
        ("TensorListPopBack", (x, ints(2)), _emptied),
        ("TensorListResize", (x, ints(3)), _resized),
        ("TensorListSplit", (x, long), _cut),
        ("TensorListGather", (x, ints([2, 0, 2])), _list_gathered),
        ("TensorListConcatV2", (x, ints(3)), _concatenated),
    ):
        yield Call(op, inputs, function=make)


def _unset(count: Any, i: Any) -> Any:
    handle = tf.raw_ops.TensorListReserve(num_elements=count, **_PAIR, **_FLOATS)
    return _of("GetItem", handle, index=i, **_PAIR, **_FLOATS)


def _reserved(row: Any, count: Any, i: Any) -> Any:
    handle = tf.raw_ops.TensorListReserve(num_elements=count, **_PAIR, **_FLOATS)
    return _stacked(_of("SetItem", handle, index=i, item=row))


def _emptied(x: Any, count: Any) -> Any:
    """Pop as many elements as `count` says, in a loop."""
    pop = lambda n, handle: (n + 1, _of("PopBack", handle, **_PAIR, **_FLOATS)[0])
    _, handle = tf.while_loop(lambda n, handle: n < count, pop, [tf.constant(0), _listed(x)])
    return _of("Length", handle)


def _resized(x: Any, size: Any) -> Any:
    return _of("Length", _of("Resize", _listed(x), size=size))


def _cut(x: Any, lengths: Any) -> Any:
    handle = tf.raw_ops.TensorListSplit(tensor=x, lengths=lengths, **_SQUARE)
    return _of("Stack", handle, **_SQUARE, **_FLOATS)


def _list_gathered(x: Any, indices: Any) -> Any:
    return _of("Gather", _listed(x), indices=indices, **_PAIR, **_FLOATS)


def _concatenated(x: Any, count: Any) -> Any:
    handle = tf.raw_ops.TensorListReserve(num_elements=count, **_SQUARE, **_FLOATS)
    handle = _of("SetItem", handle, index=0, item=x[:2])
    none = np.zeros((0,), np.int64)
    return _of("ConcatV2", handle, leading_dims=none, **_SQUARE, **_FLOATS)


def _stacks(data: Data) -> Iterator[Call]:
    def popped(x: Any, most: Any) -> Any:
        handle = tf.raw_ops.StackV2(max_size=most, elem_type=x.dtype, stack_name="s")
        with tf.control_dependencies([tf.raw_ops.StackPushV2(handle=handle, elem=x)]):
            top = tf.raw_ops.StackPushV2(handle=handle, elem=2 * x)
        with tf.control_dependencies([top]):
            return tf.raw_ops.StackPopV2(handle=handle, elem_type=x.dtype)

    x = data.normal(np.float32, 3)
    yield Call("StackPushV2", (x, ints(4)), function=_graph(popped))


PARTS = (_indexed, _assertions, _arrays, _lists, _stacks, *_ODD_CALLS)
