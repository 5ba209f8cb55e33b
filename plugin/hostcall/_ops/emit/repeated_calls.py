"""Calls of a `tf.function` that repeat an earlier one, without the Python that TensorFlow runs.

For each call, TensorFlow makes a type of all arguments, looks up the function that was traced for
it, and binds the arguments again, which takes 100 us and more. A call with the same Python values,
and with tensors or arrays of the same dtypes and shapes, comes to the same traced function. Only
functions that hostcall has taken are called in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._ops import tape_residuals
from hostcall._tf import (
    concrete_functions,
    eager_execution,
    features,
    plain_calls,
    script_op_graphs,
)

# The most look-ups for one function. Each takes as long as a call by TensorFlow's way.
_MOST = 64
# A function that hostcall has not taken has two: a later trace of it may call Python.
_COST_OF_ANOTHER = _MOST // 2

_FEATURES = (features.REPEATED_CALLS, features.BOUND_CALLS)
_VALUES = frozenset({bool, int, float, str, bytes, type(None)})
_DTYPES = {
    np.dtype(dtype.as_numpy_dtype): dtype
    for dtype in (
        tf.bool, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64,
        tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128,
    )
}  # fmt: skip


class RepeatedCalls:
    """The ways to run a `tf.function`, by the arguments of its calls; a copy begins with none."""

    def __init__(self, function: Any = None) -> None:
        is_compiled = function is None or function._jit_compile
        # The look-ups that are left.
        self.left = _MOST if is_compiled and all(f.available for f in _FEATURES) else 0
        self.runs: dict[tuple[Any, ...], Callable[[Sequence[Any]], Any]] = {}

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return RepeatedCalls, ()

    def find(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[..., Any], list[tf.Tensor]] | None:
        """Return how to run a call like an earlier one, and its tensors; None without one."""
        if not _is_plain() or (arguments := _arguments(args, kwargs)) is None:
            return None
        key, tensors = arguments
        run = self.runs.get(key)
        return None if run is None else (run, [*map(_as_tensor, tensors)])

    def learn(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look up the traced function that a call has just run."""
        if not concrete_functions.owned or not _is_plain():
            return
        if concrete_functions.depends_on_its_captures(function):
            self.left = 0
            return
        args, kwargs = _stand_in(args), _stand_in(kwargs)
        if (arguments := _arguments(args, kwargs)) is None:
            return
        self.left -= 1
        concrete, inputs = concrete_functions.traced(function, args, kwargs)
        if concrete.inference_fn.name.decode() not in concrete_functions.owned:
            self.left -= _COST_OF_ANOTHER
            return
        key, tensors = arguments
        in_order = [*map(id, inputs)] == [*map(id, tensors)]
        if in_order and (run := plain_call(concrete)) is not None:
            self.runs[key] = run


def _is_plain() -> bool:
    return concrete_functions.calls_are_plain() and not concrete_functions.has_scope()


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]] | None:
    """Return the key of a call and its tensors; None for arguments that only TensorFlow knows."""
    # Calls have the same key if TensorFlow has one traced function for them.
    key: list[Any] = [len(args), *kwargs]
    tensors: list[Any] = []
    known = all(_enter(value, key, tensors) for value in (*args, *kwargs.values()))
    return (tuple(key), tensors) if known else None


def _enter(value: Any, key: list[Any], tensors: list[Any]) -> bool:
    """Add an argument, or a part of one, to a key; return whether its type is known."""
    kind = type(value)
    if kind is eager_execution.EagerTensor:
        key.append((value._datatype_enum(), value._shape_tuple()))
        tensors.append(value)
        return True
    if kind is np.ndarray:
        if (dtype := _DTYPES.get(value.dtype)) is None:
            return False
        key.append((dtype.as_datatype_enum, value.shape))
        tensors.append(value)
        return True
    key.append(kind)
    if kind in _VALUES:
        key.append(value)
        return bool(value == value)  # TensorFlow traces a NaN each time
    if kind is tuple or kind is list:
        key.append(len(value))
        return all(_enter(part, key, tensors) for part in value)
    if kind is dict and all(type(name) is str for name in value):
        names = sorted(value)  # TensorFlow's order
        key.append((*names,))
        return all(_enter(value[name], key, tensors) for name in names)
    return False


def _stand_in(value: Any) -> Any:
    """Return an argument with a tensor of its own at each place, which tells the order of these."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind(map(_stand_in, value))
    if kind is dict:
        return {name: _stand_in(part) for name, part in value.items()}
    if kind is eager_execution.EagerTensor:
        return eager_execution.another(value)
    return _as_tensor(value) if kind is np.ndarray and value.dtype in _DTYPES else value


def _as_tensor(value: Any) -> tf.Tensor:
    if type(value) is eager_execution.EagerTensor:
        return value
    return eager_execution.copy_of(value, _DTYPES[value.dtype])


def plain_call(concrete: Any) -> Callable[[Sequence[Any]], Any] | None:
    """Return how to run a ConcreteFunction on its tensors while calls are plain, or None."""
    # A call that may be recorded for a gradient goes TensorFlow's way even then.
    run = concrete_functions.unrecorded_call(concrete)
    if run is None:
        return None
    tokens = script_op_graphs.tokens_of(concrete.graph)
    specs = (*concrete.inference_fn.function_type.flat_inputs,)
    quick = plain_calls.quick_call(concrete, specs)

    def call(tensors: Sequence[Any]) -> object:
        if tokens and tape_residuals.may_be_recorded(tokens):
            return concrete._call_flat([*tensors], concrete.captured_inputs)
        if (results := quick((*tensors,))) is not NotImplemented:
            return results
        return run([*tensors, *concrete_functions.captured_by(concrete)])

    return call


def quick_call(concrete: Any, specs: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], Any]:
    """Return how to run a ConcreteFunction that has a `plain_call`, where C++ can do all of it.

    What is returned takes tensors and arrays in the structure of the TensorSpecs. It gives the
    results, or NotImplemented, having run nothing, if a value is not of its spec or the call is not
    plain.
    """
    quick = plain_calls.quick_call(concrete, specs)
    tokens = script_op_graphs.tokens_of(concrete.graph)
    if not tokens:
        return quick

    def call(values: tuple[Any, ...]) -> object:
        return NotImplemented if tape_residuals.may_be_recorded(tokens) else quick(values)

    return call
