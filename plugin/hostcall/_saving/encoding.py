"""Encoding: makes the record in a saved graph from a spec of this process."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import tensorflow as tf

from hostcall._callbacks.callback_spec import CallbackSpec, NumpySpec
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._callbacks.result_shapes import flatten_result
from hostcall._callbacks.structures import is_shape_function
from hostcall._frontend.gradients import GradientSpec, RecomputingSpec
from hostcall._functions import callback, named_functions, source_location
from hostcall._functions.native_code import CFunction, NativeCode
from hostcall._saving import pickled_functions, tokens
from hostcall._saving.functions import qualified_name, reason
from hostcall._saving.tokens import (
    Attribute,
    Declared,
    Function,
    Native,
    Pickled,
    Record,
    Size,
    is_importable,
)

# Trial values for unknown input sizes: the first size, and the step to the next one. A shape
# function's results in all trials show whether a result size equals an input size or is constant.
# Growing and falling sizes tell an input size from a maximum or minimum of sizes; equal and tiny
# sizes tell it from sizes with a lower bound.
_TRIED = (
    *((3, 2), (5, 7), (64, 1), (1031, 4099), (100_003, 7919)),
    *((1_000_003, -7919), (4096, -1), (0, 0), (1, 0), (2, 0), (0, 1), (1, -1)),
)


def record_of_native(spec: CallbackSpec) -> Native | None:
    """Return the record of a spec's native code; None if no library holds the code."""
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
    """Return the default name of native code, such as `libsignal.so::smooth`."""
    return f"{native.library.rpartition('/')[2]}::{native.symbol}"


class _Symbol(ctypes.Structure):
    """The struct `Dl_info`, which `dladdr` fills in."""

    _fields_ = (
        ("library", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library_and_symbol(address: int) -> tuple[str, str] | None:
    """Return the library that holds the code at an address, and the code's symbol there."""
    found = _Symbol()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found)):
        return None  # generated in memory, as by Numba
    if not found.library or not found.name or found.address != address:
        return None
    return found.library.decode(errors="replace"), found.name.decode(errors="replace")


def _sizes(spec: CallbackSpec) -> list[list[Size]] | None:
    """Return each result's shape as constants and input sizes; None if that does not suffice.

    Only the declared shape function counts. Other shapes in a graph are the user's expectation,
    and the code does not write by them.
    """
    if spec.shape_function is None:
        return None
    return sizes_of(spec.shape_function, _inputs(spec))


_ShapeFunction = Callable[[Sequence[tf.TensorSpec]], Sequence[tf.TensorSpec | None]]


def sizes_of(
    shape_function: _ShapeFunction, inputs: Sequence[tf.TensorSpec]
) -> list[list[Size]] | None:
    """Return each result's shape as constants and input sizes, by trials of a shape function."""
    # A shape function is the user's code, and may raise any exception.
    with contextlib.suppress(Exception):
        tries = [_try(shape_function, inputs, *numbers) for numbers in _TRIED]
        known, results = ([one[side] for one in tries] for side in (0, 1))
        # The inputs' sizes by their values in all trials; of equal ones the first.
        sources: dict[tuple[int, ...], Size] = {}
        for number, shapes in enumerate(zip(*known, strict=True)):
            for dimension, values in enumerate(zip(*shapes, strict=True)):
                sources.setdefault(values, Size(input=number, dimension=dimension))
        return [
            [
                Size(values[0]) if len({*values}) == 1 else sources[values]
                for values in zip(*shapes, strict=True)
            ]
            for shapes in zip(*results, strict=True)
        ]
    return None  # also where a rank changes, or a size is that of no input


def _inputs(spec: CallbackSpec) -> list[tf.TensorSpec]:
    """Return the specs of the op's inputs; an empty list without an op or with unknown ranks."""
    op = None if spec.op is None else spec.op()
    if op is None or any(one.shape.rank is None for one in op.inputs):
        return []
    return [tf.TensorSpec(one.shape, one.dtype) for one in op.inputs]


_Shapes = list[list[int]]


def _try(
    shape_function: _ShapeFunction, inputs: Sequence[tf.TensorSpec], first: int, step: int
) -> tuple[_Shapes, _Shapes]:
    """Return input shapes with trial values for unknown sizes, and the result shapes for them."""
    unknown = (max(size, 0) for size in itertools.count(first, step))
    shapes = [[next(unknown) if n is None else n for n in one.shape.as_list()] for one in inputs]
    specs = [tf.TensorSpec(shape, one.dtype) for shape, one in zip(shapes, inputs, strict=True)]
    results: _Shapes = []
    for said in shape_function(specs):
        if said is None or not said.shape.is_fully_defined():
            raise ValueError("a shape is not known")
        results.append(said.shape.as_list())
    return shapes, results


# Maps a spec to the highest derivative asked for, and to whether its own calls are recorded.
Asked = Callable[[Any], tuple[int, bool]]


class UnnamedError(ValueError):
    """An error for a function that another process could not find; the text says why."""


