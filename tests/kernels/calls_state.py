"""Calls of kernels with variables, lists, stacks and functions."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tests.kernels.call import Call, raw, traced
from tests.kernels.data import Data, ints, words
from tests.kernels.registry import dtypes
from tests.kernels.rows import Each, every, positive, row, rows

LENGTH = "the length of a list that grew or shrank"


def _seed(data: Data, dtype: tf.DType) -> Any:
    return np.array([5, 6, 7], np.int64)


_VARIABLES = (
    row("AssignVariableOp AssignAddVariableOp AssignSubVariableOp", (3, 2), (3, 2)),
    row("ReadVariableOp", (3, 2)),
    row("VarIsInitializedOp", (2,)),
    row("ResourceStridedSliceAssign", (4, 6), [0, 1], [4, 5], [1, 1], (4, 4)),
    row("ResourceGather", (4, 3), [[0, 3], [1, 1]]),
    row("ResourceGather", (4, 3), [[0, 2]] * 4, batch_dims=1),
    *(
        row(f"ResourceScatter{name}", (4, 3), places, Each(positive(3, 3), positive()),
            Tindices=every)
        for name in words("Add Sub Mul Div Max Min Update")
        for places in ([0, 2, 3], [1, 1, 3])[: 1 if name == "Update" else 2]
    ),
    rows("ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdUpdate",
         ((4, 3), [[0], [2]], (2, 3)), ((4, 3), [[0, 1], [2, 2]], (2,))),
    row("StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt",
        _seed, 1, [3, 2], shapes_only=True),
    row("StatefulUniformInt", _seed, 1, [3, 2], 1, 9, shapes_only=True),
    row("RngSkip", _seed, 1, 9),
    row("RngReadAndSkip", _seed, 1, 9),
)  # fmt: skip


def _shapes_of_variables(data: Data) -> Iterator[Call]:
    for dtype in dtypes("ReadVariableOp", "dtype"):
        yield from row("VariableShape", lambda data, _, dtype=dtype: data.normal(dtype, 3, 2))(data)


# For each optimizer, its variables besides the first, and its inputs, the gradient among them.
_GRADIENT = (3, 4)
_OPTIMIZERS: dict[str, tuple[int, list[Any]]] = {
    "AdaMax": (2, [0.8, 0.1, 0.9, 0.99, 1e-3, _GRADIENT]),
    "Adadelta": (2, [0.1, 0.9, 1e-3, _GRADIENT]),
    "Adagrad": (1, [0.1, _GRADIENT]),
    "AdagradDA": (2, [_GRADIENT, 0.1, 0.01, 0.02, 3]),
    "AdagradV2": (1, [0.1, 1e-3, _GRADIENT]),
    "Adam": (2, [0.8, 0.9, 0.1, 0.9, 0.99, 1e-3, _GRADIENT]),
    "AddSign": (1, [0.1, 0.9, 0.8, 0.7, _GRADIENT]),
    "CenteredRMSProp": (3, [0.1, 0.9, 0.5, 1.0, _GRADIENT]),
    "Ftrl": (2, [_GRADIENT, 0.1, 0.01, 0.02, -0.5]),
    "FtrlV2": (2, [_GRADIENT, 0.1, 0.01, 0.02, 0.03, -0.5]),
    "GradientDescent": (0, [0.1, _GRADIENT]),
    "KerasMomentum": (1, [0.1, _GRADIENT, 0.9]),
    "Momentum": (1, [0.1, _GRADIENT, 0.9]),
    "PowerSign": (1, [0.1, 1.0, 0.8, 0.7, _GRADIENT]),
    "ProximalAdagrad": (1, [0.1, 0.01, 0.02, _GRADIENT]),
    "ProximalGradientDescent": (0, [0.1, 0.01, 0.02, _GRADIENT]),
    "RMSProp": (2, [0.1, 0.9, 0.5, 1e-3, _GRADIENT]),
}
_VARIANTS: dict[str, dict[str, Any]] = {
    **{op: {"use_nesterov": Each(False, True)} for op in words("Adam KerasMomentum Momentum")},
    **{op: {"update_slots": Each(True, False)} for op in words("Adagrad AdagradV2")},
    **{op: {"multiply_linear_by_lr": Each(False, True)} for op in words("Ftrl FtrlV2")},
}
_APPLIED = tuple(
    row(f"ResourceApply{name}", (3, 4), *[positive(3, 4)] * slots, *inputs, ulps=128,
        **_VARIANTS.get(name, {}))
    for name, (slots, inputs) in _OPTIMIZERS.items()
)  # fmt: skip


def _lists(data: Data) -> Iterator[Call]:
    for dtype in dtypes("TensorListStack", "element_dtype"):
        x, row = data.normal(dtype, 3, 2), data.normal(dtype, 2)
        for op, inputs, function in (
            ("TensorListStack", (x,), lambda x: _stacked(_listed(x), x.dtype)),
            ("TensorListFromTensor", (x,), lambda x: _stacked(_listed(x), x.dtype)),
            ("TensorListLength", (x,), lambda x: _of("Length", _listed(x))),
            ("TensorListPopBack", (x,), _popped),
            ("TensorListGetItem", (x, ints(1)), _got),
            ("TensorListSetItem", (x, ints(1), row), _put),
        ):
            kind = LENGTH if op == "TensorListPopBack" else ""
            yield Call(op, inputs, function=function, ulps=0, note=dtype.name, kind=kind)
    x, row = data.normal(np.float32, 4, 2), data.normal(np.float32, 2)
    for op, inputs, make in (
        ("TensorListPushBack", (x, ints(3)), _pushed),
        ("EmptyTensorList", (x, ints(3)), _pushed),
        ("TensorListReserve", (row, ints(3)), _reserved),
        ("TensorListElementShape", (x,), _shaped),
        ("TensorListConcatV2", (x,), _joined),
        ("TensorListSplit", (x,), _split),
        ("TensorListGather", (x, ints([2, 0, 2])), _gathered),
    ):
        yield Call(op, inputs, function=make, ulps=0)
    yield Call("TensorListStack", (x, ints(5)), function=_pushed, kind=LENGTH)


def _of(op: str, handle: Any, **attrs: Any) -> Any:
    return raw(f"TensorList{op}")(input_handle=handle, **attrs)


_PAIR, _SQUARE = {"element_shape": ints([2])}, {"element_shape": ints([2, 2])}
_FLOATS = {"element_dtype": tf.float32}


def _listed(x: Any) -> Any:
    return tf.raw_ops.TensorListFromTensor(tensor=x, **_PAIR)


def _stacked(handle: Any, dtype: tf.DType = tf.float32) -> Any:
    return _of("Stack", handle, element_dtype=dtype, **_PAIR)


def _popped(x: Any) -> Any:
    handle, last = _of("PopBack", _listed(x), element_dtype=x.dtype, **_PAIR)
    return last, _of("Length", handle)


def _got(x: Any, i: Any) -> Any:
    return _of("GetItem", _listed(x), index=i, element_dtype=x.dtype, **_PAIR)


def _put(x: Any, i: Any, row: Any) -> Any:
    return _stacked(_of("SetItem", _listed(x), index=i, item=row), x.dtype)


def _pushed(x: Any, most: Any) -> Any:
    handle = tf.raw_ops.EmptyTensorList(max_num_elements=most, **_PAIR, **_FLOATS)
    for n in range(3):
        handle = _of("PushBack", handle, tensor=x[n])
    return _stacked(handle), _of("Length", handle)


def _reserved(row: Any, count: Any) -> Any:
    handle = tf.raw_ops.TensorListReserve(num_elements=count, **_PAIR, **_FLOATS)
    return _stacked(_of("SetItem", handle, index=ints(1), item=row))


def _shaped(x: Any) -> Any:
    return _of("ElementShape", _listed(x), shape_type=tf.int32)


def _joined(x: Any) -> Any:
    handle = tf.raw_ops.TensorListFromTensor(tensor=tf.reshape(x, [2, 2, 2]), **_SQUARE)
    none = np.zeros((0,), np.int64)
    return _of("ConcatV2", handle, leading_dims=none, **_SQUARE, **_FLOATS)


def _split(x: Any) -> Any:
    handle = tf.raw_ops.TensorListSplit(tensor=x, lengths=np.array([2, 2], np.int64), **_SQUARE)
    return _of("Stack", handle, **_SQUARE, **_FLOATS)


def _gathered(x: Any, indices: Any) -> Any:
    return _of("Gather", _listed(x), indices=indices, **_PAIR, **_FLOATS)


def _arrays(data: Data) -> Iterator[Call]:
    for dtype in dtypes("TensorArrayReadV3", "dtype"):
        x = data.normal(dtype, 3, 2)
        for op, use in _ARRAY_USES.items():
            graph = tf.function(lambda x, use=use: use(_Array(x)), autograph=False)
            yield Call(op, (x,), function=graph, ulps=0, note=dtype.name)


class _Array:
    """A TensorArray of TensorFlow 1 that holds the rows of a matrix."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.dtype = {"dtype": x.dtype}
        self.shape = {"element_shape": tf.TensorShape([2])}
        made = tf.raw_ops.TensorArrayV3(size=3, dynamic_size=False, **self.dtype, **self.shape)
        self.handle, self.flow = made

    def use(self, what: str, **values: Any) -> Any:
        op = getattr(tf.raw_ops, f"TensorArray{what}V3")
        return op(handle=self.handle, flow_in=self.flow, **values)

    def filled(self, what: str, **values: Any) -> Self:
        self.flow = self.use(what, **values)
        return self

    def scattered(self) -> Self:
        return self.filled("Scatter", indices=[0, 1, 2], value=self.x)

    def written(self) -> Self:
        for n in range(3):
            self.filled("Write", index=n, value=self.x[n])
        return self

    def split(self) -> Self:
        lengths = tf.constant([2, 2, 2], tf.int64)
        return self.filled("Split", value=tf.reshape(self.x, [6]), lengths=lengths)

    def gradient(self) -> Self:
        self.handle, self.flow = self.use("Grad", source="g")
        return self

    def gathered(self) -> Any:
        return self.use("Gather", indices=[2, 0], **self.dtype, **self.shape)

    def closed(self) -> Any:
        values = self.gathered()
        with tf.control_dependencies([values]):
            tf.raw_ops.TensorArrayCloseV3(handle=self.handle)
        return values


