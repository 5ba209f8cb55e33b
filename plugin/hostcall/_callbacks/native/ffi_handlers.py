"""Handlers of XLA's typed FFI as native code."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import requested_routes
from hostcall._callbacks.specs import Spec
from hostcall._tf import eager_execution
from hostcall_runtime import _library

_runtime = _library.load("hostcall_runtime._runtime")

# FFI element types (xla/ffi/api/c_api.h) of scalars, by the names of their dtypes; a text has none.
_CODES = {
    "bool": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "uint8": 6,
    "uint16": 7,
    "uint32": 8,
    "uint64": 9,
    "float16": 10,
    "float32": 11,
    "float64": 12,
    "complex64": 15,
    "complex128": 18,
}
_TEXT = 0

# Which exception stands for which of XLA's errors: script ops make the same errors of them again.
_EXCEPTIONS = (
    (tf.errors.InvalidArgumentError, ValueError),
    (tf.errors.ResourceExhaustedError, MemoryError),
    (tf.errors.UnimplementedError, NotImplementedError),
)

# Name, element type, bytes.
_Attribute = tuple[str, int, bytes]


class FfiHandler:
    """A handler of XLA's typed FFI, for the stage of execution.

    Attributes:
      name: what messages call it.
      address: where its code is.
      attributes: what it is called with beside buffers: name, element type, bytes.
    """

    def __init__(self, name: str, address: int, attributes: list[_Attribute]) -> None:
        self.name = name
        self.address = address
        self.attributes = attributes
        self._programs: dict[Any, Any] = {}

    def complaint(self, inputs: Sequence[Spec], results: Sequence[Spec]) -> str:
        """Nothing: handlers check what they are called with."""
        return ""

    def register(self, label: str) -> int:
        """The runtime's callback id of it, until that is given back."""
        callback_id: int = _runtime.register_ffi_handler(label, self.address, self.attributes)
        return callback_id

    def run(self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], native: Any) -> None:
        """Calls it from a compiled program: only XLA can make what a handler may ask for.

        Args:
          inputs: arrays.
          results: arrays, to be written.
          native: the `Native` of this, of which nothing is declared.

        Raises:
          RuntimeError, or what stands for the handler's error: when it fails.
        """
        with eager_execution.eager_mode(), tf.device("CPU"):
            try:
                returned = self._program(inputs, results, native)(
                    *map(tf.convert_to_tensor, inputs)
                )
            except tf.errors.OpError as error:
                kinds = (made for kind, made in _EXCEPTIONS if isinstance(error, kind))
                raise next(kinds, RuntimeError)(error.message) from error
        for array, tensor in zip(results, tf.nest.flatten(returned), strict=bool(results)):
            array[...] = tensor.numpy()

    def _program(
        self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], native: Any
    ) -> Any:
        """What calls it for arrays of these dtypes and shapes; traced once for each."""
        specs, declared = _specs(inputs), _specs(results)
        key = (*specs, None, *declared)
        if key not in self._programs:
            program = tf.function(
                lambda *tensors: tf.numpy_function(native, tensors, declared),
                jit_compile=True,
                autograph=False,
            )
            # In a partitioned function it would end here again.
            with requested_routes.scope(route=requested_routes.CUSTOM_CALL):
                self._programs[key] = program.get_concrete_function(*specs)
        return self._programs[key]


def read(function: object, name: str | None, attributes: Mapping[str, Any]) -> FfiHandler | None:
    """The handler in a capsule; None of anything else.

    Args:
      function: what may be one.
      name: what messages call it, or None.
      attributes: its attributes.

    Raises:
      TypeError: when the capsule holds something else, or an attribute is of no such type.
      ValueError: when the handler is of another version of XLA's FFI, or for another stage.
    """
    if type(function).__name__ != "PyCapsule":
        return None
    try:
        described = _library.load("hostcall._tensorflow").describe_handler(function)
    except TypeError as error:
        raise TypeError(
            f"hostcall.native: the capsule is named {str(error)!r}. One with a handler of XLA's "
            "FFI has no name, as that of jax.ffi.pycapsule, or is named "
            '"xla._CUSTOM_CALL_TARGET".'
        ) from None
    except ValueError as error:
        raise ValueError(f"hostcall.native: {_OTHER_VERSION} It says: {error}") from None
    address, *version, makes_state = described
    major, minor = _runtime.ffi_api_version()
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
    scalars = [_attribute(key, value) for key, value in attributes.items()]
    return FfiHandler(name or "ffi_handler", address, scalars)


_OTHER_VERSION = (
    "the handler in the capsule is for another version of XLA's FFI than that of TensorFlow. Build "
    "it with the headers in tf.sysconfig.get_include()."
)


def _specs(arrays: Sequence[np.ndarray]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)) for array in arrays]


def _attribute(name: str, value: object) -> _Attribute:
    if isinstance(value, str):
        return name, _TEXT, value.encode()
    scalar: object = value
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        kind = {bool: np.bool_, int: np.int64}.get(type(value), np.float32)
        with contextlib.suppress(OverflowError):
            scalar = kind(value)
    code = _CODES.get(scalar.dtype.name) if isinstance(scalar, np.generic) else None
    if code is None or not isinstance(scalar, np.generic):
        raise TypeError(
            f"hostcall.native: the attribute {name!r} is {value!r}. A handler's attributes are "
            "bool, int, float or str, or NumPy scalars of the dtype that it wants: "
            "np.float64(1e-5)."
        )
    return name, code, scalar.tobytes()
