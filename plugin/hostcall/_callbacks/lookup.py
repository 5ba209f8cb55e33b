"""From a script op to the Python function that its token stands for."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._callbacks import result_shapes
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._callbacks.late_ops import adopt
from hostcall._callbacks.structures import Inputs, Outputs
from hostcall._tf import token_registry
from hostcall._tf.types import NodeDef
from hostcall_runtime._errors import LoweringError


def find_spec(node: NodeDef) -> CallbackSpec:
    """The spec of the function that a script op calls, by its NodeDef.

    Raises:
      LoweringError: when it does not exist in this process, or is not made for the op.
    """
    entry = entry_of(node)
    if entry is None:
        raise missing(node)
    if isinstance(entry, CallbackSpec):
        return entry
    inputs = Inputs([None] * len(node.attr["Tin"].list.type), False)
    outputs = Outputs([tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type])
    return adopt(entry, _token(node), inputs, outputs, result_shapes.declared_rule)


def entry_of(node: NodeDef) -> Any:
    """What TensorFlow's registry has of a script op: a spec, a function of TensorFlow's, or None.

    Raises:
      LoweringError: when it is not made for the op.
    """
    takes = len(node.attr["Tin"].list.type)
    returns = [tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type]
    return entry_for(_token(node), f"'{node.name}' ({node.op})", node.op, takes, returns)


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
    entry = token_registry.functions.get(token)
    # A function that was partitioned already has ops with the tokens of what stands for the specs.
    entry = getattr(entry, "__hostcall_stands_for__", entry)
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
            f"hostcall: op {op} {_listed(takes, returns)}. The function with its key, {token}"
            f"{known} was made for another op: {'EagerPyFunc' if of_tensors else 'PyFunc'}"
            f"{signature}. The graph was altered, or it comes from another process, where the key "
            "stands for another function. Build the function again in this process."
        )
    return entry


def missing(node: NodeDef) -> LoweringError:
    """The error for an op whose function is not there."""
    return LoweringError(
        f"hostcall: op '{node.name}' ({node.op}) calls a Python function that does not exist in "
        f"this process. Could not find callback with key={_token(node)} in the registry. Either "
        "the graph comes from another process (a SavedModel holds no Python code), or the function "
        "died with the graph that it was traced in. Build the function again in this process, and "
        "keep the tf.function or the model."
    )


def _token(node: NodeDef) -> str:
    token: str = node.attr["token"].s.decode()
    return token


def _listed(takes: int, returns: list[tf.DType]) -> str:
    dtypes = ", ".join(dtype.name for dtype in returns) or "nothing"
    return f"takes {takes} {'input' if takes == 1 else 'inputs'} and returns {dtypes}"
