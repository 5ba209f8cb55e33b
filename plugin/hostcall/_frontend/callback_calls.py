"""Calls of `hostcall.callback`s on tensors: ops of a graph, or eager calls."""

from __future__ import annotations

import functools
import re
from typing import Any

import tensorflow as tf

from hostcall._callbacks import declared_results, structures
from hostcall._frontend import custom_gradients, script_ops
from hostcall._functions import keyword_arguments
from hostcall._functions.frameworks import Parts
from hostcall._tf import autograph


# Ours, like TensorFlow's own functions, is not for autograph to convert.
@autograph.do_not_convert
def call(parts: Parts, args: tuple[Any, ...]) -> Any:
    """The results of a callback, tensors in the structure of the declared result.

    Raises:
      TypeError: when the declared result has no dtypes, or an argument is no tensor.
    """
    eager = parts.kind == "eager"
    tensors = tf.nest.map_structure(_as_tensor, list(args), expand_composites=eager)
    inputs = structures.read_inputs(tensors, eager, pack_lists=False)
    specs = declared_results.specs_for(parts.declaration.result, inputs)
    outputs = structures.Outputs(specs, strict=True)
    emit = functools.partial(_emit, parts)
    if parts.grad is None:
        return emit(inputs, outputs)
    return custom_gradients.call(emit, parts.grad, inputs, outputs)


def _emit(parts: Parts, inputs: structures.Inputs, outputs: structures.Outputs) -> Any:
    function = keyword_arguments.parts(parts.function)[0]
    return script_ops.call(
        parts.function,
        inputs,
        outputs,
        eager=parts.kind == "eager",
        stateful=parts.stateful,
        name=_op_name(str(parts.name or getattr(function, "__name__", ""))),
        declaration=parts.declaration,
        given_name=parts.name,
        grad=parts.grad,
    )


def _op_name(name: str) -> str | None:
    """A name that TensorFlow takes for an op."""
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
