"""From a script op to the Python function that its token stands for."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._callbacks import result_shapes
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._callbacks.late_ops import wrap
from hostcall._callbacks.structures import Inputs, Outputs
from hostcall._tf import token_registry
from hostcall._tf.types import NodeDef
from hostcall_runtime._errors import LoweringError
from hostcall_runtime._words import counted


def spec_of(node: NodeDef) -> CallbackSpec | None:
    """The spec of the function that a script op calls, by its NodeDef.

    Returns:
      The spec, also for a function that TensorFlow registered itself; None where the function does
      not exist in this process.

    Raises:
      LoweringError: when the function is not made for the op.
    """
    entry = entry_of(node)
    if entry is None or isinstance(entry, CallbackSpec):
        return entry
    inputs = Inputs([None] * len(node.attr["Tin"].list.type), False)
    outputs = Outputs([tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type])
    return wrap(entry, token_of(node), inputs, outputs, result_shapes.declared_shape_function)


def existing_spec_of(node: NodeDef) -> CallbackSpec:
    """The same, of a function that has to exist.

    Raises:
      LoweringError: when it does not, or is not made for the op.
    """
    spec = spec_of(node)
    if spec is None:
        raise missing(node)
    return spec


def unchecked_entry_of(node: NodeDef) -> Any:
    """What TensorFlow's registry has of a script op, whether it is made for the op or not.

    It may be a spec, a function of TensorFlow's, or None. Where nothing is called, but something
    is to be said of the op.
    """
    return token_registry.find(token_of(node))


def token_of(node: NodeDef) -> str:
    """The token of a script op, by its NodeDef."""
    # Of a file that was damaged it may be any bytes.
    token: str = node.attr["token"].s.decode(errors="replace")
    return token


def entry_of(node: NodeDef) -> Any:
    """What TensorFlow's registry has of a script op: a spec, a function of TensorFlow's, or None.

    Raises:
      LoweringError: when it is not made for the op.
    """
    takes = len(node.attr["Tin"].list.type)
    returns = [tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type]
    return entry_for(token_of(node), f"'{node.name}' ({node.op})", node.op, takes, returns)


def entry_for(token: str, op: str, kind: str, takes: int, returns: list[tf.DType]) -> Any:
    """What the registry has under the token of an op.

    A graph that was altered may name the function of another op, and one of a process without
    hostcall does where its token, a mere number, is another function's here. The results of that
    would not be the op's.

    Args:
      token: the op's.
      op: what messages call it.
      kind: of op.
      takes: how many inputs it has.
      returns: the dtypes of its outputs.

    Raises:
      LoweringError: when what it has is not made for such an op.
    """
    entry = token_registry.find(token)
    if entry is None:
        return None
    of_tensors = isinstance(entry, token_registry.EagerFunc)
    fits, known, signature = of_tensors == (kind == "EagerPyFunc"), "", ""
    if isinstance(entry, CallbackSpec):
        fits = fits and entry.inputs.size == takes and entry.op_dtypes == returns
        known = f", {entry.description},"
        signature = f", which {_listed(entry.inputs.size, entry.op_dtypes)}"
    if not fits:
        raise LoweringError(
            f"hostcall: op {op} {_listed(takes, returns)}. The function with its key, "
            f"{token_registry.title_of(token)}{known} was made for another op: "
            f"{'EagerPyFunc' if of_tensors else 'PyFunc'}{signature}. The graph was altered, "
            "or it comes from another process, where the key stands for another function. Build "
            "the function again in this process."
        )
    if isinstance(entry, CallbackSpec) and kind == "PyFuncStateless":
        entry.ordered = False  # which the token of a saved graph does not say
    return entry


def missing(node: NodeDef) -> LoweringError:
    """The error for an op whose function is not there."""
    if (why := token_registry.why_missing(token_of(node))) is not None:
        return why
    return LoweringError(
        f"hostcall: op '{node.name}' ({node.op}) calls a Python function that does not exist in "
        f"this process. Could not find callback with key={token_of(node)} in the registry. Either "
        "the graph comes from another process (a SavedModel holds no Python code), or the function "
        "died with the graph that it was traced in. Build the function again in this process, and "
        "keep the tf.function or the model."
    )


def _listed(takes: int, returns: list[tf.DType]) -> str:
    dtypes = ", ".join(dtype.name for dtype in returns) or "nothing"
    return f"takes {counted(takes, 'input')} and returns {dtypes}"
