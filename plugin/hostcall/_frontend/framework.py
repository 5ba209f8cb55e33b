"""TensorFlow's implementation of `_functions.frameworks`, and calls of callbacks on tensors."""

from __future__ import annotations

import functools
import re
from typing import Any

import tensorflow as tf

from hostcall._callbacks import structures
from hostcall._frontend import gradients, handler_programs, script_ops
from hostcall._functions import call_stats, callback, frameworks, source_location
from hostcall._functions.callback import Callback
from hostcall._functions.mapping import mapped
from hostcall._functions.native_functions import Native
from hostcall._functions.user_function import UserFunction
from hostcall._tf import autograph, concrete_functions, function_defs, tensor_structures
from hostcall_runtime import _library, _registry


# Autograph must not convert it, just as TensorFlow's own functions.
@autograph.do_not_convert
def call(user: UserFunction, args: tuple[Any, ...]) -> Any:
    """Call a callback on tensors, and return tensors in the structure of the declared result."""
    tensors = tf.nest.map_structure(_as_tensor, list(args), expand_composites=user.takes_tensors)
    inputs = structures.read_inputs(tensors, user.takes_tensors, pack_lists=False)
    specs = structures.specs_for(user.options.result, inputs)
    outputs = structures.Outputs(specs, strict=True)
    emit = functools.partial(_emit, user)
    if user.grad is None:
        return emit(inputs, outputs)
    return gradients.call(emit, user.grad, inputs, outputs)


def _emit(user: UserFunction, inputs: structures.Inputs, outputs: structures.Outputs) -> Any:
    function = callback.parts(user.function)[0]
    name = _op_name(str(user.given_name or getattr(function, "__name__", "")))
    return script_ops.call(user, inputs, outputs, name)


def _op_name(name: str) -> str | None:
    """Return `name` as a valid name of a TensorFlow op, or None if nothing is left of it."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name).strip("_.-") or None


def _as_tensor(value: Any) -> Any:
    if isinstance(value, tf.Variable):
        return value
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(
            f"hostcall.callback: {value!r}, which is passed by position, is nothing that "
            f"TensorFlow makes a tensor of: {error} Pass by keyword what is no tensor: it reaches "
            "the function as it is."
        ) from error


class _TensorFlow:
    """The implementation of `frameworks.TensorFlow`."""

    call = staticmethod(call)
    check_handler = staticmethod(handler_programs.check)
    run_handler = staticmethod(handler_programs.run)
    shape = staticmethod(tf.TensorShape)
    spec = staticmethod(tf.TensorSpec)
    dtype = staticmethod(tf.as_dtype)

    def holds(self, value: object) -> bool:
        return isinstance(value, tf.Tensor | tf.Variable | tensor_structures.CompositeTensor)

    def is_symbolic(self, value: object) -> bool:
        return bool(tf.is_symbolic_tensor(value))

    def is_building(self) -> bool:
        return not tf.executing_eagerly()

    def as_tensors(self, structure: object) -> Any:
        return tf.nest.map_structure(tf.convert_to_tensor, structure)


def enter() -> None:
    """Connect TensorFlow: callbacks and native code take tensors, messages name the user's lines.

    With TensorFlow's persistent cache of compiled programs, callback ids are then reproducible.
    """
    frameworks.enter_tensorflow(_TensorFlow())
    source_location.read_with(autograph.stack, autograph.original_location)
    call_stats.count_clusters(_compilations)
    autograph.leave_alone(Callback, Native, mapped)
    _registry.caches.append(concrete_functions.is_on)


def _compilations(reset: bool) -> list[tuple[str, int, int]]:
    counts: list[tuple[str, int, int]]
    counts = _library.load("hostcall._tensorflow").compilations(reset)
    return [(function_defs.without_digests(name), done, plain) for name, done, plain in counts]
