"""`hostcall.native`: native code that takes tensors and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hostcall._functions import frameworks, native_code
from hostcall._functions.callback import Callback
from hostcall._functions.declarations import of_native
from hostcall._functions.native_code import CFunction, FfiHandler, NativeCode
from hostcall._functions.options import Options
from hostcall_runtime import _trees


class Native(NativeCode):
    """Native code in the place of a Python function.

    `hostcall.native` makes it. It is called with tensors, JAX's arrays or NumPy's, and can be used
    wherever a Python function can.

    Attributes:
      code: its address and signature.
      owner: the object that holds the code.
      result: its declared results.

    Examples:
      >>> import numba
      >>> pointer = numba.types.CPointer(numba.types.float64)
      >>> @numba.cfunc(numba.types.void(pointer, pointer))
      ... def square(x, y):
      ...     y[0] = x[0] * x[0]
      >>> native = hostcall.native(square, result=tf.TensorSpec([], tf.float64))
      >>> native(np.float64(3.0))
      array(9.)
      >>> float(tf.function(native, jit_compile=True)(tf.constant(3.0, tf.float64)))
      9.0
    """

    __slots__ = ()

    def __call__(self, *arrays: Any, out: object = None) -> Any:
        """Call the code: as an op in a graph or a JAX program, otherwise at once.

        Args:
          *arrays: for each input a tensor, an array, or a value that NumPy can convert to one.
            C-contiguous NumPy arrays are passed as they are, others are copied.
          out: for NumPy arrays: the array to write the results to, or a structure of arrays like
            `result`. They have the dtypes and shapes of the results, and are C-contiguous.

        Returns:
          The results, in the structure of `result`: tensors for tensors, JAX's arrays for those,
          NumPy arrays otherwise, new ones or `out`.

        Raises:
          TypeError, ValueError: when the arrays do not fit the inputs, or `out` the results.
          RuntimeError: when the code is called at once, and reports an error.
        """
        leaves = _trees.leaves(arrays)
        if out is None and any(map(frameworks.belongs_to_a_program, leaves)):
            options = of_native(self, Options())
            return Callback(self, options, "numpy", True, None, None)(*arrays)
        results = super().__call__(*arrays, out=out)
        return results if out is not None else frameworks.like(leaves, results)


def native(
    function: object,
    *,
    result: object = None,
    name: str | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Native:
    """Make native code callable from TensorFlow programs like a Python function.

        lib = ctypes.CDLL("libsignal.so")
        lib.smooth.argtypes = [ctypes.POINTER(ctypes.c_float)] * 2 + [ctypes.c_int64]
        lib.smooth.restype = None
        smooth = hostcall.native(lib.smooth, result=lambda x: x)

        y = smooth(x)    # in a tf.function, with jit_compile=True or without, or eagerly

    A compiled program calls it on its own memory: without Python, its lock, or a copy. Any thread
    may call it, and several at once. The code must not write to the inputs, must write all of the
    results, and must keep none of the pointers. A pointer to an array without elements is null.
    Declared types are checked. A wrong pointer is not checked, and can end the process.

    Args:
      function: one of

        - a ctypes function with `argtypes` and `restype`, or a `numba.cfunc`. It takes a pointer
          for each input, then a pointer for each result, then perhaps the sizes: a 64-bit integer
          for each dimension of each input, in order. Arrays are C-contiguous. It returns nothing,
          or an int32: 0 for success, while any other number is a `tf.errors.UnknownError`. Typed
          pointers (`POINTER(c_float)`, `np.ctypeslib.ndpointer`, Numba's `CPointer(float32)`) are
          checked against the op's dtypes, and `c_void_p` is not;
        - a capsule, for example from `jax.ffi.pycapsule`, with a handler of XLA's typed FFI for the
          stage of execution, built with headers no newer than TensorFlow's
          (`tf.sysconfig.get_include()`). Its errors are the program's.

      result: the results, as in `hostcall.callback`, with every size known when XLA compiles: a
        `tf.TensorSpec`, a structure of them, or a function from the inputs' specs to one of these.
      name: its name in messages; None for the function's own name.
      attributes: a handler's attributes: bool, int (64 bits), float (32 bits), str, or NumPy
        scalars.

    Returns:
      A `Native`, to be called with tensors or arrays, or passed to `tf.numpy_function`,
      `tf.compat.v1.py_func` or `hostcall.callback`. `tf.py_function` takes it too, and calls it
      through Python.

    Raises:
      TypeError: for another `function`, or one with another signature; the message tells how
        to fix it.
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
    if result is None:
        raise TypeError(
            "hostcall.native: nothing is said of the results, which native code does not tell. "
            "Write result=tf.TensorSpec([3], tf.float32), for one; result=lambda x: x where it is "
            "like the input; or result=[] where there is none."
        )
    code: CFunction | FfiHandler | None = native_code.read(function, name, attributes or {})
    if code is None:
        if attributes is not None:
            raise TypeError("hostcall.native: only handlers of XLA's FFI take attributes.")
        code = native_code.read_signature(function, name)
    if code is None:
        raise TypeError(
            "hostcall.native wants a ctypes function, a numba.cfunc, or a capsule with a handler "
            f"of XLA's FFI, and not {function!r}. A Python function goes to tf.numpy_function as "
            "it is."
        )
    return Native(code, function, result)
