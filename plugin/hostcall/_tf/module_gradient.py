"""What is said where a gradient is asked for through a program of StableHLO."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf import features, names, op_kinds
from hostcall_runtime import _patching

_wanted: list[bool] = []
_ours: list[Any] = []


def refuse() -> None:
    """Says from now on what to do, where TensorFlow knows no gradient of XlaCallModule."""
    _wanted[:] = [True]
    if _patching.are_installed() and features.GRADIENTS.available:
        _install()


def patch() -> _patching.Patch:
    """The entry in the table; nothing is installed before somebody has called `refuse`."""
    return _patching.Patch(
        'tensorflow.python.framework.ops.gradient_registry["XlaCallModule"]',
        _install,
        _uninstall,
        _entry,
        "TensorFlow has no gradient of the op by which hostcall.load runs programs, and its "
        "message does not say what to do. Ours is registered when hostcall.load is first called.",
        features.GRADIENTS.title,
    )


def _entry() -> Any:
    return names.py_function_gradients.get(op_kinds.XLA_CALL_MODULE)


def _install() -> None:
    if _wanted and _entry() is None:
        tf.RegisterGradient(op_kinds.XLA_CALL_MODULE)(_refuse)
        _ours[:] = [_entry()]


def _uninstall() -> None:
    if _ours and _entry() is _ours[0]:
        del names.py_function_gradients[op_kinds.XLA_CALL_MODULE]
    _ours.clear()


def _refuse(*_: Any) -> Any:
    raise LookupError(
        "hostcall: a gradient is asked for through a program that has none, by TensorFlow's op "
        "XlaCallModule; hostcall.load makes such ops of exported programs. Export a function that "
        "computes the gradient, too; or, where none is needed, put tf.stop_gradient around the "
        "arguments."
    )
