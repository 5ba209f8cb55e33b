"""`hostcall.native`: C functions and XLA FFI handlers in the place of Python functions."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from _ctypes import CFuncPtr
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hostcall._functions import frameworks, specs
from hostcall._functions.options import Options
from hostcall._functions.specs import ArraySpec, BoundedSpec, Declared
from hostcall._functions.user_function import UserFunction
from hostcall_runtime import _interception, _library, _registry, _trees
from hostcall_runtime._errors import counted

_runtime = _library.load("hostcall_runtime._runtime")
TARGET = "hostcall_native"  # the target of the custom call by which programs call native code


class NativeEntry:
    """An entry of the runtime's table, which lives as long as this object."""

    def __init__(
        self, native: Native, label: str, site: _interception.CallSite, origin: Any = None
    ) -> None:
        self.origin = origin  # the object that made it and can describe the code, or None
        self.site = site  # the description of the call for recordings and replays
        self._owner = native.owner
        wanted = _registry.wanted_id(site.name, site.description, site.node)
        # The id by which programs find the code.
        self.callback_id = native.code.register(label, wanted)
        _interception.know(self)

    def answer(self, answer: Callable[..., Any] | None) -> None:
        """Let a Python function answer the calls of programs; None restores the native code."""
        _runtime.answer_native(self.callback_id, answer)

    # Running calls take over the owner. (A `weakref.finalize` with the owner could keep this object
    # alive.) `unregister` is bound early: at exit, Python may clear a module's names before.
    def __del__(self, unregister: Callable[[int, Any], None] = _runtime.unregister_native) -> None:
        unregister(self.callback_id, self._owner)


CONVENTION = (
    "A native function takes a pointer for each input, then a pointer for each result, then "
    "perhaps a 64-bit integer for each dimension of each input, and returns nothing, or an int32 "
    "that is 0 for success."
)


@dataclasses.dataclass(frozen=True)
class Pointer:
    """The declared type of the array that an argument points to; None where any will do."""

    dtype: np.dtype[Any] | None = None
    ndim: int | None = None
    shape: tuple[int, ...] | None = None

    def complaint(self, spec: ArraySpec) -> str:
        """Return the reason why an array of this spec does not fit, or ""."""
        rank = len(spec.shape or ())
        if self.dtype is not None and spec.dtype != self.dtype:
            return f"points to {self.dtype.name}, and not to {spec.dtype.name}"
        if self.ndim is not None and self.ndim != rank:
            return f"points to an array of rank {self.ndim}, and not of rank {rank}"
        if self.shape is not None and self.shape != spec.shape:
            return f"points to an array of shape {self.shape}, and not of {spec.shape}"
        return ""


@dataclasses.dataclass(frozen=True)
class CFunction:
    """A C function and its signature."""

    name: str  # the function's name, for messages
    address: int  # the address of its code
    # Its first arguments: pointers to the inputs, then to the results.
    pointers: tuple[Pointer, ...]
    # The number of 64-bit integers that follow: none, or one per dimension of each input.
    sizes: int
    returns_status: bool  # True if it returns an int32, False if it returns nothing

    def complaint(self, inputs: Sequence[ArraySpec], results: Sequence[ArraySpec]) -> str:
        """Return the reason why it cannot be called for these static shapes, or ""."""
        if len(inputs) + len(results) != len(self.pointers):
            return (
                f"{self.name} takes {counted(len(self.pointers), 'pointer')}, but there are "
                f"{counted(len(inputs), 'input')} and {counted(len(results), 'result')}. "
                f"{CONVENTION}"
            )
        dimensions = sum(len(spec.shape or ()) for spec in inputs)
        if self.sizes not in (0, dimensions):
            return (
                f"{self.name} takes {counted(self.sizes, 'size')}, but its inputs have "
                f"{counted(dimensions, 'dimension')}. {CONVENTION}"
            )
        for i, (pointer, spec) in enumerate(zip(self.pointers, [*inputs, *results], strict=True)):
            if wrong := pointer.complaint(spec):
                result = i - len(inputs)
                name = f"input {i}" if result < 0 else f"result {result}"
                return f"argument {i} of {self.name}, for {name}, {wrong}."
        return ""

    def register(self, label: str, wanted: int = 0) -> int:
        """Register it with the runtime, and return the callback id: `wanted`, unless that is 0."""
        count = len(self.pointers) + self.sizes
        callback_id: int = _runtime.register_c_function(
            label, self.address, count, self.sizes > 0, self.returns_status, wanted
        )
        return callback_id

    def run(self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], native: Any) -> None:
        """Call it, without Python's lock; raise a RuntimeError for another status than 0."""
        sizes = [size for array in inputs for size in array.shape] if self.sizes else []
        returned = ctypes.c_int32 if self.returns_status else None
        types = [ctypes.c_void_p] * len(self.pointers) + [ctypes.c_int64] * len(sizes)
        function = ctypes.CFUNCTYPE(returned, *types)(self.address)
        arrays = [*inputs, *results]
        # As in a compiled program, the address of an array without elements is null.
        addresses = [array.ctypes.data if array.size else None for array in arrays]
        if status := function(*addresses, *sizes):
            raise RuntimeError(
                f"The native function {self.name} returned status {status}, and not 0 for success. "
                "If it returns nothing, its declaration has to say so: `restype = None` in ctypes, "
                "`types.void(...)` in Numba."
            )


