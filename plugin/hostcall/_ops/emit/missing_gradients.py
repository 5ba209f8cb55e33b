"""The log of callbacks without a gradient that TensorFlow makes the gradient of.

TensorFlow makes it where it is asked for, and for all results of a tf.function, or of an eager
tf.vectorized_map, that is called under a tape: whether they are asked for it knows only later.

TensorFlow declares the ops of functions of arrays as not differentiable, so that their gradient is
None without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hostcall._functions.user_function import CALLBACK, UserFunction
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._tf import eager_execution, token_registry

_log = logging.getLogger("hostcall")
_told: set[str] = set()

_HAS_NONE = (
    "hostcall: no gradient goes through %s, which declares none: where a tape or tf.gradients asks "
    "for it, it is None. Write\n"
    "    hostcall.callback(..., grad=lambda inputs, results, upstream: ...)\n"
    "or tf.stop_gradient around the call, where none is meant."
)


def gradient(op: Any, *_: Any) -> list[None]:
    """Return the gradient of a script op of arrays, which is None, as in stock TensorFlow."""
    # Eager calls that a tape records have `warning_gradient`; their tokens are used again.
    if not tf.executing_eagerly():
        spec = token_registry.find_present(op.get_attr("token").decode(errors="replace"))
        if isinstance(spec, CallbackSpec) and spec.user.called_as == CALLBACK:
            _tell(spec.description, list(op.inputs))
    return [None] * len(op.inputs)


def wants_one(user: UserFunction, tensors: list[Any]) -> bool:
    """Return whether an eager call of a callback has to carry `warning_gradient`."""
    return (
        user.grad is None
        and not user.takes_tensors
        and tf.executing_eagerly()
        and eager_execution.orders_recorded([t for t in tensors if tf.is_tensor(t)]) > 0
    )


def warning_gradient(user: UserFunction) -> Callable[..., list[None]]:
    """Return the gradient function of an eager call that has none."""

    def grad(inputs: Any, results: Any, upstream: Any) -> list[None]:  # noqa: ARG001
        _tell(user.described("").description, tf.nest.flatten(inputs))
        return [None] * len(inputs)

    return grad


def _tell(description: str, inputs: list[Any]) -> None:
    if description not in _told and any(map(eager_execution.is_trainable, inputs)):
        _told.add(description)
        _log.warning(_HAS_NONE, description)
