"""Calls of kernels with variables, lists, stacks and functions."""
# ruff: noqa: E731 - each call has a short function of its own

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from tests.kernels.call import ARRAY, Call, apply, traced
from tests.kernels.data import Data, ints, words
from tests.kernels.registry import dtypes

LENGTH = "the length of a list that grew or shrank"


def _variable(array: Any) -> Any:
    # tf.Variable makes those of a function when it is first called, and no others later.
    with tf.init_scope():
        return ResourceVariable(array)


def _updating(op: str, states: list[Any], attrs: dict[str, Any]) -> Callable[..., Any]:
    """Return a function that makes variables, calls the op with them, and reads them."""

    variables: list[Any] = []

    def function(*inputs: Any) -> Any:
        if not variables:
            variables.extend(map(_variable, states))
        made = [variable.assign(array) for variable, array in zip(variables, states, strict=True)]
        with tf.control_dependencies([tensor for tensor in made if not tf.executing_eagerly()]):
            done = apply(op, (*(variable.handle for variable in variables), *inputs), attrs)
        results = [] if done is None or isinstance(done, tf.Operation) else tf.nest.flatten(done)
        with tf.control_dependencies([done] if isinstance(done, tf.Operation) else []):
            return [*results, *(variable.read_value() for variable in variables)]

    return function


def _update(op: str, states: list[Any], inputs: tuple[Any, ...], **options: Any) -> Call:
    attrs = options.pop("attrs", {})
    function = _updating(op, states, attrs)
    note = f"{', '.join(f'{s.dtype}{list(s.shape)}' for s in states)} {attrs or ''}"
    options.setdefault("ulps", 8)
    return Call(op, inputs, function=function, scale=ARRAY, note=note, **options)


def _assignments(data: Data) -> Iterator[Call]:
    for op in words("AssignVariableOp AssignAddVariableOp AssignSubVariableOp"):
        for dtype in dtypes(op, "dtype"):
            yield _update(op, [data.normal(dtype, 3, 2)], (data.normal(dtype, 3, 2),))
    for dtype in dtypes("ReadVariableOp", "dtype"):
        state = [data.normal(dtype, 3, 2)]
        yield _update("ReadVariableOp", state, (), attrs={"dtype": dtype})
        yield _update("VariableShape", state, ())
    yield _update("VarIsInitializedOp", [data.normal(np.float32, 2)], ())
    for dtype in dtypes("ResourceStridedSliceAssign"):
        parts = ints([0, 1]), ints([4, 5]), ints([1, 1]), data.normal(dtype, 4, 4)
        yield _update("ResourceStridedSliceAssign", [data.normal(dtype, 4, 6)], parts)
    for dtype in dtypes("ResourceGather", "dtype"):
        attrs = {"dtype": dtype}
        state = [data.normal(dtype, 4, 3)]
        yield _update("ResourceGather", state, (ints([[0, 3], [1, 1]]),), attrs=attrs)
        attrs = {"dtype": dtype, "batch_dims": 1}
        yield _update("ResourceGather", state, (ints([[0, 2]] * 4),), attrs=attrs)


def _scatters(data: Data) -> Iterator[Call]:
    for name in words("Add Sub Mul Div Max Min Update"):
        op = f"ResourceScatter{name}"
        for dtype, kind in itertools.product(dtypes(op, "dtype"), dtypes(op, "Tindices")):
            state = [data.normal(dtype, 4, 3)]
            indices = np.array([0, 2, 3], kind.as_numpy_dtype)
            yield _update(op, state, (indices, data.positive(dtype, 3, 3)))
            if name != "Update":
                twice = np.array([1, 1, 3], kind.as_numpy_dtype)
                yield _update(op, state, (twice, data.positive(dtype, 3, 3)))
            yield _update(op, state, (indices, data.positive(dtype)))
    for name in words("Add Sub Update"):
        op = f"ResourceScatterNd{name}"
        for dtype in dtypes(op):
            rows = ints([[0], [2]]), data.normal(dtype, 2, 3)
            yield _update(op, [data.normal(dtype, 4, 3)], rows)
            cells = ints([[0, 1], [2, 2]]), data.normal(dtype, 2)
            yield _update(op, [data.normal(dtype, 4, 3)], cells)


