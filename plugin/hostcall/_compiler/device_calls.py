"""Devices: which script ops programs for each kind of device can hold as custom calls."""

from __future__ import annotations

import functools

import tensorflow as tf

from hostcall import _versions
from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._compiler.partition import placement
from hostcall._tf.types import NodeDef

_GPU = "GPU"
_XLA_CPU = "XLA_CPU"


def obstacle(node: NodeDef, device: str) -> str:
    """Why a program for a device cannot call the function of a script op; "" where it can.

    That TensorFlow compiles script ops for the device at all is not looked at.

    Args:
      node: the NodeDef of the op.
      device: the full name of the device; "" for the CPU.
    """
    if placement.type_of(device) == _XLA_CPU and not _versions.runs_on_the_caller(tf.__version__):
        return f"{without_calls(device)}, since calls that read its memory would wait for them"
    if placement.type_of(device) != _GPU:
        return ""
    if _is_for_rocm():
        return without_calls(device)
    spec = lookup.spec_of(node)
    if spec is not None and spec.custom_call != CallbackSpec.custom_call:
        return f"programs on {device} cannot call native code"
    return ""


def without_calls(device: str) -> str:
    """What is said of a device whose programs cannot call the host."""
    return f"programs on {device} cannot call the host"


def kernels_for(device: str) -> str:
    """The type of the device whose XLA kernels tell what can be compiled for a device.

    A TensorFlow without GPUs has no kernels for them. It runs nothing on one; an explanation goes
    by the CPU's.
    """
    device_type = placement.type_of(device)
    return device_type if device_type != _GPU or knows_gpus() else "CPU"


def knows_gpus() -> bool:
    """Whether TensorFlow is built for GPUs."""
    return bool(tf.test.is_built_with_gpu_support())


def may_overlap(device: str) -> bool:
    """Whether a program for a device may go on while a call does that it has begun.

    On GPUs, XLA waits for each custom call.
    """
    return placement.type_of(device) != _GPU


@functools.cache
def _is_for_rocm() -> bool:
    """Whether TensorFlow takes AMD's GPUs for its GPUs, for which there is no handler."""
    return bool(tf.test.is_built_with_rocm())
