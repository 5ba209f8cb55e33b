"""EagerTensors, and whether TensorFlow executes eagerly."""

from __future__ import annotations

from typing import Any

from tensorflow.python.eager import context as _context
from tensorflow.python.framework import constant_op as _constant_op
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops

from hostcall._tf import op_kinds

EagerTensor = _ops.EagerTensor
ResourceVariable = _resource_variable_ops.BaseResourceVariable
eager_mode = _context.eager_mode
is_async = _context.is_async
ensure_initialized = _context.ensure_initialized
executing_eagerly = _context.executing_eagerly


def as_array(tensor: Any) -> Any:
    """The array of an EagerTensor, over the tensor's own memory: for reading."""
    return tensor._numpy()


def to_eager_tensor(value: Any, dtype: Any) -> Any:
    """An EagerTensor of an array that nobody else writes to; shares its memory where it can."""
    ctx = _context.context()
    ctx.ensure_initialized()
    return _constant_op.convert_to_eager_tensor(value, ctx, dtype)


def convert_to_tensor(value: Any, dtype: Any) -> Any:
    """`tf.convert_to_tensor`, without the cost of the public one's dispatch."""
    return _ops.convert_to_tensor(value, dtype=dtype)


def copy_to_device(tensor: Any, device: str | None) -> Any:
    """An EagerTensor on the device of the kernel that returns it; None is the CPU."""
    name = device or "/job:localhost/replica:0/task:0/device:CPU:0"
    with _ops.device(device):
        return op_kinds.script_ops._maybe_copy_to_context_device(tensor, name)