def record_of(spec: Any, asked: Asked) -> Record:
    """Return the record by which another process rebuilds a spec of TensorFlow's registry.

    An UnnamedError says why another process could not find the function.
    """
    orders, recorded = asked(spec)
    if getattr(spec, "saved", None) is not None:
        known: Record = spec.saved
        return msgspec.structs.replace(
            known, orders=max(orders, known.orders), recorded=recorded or known.recorded
        )
    try:
        if isinstance(spec, GradientSpec | RecomputingSpec):
            return _of_gradient(spec, asked, recorded)
        if isinstance(spec, NumpySpec):
            return _of_call(spec)
        if isinstance(spec, EagerSpec):
            record = _of_call(spec)
            return msgspec.structs.replace(
                record,
                kind="eager",
                differentiable=spec.differentiable,
                orders=orders,
                recorded=recorded,
            )
    except tokens.UnwritableError as error:
        raise UnnamedError(str(error)) from None
    raise UnnamedError("it was called before hostcall was imported")


def asked_of(specs: list[Any]) -> Asked:
    """Return an `Asked` that tells which derivatives the gradients among a graph's specs need."""
    asked: dict[CallbackSpec, tuple[int, bool]] = {}
    for spec in specs:
        if isinstance(spec, GradientSpec):
            asked[spec.parent] = (asked.get(spec.parent, (0, False))[0], True)
            root = spec.root
            orders, recorded = asked.get(root, (0, False))
            asked[root] = (max(orders, spec.order), recorded)
    return lambda spec: (
        asked.get(spec, (0, False)) if isinstance(spec, CallbackSpec) else (0, False)
    )


def asked_so_far(spec: Any) -> tuple[int, bool]:
    """Return the derivatives asked for in this process so far; later graphs may ask for more."""
    return getattr(spec, "orders_wanted", 0), getattr(spec, "gradient_wanted", False)


def _of_gradient(spec: Any, asked: Asked, recorded: bool) -> Record:
    if spec.levels:
        raise UnnamedError("it is a gradient for a whole batch, as of a jacobian")
    return Record(
        id=spec.title,
        kind="gradient" if isinstance(spec, GradientSpec) else "recomputed",
        inputs=spec.inputs.size,
        outputs=tokens.write(list(spec.static_specs)),
        of=record_of(spec.parent, asked),
        targets=spec.targets,
        sources=spec.sources,
        differentiable=True,
        recorded=recorded,
    )


def _of_call(spec: CallbackSpec) -> Record:
    inputs = spec.inputs
    return Record(
        id=spec.title,
        kind="numpy",
        function=_function(spec),
        inputs=tokens.write(inputs.structure) if inputs.nested else inputs.size,
        outputs=tokens.write(spec.outputs.structure),
        at=_short(source_location.split_description(spec.description)[3]),
        declared=_declared(spec),
        callback=spec.outputs.strict,
        copies=spec.user.owns_arguments,
        route=spec.route,  # type: ignore[arg-type] # checked when it was asked for
        static=[tokens.write(one) for one in spec.static_specs],
        plain=[tokens.write(one) for one in spec.plain_specs],
        consumers=[tokens.write_shape(shape) for shape in spec.consumer_shapes],
        counts=list(spec.element_counts),
        reasons=list(spec.shape_reasons),
        levels=list(spec.levels),
    )


def _function(spec: CallbackSpec) -> Function:
    function, keywords, fixed = callback.parts(spec.function)
    name = spec.user.given_name or named_functions.name_of(function)
    place = qualified_name(function)
    if place is not None and (isinstance(function, type) or not is_importable(place)):
        place = None
    pickled, native = None, record_of_native(spec)
    if name is None and place is None:
        if native is not None:
            name = name_of(native)
        elif pickled_functions.pickles_functions.get():
            pickled = _pickled(spec, function, bool(keywords or fixed))
        else:
            raise UnnamedError(reason(function))
    written = {key: callback.literal(value) for key, value in fixed.items()}
    wrong = [key for key, text in written.items() if text is None]
    if wrong:
        raise UnnamedError(f"{wrong[0]}={fixed[wrong[0]]!r}, which it is passed, cannot be written")
    texts = {key: str(text) for key, text in written.items()}
    code = None if native is None else tokens.encode_native(native)
    return Function(place, name, pickled, list(keywords), texts, code)


def _pickled(spec: CallbackSpec, function: Any, by_keyword: bool) -> Pickled:
    result = spec.options.result
    shape_function = result if is_shape_function(result) else None
    if by_keyword:  # the user's own shape function: loading binds the keywords anew
        shape_function = callback.parts(shape_function)[0]
    _, name, defined_at, _ = source_location.split_description(spec.description)
    title = f"{name} ({_short(defined_at)})" if defined_at else name
    return pickled_functions.pickled(function, shape_function, title)


def _declared(spec: CallbackSpec) -> Declared:
    options = spec.options
    result, dtypes = options.result, spec.outputs.dtypes
    is_function = is_shape_function(result)
    written: Any = None
    if isinstance(result, str):
        written = result
    elif result is not None and not is_function:
        with contextlib.suppress(ValueError):  # it contradicts `Tout`; its calls raise that error
            written = [tokens.write(one) for one in flatten_result(result, dtypes)]
    said: dict[str, Any] = {name: getattr(options, name) for name in tokens.OPTIONS}
    if said["timeout"] is not None:
        said["timeout"] = float(said["timeout"])  # the user may pass any numeric type
    return Declared(written, is_function, **said)


def _short(place: str) -> str:
    """Return `file:line` without the directories, which differ between machines."""
    return place.rpartition("/")[2]
