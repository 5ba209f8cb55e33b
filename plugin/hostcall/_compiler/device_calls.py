"""Limits of devices: the script ops that a program for a device can hold as custom calls."""

from __future__ import annotations

import tensorflow as tf

from hostcall import _versions
from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._compiler.partition import placement
from hostcall._tf.types import NodeDef

_GPU = "GPU"
_XLA_CPU = "XLA_CPU"


def obstacle(node: NodeDef, device: str) -> str:
    """Return why a program for a device cannot call the function of a script op; "" if it can.

    The function does not check that TensorFlow compiles script ops for the device at all.
    """
    if placement.type_of(device) == _XLA_CPU and not _versions.runs_on_the_caller(tf.__version__):
        return f"{without_calls(device)}, since calls that read its memory would wait for them"
    if placement.type_of(device) != _GPU:
        return ""
    if tf.test.is_built_with_rocm():  # hostcall has no handler for AMD's GPUs
        return without_calls(device)
    spec = lookup.spec_of(node)
    if spec is not None and spec.custom_call != CallbackSpec.custom_call:
        return f"programs on {device} cannot call native code"
    return ""


def without_calls(device: str) -> str:
    """Return the text of the reason for a device whose programs cannot call the host."""
    return f"programs on {device} cannot call the host"


def kernels_for(device: str) -> str:
    """Return the device type whose XLA kernels decide which ops compile for a device.

    A TensorFlow built without GPUs has no kernels for them. It runs nothing on a GPU, so an
    explanation goes by the kernels of the CPU.
    """
    device_type = placement.type_of(device)
    return device_type if device_type != _GPU or knows_gpus() else "CPU"


def knows_gpus() -> bool:
    """Return whether TensorFlow is built for GPUs."""
    return bool(tf.test.is_built_with_gpu_support())


def may_overlap(device: str) -> bool:
    """Return whether a program for a device may go on while a call that it began still runs.

    On GPUs, XLA waits for each custom call.
    """
    return placement.type_of(device) != _GPU