# For each optimizer, its variables besides the first, and its inputs: "grad", or a number.
_OPTIMIZERS: dict[str, tuple[int, list[Any]]] = {
    "AdaMax": (2, [0.8, 0.1, 0.9, 0.99, 1e-3, "grad"]),
    "Adadelta": (2, [0.1, 0.9, 1e-3, "grad"]),
    "Adagrad": (1, [0.1, "grad"]),
    "AdagradDA": (2, ["grad", 0.1, 0.01, 0.02, "step"]),
    "AdagradV2": (1, [0.1, 1e-3, "grad"]),
    "Adam": (2, [0.8, 0.9, 0.1, 0.9, 0.99, 1e-3, "grad"]),
    "AddSign": (1, [0.1, 0.9, 0.8, 0.7, "grad"]),
    "CenteredRMSProp": (3, [0.1, 0.9, 0.5, 1.0, "grad"]),
    "Ftrl": (2, ["grad", 0.1, 0.01, 0.02, -0.5]),
    "FtrlV2": (2, ["grad", 0.1, 0.01, 0.02, 0.03, -0.5]),
    "GradientDescent": (0, [0.1, "grad"]),
    "KerasMomentum": (1, [0.1, "grad", 0.9]),
    "Momentum": (1, [0.1, "grad", 0.9]),
    "PowerSign": (1, [0.1, 1.0, 0.8, 0.7, "grad"]),
    "ProximalAdagrad": (1, [0.1, 0.01, 0.02, "grad"]),
    "ProximalGradientDescent": (0, [0.1, 0.01, 0.02, "grad"]),
    "RMSProp": (2, [0.1, 0.9, 0.5, 1e-3, "grad"]),
}
_NESTEROV = ("Adam", "KerasMomentum", "Momentum")


def _optimizers(data: Data) -> Iterator[Call]:
    for name, (slots, values) in _OPTIMIZERS.items():
        op = f"ResourceApply{name}"
        variants: list[dict[str, Any]] = [{}]
        variants += [{"use_nesterov": True}] if name in _NESTEROV else []
        variants += [{"update_slots": False}] if name in ("Adagrad", "AdagradV2") else []
        variants += [{"multiply_linear_by_lr": True}] if name.startswith("Ftrl") else []
        for dtype, attrs in itertools.product(dtypes(op), variants):
            states = [data.normal(dtype, 3, 4)]
            states += [data.positive(dtype, 3, 4) for _ in range(slots)]
            kind = states[0].dtype
            named = {"grad": data.normal(dtype, 3, 4), "step": np.array(3, np.int64)}
            inputs = tuple(
                named[value] if value in named else np.array(value, kind) for value in values
            )
            yield _update(op, states, inputs, attrs=attrs, ulps=128)


def _generators(data: Data) -> Iterator[Call]:
    state = [np.array([5, 6, 7], np.int64)]
    shape = ints([3, 2])
    algorithm = np.array(1, np.int64)
    random: dict[str, Any] = {"shapes_only": True}
    for op in words("StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform"):
        for dtype in dtypes(op, "dtype"):
            yield _update(op, state, (algorithm, shape), attrs={"dtype": dtype}, **random)
    for dtype in dtypes("StatefulUniformFullInt", "dtype"):
        op = "StatefulUniformFullInt"
        yield _update(op, state, (algorithm, shape), attrs={"dtype": dtype}, **random)
    for dtype in dtypes("StatefulUniformInt", "dtype"):
        limits = np.array(1, dtype.as_numpy_dtype), np.array(9, dtype.as_numpy_dtype)
        yield _update("StatefulUniformInt", state, (algorithm, shape, *limits), **random)
    yield _update("RngSkip", state, (algorithm, np.array(9, np.int64)))
    yield _update("RngReadAndSkip", state, (ints(1), np.array(9, np.uint64)))


def _lists(data: Data) -> Iterator[Call]:
    for dtype in dtypes("TensorListStack", "element_dtype"):
        x, row = data.normal(dtype, 3, 2), data.normal(dtype, 2)
        for op, inputs, function in (
            ("TensorListStack", (x,), lambda x: _stacked(_listed(x), x.dtype)),
            ("TensorListFromTensor", (x,), lambda x: _stacked(_listed(x), x.dtype)),
            ("TensorListLength", (x,), lambda x: _length(_listed(x))),
            ("TensorListPopBack", (x,), _popped),
            ("TensorListGetItem", (x, ints(1)), _got),
            ("TensorListSetItem", (x, ints(1), row), _put),
        ):
            kind = LENGTH if op == "TensorListPopBack" else ""
            yield Call(op, inputs, function=function, ulps=0, note=dtype.name, kind=kind)


def _listed(x: Any) -> Any:
    return tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=ints([2]))


def _length(handle: Any) -> Any:
    return tf.raw_ops.TensorListLength(input_handle=handle)


def _stacked(handle: Any, dtype: tf.DType = tf.float32) -> Any:
    return tf.raw_ops.TensorListStack(
        input_handle=handle, element_shape=ints([2]), element_dtype=dtype
    )


