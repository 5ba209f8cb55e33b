"""Registry entries of borrowed, device, batched and native functions.

Borrowed views and lent arrays are valid for one call only. In a compiled program
csrc/runtime/arguments.cc makes the views and csrc/runtime/loans.cc the lent arrays, on a GPU too,
and the runtime checks that neither outlives the call. This module does the same for calls by
TensorFlow's own kernels: eagerly, in plain graphs, and between the clusters of a partitioned
function. The arrays of these kernels are always on the host.
"""

from __future__ import annotations

import dataclasses
import gc
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._functions import native_code
from hostcall._functions.native_code import Native, NativeEntry, contradiction
from hostcall._functions.user_function import UserFunction
from hostcall._ops import advice, callback_spec, result_shapes
from hostcall._ops.result_contract import ShapeAgnosticResults
from hostcall._ops.structures import BoundedSpec, Inputs, Outputs, Spec, merge, static_shape
from hostcall_runtime import _device_arrays, _trees, prepared
from hostcall_runtime._errors import LoweringError, ResultError


class BorrowingSpec(callback_spec.NumpySpec):
    """A function from arrays to arrays that borrows its arguments, its `out` arrays, or both."""

    def _returned(self, arrays: Sequence[Any]) -> object:
        operands = [tf.TensorSpec(np.shape(array), _dtype_of(array)) for array in arrays]
        declared = result_shapes.known(self, None, operands) if self.options.out else []
        if not self.options.only_reads:
            arrays = self.own(arrays)
        return self.call_borrowing(self.kernel_function(), arrays, declared)

    def call_borrowing(
        self, function: Callable[..., Any], arrays: Sequence[Any], declared: Sequence[Spec]
    ) -> object:
        """Call the function, and return arrays that share no memory with the borrowed ones."""
        # `declared` has the known specs of the results, for a function that takes `out`. A
        # ResultError tells of an `out` array of unknown size, or a borrowed array still in use.
        views: list[np.ndarray] = []
        if self.options.borrow:
            views = [array for array in arrays if isinstance(array, np.ndarray)]
            for array in views:
                array.flags.writeable = False
        given: dict[str, Any] = {}
        outs: list[np.ndarray] = []
        if self.options.out:
            outs = [self._new_out(index, declared) for index in range(len(declared))]
            given["out"] = outs[0] if len(outs) == 1 else tuple(outs)
        # The tuple that holds several `out` arrays is borrowed as well.
        borrowed = [*views, *outs, given.get("out")]
        before = _references(borrowed)
        returned = function(*arrays, **given)
        if outs:
            self._check_is_out(returned, given["out"])
        returned = None if outs else detached(returned, views)
        self._check_let_go(borrowed, before)
        return list(outs) if outs else returned

    def _new_out(self, index: int, declared: Sequence[Spec]) -> np.ndarray:
        spec = declared[index]
        if isinstance(spec, BoundedSpec) or not spec.shape.is_fully_defined():
            raise ResultError(
                f"{self.description} is declared with out=True, so that the array for its result "
                f"{index} is made before the call, and the size is not known by then: all that is "
                f"declared is {spec if isinstance(spec, BoundedSpec) else spec.shape}. Declare it: "
                f"{advice.declaration(self, declared)}"
            )
        return np.empty(spec.shape, spec.dtype.as_numpy_dtype)

    def _check_is_out(self, returned: object, out: object) -> None:
        given, expected = (
            part if isinstance(part, tuple | list) else [part] for part in (returned, out)
        )
        is_out = len(given) == len(expected) and all(map(operator.is_, given, expected))
        if returned is None or is_out:
            return  # NumPy's functions return their `out` argument
        raise ResultError(
            f"{self.title} returns a value that is not `out`, which it was to write its results "
            "into: it is declared with out=True. Write out[...] = value and return nothing, or "
            f"remove out=True. This is {self.description}."
        )

    def _check_let_go(self, borrowed: list[Any], before: list[int]) -> None:
        if self.options.timeout is not None:
            return  # the calling thread may still be inside the function, and hold references
        if _more(borrowed, before):
            gc.collect()  # a garbage cycle that the function has left behind is not an error
        if _more(borrowed, before):
            raise ResultError(
                f"{self.title} has returned, and something still refers to an array that it "
                "borrowed for the call alone: it is declared with borrow=True or out=True. Keep a "
                f"copy, np.array(x), or remove these. This is {self.description}."
            )


