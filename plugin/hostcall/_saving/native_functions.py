"""What a server without Python has to know of native code: where it is, and what it takes."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf

from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._functions.native.c_functions import CFunction
from hostcall._functions.native.native_code import NativeCode
from hostcall._saving.tokens import Attribute, Native, Size

# In the place of sizes that nobody knows, the first one and the step to the next: a shape function
# says of them all whether a size of a result is one of them, or always the same. Growing and
# falling ones part a size from the largest and the smallest; equal and tiny ones part it from sizes
# that have a least value.
_TRIED = (
    *((3, 2), (5, 7), (64, 1), (1031, 4099), (100_003, 7919)),
    *((1_000_003, -7919), (4096, -1), (0, 0), (1, 0), (2, 0), (0, 1), (1, -1)),
)


def record_of(spec: CallbackSpec) -> Native | None:
    """What a token says of the native code of a spec; None where it is no code of a library."""
    function = spec.function
    if not isinstance(function, NativeCode):
        return None
    place = _library_and_symbol(function.code.address)
    if place is None:
        return None
    code, sizes = function.code, _sizes(spec)
    if isinstance(code, CFunction):
        count = len(code.pointers) + code.sizes
        return Native(*place, "c", sizes, count, code.sizes > 0, code.returns_status)
    attributes = [
        Attribute(name, dtype, base64.b64encode(value).decode())
        for name, dtype, value in code.attributes
    ]
    return Native(*place, "ffi", sizes, attributes=attributes)


def name_of(native: Native) -> str:
    """The name of native code that the user has given none: `libsignal.so::smooth`."""
    return f"{native.library.rpartition('/')[2]}::{native.symbol}"


class _Symbol(ctypes.Structure):
    """What `dladdr` says."""

    _fields_ = (
        ("library", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library_and_symbol(address: int) -> tuple[str, str] | None:
    """The file that the code at an address was loaded from, and its name there."""
    found = _Symbol()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found)):
        return None  # made in memory, as Numba's
    if not found.library or not found.name or found.address != address:
        return None
    return found.library.decode(errors="replace"), found.name.decode(errors="replace")


def _sizes(spec: CallbackSpec) -> list[list[Size]] | None:
    """The shape of each result, as far as it follows from the inputs' sizes by equality.

    By what is declared of the code alone: other shapes that a graph has are what somebody hopes
    for, and the code writes as much as it writes.
    """
    if spec.shape_function is None:
        return None
    return sizes_of(spec.shape_function, _inputs(spec))


_ShapeFunction = Callable[[Sequence[tf.TensorSpec]], Sequence[tf.TensorSpec | None]]


def sizes_of(
    shape_function: _ShapeFunction, inputs: Sequence[tf.TensorSpec]
) -> list[list[Size]] | None:
    """The same, by a shape function, and what tracing knows of the inputs."""
    # A shape function may raise what it likes.
    with contextlib.suppress(Exception):
        tries = [_try(shape_function, inputs, *numbers) for numbers in _TRIED]
        return _common([results for _, results in tries], [known for known, _ in tries])
    return None


def _inputs(spec: CallbackSpec) -> list[tf.TensorSpec]:
    """What is known of the inputs; none where that is too little for a shape function."""
    op = None if spec.op is None else spec.op()
    if op is None or any(one.shape.rank is None for one in op.inputs):
        return []
    return [tf.TensorSpec(one.shape, one.dtype) for one in op.inputs]


_Shapes = list[list[int]]


def _try(
    shape_function: _ShapeFunction, inputs: Sequence[tf.TensorSpec], first: int, step: int
) -> tuple[_Shapes, _Shapes]:
    """Shapes of inputs with such sizes, and those of the results.

    Raises:
      ValueError: when a shape of a result is not known.
    """
    unknown = (max(size, 0) for size in itertools.count(first, step))
    shapes = [[next(unknown) if n is None else n for n in one.shape.as_list()] for one in inputs]
    specs = [tf.TensorSpec(shape, one.dtype) for shape, one in zip(shapes, inputs, strict=True)]
    results: _Shapes = []
    for said in shape_function(specs):
        if said is None or not said.shape.is_fully_defined():
            raise ValueError("a shape is not known")
        results.append(said.shape.as_list())
    return shapes, results


def _common(results: Sequence[_Shapes], inputs: Sequence[_Shapes]) -> list[list[Size]] | None:
    """What is true of the results in all tries; None where that does not tell them all."""
    found: list[list[Size]] = []
    for index, shape in enumerate(results[0]):
        sizes = [_source([one[index][at] for one in results], inputs) for at in range(len(shape))]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes) or any(len(one[index]) != len(shape) for one in results):
            return None
        found.append(known)
    return found


def _source(values: Sequence[int], inputs: Sequence[_Shapes]) -> Size | None:
    if len(set(values)) == 1:
        return Size(values[0])
    for number, shape in enumerate(inputs[0]):
        for at in range(len(shape)):
            if [one[number][at] for one in inputs] == list(values):
                return Size(input=number, dimension=at)
    return None