def _popped(x: Any) -> Any:
    handle, last = tf.raw_ops.TensorListPopBack(
        input_handle=_listed(x), element_shape=ints([2]), element_dtype=x.dtype
    )
    return last, _length(handle)


def _got(x: Any, i: Any) -> Any:
    return tf.raw_ops.TensorListGetItem(
        input_handle=_listed(x), index=i, element_shape=ints([2]), element_dtype=x.dtype
    )


def _put(x: Any, i: Any, row: Any) -> Any:
    handle = tf.raw_ops.TensorListSetItem(input_handle=_listed(x), index=i, item=row)
    return _stacked(handle, x.dtype)


_ROW = {"element_dtype": tf.float32, "element_shape": ints([2])}
_ROWS = {"element_dtype": tf.float32, "element_shape": ints([2, 2])}


def _lists_of_tensors(data: Data) -> Iterator[Call]:
    x, row = data.normal(np.float32, 4, 2), data.normal(np.float32, 2)
    for op, inputs, function in (
        ("TensorListPushBack", (x, ints(3)), _pushed),
        ("EmptyTensorList", (x, ints(3)), _pushed),
        ("TensorListReserve", (row, ints(3)), _reserved),
        ("TensorListElementShape", (x,), _shaped),
        ("TensorListConcatV2", (x,), _joined),
        ("TensorListSplit", (x,), _split),
        ("TensorListGather", (x, ints([2, 0, 2])), _gathered),
    ):
        yield Call(op, inputs, function=function, ulps=0)
    yield Call("TensorListStack", (x, ints(5)), function=_pushed, kind=LENGTH)


def _pushed(x: Any, most: Any) -> Any:
    handle = tf.raw_ops.EmptyTensorList(max_num_elements=most, **_ROW)
    for n in range(3):
        handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=x[n])
    return _stacked(handle), _length(handle)


def _reserved(row: Any, count: Any) -> Any:
    handle = tf.raw_ops.TensorListReserve(num_elements=count, **_ROW)
    return _stacked(tf.raw_ops.TensorListSetItem(input_handle=handle, index=ints(1), item=row))


def _shaped(x: Any) -> Any:
    return tf.raw_ops.TensorListElementShape(input_handle=_listed(x), shape_type=tf.int32)


def _joined(x: Any) -> Any:
    handle = tf.raw_ops.TensorListFromTensor(
        tensor=tf.reshape(x, [2, 2, 2]), element_shape=_ROWS["element_shape"]
    )
    none = np.zeros((0,), np.int64)
    return tf.raw_ops.TensorListConcatV2(input_handle=handle, leading_dims=none, **_ROWS)


def _split(x: Any) -> Any:
    handle = tf.raw_ops.TensorListSplit(
        tensor=x, element_shape=_ROWS["element_shape"], lengths=np.array([2, 2], np.int64)
    )
    return tf.raw_ops.TensorListStack(input_handle=handle, **_ROWS)


def _gathered(x: Any, indices: Any) -> Any:
    return tf.raw_ops.TensorListGather(input_handle=_listed(x), indices=indices, **_ROW)


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
        shape = tf.TensorShape([2])
        self.shaped = {**self.dtype, "element_shape": shape}
        made = tf.raw_ops.TensorArrayV3(size=3, dynamic_size=False, **self.shaped)
        self.handle, self.flow = made

    def scattered(self) -> _Array:
        return self._filled(tf.raw_ops.TensorArrayScatterV3, indices=[0, 1, 2], value=self.x)

    def written(self) -> _Array:
        for n in range(3):
            self._filled(tf.raw_ops.TensorArrayWriteV3, index=n, value=self.x[n])
        return self

    def split(self) -> _Array:
        lengths = tf.constant([2, 2, 2], tf.int64)
        value = tf.reshape(self.x, [6])
        return self._filled(tf.raw_ops.TensorArraySplitV3, value=value, lengths=lengths)

    def _filled(self, op: Any, **values: Any) -> _Array:
        self.flow = op(handle=self.handle, flow_in=self.flow, **values)
        return self

    def gradient(self) -> _Array:
        self.handle, self.flow = tf.raw_ops.TensorArrayGradV3(
            handle=self.handle, flow_in=self.flow, source="g"
        )
        return self

    def gathered(self) -> Any:
        return tf.raw_ops.TensorArrayGatherV3(
            handle=self.handle, indices=[2, 0], flow_in=self.flow, **self.shaped
        )

    def read(self) -> Any:
        return tf.raw_ops.TensorArrayReadV3(
            handle=self.handle, index=1, flow_in=self.flow, **self.dtype
        )

    def joined(self) -> Any:
        return tf.raw_ops.TensorArrayConcatV3(
            handle=self.handle, flow_in=self.flow, element_shape_except0=[], **self.dtype
        )

    def size(self) -> Any:
        return tf.raw_ops.TensorArraySizeV3(handle=self.handle, flow_in=self.flow)

    def closed(self) -> Any:
        values = self.gathered()
        with tf.control_dependencies([values]):
            tf.raw_ops.TensorArrayCloseV3(handle=self.handle)
        return values