def _references(objects: list[Any]) -> list[int]:
    return [0 if thing is None else sys.getrefcount(thing) for thing in objects]


def _more(objects: list[Any], before: list[int]) -> bool:
    return any(now > then for now, then in zip(_references(objects), before, strict=True))


def detached(returned: object, views: Sequence[np.ndarray]) -> object:
    """Copy each returned array that may share memory with a borrowed one."""
    if isinstance(returned, list | tuple):
        return [detached(value, views) for value in returned]
    if isinstance(returned, np.ndarray) and any(
        np.may_share_memory(returned, array) for array in views
    ):
        return returned.copy()
    return returned


def _dtype_of(array: object) -> tf.DType:
    """Return the dtype of an array, of a NumPy scalar, or of a string that the kernel passes."""
    dtype = getattr(array, "dtype", None)
    return tf.string if dtype is None or dtype.kind in "OSU" else tf.as_dtype(dtype)


class LendingSpec(BorrowingSpec):
    """A function from arrays to arrays that takes lent arrays."""

    def call_borrowing(
        self, function: Callable[..., Any], arrays: Sequence[Any], declared: Sequence[Spec]
    ) -> object:
        """Call the function; raise a ResultError if memory that it was lent is still in use."""
        loans = prepared().Loans([np.asarray(array) for array in arrays])
        try:
            returned = _owned(_device_arrays.take_on_host(function(*loans.shown), self.title))
            is_used = loans.any_is_used()
        finally:
            loans.end()
        if is_used:
            raise ResultError(
                f"{self.title} has returned, and something still has the memory of an array that "
                'it was lent for the call alone: it is declared with memory="device". Keep a copy '
                f"of it. This is {self.description}."
            )
        return returned


def _owned(returned: Any) -> object:
    """Copy each returned array that is a view, so that none keeps a loan alive."""
    if isinstance(returned, list | tuple):
        return type(returned)(map(_owned, returned))
    is_view = isinstance(returned, np.ndarray) and returned.base is not None
    return returned.copy() if is_view else returned


class NativeSpec(callback_spec.NumpySpec):
    """Native code (ops PyFunc and PyFuncStateless)."""

    custom_call = native_code.TARGET  # a compiled program's; other callers go through Python
    function: Native

    def _call(self, lends: bool) -> Callable[..., Any]:
        return lambda *arrays: self.function.run(arrays, self.inputs.pack_specs)

    def _register(
        self, mode: callback_spec.ResidualMode, free: ShapeAgnosticResults
    ) -> tuple[Any, int]:
        entry = NativeEntry(self.function, self.description, self.site())
        return entry, entry.callback_id

    @property
    def recorded_name(self) -> str:
        return self.user.given_name or f"native:{self.function.code.name}"

    def check_call(self, operands: Sequence[Spec], results: Sequence[Spec]) -> None:
        """Raise a LoweringError unless the code takes the operands and makes the results."""
        wrong = self.function.complaint(operands, results) or self._contradiction(operands, results)
        if wrong:
            raise LoweringError(f"hostcall: {wrong} This is {self.description}.")

    def _contradiction(self, operands: Sequence[Spec], results: Sequence[Spec]) -> str:
        """Describe how the results contradict the declared result, or return ""."""
        structure = self.function.structure(self.inputs.pack_specs(operands))
        declared = tf.nest.flatten(structure)
        if len(declared) == len(results) and all(
            one.dtype == other.dtype and one.shape.is_compatible_with(other.shape)
            for one, other in zip(declared, results, strict=True)
        ):
            return ""
        return contradiction(declared, results)


