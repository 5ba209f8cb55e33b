"""EagerTensors, and whether TensorFlow executes eagerly."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf import names
from hostcall._tf.types import EagerTensor as Tensor

EagerTensor = names.EagerTensor
ResourceVariable = names.ResourceVariable
eager_mode = names.eager_mode
is_async = names.is_async
ensure_initialized = names.ensure_initialized
executing_eagerly = names.executing_eagerly


def wait_for_ops() -> None:
    """Waits for what eager code has started, where it goes on while ops run."""
    if is_async():
        names.context().sync_executors()


def device_in_scope() -> str:
    """The full name of the device of the innermost `tf.device` in eager code; "" without one."""
    return str(names.context().device_name or "")


def as_array(tensor: Tensor) -> Any:
    """The array of an EagerTensor, over the tensor's own memory: for reading."""
    return tensor._numpy()


def to_eager_tensor(value: object, dtype: tf.DType | None) -> Any:
    """An EagerTensor of an array that nobody else writes to; shares its memory where it can."""
    ctx = names.context()
    ctx.ensure_initialized()
    return names.convert_to_eager_tensor(value, ctx, dtype)


def over_array(array: Any, dtype: tf.DType) -> Any:
    """An EagerTensor that takes over an array; its memory too, where that is aligned to 64 bytes.

    It is on the device of the innermost `tf.device`.
    """
    ctx = names.context()
    ctx.ensure_initialized()
    return names.EagerTensor(array, ctx.device_name, dtype.as_datatype_enum)


def convert_to_tensor(value: object, dtype: tf.DType | None) -> Any:
    """`tf.convert_to_tensor`, without the cost of the public one's dispatch."""
    return names.convert_to_tensor(value, dtype=dtype)


def copy_to_device(tensor: Tensor, device: str | None) -> Any:
    """An EagerTensor on the device of the kernel that returns it; None is the CPU."""
    name = device or "/job:localhost/replica:0/task:0/device:CPU:0"
    with names.device(device):
        return names.copy_to_context_device(tensor, name)