_MOST: int = _runtime.MAX_NATIVE_ARGUMENTS

# Flags of the classes of ctypes functions, and of the classes that np.ctypeslib.ndpointer makes.
_FUNCTION_WANTS_GIL = 4
_ARRAY_IS_C, _ARRAY_IS_FORTRAN = 1, 2

_INTEGERS = {"int64", "uint64"}


def read_signature(function: object, name: str | None) -> CFunction | None:
    """Read a ctypes function or a `numba.cfunc`, None for others; a TypeError for other types."""
    if isinstance(function, CFuncPtr):
        read = _read_ctypes
    elif hasattr(function, "address") and hasattr(function, "_sig"):
        read = _read_numba
    else:
        return None
    code = read(function, name or str(getattr(function, "__name__", "function")))
    arguments = len(code.pointers) + code.sizes
    if arguments > _MOST:
        raise TypeError(
            f"hostcall.native: {code.name} takes {counted(arguments, 'argument')}, and {_MOST} is "
            "the most that a native function can have. Pass several values in one array."
        )
    return code


def _read_ctypes(function: Any, name: str) -> CFunction:
    address = ctypes.cast(function, ctypes.c_void_p).value
    if address is None:
        raise TypeError(f"hostcall.native: {name} is a null pointer.")
    if type(function)._flags_ & _FUNCTION_WANTS_GIL:
        raise TypeError(
            f"hostcall.native: {name} is of a ctypes.PyDLL or a ctypes.PYFUNCTYPE, whose functions "
            "use Python and want its lock, and native functions run without it. If this one does "
            "not use Python, load its library by ctypes.CDLL."
        )
    if any(type(kept).__name__ == "CThunkObject" for kept in (function._objects or {}).values()):
        raise TypeError(
            f"hostcall.native: {name} is a Python function that ctypes has made callable from C. "
            "It would run Python all the same, and its exceptions would be lost. Pass the Python "
            "function itself to tf.numpy_function or hostcall.callback."
        )
    if function.errcheck is not None:
        raise TypeError(
            f"hostcall.native: {name} has an errcheck, which is Python code that no native call "
            "would run. Let the function return an int32, 0 for success."
        )
    if function.argtypes is None:
        raise TypeError(_unknown_types(name))
    if function.restype not in (None, ctypes.c_int32):
        raise TypeError(_wrong_return(name, _type_name(function.restype)))
    arguments = [(_kind_of_ctype(ctype), _type_name(ctype)) for ctype in function.argtypes]
    pointers, sizes = _pointers_and_sizes(arguments, name)
    return CFunction(name, address, pointers, sizes, function.restype is not None)


def _read_numba(function: Any, name: str) -> CFunction:
    returned = str(function._sig.return_type)
    if returned not in ("none", "int32"):
        raise TypeError(_wrong_return(name, returned))
    arguments = [(_kind_of_numba(text), text) for text in map(str, function._sig.args)]
    pointers, sizes = _pointers_and_sizes(arguments, name)
    return CFunction(name, function.address, pointers, sizes, returned == "int32")


# The kind of an argument: a pointer, "size", or None for any other type.
_Kind = Pointer | str | None
_SIZE = "size"