def class_for(user: UserFunction) -> type[callback_spec.NumpySpec]:
    """Return the class of the specs of a function of arrays."""
    if user.options.on_device:
        return LendingSpec
    if user.options.shares_memory:
        return BorrowingSpec
    return NativeSpec if isinstance(user.function, Native) else callback_spec.NumpySpec


def make_batched_spec(
    spec: callback_spec.CallbackSpec,
    inputs: Inputs,
    level: int,
    divided: Sequence[bool] | None,
    grad: Callable[..., Any] | None,
) -> callback_spec.CallbackSpec:
    """Return the spec of one call for all elements of a batch, which `level` identifies."""
    # The first axis of the `inputs` is the batch axis. Its size is 1 for an argument that is the
    # same for all elements. A call may be `divided`: this tells for each input whether the executor
    # divides it among its workers, or each gets it whole. `grad` is the gradient for the batch.
    user = spec.user
    if divided is not None:
        user = user.divided(tuple(spec.inputs.pack([0 if one else None for one in divided])))
    user = dataclasses.replace(user, grad=grad)
    outputs = Outputs(without_shapes(spec.outputs.structure), spec.outputs.strict)
    shapes = shapes_of_batch(spec.shape_function, spec.outputs.specs)
    place: dict[str, Any] = {"route": spec.route, "levels": (level, *spec.levels)}
    if not isinstance(spec, callback_spec.EagerSpec):
        return type(spec)(user, inputs, outputs, shapes, **place)
    place |= {"differentiable": spec.differentiable, "pure": spec.pure}
    batched = callback_spec.EagerSpec(user, inputs, outputs, shapes, **place)
    batched.orders_wanted = spec.root.orders_wanted
    batched.gradient_wanted = spec.gradient_wanted
    return batched


def without_shapes(structure: Any) -> object:
    """Return the types of results without their shapes, which are those of one element."""
    return _trees.map_leaves(
        lambda leaf: leaf.dtype if isinstance(leaf, tf.TensorSpec | BoundedSpec) else leaf,
        structure,
    )


def shapes_of_batch(
    shapes: callback_spec.ShapeFunction | None, declared: Sequence[Spec | None]
) -> callback_spec.ShapeFunction | None:
    """Return the shape function for a batch; `declared` are other known specs for one element."""
    if shapes is None and not any(declared):
        return None

    def shape_function(specs: Sequence[Spec]) -> list[Spec | None]:
        known = list(declared)
        if shapes is not None:
            said = shapes([element_of(spec) for spec in specs])
            pairs = zip(said, known, strict=True)
            known = [other if one is None else merge(one, other) for one, other in pairs]
        size = size_of([static_shape(spec) for spec in specs])
        return [None if spec is None else led(spec, size) for spec in known]

    return shape_function


def element_of(spec: Spec) -> Spec:
    """Return the spec of one element of a batch."""
    if isinstance(spec, BoundedSpec):
        dynamic = [dim - 1 for dim in spec.dynamic_dims if dim > 0]
        return BoundedSpec(spec.shape[1:], spec.dtype, dynamic)
    return tf.TensorSpec(spec.shape[1:], spec.dtype)


def led(spec: Spec, size: int | None) -> Spec:
    """Return the spec with one more axis in front."""
    if not isinstance(spec, BoundedSpec):
        return tf.TensorSpec(tf.TensorShape([size]).concatenate(spec.shape), spec.dtype)
    if size is None:  # a BoundedSpec needs a bound for each size, and this one is unknown
        return led(spec.tensor_spec(), size)
    return BoundedSpec([size, *spec.shape], spec.dtype, [dim + 1 for dim in spec.dynamic_dims])


def size_of(shapes: Sequence[tf.TensorShape]) -> int | None:
    """Return the size of the batch from the shapes of the arguments, or None if it is unknown."""
    sizes = [None if shape.rank is None else shape[0] for shape in shapes]
    known = [size for size in sizes if size is not None and size != 1]
    if known:
        return int(known[0])
    return None if None in sizes or not sizes else 1