_ARRAY_USES: dict[str, Callable[[_Array], Any]] = {
    "TensorArrayV3": lambda array: array.written().gathered(),
    "TensorArrayWriteV3": lambda array: array.written().gathered(),
    "TensorArrayReadV3": lambda array: array.scattered().use("Read", index=1, **array.dtype),
    "TensorArrayScatterV3": lambda array: array.scattered().gathered(),
    "TensorArrayGatherV3": lambda array: array.scattered().gathered(),
    "TensorArrayConcatV3": lambda array: array.scattered().use(
        "Concat", element_shape_except0=[], **array.dtype
    ),
    "TensorArraySplitV3": lambda array: array.split().gathered(),
    "TensorArraySizeV3": lambda array: array.scattered().use("Size"),
    "TensorArrayCloseV3": lambda array: array.scattered().closed(),
    "TensorArrayGradV3": lambda array: array.scattered().gradient().scattered().gathered(),
}


def _stacks(data: Data) -> Iterator[Call]:
    for op in words("StackV2 StackPushV2 StackPopV2 StackCloseV2"):
        graph = tf.function(_pushed_and_popped, autograph=False)
        yield Call(op, (data.normal(np.float32, 3),), function=graph, ulps=0)


def _pushed_and_popped(x: Any) -> Any:
    raw = tf.raw_ops
    handle = raw.StackV2(max_size=ints(4), elem_type=x.dtype, stack_name="s")
    with tf.control_dependencies([raw.StackPushV2(handle=handle, elem=x)]):
        top = raw.StackPushV2(handle=handle, elem=2 * x)
    with tf.control_dependencies([top]):
        last = raw.StackPopV2(handle=handle, elem_type=x.dtype)
    with tf.control_dependencies([last]):
        first = raw.StackPopV2(handle=handle, elem_type=x.dtype)
    with tf.control_dependencies([first]):
        raw.StackCloseV2(handle=handle)
    return first, last