def _kind_of_ctype(ctype: Any) -> _Kind:
    if hasattr(ctype, "_dtype_") and hasattr(ctype, "_ndim_"):  # np.ctypeslib.ndpointer
        flags = ctype._flags_ or 0
        if flags & _ARRAY_IS_FORTRAN and not flags & _ARRAY_IS_C:
            return None
        return Pointer(ctype._dtype_, ctype._ndim_, ctype._shape_)
    if ctype is ctypes.c_void_p:
        return Pointer()
    if isinstance(ctype, type) and issubclass(ctype, ctypes._Pointer):
        return _pointer_to(ctype._type_)
    if isinstance(ctype, type) and issubclass(ctype, ctypes._SimpleCData):
        return _size_of(ctype)
    return None


def _kind_of_numba(text: str) -> _Kind:
    if text == "void*":
        return Pointer()
    return _pointer_to(text[:-1]) if text.endswith("*") else _size_of(text)


def _pointer_to(item: Any) -> _Kind:
    try:
        dtype = np.dtype(item)
    except TypeError:
        return None
    return Pointer(dtype) if dtype.kind in "biufc" and dtype.isnative else None


def _size_of(number: Any) -> _Kind:
    try:
        return _SIZE if np.dtype(number).name in _INTEGERS else None
    except TypeError:
        return None


def _pointers_and_sizes(arguments: Sequence[tuple[_Kind, str]], name: str) -> tuple[Any, int]:
    """Split the kinds and types of arguments into the pointers and the number of sizes after."""
    pointers: list[Pointer] = []
    for i, (kind, text) in enumerate(arguments):
        if isinstance(kind, Pointer) and len(pointers) == i:
            pointers.append(kind)
        elif kind != _SIZE:
            raise TypeError(
                f"hostcall.native: argument {i} of {name} is of type {text}, which it cannot "
                f"be there. {CONVENTION} The pointers are to numbers (c_void_p, or Numba's "
                "voidptr, to any), and arrays lie in memory row by row, as in C."
            )
    return tuple(pointers), len(arguments) - len(pointers)


def _unknown_types(name: str) -> str:
    written = name if name.isidentifier() else "function"
    return (
        f"hostcall.native: what {name} takes is not known: ctypes has to be told. Write before, "
        "with the types that the function has:\n\n"
        f"    {written}.argtypes = [ctypes.POINTER(ctypes.c_float), "
        "ctypes.POINTER(ctypes.c_float), ctypes.c_int64]\n"
        f"    {written}.restype = None    # or ctypes.c_int32: 0 for success\n\n"
        f"{CONVENTION} If it is a handler of XLA's FFI: hostcall.native(jax.ffi.pycapsule"
        f"({written}), ...)."
    )


def _wrong_return(name: str, returned: str) -> str:
    return f"hostcall.native: {name} returns {returned}. {CONVENTION}"


def _type_name(ctype: Any) -> str:
    return str(getattr(ctype, "__name__", ctype))


# FFI element types of scalars, by the names of their dtypes; a str has none.
_CODES = {
    np.dtype(dtype).name: code
    for code, dtype, _ in _registry.DTYPES
    if np.dtype(dtype).isbuiltin == 1  # a dtype of NumPy's own
}
_TEXT = 0


@dataclasses.dataclass(eq=False)
class FfiHandler:
    """A handler of XLA's typed FFI, for the stage of execution."""

    name: str  # its name in messages
    capsule: object  # the capsule that holds it
    address: int  # the address of its code
    values: Mapping[str, np.generic | str]  # its FFI attributes: NumPy scalars and strings
    # A framework's programs that call it.
    programs: dict[Any, Any] = dataclasses.field(default_factory=dict)

    @property
    def attributes(self) -> list[tuple[str, int, bytes]]:
        """The FFI attributes, encoded: name, element type, bytes."""
        return [
            (name, _TEXT, value.encode())
            if isinstance(value, str)
            else (name, _CODES[value.dtype.name], value.tobytes())
            for name, value in self.values.items()
        ]

    def complaint(self, inputs: Sequence[ArraySpec], results: Sequence[ArraySpec]) -> str:
        """Return "", since handlers check their arguments themselves."""
        return ""

    def register(self, label: str, wanted: int = 0) -> int:
        """Register it for TensorFlow's programs; a ValueError for another version of XLA's FFI."""
        if (side := frameworks.tensorflow()) is not None:
            side.check_handler(self.capsule)
        return int(_runtime.register_ffi_handler(label, self.address, self.attributes, wanted))

    def run(self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], native: Any) -> None:
        """Call it from a compiled program, since only XLA can make a handler's context."""
        frameworks.handler_framework().run_handler(native, inputs, results)


