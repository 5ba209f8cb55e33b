"""The kernels that TensorFlow has for XLA and for the CPU, with the dtypes of both."""

import collections
import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from tests.kernels.data import words

XLA = "XLA_CPU_JIT"
# A kernel for any device is one for the CPU as well.
CPU = ("CPU", "DEFAULT")

# A set of dtypes for each attribute that a kernel constrains.
Constraints = dict[str, set[tf.DType]]


@functools.cache
def ops() -> list[str]:
    return sorted(op for op, devices in _kernels().items() if XLA in devices)


@functools.cache
def dtypes(op: str, attr: str = "T") -> list[tf.DType]:
    """Return the dtypes that an attribute may be for both kernels, of those that NumPy has."""
    definition = op_def_registry.get(op)
    allowed = {n for a in definition.attr if a.name == attr for n in a.allowed_values.list.type}
    sides = [{dtype.as_datatype_enum for dtype in _common(op, attr) or ()}, allowed]
    order = [tf.dtypes.as_dtype(name) for name in _NAMES]
    return [d for d in order if all(d.as_datatype_enum in side for side in sides if side)]


_NAMES = words("""half bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
bool complex64 complex128""")


def _common(op: str, attr: str) -> set[tf.DType] | None:
    devices = _kernels().get(op, {})
    sides = [devices.get(XLA, {}).get(attr)]
    sides.append(set().union(*(devices.get(device, {}).get(attr, ()) for device in CPU)) or None)
    known = [side for side in sides if side]
    return set.intersection(*known) if known else None


@functools.cache
def _kernels() -> dict[str, dict[str, Constraints]]:
    _register()
    found: dict[str, Any] = collections.defaultdict(
        lambda: collections.defaultdict(lambda: collections.defaultdict(set))
    )
    for kernel in kernels.get_all_registered_kernels().kernel:
        constraints = found[kernel.op][kernel.device_type]
        for constraint in kernel.constraint:
            allowed = constraint.allowed_values.list.type
            constraints[constraint.name] |= {tf.dtypes.as_dtype(number) for number in allowed}
    return found


def _register() -> None:
    # TensorFlow registers XLA's kernels when it first compiles.
    tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1.0))
