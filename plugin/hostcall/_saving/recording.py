"""From a spec of this process to the record that a saved graph has of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from hostcall._callbacks.callback_spec import CallbackSpec, NumpySpec
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._callbacks.result_shapes import flatten_result
from hostcall._callbacks.specs import is_shape_function
from hostcall._frontend.gradients import GradientSpec, RecomputingSpec
from hostcall._functions import keyword_arguments, named_functions, source_location
from hostcall._saving import carried, native_functions, options, structures, tokens
from hostcall._saving.qualified_names import qualified_name, reason
from hostcall._saving.tokens import Declared, Function, Pickled, Record, is_importable

# Of a spec, the highest derivative that a graph asks for, and whether it asks for that of the spec.
Asked = Callable[[Any], tuple[int, bool]]


class UnnamedError(ValueError):
    """Another process could not find a function; the text says why."""


def record_of(spec: Any, asked: Asked) -> Record:
    """What another process has to know of a spec.

    Args:
      spec: an entry of TensorFlow's registry.
      asked: what the saved graph asks for of derivatives.

    Raises:
      UnnamedError: when another process could not find the function.
      UnpicklableError, ImportError: when it has to be pickled, and cannot be.
    """
    orders, recorded = asked(spec)
    if getattr(spec, "saved", None) is not None:
        known = spec.saved
        return _replace(
            known, orders=max(orders, known.orders), recorded=recorded or known.recorded
        )
    try:
        if isinstance(spec, GradientSpec | RecomputingSpec):
            return _of_gradient(spec, asked, recorded)
        if isinstance(spec, NumpySpec):
            return _of_call(spec)
        if isinstance(spec, EagerSpec):
            record = _of_call(spec)
            return _replace(
                record,
                kind="eager",
                differentiable=spec.differentiable,
                orders=orders,
                recorded=recorded,
            )
    except structures.UnwritableError as error:
        raise UnnamedError(str(error)) from None
    raise UnnamedError("it was called before hostcall was imported")


def asked_of(specs: list[Any]) -> Asked:
    """What the gradients among the specs of a graph ask for."""
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
    """What has been asked for in this process; later graphs may ask for more."""
    return getattr(spec, "orders_wanted", 0), getattr(spec, "gradient_wanted", False)


def _of_gradient(spec: Any, asked: Asked, recorded: bool) -> Record:
    if spec.levels:
        raise UnnamedError("it is a gradient for a whole batch, as of a jacobian")
    return Record(
        id=spec.title,
        kind="gradient" if isinstance(spec, GradientSpec) else "recomputed",
        inputs=spec.inputs.size,
        outputs=structures.write(list(spec.static_specs)),
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
        inputs=structures.write(inputs.structure) if inputs.nested else inputs.size,
        outputs=structures.write(spec.outputs.structure),
        at=_short(source_location.split_description(spec.description)[3]),
        declared=_declared(spec),
        callback=spec.outputs.strict,
        copies=spec.copies_inputs,
        route=spec.route,  # type: ignore[arg-type] # checked when it was asked for
        static=[structures.write(one) for one in spec.static_specs],
        plain=[structures.write(one) for one in spec.plain_specs],
        consumers=[structures.write_shape(shape) for shape in spec.consumer_shapes],
        counts=list(spec.element_counts),
        reasons=list(spec.shape_reasons),
        levels=list(spec.levels),
    )


def _function(spec: CallbackSpec) -> Function:
    function, keywords, fixed = keyword_arguments.parts(spec.function)
    name = spec.given_name or named_functions.name_of(function)
    place = qualified_name(function)
    if place is not None and (isinstance(function, type) or not is_importable(place)):
        place = None
    pickled, native = None, native_functions.record_of(spec)
    if name is None and place is None:
        if native is not None:
            name = native_functions.name_of(native)
        elif options.pickles_functions():
            pickled = _pickled(spec, function, bool(keywords or fixed))
        else:
            raise UnnamedError(reason(function))
    written = {key: keyword_arguments.literal(value) for key, value in fixed.items()}
    wrong = [key for key, text in written.items() if text is None]
    if wrong:
        raise UnnamedError(f"{wrong[0]}={fixed[wrong[0]]!r}, which it is passed, cannot be written")
    texts = {key: str(text) for key, text in written.items()}
    code = None if native is None else tokens.encode_native(native)
    return Function(place, name, pickled, list(keywords), texts, code)


def _pickled(spec: CallbackSpec, function: Any, by_keyword: bool) -> Pickled:
    result = spec.declaration.result
    shape_function = result if is_shape_function(result) else None
    if by_keyword:  # as the user has declared it: it is bound to keywords anew
        shape_function = keyword_arguments.parts(shape_function)[0]
    _, name, defined_at, _ = source_location.split_description(spec.description)
    title = f"{name} ({_short(defined_at)})" if defined_at else name
    return carried.pickled(function, shape_function, title)


def _declared(spec: CallbackSpec) -> Declared:
    declaration = spec.declaration
    result, dtypes = declaration.result, spec.outputs.dtypes
    is_function = is_shape_function(result)
    written: Any = None
    if isinstance(result, str):
        written = result
    elif result is not None and not is_function:
        with contextlib.suppress(ValueError):  # it contradicts `Tout`, as its calls will say
            written = [structures.write(one) for one in flatten_result(result, dtypes)]
    said: dict[str, Any] = {name: getattr(declaration, name) for name in tokens.OPTIONS}
    if said["timeout"] is not None:
        said["timeout"] = float(said["timeout"])  # of any class of numbers
    return Declared(written, is_function, **said)


def _short(place: str) -> str:
    """`file:line` without the directories, which are of one machine."""
    return place.rpartition("/")[2]


def _replace(record: Record, **fields: Any) -> Record:
    return msgspec.structs.replace(record, **fields)