def read_handler(
    function: object, name: str | None, attributes: Mapping[str, Any]
) -> FfiHandler | None:
    """Read the handler in a capsule, None for others; raise an error for one that does not fit."""
    if type(function).__name__ != "PyCapsule":
        return None
    address = frameworks.handler_framework().check_handler(function)
    scalars = {key: _scalar(key, value) for key, value in attributes.items()}
    return FfiHandler(name or "ffi_handler", function, address, scalars)


def _scalar(name: str, value: object) -> np.generic | str:
    if isinstance(value, str):
        return value
    scalar: object = value
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        kind = {bool: np.bool_, int: np.int64}.get(type(value), np.float32)
        with contextlib.suppress(OverflowError):
            scalar = kind(value)
    if not isinstance(scalar, np.generic) or scalar.dtype.name not in _CODES:
        raise TypeError(
            f"hostcall.native: the attribute {name!r} is {value!r}. A handler's attributes are "
            "bool, int, float or str, or NumPy scalars of the dtype that it wants: "
            "np.float64(1e-5)."
        )
    return scalar


Code = CFunction | FfiHandler

# Converts the specs of the inputs to the arguments that a shape function takes.
Pack = Callable[[Sequence[Any]], Sequence[Any]]

# Options that native code cannot have, each with the reason.
_NOT_OF_NATIVE = {
    "timeout": "native code cannot be interrupted: it runs on XLA's own threads.",
    "borrow": "native code always reads the program's own memory.",
    "out": "native code always writes into the program's own memory.",
    "memo": "only Python can look results up. Declare it of a Python function that calls this one.",
    "executor": "a program calls native code itself, without Python's lock.",
    "retries": "a program calls native code itself, and no worker that could die.",
    "wait": "a program calls native code itself, and waits for it.",
    "memory": "a program calls native code itself, with its own memory.",
}


class Native:
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

    # No `__dict__`, since functools.update_wrapper would copy it to another object.
    __slots__ = ("__weakref__", "code", "owner", "result")

    def __init__(self, code: Code, owner: object, result: object) -> None:
        self.code = code
        self.owner = owner
        self.result = result

    @property
    def __name__(self) -> str:
        return self.code.name

    def __repr__(self) -> str:
        return f"<hostcall.native {self.code.name}>"

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
        arguments = list(arrays)
        leaves = _trees.leaves(arguments)
        if out is None and any(map(frameworks.belongs_to_a_program, leaves)):
            options = Options(result=self.result)
            return frameworks.call_callback(
                UserFunction(self, options, owns_arguments=True), arrays, arrays
            )
        structure, flat = self._prepared(leaves, lambda given: _trees.pack(arguments, given), out)
        results = _trees.pack(structure, flat)
        return results if out is not None else frameworks.like(leaves, results)

    def run(self, arrays: Sequence[Any], pack: Pack) -> list[np.ndarray]:
        """Make one call, and return its results as a flat list."""
        return self._prepared(arrays, pack, None)[1]

    def _prepared(
        self, values: Sequence[Any], pack: Pack, out: object
    ) -> tuple[Any, list[np.ndarray]]:
        inputs = [_to_array(value, self) for value in values]
        given = [_spec_of(array, self) for array in inputs]
        structure = self.structure(pack(given))
        declared = _trees.leaves(structure)
        if wrong := self.complaint(given, declared):
            raise TypeError(f"hostcall.native: {wrong}")
        if out is None:
            plain = map(specs.plain, declared)
            results = [np.empty(spec.shape or (), spec.dtype) for spec in plain]
        else:
            results = self._given(out, declared)
        self.code.run(inputs, results, Native(self.code, self.owner, declared))
        return structure, results

    def structure(self, inputs: Sequence[Any]) -> Any:
        """Return the structure of the results' specs for inputs of these specs."""
        result = self.result
        return _trees.map_leaves(specs.checked, result(*inputs) if callable(result) else result)

    def complaint(self, inputs: Sequence[Any], results: Sequence[Any]) -> str:
        """Return the reason why the code cannot be called for these specs, or ""."""
        for kind, listed in (("input", inputs), ("result", results)):
            for index, spec in enumerate(listed):
                if wrong := _unfit(spec):
                    return f"{kind} {index} of {self.code.name} {wrong}"
        return self.code.complaint([*map(specs.plain, inputs)], [*map(specs.plain, results)])

    def _given(self, out: object, declared: Sequence[Any]) -> list[np.ndarray]:
        arrays = _trees.leaves(out)
        if len(arrays) != len(declared):
            raise ValueError(
                f"hostcall.native: {self.code.name} has {counted(len(declared), 'result')}, and "
                f"out holds {counted(len(arrays), 'array')}."
            )
        for index, (array, spec) in enumerate(zip(arrays, declared, strict=True)):
            plain = specs.plain(spec)
            dtype, shape = plain.dtype, plain.shape
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
            "hostcall.native: result= is missing, and native code does not tell its results. Write "
            "a spec, such as result=tf.TensorSpec([3], tf.float32); result=lambda x: x for one "
            "like the input; or result=[] for none."
        )
    code: Code | None = read_handler(function, name, attributes or {})
    if code is None:
        if attributes is not None:
            raise TypeError("hostcall.native: only handlers of XLA's FFI take attributes.")
        code = read_signature(function, name)
    if code is None:
        raise TypeError(
            "hostcall.native wants a ctypes function, a numba.cfunc, or a capsule with a handler "
            f"of XLA's FFI, and not {function!r}. A Python function goes to tf.numpy_function as "
            "it is."
        )
    return Native(code, function, result)


