"""Handlers of XLA's FFI: checks for TensorFlow's XLA, and programs that call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import requested_routes
from hostcall._functions.frameworks import Native
from hostcall._tf import eager_execution
from hostcall_runtime import _library

_runtime = _library.load("hostcall_runtime._runtime")

# The exceptions for XLA's errors; script ops map these exceptions back to the same errors.
_EXCEPTIONS = (
    (tf.errors.InvalidArgumentError, ValueError),
    (tf.errors.ResourceExhaustedError, MemoryError),
    (tf.errors.UnimplementedError, NotImplementedError),
)

_OTHER_VERSION = (
    "the handler in the capsule is for another version of XLA's FFI than that of TensorFlow. Build "
    "it with the headers in tf.sysconfig.get_include()."
)


def check(capsule: object) -> int:
    """Check a handler for XLA's stage of execution, and return its address.

    Raises:
      TypeError: when the capsule holds no handler.
      ValueError: when the handler is for another version of XLA's FFI, or for another stage.
    """
    try:
        tensorflow = _library.load("hostcall._tensorflow")
        described = tensorflow.describe_handler(capsule)
    except TypeError as error:
        raise TypeError(
            f"hostcall.native: the capsule is named {str(error)!r}. One with a handler of XLA's "
            "FFI has no name, as that of jax.ffi.pycapsule, or is named "
            '"xla._CUSTOM_CALL_TARGET".'
        ) from None
    except ValueError as error:
        raise ValueError(f"hostcall.native: {_OTHER_VERSION} It says: {error}") from None
    address: int
    address, *version, makes_state = described
    # An XLA of FFI version 0.1 never calls the handler; hostcall's own handler, of 0.2, does.
    major, minor = max(tensorflow.ffi_api_version(), _runtime.ffi_api_version())
    if version[0] != major or version[1] > minor:
        raise ValueError(
            f"hostcall.native: {_OTHER_VERSION} It is of version {version[0]}.{version[1]}, and "
            f"TensorFlow's XLA of {major}.{minor}."
        )
    if makes_state:
        raise ValueError(
            "hostcall.native: the handler makes a state, and so is one for the stage of "
            "instantiation. Pass the handler for the stage of execution; it gets no state."
        )
    return address


def run(native: Native, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """Run a compiled program that calls the handler of native code, and store its results."""
    with eager_execution.eager_mode(), tf.device("CPU"):
        program = _program(native, _specs(inputs), _specs(results))
        try:
            returned = program(*map(tf.convert_to_tensor, inputs))
        except tf.errors.OpError as error:
            kinds = (made for kind, made in _EXCEPTIONS if isinstance(error, kind))
            raise next(kinds, RuntimeError)(error.message) from error
    for array, tensor in zip(results, tf.nest.flatten(returned), strict=bool(results)):
        array[...] = tensor.numpy()


def _program(native: Native, specs: list[tf.TensorSpec], declared: list[tf.TensorSpec]) -> Any:
    """Return the program that calls native code for these specs; each is traced once."""
    programs = native.code.programs
    key = (*specs, None, *declared)
    if key not in programs:
        program = tf.function(
            lambda *tensors: tf.numpy_function(native, tensors, declared),
            jit_compile=True,
            autograph=False,
        )
        # A partitioned function would call `run` again, without end.
        with requested_routes.scope(route=requested_routes.CUSTOM_CALL):
            programs[key] = program.get_concrete_function(*specs)
    return programs[key]


def _specs(arrays: Sequence[np.ndarray]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)) for array in arrays]
