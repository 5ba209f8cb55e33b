"""One call in a worker: the script op itself, run eagerly, with all that TensorFlow checks."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks import lookup, result_shapes, tape_residuals
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._callbacks.specs import BoundedSpec
from hostcall._saving import tokens
from hostcall._saving.errors import SavedFunctionError
from hostcall._tf import eager_execution, protos, token_registry
from hostcall_runtime._errors import INVALID_ARGUMENT, UNKNOWN, LoweringError
from hostcall_runtime._worker_frames import Array, Call

# What TensorFlow adds to the text of an error in an eager call, and what means something only in
# the process of the function.
_ADDED = re.compile(
    r"^\{\{function_node __wrapped__[^}\n]*\}\} ?"
    r"|\n?\[hostcall error \d+: hostcall\.last_error[^\]\n]*\]\n?"
    r"|\s*\[Op:\w*PyFunc\w*\](?: name: ?)?$"
)

_IN_WORKER = """\


This is a worker: `hostcall worker --allow MODULE` allows it there, and `--import MODULE` runs a \
module that calls hostcall.provide."""


# Of recorded calls whose gradient has not been asked for, the latest are kept.
MOST_RESIDUALS = 1024
_handles: collections.deque[int] = collections.deque()


class CallError(Exception):
    """A call that failed, with what its caller is told.

    Attributes:
      code: that of absl::StatusCode.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def run(call: Call, arguments: Sequence[Any]) -> list[Any]:
    """Calls a function.

    Args:
      call: the op and its token.
      arguments: arrays, whose memory is the call's.

    Returns:
      The results, as arrays that must not be written to.

    Raises:
      CallError: when it fails in any way.
    """
    try:
        dtypes = _checked(call)
        op = getattr(tf.raw_ops, call.op)
        with tf.device("/CPU:0"):
            inputs = [
                eager_execution.over_array(array, tf.as_dtype(place.dtype))
                for array, place in zip(arguments, call.arguments, strict=True)
            ]
            results = op(input=inputs, token=call.token, Tout=dtypes)
        # Without results the op returns itself.
        arrays = [eager_execution.as_array(result) for result in results] if dtypes else []
    except CallError:
        raise
    except tf.errors.OpError as error:
        raise CallError(error.error_code, _text_of(error, call)) from error
    except BaseException as error:
        raise CallError(UNKNOWN, f"{type(error).__name__}: {error}") from error
    if call.op == "EagerPyFunc" and dtypes[-1:] == [tf.int64]:
        _note_handle(int(arrays[-1].reshape(-1)[:1].sum()))
    return arrays


def shapes(call: Call) -> list[Array]:
    """The shapes of the results of a call, for arguments that have shapes and no values.

    Raises:
      CallError: when they cannot be known before the call.
    """
    dtypes = _checked(call)
    node = protos.node_def_pb2.NodeDef(name="call", op=call.op)
    node.attr["token"].s = call.token.encode()
    node.attr["Tin"].list.type.extend(one.dtype for one in call.arguments)
    node.attr["Tout"].list.type.extend(call.result_dtypes)
    try:
        spec = lookup.existing_spec_of(node)
        operands = [tf.TensorSpec(one.shape, tf.as_dtype(one.dtype)) for one in call.arguments]
        specs = result_shapes.resolve(spec, node, operands)
    except Exception as error:  # a shape function is the user's
        raise CallError(INVALID_ARGUMENT, str(error)) from error
    if any(isinstance(one, BoundedSpec) for one in specs):
        raise CallError(
            INVALID_ARGUMENT,
            f"hostcall: a result of {spec.description} has a bounded size, and the compiled "
            "programs of a process without Python take known sizes only.",
        )
    if isinstance(spec, EagerSpec) and spec.differentiable:
        specs = [*specs, tf.TensorSpec([], tf.int64)]  # the handle of the tape residual
    return [
        Array(dtype.as_datatype_enum, tuple(one.shape))
        for one, dtype in zip(specs, dtypes, strict=True)
    ]


def _note_handle(handle: int) -> None:
    """Bounds what is kept for gradients, of which nobody tells that they will never be asked for.

    Args:
      handle: the last result of a call, which may be another number.
    """
    if tape_residuals.spec_of(handle) is None:
        return
    _handles.append(handle)
    while len(_handles) > MOST_RESIDUALS:
        tape_residuals.drop(_handles.popleft())


def _text_of(error: tf.errors.OpError, call: Call) -> str:
    label = tokens.decode(call.token).users.label
    return _ADDED.sub("", str(error.message)).replace(call.token, label)


def _checked(call: Call) -> list[tf.DType]:
    """The dtypes of the results, if the call's token may be called."""
    if not token_registry.is_qualified(call.token):
        raise CallError(
            INVALID_ARGUMENT,
            f"hostcall: the script op has the token {call.token[:100]!r}, which means something in "
            "the process that traced it, and nothing in a worker. Save the model again, with "
            "hostcall imported.",
        )
    try:
        dtypes = [tf.as_dtype(dtype) for dtype in call.result_dtypes]
        op = f"in a saved graph ({call.op})"
        lookup.entry_for(call.token, op, call.op, len(call.arguments), dtypes)
        if (why := token_registry.why_missing(call.token)) is not None:
            raise why
    except SavedFunctionError as error:
        hint = _IN_WORKER if "hostcall.allow" in str(error) else ""
        raise CallError(INVALID_ARGUMENT, str(error) + hint) from error
    except (LoweringError, TypeError) as error:
        raise CallError(INVALID_ARGUMENT, str(error)) from error
    return dtypes