def contradiction(declared: Sequence[Declared], results: Sequence[Declared]) -> str:
    """Return the message for declared results that differ from those of a call."""
    return (
        f"hostcall.native was told that the results are {_listed(declared)}, and here they are "
        f"{_listed(results)}. Correct one of them."
    )


def check_declared(native: Native, declared: Mapping[str, Any]) -> None:
    """Raise a ValueError for a declared option that native code cannot have."""
    for option, why in _NOT_OF_NATIVE.items():
        if declared[option] != getattr(Options, option):
            raise ValueError(
                f"hostcall: {option}= was declared of {native!r}, but {why} Remove it, or "
                "declare it of a Python function that calls this one."
            )


def _to_array(value: object, who: Native) -> np.ndarray:
    side = frameworks.tensorflow()
    if side is not None and side.is_symbolic(value):
        raise TypeError(
            f"hostcall.native: {who.code.name} was called with {value}, which has no value yet, "
            "and with out=, which is for NumPy arrays alone. Remove out=."
        )
    array: np.ndarray = np.require(value, requirements=["C", "A", "E"])
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _spec_of(array: np.ndarray, who: Native) -> specs.Declared:
    try:
        return specs.spec_of_array(array)
    except TypeError:
        raise TypeError(
            f"hostcall.native: {who.code.name} was called with an array of dtype {array.dtype}, "
            "which TensorFlow has no values of."
        ) from None


def _unfit(spec: Declared) -> str:
    """Return the reason why native code cannot have an array of this spec, or ""."""
    if isinstance(spec, BoundedSpec):
        return (
            f"has a size that is only bounded, {spec}, and native code wants every size when XLA "
            "compiles. Pad it, or call a Python function."
        )
    plain = specs.plain(spec)
    dtype = plain.dtype
    if dtype.kind not in "biufcV" or dtype.fields is not None or dtype.name in ("int4", "uint4"):
        return f"is of dtype {spec.dtype.name}, which native code cannot have. Cast it before."
    if plain.shape is None or None in plain.shape:
        return (
            f"has the shape {spec.shape}: not every size is known. Let `result` be a function from "
            "the inputs' specs that says all of them."
        )
    return ""


def _listed(declared: Sequence[Declared]) -> str:
    return ", ".join(f"{spec.dtype.name} of shape {spec.shape}" for spec in declared) or "none"


def _described(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    kind = "one" if value.flags.carray else "one that is read-only or does not lie so"
    return f"{kind} of dtype {value.dtype.name} and shape {value.shape}"
