"""EagerTensors, and whether TensorFlow executes eagerly."""

from __future__ import annotations

import functools
from collections.abc import Callable
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


def copy_of(array: Any, dtype: tf.DType, copy_on_cpu: Callable[[Any, int], Any]) -> Any:
    """An EagerTensor with the values of an array, which others may go on to write to.

    Args:
      array: a NumPy array.
      dtype: the one that is expected; the tensor has that of the array.
      copy_on_cpu: makes such a tensor of a CPU, or None, of an array and the number of its dtype.
    """
    if array.dtype == dtype.as_numpy_dtype and not device_in_scope() and _has_cpus_alone():
        tensor = copy_on_cpu(array, dtype.as_datatype_enum)
        if tensor is not None:
            return tensor
    return to_eager_tensor(array, None)


@functools.cache
def _has_cpus_alone() -> bool:
    """Whether it is a CPU where TensorFlow puts tensors for which nobody names a device."""
    return {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


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