def _graph(function: Any, *options: Any) -> Any:
    return tf.function(lambda *inputs: function(*options, *inputs), autograph=False)


def _functions(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 4)
    two, three = (lambda x: x[:2]), (lambda x: x[:3])
    for op in ("StatelessIf", "If"):
        for condition in (np.array(True), np.array(False)):
            ways = lambda x: x * 2, lambda x: x - 1
            yield Call(op, (x, condition), function=_graph(_cond, op, *ways))
        for way in (0, 1):
            graph = _graph(lambda op, x, way: _cond(op, two, three, x, way > 0), op)
            yield Call(op, (x, ints(way)), function=graph, note="results of two sizes")
    for op in ("StatelessCase", "Case"):
        for way in (0, 1):
            graph = _graph(_case, op, [two, three])
            yield Call(op, (x, ints(way)), function=graph, note="results of two sizes")
        for number in (0, 1, 2, 7, -1):
            graph = _graph(_case, op, [lambda x: x + 1, lambda x: 2 * x, tf.square])
            yield Call(op, (x, ints(number)), function=graph, note=f"branch {number}")
    for op, dtype in itertools.product(("While", "StatelessWhile"), (tf.float32, tf.int8, tf.half)):
        values = data.normal(dtype, 4)
        yield Call(op, (values,), function=_graph(_loop, op), ulps=0, note=dtype.name)
    for op in ("PartitionedCall", "StatefulPartitionedCall"):
        yield Call(op, (x,), function=_graph(_called, op), ulps=1)


def _cond(op: str, one: Any, other: Any, x: Any, condition: Any) -> Any:
    branches = {"then_branch": traced(one, x), "else_branch": traced(other, x)}
    return raw(op)(cond=condition, input=[x], Tout=[x.dtype], **branches)


def _case(op: str, branches: list[Any], x: Any, index: Any) -> Any:
    functions = [traced(branch, x) for branch in branches]
    return raw(op)(branch_index=index, input=[x], Tout=[x.dtype], branches=functions)


def _loop(op: str, x: Any) -> Any:
    specs = tf.TensorSpec([], tf.int32), tf.TensorSpec(x.shape, x.dtype)
    until = traced(lambda i, x: i < 5, *specs)
    step = traced(lambda i, x: (i + 1, x + x), *specs)
    return raw(op)(input=[tf.constant(0), x], cond=until, body=step)


def _called(op: str, x: Any) -> Any:
    return raw(op)(args=[x], Tout=[x.dtype], f=traced(lambda x: x * 3, x))


PARTS = (
    _shapes_of_variables, _lists, _arrays, _stacks, _functions, *_VARIABLES, *_APPLIED
)  # fmt: skip
