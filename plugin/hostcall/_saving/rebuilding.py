"""From the record that a saved graph has of a function to a spec of this process."""

from __future__ import annotations

import ast
import warnings
from typing import Any

import tensorflow as tf

from hostcall._callbacks import batches, result_shapes
from hostcall._callbacks.borrowed_views import BorrowingSpec
from hostcall._callbacks.callback_spec import CallbackSpec, NumpySpec
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._callbacks.lent_arrays import LendingSpec
from hostcall._callbacks.native_spec import NativeSpec
from hostcall._callbacks.structures import Inputs, Outputs
from hostcall._frontend.gradients import GradientSpec, RecomputingSpec
from hostcall._functions import keyword_arguments, source_location
from hostcall._functions.declaration import Declaration
from hostcall._functions.declaration_checks import check_no_results
from hostcall._functions.declarations import declaration_of
from hostcall._functions.native.native_code import NativeCode
from hostcall._saving import functions, structures
from hostcall._saving.errors import SavedFunctionError
from hostcall._saving.tokens import OPTIONS, Declared, Function, Record


def spec_of_call(record: Record) -> CallbackSpec:
    """The spec of a function that was saved, which may be imported for it.

    Raises:
      SavedFunctionError: when it is not found, or must not be imported.
      ValueError: when the record makes no sense.
    """
    assert record.function is not None
    found, carried = functions.find(record.function, record.at)
    function = getattr(found, "__hostcall_function__", found)
    here = getattr(found, "__hostcall_declaration__", None) or declaration_of(function)
    inputs, outputs = _inputs(record), Outputs(structures.read(record.outputs), record.callback)
    declaration = _declaration(record, here, carried)
    called, declaration = _with_keywords(record.function, function, declaration, inputs.count)
    try:
        check_no_results(declaration.line, outputs.dtypes, True, record.users.label)
    except ValueError as error:  # the graph is as it should be
        raise SavedFunctionError(str(error)) from None
    shape_function = None
    if declaration.result is not None:
        shape_function = result_shapes.make_shape_function(declaration, called, inputs, outputs)
    for _ in record.levels:
        shape_function = batches.shapes_of_batch(shape_function, [None] * len(outputs.dtypes))
    if record.kind == "eager":
        pure, hidden = declaration.pure, record.differentiable
        spec: CallbackSpec = EagerSpec(called, inputs, outputs, shape_function, (), hidden, pure)
    else:
        spec = _array_class(called, declaration)(called, inputs, outputs, shape_function)
    spec.declaration = declaration
    spec.levels = tuple(record.levels)
    spec.timeout = declaration.timeout
    _complete(spec, record)
    return spec


def spec_of_gradient(record: Record, parent: Any) -> CallbackSpec:
    """The spec of a gradient that was saved.

    Args:
      record: what the graph says of it.
      parent: the spec of what is differentiated.

    Raises:
      ValueError: when the record makes no sense.
    """
    specs = structures.read(record.outputs)
    if not isinstance(specs, list) or not all(isinstance(one, tf.TensorSpec) for one in specs):
        raise ValueError("the results of a gradient are no list of specs")
    kind = GradientSpec if record.kind == "gradient" else RecomputingSpec
    inputs = _inputs(record)
    spec: EagerSpec = kind(parent, inputs.flat, record.targets, record.sources, specs)
    spec.gradient_wanted = record.recorded
    return spec


def _inputs(record: Record) -> Inputs:
    if isinstance(record.inputs, int):
        return Inputs([None] * min(record.inputs, 100_000), False)
    structure = structures.read(record.inputs)
    if not isinstance(structure, list):
        raise ValueError("the arguments are no list")
    return Inputs(structure, record.kind == "eager")


def _array_class(function: Any, declaration: Declaration) -> type[NumpySpec]:
    if declaration.on_device:
        return LendingSpec
    if declaration.shares_memory:
        return BorrowingSpec
    return NativeSpec if isinstance(function, NativeCode) else NumpySpec


def _with_keywords(
    saved: Function, function: Any, declaration: Declaration, count: int
) -> tuple[Any, Declaration]:
    """What is called by position, and what is declared of that."""
    if not (saved.keywords or saved.fixed):
        return function, declaration
    fixed = {name: ast.literal_eval(text) for name, text in saved.fixed.items()}
    arguments = keyword_arguments.of_saved(function, count, tuple(saved.keywords), fixed)
    called: Any = arguments.of_function(function)
    result = arguments.of_shape_function(declaration.result)
    return called, declaration.of_call(result, called.key)


def _complete(spec: CallbackSpec, record: Record) -> None:
    if record.callback:
        spec.op_name = "hostcall.callback"
    spec.copies_inputs = record.copies
    spec.route = record.route
    spec.given_name = None if record.function is None else record.function.name
    called_at = f", called at {record.at}" if record.at else ""
    of = source_location.of_function(spec.function)
    spec.description = f"{spec.op_name} of {of}{called_at}"
    spec.static_specs = _specs(record.static, spec)
    spec.plain_specs = _specs(record.plain, spec)
    count = len(spec.outputs.dtypes)
    if len(record.consumers) == count:
        spec.consumer_shapes = [tf.TensorShape(shape) for shape in record.consumers]
    if len(record.counts) == count:
        spec.element_counts = list(record.counts)
    spec.shape_reasons = list(record.reasons)
    if isinstance(spec, EagerSpec):
        spec.orders_wanted = record.orders
        spec.gradient_wanted = record.recorded


def _specs(written: list[Any], spec: CallbackSpec) -> list[Any]:
    specs = [structures.read(one) for one in written]
    if [getattr(one, "dtype", None) for one in specs] != spec.outputs.dtypes:
        raise ValueError("the specs of the results are not those of the results")
    return specs


def _declaration(record: Record, here: Declaration | None, carried: Any) -> Declaration:
    """What is declared in this process, or where that is nothing, what was declared then."""
    saved = record.declared
    result = saved.result
    if isinstance(result, list):
        result = [structures.read(one) for one in result]
    if result is None:
        result = carried
    then = Declaration(result, **{name: getattr(saved, name) for name in OPTIONS})
    if here is None:
        return then
    differing = _differences(saved, here, result)
    if differing:
        warnings.warn(
            f"hostcall: {record.users.label}, which a graph from another process calls, is "
            f"declared otherwise here than where the graph was made: {'; '.join(differing)}. What "
            "is declared here counts.",
            UserWarning,
            stacklevel=2,
        )
    return here


def _differences(saved: Declared, here: Declaration, result: Any) -> list[str]:
    differing = [
        f"{name}={getattr(here, name)!r} here, and {getattr(saved, name)!r} there"
        for name in OPTIONS
        if getattr(here, name) != getattr(saved, name)
    ]
    ours = here.result
    if isinstance(result, list) and ours is not None and not isinstance(ours, str):
        dtypes = [one.dtype for one in result]
        said = None if callable(ours) else _flat(ours, dtypes)
        if said is not None and said != result:
            differing.append(f"result={said} here, and {result} there")
    return differing


def _flat(result: Any, dtypes: list[Any]) -> Any:
    try:
        return result_shapes.flatten_result(result, dtypes)
    except (TypeError, ValueError):
        return result
