"""`hostcall.native`: functions that are native code, and need no Python when they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.native import ffi_handlers, signatures
from hostcall._callbacks.native.c_functions import CFunction
from hostcall._callbacks.native.ffi_handlers import FfiHandler
from hostcall._callbacks.specs import BoundedSpec, Spec, as_spec, is_leaf

# From the specs of the inputs to the arguments that a rule takes.
Pack = Callable[[Sequence[Spec]], Sequence[Any]]

# What cannot be declared of native code, and why.
_NOT_OF_NATIVE = {
    "timeout": "native code cannot be interrupted: it runs on XLA's own threads.",
    "borrow": "native code always reads the program's own memory.",
    "out": "native code always writes into the program's own memory.",
    "memo": "only Python can look results up. Declare it of a Python function that calls this one.",
}


class Native:
    """Native code in the place of a Python function.

    Made by `hostcall.native`. It goes wherever a Python function goes, and can be called with NumPy
    arrays.

    Attributes:
      code: where it is and what it takes.
      owner: the object that holds the code.
      result: what is declared of its results.

    Examples:
      >>> import ctypes, numba
      >>> pointer = numba.types.CPointer(numba.types.float64)
      >>> @numba.cfunc(numba.types.void(pointer, pointer))
      ... def square(x, y):
      ...     y[0] = x[0] * x[0]
      >>> native = hostcall.native(square, result=tf.TensorSpec([], tf.float64))
      >>> native(np.float64(3.0))
      array(9.)
    """

    # Without a dictionary, which functools.update_wrapper would copy to another object.
    __slots__ = ("__weakref__", "code", "owner", "result")

    def __init__(self, code: CFunction | FfiHandler, owner: object, result: object) -> None:
        self.code = code
        self.owner = owner
        self.result = result

    @property
    def __name__(self) -> str:
        return self.code.name

    def __repr__(self) -> str:
        return f"<hostcall.native {self.code.name}>"

    def __call__(self, *arrays: Any, out: object = None) -> Any:
        """Calls the code with NumPy arrays, without Python's lock.

        Args:
          *arrays: an array for each input, or something that NumPy makes one of. They are passed as
            they are where they lie in memory row by row, and otherwise copied.
          out: the arrays to write the results to, one, or a structure of them like `result`. They
            have the dtypes and shapes of the results, and lie in memory row by row.

        Returns:
          The results, new arrays or `out`, in the structure of `result`.

        Raises:
          TypeError, ValueError: when the arrays are not what the code takes, or `out` is not what
            it returns.
          RuntimeError: when the code says that it has failed.
        """
        arguments = list(arrays)
        flat = tf.nest.flatten(arguments)
        structure, results = self._prepared(
            flat, lambda specs: tf.nest.pack_sequence_as(arguments, specs), out
        )
        return tf.nest.pack_sequence_as(structure, results)

    def run(self, arrays: Sequence[Any], pack: Pack) -> list[np.ndarray]:
        """The results of one call, flat.

        Args:
          arrays: the inputs.
          pack: makes the rule's arguments of their specs.
        """
        return self._prepared(arrays, pack, None)[1]

    def _prepared(
        self, values: Sequence[Any], pack: Pack, out: object
    ) -> tuple[Any, list[np.ndarray]]:
        inputs = [_to_array(value, self) for value in values]
        specs = [tf.TensorSpec(array.shape, _dtype_of(array, self)) for array in inputs]
        structure = self.structure(pack(specs))
        declared = tf.nest.flatten(structure)
        if wrong := self.complaint(specs, declared):
            raise TypeError(f"hostcall.native: {wrong}")
        results = _allocated(declared) if out is None else self._given(out, declared)
        self.code.run(inputs, results, Native(self.code, self.owner, declared))
        return structure, results

    def structure(self, specs: Sequence[Any]) -> Any:
        """The structure of the results' specs for inputs of these specs."""
        result = self.result
        if callable(result) and not is_leaf(result):
            result = result(*specs)
        return tf.nest.map_structure(lambda leaf: as_spec(leaf, None), result)

    def complaint(self, inputs: Sequence[Spec], results: Sequence[Spec]) -> str:
        """What is wrong with calling the code for these inputs and results; "" where nothing is."""
        for kind, specs in (("input", inputs), ("result", results)):
            for index, spec in enumerate(specs):
                if wrong := _unfit(spec):
                    return f"{kind} {index} of {self.code.name} {wrong}"
        return self.code.complaint(inputs, results)

    def _given(self, out: object, declared: Sequence[tf.TensorSpec]) -> list[np.ndarray]:
        arrays = list(tf.nest.flatten(out))
        if len(arrays) != len(declared):
            raise ValueError(
                f"hostcall.native: {self.code.name} has {len(declared)} results, and out holds "
                f"{len(arrays)} arrays."
            )
        for index, (array, spec) in enumerate(zip(arrays, declared, strict=True)):
            dtype, shape = np.dtype(spec.dtype.as_numpy_dtype), tuple(spec.shape)
            fits = isinstance(array, np.ndarray) and (array.dtype, array.shape) == (dtype, shape)
            if not fits or not array.flags.carray:
                raise ValueError(
                    f"hostcall.native: result {index} of {self.code.name} is to go to an array of "
                    f"dtype {dtype.name} and shape {shape} that can be written to and lies in "
                    f"memory row by row, and out holds {_described(array)}."
                )
        return arrays


