"""The gradient of EagerPyFunc, in TensorFlow's registry of gradients and on hostcall's ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hostcall._tf import features, op_kinds
from hostcall._tf.patches import Replacement, patch
from hostcall_runtime._patching import Patch

# The attribute that names an op's own gradient, as a `gradient_override_map` sets it.
_OVERRIDDEN = "_gradient_op_type"

# The gradient function that hostcall registers, once it is known, and TensorFlow's own.
_gradients: list[Callable[..., Any]] = []
_stock: list[Callable[..., Any]] = []


def stock() -> Callable[..., Any]:
    """Return TensorFlow's own gradient function."""
    return _stock[-1]


def replaced_by(gradient: Callable[..., Any]) -> Patch:
    """Return the patch that replaces TensorFlow's gradient function by another one."""
    _gradients[:] = [gradient]

    def wrap(entry: dict[str, Any], _: Replacement) -> dict[str, Any]:
        _stock[:] = [entry[features.TYPE_TAG]]
        return {**entry, features.TYPE_TAG: gradient}

    def read() -> Any:
        return features.py_function_gradients[op_kinds.EAGER_PY_FUNC]

    def write(entry: Any) -> None:
        features.py_function_gradients[op_kinds.EAGER_PY_FUNC] = entry

    return patch(
        'tensorflow.python.framework.ops.gradient_registry["EagerPyFunc"]',
        Replacement(read, write, wrap),
        features.GRADIENTS,
        "TensorFlow's gradient mixes up calls that share an op, and cannot be compiled. A gradient "
        "can be registered only once.",
    )


def give_to(op: Any) -> None:
    """Make an op of a graph keep our gradient when the registry has TensorFlow's own again.

    An op inside a `tf.Graph.gradient_override_map` keeps the gradient that the user chose there.
    """
    if op._gradient_function is None and _OVERRIDDEN not in op.node_def.attr:
        op._gradient_function = _gradients[-1]


def given_to(op: Any) -> Callable[..., Any] | None:
    """Return the gradient that the user has given an op of a graph after its creation, or None.

    For an op inside a `gradient_override_map`, TensorFlow calls the user's gradient itself. But a
    tape knows only the kind of an op, and calls the gradient of that kind.
    """
    if not isinstance(op, tf.Operation) or _OVERRIDDEN not in op.node_def.attr:
        return None
    name = op.get_attr(_OVERRIDDEN).decode()
    found: Callable[..., Any] = features.gradient_registry.lookup(name)
    return found
