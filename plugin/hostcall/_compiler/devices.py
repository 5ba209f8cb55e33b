"""Devices: their types, whose kernels XLA takes for one, and whether its programs call the host."""

from __future__ import annotations

import functools

import tensorflow as tf

from hostcall import _versions
from hostcall._ops import lookup
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._tf.types import NodeDef

GPU = "GPU"
_XLA_CPU = "XLA_CPU"
WITHOUT_CALLS = "programs on {device} cannot call the host"
CPU = "CPU"


def is_accelerator(device: str) -> bool:
    """Return whether a device, by its full name, is not a CPU; "" is not an accelerator."""
    return type_of(device) != CPU


@functools.cache
def type_of(device: str) -> str:
    """Return the type of a device, by its full name; that of a CPU for ""."""
    return str(tf.DeviceSpec.from_string(device).device_type or CPU)


@functools.cache
def without_process(device: str) -> str:
    """Return the name of a device without the job and the task that it belongs to."""
    spec = tf.DeviceSpec.from_string(device)
    return str(spec.replace(job=None, replica=None, task=None).to_string())


def suffix_of(device: str) -> str:
    """Return the suffix for the names of functions that are for this device."""
    spec = tf.DeviceSpec.from_string(device)
    return f"_on_{spec.device_type}_{spec.device_index}"


def kernels_for(device: str) -> str:
    """Return the device whose XLA kernels decide: the CPU if TensorFlow was built without GPUs."""
    device_type = type_of(device)
    return device_type if device_type != GPU or knows_gpus() else CPU


def knows_gpus() -> bool:
    """Return whether TensorFlow is built for GPUs."""
    return bool(tf.test.is_built_with_gpu_support())


def obstacle(node: NodeDef, device: str) -> str:
    """Return why a program for a device cannot call a script op's function; "" if it can."""
    device_type = type_of(device)
    without_calls = WITHOUT_CALLS.format(device=device)
    if device_type == _XLA_CPU and not _versions.runs_on_the_caller(tf.__version__):
        return f"{without_calls}, since calls that read its memory would wait for them"
    if device_type != GPU:
        return ""
    if tf.test.is_built_with_rocm():  # hostcall has no handler for AMD's GPUs
        return without_calls
    spec = lookup.spec_of(node)
    if spec is not None and spec.custom_call != CallbackSpec.custom_call:
        return f"programs on {device} cannot call native code"
    return ""
