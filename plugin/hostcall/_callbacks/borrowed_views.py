"""Functions that borrow arrays for the length of a call: `borrow=True` and `out=True`.

In a compiled program csrc/runtime/arguments.cc makes these arrays and looks what becomes of them.
Here the same is done where TensorFlow's own kernels call: eagerly, in plain graphs, and between the
clusters of a function that is partitioned.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import advice, result_shapes
from hostcall._callbacks.callback_spec import NumpySpec
from hostcall._callbacks.specs import BoundedSpec, Spec
from hostcall_runtime._errors import ResultError


class BorrowingSpec(NumpySpec):
    """A function from arrays to arrays, some of which it only borrows."""

    def _returned(self, arrays: Sequence[Any]) -> Any:
        operands = [tf.TensorSpec(np.shape(array), _dtype_of(array)) for array in arrays]
        declared = result_shapes.known(self, None, operands) if self.declaration.out else []
        if not self.declaration.only_reads:
            arrays = self.own(arrays)
        return self.call_borrowing(self.kernel_function(), arrays, declared)

    def call_borrowing(
        self, function: Callable[..., Any], arrays: Sequence[Any], declared: Sequence[Spec]
    ) -> Any:
        """What the function returns, as arrays that share no memory with those that it borrowed.

        Args:
          function: what to call.
          arrays: its arguments.
          declared: what is known of the results; looked at where the function takes `out`.

        Raises:
          ResultError: when the size of a result is not known that it should write, when it returns
            something else than `out`, or when something still refers to an array that was borrowed.
        """
        views: list[np.ndarray] = []
        if self.declaration.borrow:
            views = [array for array in arrays if isinstance(array, np.ndarray)]
            for array in views:
                array.flags.writeable = False
        given: dict[str, Any] = {}
        outs: list[np.ndarray] = []
        if self.declaration.out:
            outs = [self._new_out(index, declared) for index in range(len(declared))]
            given["out"] = outs[0] if len(outs) == 1 else tuple(outs)
        # The tuple of several `out` arrays, too, is only borrowed.
        borrowed = [*views, *outs, given.get("out")]
        before = _references(borrowed)
        returned = function(*arrays, **given)
        if outs:
            self._check_is_out(returned, given["out"])
        returned = None if outs else _detached(returned, views)
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
        if returned is None or returned is out or _are_same(returned, out):
            return  # NumPy's functions return what they were given
        raise ResultError(
            f"{self.title} returns a value that is not `out`, which it was to write its results "
            "into: it is declared with out=True. Write out[...] = value and return nothing, or "
            f"take out=True away. This is {self.description}."
        )

    def _check_let_go(self, borrowed: list[Any], before: list[int]) -> None:
        if self.timeout is not None:
            return  # the thread that made the call may not have left it yet
        if _more(borrowed, before):
            gc.collect()  # a cycle that the function has left behind is nobody's any more
        if _more(borrowed, before):
            raise ResultError(
                f"{self.title} has returned, and something still refers to an array that it "
                "borrowed for the call alone: it is declared with borrow=True or out=True. Keep a "
                f"copy, np.array(x), or take these away. This is {self.description}."
            )


def _are_same(returned: object, out: object) -> bool:
    return (
        isinstance(returned, tuple | list)
        and isinstance(out, tuple)
        and len(returned) == len(out)
        and all(map(operator.is_, returned, out))
    )


def _references(objects: list[Any]) -> list[int]:
    return [0 if thing is None else sys.getrefcount(thing) for thing in objects]


def _more(objects: list[Any], before: list[int]) -> bool:
    return any(now > then for now, then in zip(_references(objects), before, strict=True))


def _detached(returned: object, views: list[np.ndarray]) -> Any:
    """What a function has returned, where it may lie in an array that it borrowed."""
    if isinstance(returned, list | tuple):
        return [_detached(value, views) for value in returned]
    if isinstance(returned, np.ndarray) and any(
        np.may_share_memory(returned, array) for array in views
    ):
        return returned.copy()
    return returned


def _dtype_of(array: object) -> tf.DType:
    """Of an array, of a NumPy scalar, or of the bytes that the stock kernel makes of a string."""
    dtype = getattr(array, "dtype", None)
    return tf.string if dtype is None or dtype.kind in "OSU" else tf.as_dtype(dtype)