def native(
    function: object,
    *,
    result: object,
    name: str | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Native:
    """Makes native code callable from TensorFlow programs like a Python function.

        lib = ctypes.CDLL("libsignal.so")
        lib.smooth.argtypes = [ctypes.POINTER(ctypes.c_float)] * 2 + [ctypes.c_int64]
        lib.smooth.restype = None
        smooth = hostcall.native(lib.smooth, result=lambda x: x)

        y = tf.numpy_function(smooth, [x], tf.float32)    # in a tf.function with jit_compile=True

    A compiled program calls it on its own memory: without Python, its lock, or a copy. What calls
    it may be any thread, and several at once. The code reads the inputs and must not write to them,
    writes all of the results, and keeps none of the pointers. A pointer to an array without
    elements is null. What is known of its types is checked; a wrong pointer is not, and can end the
    process.

    Args:
      function: one of
        - a ctypes function with `argtypes` and `restype`, or a `numba.cfunc`. It takes a pointer
          for each input, then a pointer for each result, then perhaps the sizes: a 64-bit integer
          for each dimension of each input, in order. Arrays lie in memory row by row. It returns
          nothing, or an int32: 0 for success, while any other number is a `tf.errors.UnknownError`.
          Pointers that say their type (`POINTER(c_float)`, `np.ctypeslib.ndpointer`, Numba's
          `CPointer(float32)`) are held against the op's dtypes, and `c_void_p` is not;
        - a capsule, as of `jax.ffi.pycapsule`, with a handler of XLA's typed FFI for the stage of
          execution, built with headers no newer than TensorFlow's (`tf.sysconfig.get_include()`).
          Its errors are the program's.
      result: the results, as in `hostcall.callback`, with every size known when XLA compiles: a
        `tf.TensorSpec`, a structure of them, or a function from the inputs' specs to one of these.
      name: what messages call it; None for the function's own name.
      attributes: of a handler: bool, int (64 bits), float (32 bits), str, or NumPy scalars.

    Returns:
      A `Native`, to be passed to `tf.numpy_function`, `tf.compat.v1.py_func` or
      `hostcall.callback`, or called with arrays. `tf.py_function` takes it too, and calls it
      through Python.

    Raises:
      TypeError: when `function` is none of these, or takes or returns something else; the message
        says what to write.
      ValueError: when a handler was built for another version of XLA's FFI.

    Examples:
      >>> import numba
      >>> pointer = numba.types.CPointer(numba.types.float32)
      >>> @numba.cfunc(numba.types.void(pointer, pointer, numba.types.int64))
      ... def double(x, y, n):
      ...     for i in range(n):
      ...         y[i] = 2 * x[i]
      >>> native = hostcall.native(double, result=lambda x: x)
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return tf.numpy_function(native, [x], tf.float32)
      >>> program(tf.constant([1.0, 2.0])).numpy()
      array([2., 4.], dtype=float32)
    """
    code: CFunction | FfiHandler | None = ffi_handlers.read(function, name, attributes or {})
    if code is None:
        if attributes is not None:
            raise TypeError("hostcall.native: only handlers of XLA's FFI take attributes.")
        code = signatures.read(function, name)
    if code is None:
        raise TypeError(
            "hostcall.native wants a ctypes function, a numba.cfunc, or a capsule with a handler "
            f"of XLA's FFI, and not {function!r}. A Python function goes to tf.numpy_function as "
            "it is."
        )
    return Native(code, function, result)


def check_declared(native: Native, declared: Mapping[str, Any]) -> None:
    """Checks that nothing is declared that cannot hold of native code.

    Raises:
      ValueError: naming what is.
    """
    for option, why in _NOT_OF_NATIVE.items():
        if declared[option]:
            raise ValueError(
                f"hostcall: {option}= was declared of {native!r}, but {why} Take it away."
            )


def _to_array(value: object, who: Native) -> np.ndarray:
    if isinstance(value, tf.Tensor) and not hasattr(value, "numpy"):
        raise TypeError(
            f"hostcall.native: {who.code.name} was called with {value}, which has no value yet. In "
            f"a tf.function write tf.numpy_function({who.code.name}, [x], dtype)."
        )
    array: np.ndarray = np.require(value, requirements=["C", "A", "E"])
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _dtype_of(array: np.ndarray, who: Native) -> tf.DType:
    try:
        return tf.as_dtype(array.dtype)
    except TypeError:
        raise TypeError(
            f"hostcall.native: {who.code.name} was called with an array of dtype {array.dtype}, "
            "which TensorFlow has no values of."
        ) from None


def _unfit(spec: Spec) -> str:
    """Why native code cannot have such an array, or ""."""
    if isinstance(spec, BoundedSpec):
        return (
            f"has a size that is only bounded, {spec}, and native code wants every size when XLA "
            "compiles. Pad it, or call a Python function."
        )
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    if dtype.kind not in "biufcV" or dtype.fields is not None or dtype.name in ("int4", "uint4"):
        return f"is of dtype {spec.dtype.name}, which native code cannot have. Cast it before."
    if not spec.shape.is_fully_defined():
        return (
            f"has the shape {spec.shape}: not every size is known. Let `result` be a function from "
            "the inputs' specs that says all of them."
        )
    return ""


def _allocated(declared: Sequence[tf.TensorSpec]) -> list[np.ndarray]:
    return [np.empty(tuple(spec.shape), spec.dtype.as_numpy_dtype) for spec in declared]


def _described(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    kind = "one" if value.flags.carray else "one that is read-only or does not lie so"
    return f"{kind} of dtype {value.dtype.name} and shape {value.shape}"