_ARRAY_USES: dict[str, Callable[[_Array], Any]] = {
    "TensorArrayV3": lambda array: array.written().gathered(),
    "TensorArrayWriteV3": lambda array: array.written().gathered(),
    "TensorArrayReadV3": lambda array: array.scattered().read(),
    "TensorArrayScatterV3": lambda array: array.scattered().gathered(),
    "TensorArrayGatherV3": lambda array: array.scattered().gathered(),
    "TensorArrayConcatV3": lambda array: array.scattered().joined(),
    "TensorArraySplitV3": lambda array: array.split().gathered(),
    "TensorArraySizeV3": lambda array: array.scattered().size(),
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


def _branches(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 4)
    for op in ("StatelessIf", "If"):
        for condition in (np.array(True), np.array(False)):
            branch: Any = lambda x, c, op=op: _cond(x, c, op)
            yield Call(op, (x, condition), function=tf.function(branch, autograph=False))
    for op, way in itertools.product(("If", "StatelessIf", "Case", "StatelessCase"), (0, 1)):
        sized: Any = lambda x, way, op=op: _of_two_sizes(x, way, op)
        graph = tf.function(sized, autograph=False)
        yield Call(op, (x, ints(way)), function=graph, note="results of two sizes")
    for number in (0, 1, 2, 7, -1):
        for op in ("StatelessCase", "Case"):
            branches = [lambda x: x + 1, lambda x: 2 * x, tf.square]
            case: Any = lambda x, i, b=branches, op=op: _case(x, i, b, op)
            graph = tf.function(case, autograph=False)
            yield Call(op, (x, ints(number)), function=graph, note=f"branch {number}")


def _cond(x: Any, condition: Any, op: str) -> Any:
    branches = {
        "then_branch": traced(lambda x: x * 2, x),
        "else_branch": traced(lambda x: x - 1, x),
    }
    return getattr(tf.raw_ops, op)(cond=condition, input=[x], Tout=[x.dtype], **branches)


def _of_two_sizes(x: Any, way: Any, op: str) -> Any:
    two, three = (lambda x: x[:2]), (lambda x: x[:3])
    if op.endswith("Case"):
        return _case(x, way, [two, three], op)
    branches = {"then_branch": traced(two, x), "else_branch": traced(three, x)}
    return getattr(tf.raw_ops, op)(cond=way > 0, input=[x], Tout=[x.dtype], **branches)


def _case(x: Any, index: Any, branches: list[Any], op: str) -> Any:
    functions = [traced(branch, x) for branch in branches]
    return getattr(tf.raw_ops, op)(
        branch_index=index, input=[x], Tout=[x.dtype], branches=functions
    )


def _loops(data: Data) -> Iterator[Call]:
    for op, dtype in itertools.product(("While", "StatelessWhile"), (tf.float32, tf.int8, tf.half)):
        x = data.normal(dtype, 4)

        def function(x: Any, op: str = op) -> Any:
            specs = tf.TensorSpec([], tf.int32), tf.TensorSpec(x.shape, x.dtype)
            until = traced(lambda i, x: i < 5, *specs)
            step = traced(lambda i, x: (i + 1, x + x), *specs)
            return getattr(tf.raw_ops, op)(input=[tf.constant(0), x], cond=until, body=step)

        graph = tf.function(function, autograph=False)
        yield Call(op, (x,), function=graph, ulps=0, note=dtype.name)
    x = data.normal(np.float32, 4)
    for op in ("PartitionedCall", "StatefulPartitionedCall"):
        function = lambda x, op=op: _called(op, x)
        yield Call(op, (x,), function=tf.function(function, autograph=False), ulps=1)


def _called(op: str, x: Any) -> Any:
    function = traced(lambda x: x * 3, x)
    return getattr(tf.raw_ops, op)(args=[x], Tout=[x.dtype], f=function)


PARTS = (
    _assignments,
    _scatters,
    _optimizers,
    _generators,
    _lists,
    _lists_of_tensors,
    _arrays,
    _stacks,
    _branches,
    _loops,
)
