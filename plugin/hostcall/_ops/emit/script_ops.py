"""The front end, which creates script ops and sets the known shapes of their results."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import tensorflow as tf

from hostcall._functions import source_location
from hostcall._functions.declarations import declaration_of
from hostcall._functions.options import (
    Options,
    check_no_results,
    check_side_effects,
    check_takes_tensors,
)
from hostcall._functions.specs import is_of_arity
from hostcall._functions.user_function import NUMPY_FUNCTION, PY_FUNCTION, UserFunction
from hostcall._ops import (
    array_specs,
    requested_routes,
    result_shapes,
    shape_demands,
    structures,
    tape_residuals,
)
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec, NumpySpec
from hostcall._ops.structures import BoundedSpec, Spec, merge, static_shape
from hostcall._tf import (
    autograph,
    eager_execution,
    features,
    patches,
    script_op_graphs,
    token_registry,
)
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import FuncGraph, Operation
from hostcall_runtime import _errors, _interception

Emitted: TypeAlias = list[tf.Tensor] | tf.Operation
"""What a call creates: the op's results, flat, or the op if it has none and is in a graph."""


def _note_specs(spec: CallbackSpec) -> None:
    """Set the spec's result specs that are known in tracing, from `Tout` and the shape function."""
    unknown: list[Spec] = [tf.TensorSpec(None, dtype) for dtype in spec.outputs.dtypes]
    said = [declared or none for declared, none in zip(spec.outputs.specs, unknown, strict=True)]
    told = said
    if isinstance(spec, EagerSpec) and not spec.outputs.strict:
        # In the Tout of a py_function, TensorFlow uses only the dtype of a TensorSpec.
        pairs = zip(said, unknown, strict=True)
        told = [one if isinstance(one, BoundedSpec) else none for one, none in pairs]
    ruled: Sequence[Spec | None] = [None] * len(unknown)
    if spec.shape_function is not None:
        tensors = [tf.convert_to_tensor(value) for value in spec.inputs.flat]
        operands = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        spec.pending = result_shapes.pending(spec, operands)
        try:
            ruled = spec.shape_function(operands)
        except Exception as error:
            # It may need sizes that are not known yet, and is called again for XLA.
            if is_of_arity(error):
                raise
    spec.static_specs = _merged(said, ruled)
    spec.plain_specs = _merged(told, ruled)


def _merged(said: list[Spec], ruled: Sequence[Spec | None]) -> list[Spec]:
    with contextlib.suppress(ValueError):  # lowering will report the contradiction
        return [merge(one, other) for one, other in zip(said, ruled, strict=True)]
    return said


# Tokens of eager calls that have ended; a list's pop and append are atomic.
_free_tokens: list[str] = []


def internal_py_func(
    stock: Callable[..., Any],
    func: Callable[..., Any],
    inp: Iterable[Any],
    Tout: Any,  # noqa: N803 - TensorFlow's name
    stateful: bool | None = None,
    use_eager_py_func: bool = False,
    is_grad_func: bool = False,
    name: str | None = None,
) -> object:
    """Replace TensorFlow's `_internal_py_func`, which all three public functions call."""
    if is_grad_func:
        return stock(func, inp, Tout, stateful, use_eager_py_func, is_grad_func, name)
    if not callable(func):
        raise ValueError(
            f"Expected func to be callable. Received func={func} of type {type(func)}."
        )
    inputs = structures.read_inputs(inp, use_eager_py_func)
    user = UserFunction(
        func,
        declaration_of(func) or Options(),
        called_as=PY_FUNCTION if use_eager_py_func else NUMPY_FUNCTION,
        takes_tensors=use_eager_py_func,
        stateful=stateful is not False,
        # Stock script ops pass copies in eager mode, and the tensors' own memory in a graph.
        owns_arguments=tf.executing_eagerly(),
    )
    return emit_or_run(user, inputs, structures.Outputs(Tout), name)


def emit_or_run(
    user: UserFunction, inputs: structures.Inputs, outputs: structures.Outputs, name: str | None
) -> object:
    """Create the op, or run it eagerly, and return its results, packed."""
    options = user.options
    if options.retries or options.concurrent:
        who = f"the stateful op of {source_location.of_function(user.function)}"
        remedy = (
            "hostcall.declare(function, pure=True, ...) or tf.numpy_function(..., stateful=False)"
        )
        pure = not user.stateful or options.pure or options.table is not None
        check_side_effects(options, who, remedy, ordered=not pure, pure=pure)
    user = user.described("" if tf.executing_eagerly() else source_location.caller())
    spec = _spec_for(user, inputs, outputs)
    check_no_results(options.call_log, outputs.dtypes, user.stateful, user.description)
    return emit(spec, user.stateful, name)


def _spec_for(
    user: UserFunction, inputs: structures.Inputs, outputs: structures.Outputs
) -> CallbackSpec:
    func, options = user.function, user.options
    shape_function = result_shapes.make_shape_function(options, func, inputs, outputs)
    route = options.route or requested_routes.current()
    if not user.takes_tensors:
        kind = array_specs.class_for(user)
        return kind(user, inputs, outputs, shape_function, route=route)
    check_takes_tensors(options, f"{PY_FUNCTION} of {source_location.of_function(func)}")
    differentiable = (
        any(isinstance(v, tf.Tensor) and eager_execution.is_trainable(v) for v in inputs.flat)
        and any(dtype.is_floating or dtype.is_complex for dtype in outputs.dtypes)
        and features.GRADIENTS.available
        and not eager_execution.gradient_is_overridden()
    )
    # A pure function keeps no residual, and only that keeps an eager call's function alive.
    pure = options.pure and not tf.executing_eagerly()
    kept = {"differentiable": differentiable and not pure, "pure": pure}
    return EagerSpec(user, inputs, outputs, shape_function, route=route, **kept)


def emit(spec: CallbackSpec, stateful: bool, name: str | None) -> object:
    """Create an op that calls the function of a spec, and return its results, packed."""
    _note_specs(spec)
    if isinstance(spec, EagerSpec):
        results = emit_eager(spec, name)
    else:
        assert isinstance(spec, NumpySpec)
        results = _emit_numpy(spec, stateful, name)
    if not spec.outputs.dtypes:
        return results  # as stock TensorFlow: the op in a graph, an empty list eagerly
    if not tf.executing_eagerly():
        told = spec.static_specs if autograph.is_traced_to_compile() else spec.plain_specs
        for result, static in zip(results, told, strict=True):
            result.set_shape(static_shape(static))
    return spec.outputs.pack(results)


def emit_eager(spec: EagerSpec, name: str | None) -> Emitted:
    """Create an EagerPyFunc op; return its visible results, or the op itself if it has none."""
    with _registered(spec) as (flat, token):
        emit = functools.partial(_run_eager_op, spec, flat, token, name)
        if tf.executing_eagerly() and spec.differentiable:
            # This call holds the handle until a tensor does; it may fail in between.
            return tape_residuals.owners.run(frozenset([token]), emit)
        return emit()


def _run_eager_op(spec: EagerSpec, flat: list[Any], token: str, name: str | None) -> Emitted:
    if tf.executing_eagerly() and spec.differentiable:
        if spec.order == 0:
            tensors = [value for value in flat if isinstance(value, tf.Tensor)]
            spec.orders_wanted = eager_execution.orders_recorded(tensors)
        spec.gradient_wanted = spec.root.orders_wanted > spec.order
    results = op_kinds.gen_script_ops.eager_py_func(
        input=flat, token=token, is_async=eager_execution.is_async(), Tout=spec.op_dtypes, name=name
    )
    _note_op(spec, results)
    if not spec.differentiable:
        return results
    # The tape residual lives as long as the hidden result.
    *results, handle = results
    if tf.executing_eagerly():
        tape_residuals.attach([handle])
    else:
        # In a branch that is not taken, cond_v2 makes up a value, and needs the shape for it.
        handle.set_shape([])
    return results


def _emit_numpy(spec: NumpySpec, stateful: bool, name: str | None) -> Emitted:
    op = op_kinds.gen_script_ops.py_func if stateful else op_kinds.gen_script_ops.py_func_stateless
    with _registered(spec) as (flat, token):
        results = op(input=flat, token=token, Tout=spec.op_dtypes, name=name)
        _note_op(spec, results)
        return results


@contextlib.contextmanager
def _registered(spec: CallbackSpec) -> Iterator[tuple[list[Any], str]]:
    """Register a spec for a new op, and yield the op's inputs and its token."""
    # The graphs of the op own the spec from here on. An eager call needs the spec only while it
    # runs. Later calls use its token again, because TensorFlow keeps a kernel for each token.
    flat = spec.inputs.flat
    spec.inputs.flat = []
    if tf.executing_eagerly() and not eager_execution.is_async():
        spec.title = _free_tokens.pop() if _free_tokens else token_registry.new_token()
        token_registry.register_token(spec.title, spec)
        try:
            yield flat, spec.title
        except tf.errors.OpError as error:
            interrupt = _errors.interrupt_behind(error.message)
            if interrupt is None:
                raise
            raise interrupt from None
        finally:
            _free_tokens.append(spec.title)
        return
    spec.title = token_registry.new_token()
    token_registry.register_token(spec.title, spec)
    script_op_graphs.own(spec)
    if eager_execution.is_async():
        # The op runs later, when no other object may hold the spec.
        script_op_graphs.keep_alive_in_background(spec)
    yield flat, spec.title


def _note_op(spec: CallbackSpec, results: Any) -> None:
    if tf.executing_eagerly() or (not spec.outputs.dtypes and isinstance(results, list)):
        return  # TensorFlow does not return the op of a stateless call without results
    op = results if isinstance(results, tf.Operation) else results[0].op
    spec.op = weakref.ref(op)
    mark_op(op, spec)


def mark_op(op: Operation, spec: CallbackSpec) -> None:
    """Give a script op in a graph the route and the gradient of its spec."""
    script_op_graphs.note_script_op(op)
    requested_routes.mark(op, spec.route)
    if isinstance(spec, EagerSpec) and spec.has_own_gradient:
        patches.give_gradient_to(op)


def py_func_common(
    stock: Callable[..., Any],
    func: Callable[..., Any],
    inp: Iterable[Any],
    Tout: Any,  # noqa: N803 - TensorFlow's name
    stateful: bool = True,
    name: str | None = None,
) -> object:
    """Replace TensorFlow's `py_func_common`, which calls `func` directly in eager mode."""
    # Calls with structures in `inp` or `Tout`, and functions that need hostcall's op (for example
    # with a timeout or memoized results), use the op in eager mode too. TensorFlow runs all others.
    if isinstance(inp, Iterator):
        inp = list(inp)  # it is read here, and again by the function that is called
    if not tf.executing_eagerly() or not callable(func):
        return stock(func, inp, Tout, stateful, name)
    if not _interception.is_active() and not _is_ours(func, inp, Tout):
        return stock(func, inp, Tout, stateful, name)
    return internal_py_func(features.internal_py_func, func, inp, Tout, stateful, name=name)


def _is_ours(func: object, inp: Iterable[Any], tout: object) -> bool:
    options = declaration_of(func)
    if options is not None and (
        options.timeout is not None
        or options.shares_memory
        or options.table is not None
        or options.executor is not None
        or not options.wait
    ):
        return True
    return (
        isinstance(inp, tf.Tensor | tf.Variable | dict)
        or any(isinstance(item, dict) or _holds_tensors(item) for item in inp)
        or isinstance(tout, dict)
        or (isinstance(tout, list | tuple) and any(tf.nest.is_nested(item) for item in tout))
    )


def _holds_tensors(value: object) -> bool:
    """Return whether a value is a list with tensors that cannot be stacked into one array."""
    return (
        isinstance(value, list | tuple)
        and any(isinstance(leaf, tf.Tensor | tf.Variable) for leaf in tf.nest.flatten(value))
        and not isinstance(
            structures.pack_list(features.convert_variables_to_tensors(value)), tf.Tensor
        )
    )


def finish(func_graph: FuncGraph) -> None:
    """Finish a FuncGraph; TensorFlow calls this with each one that it has traced."""
    if replaced := script_op_graphs.replaced_ops_of(func_graph):
        script_op_graphs.must_not_run(func_graph, replaced)
    for op in script_op_graphs.script_ops_of(func_graph):
        result_shapes.store(op)
    for op in script_op_graphs.table_lookups_of(func_graph):
        result_shapes.store(op)  # Python knows more about tables than the op's shape function
    shape_demands.note(func_graph)
    requested_routes.mark_others(func_graph)
    if script_op_graphs.calls_functions(func_graph):
        script_op_graphs.mark_differing_branches(func_graph)
        _order_jitted_calls(func_graph)


def _order_jitted_calls(func_graph: FuncGraph) -> None:
    """Order calls of compiled functions with the script ops around them."""
    # TensorFlow orders stateful ops by control edges, but leaves out calls of functions with
    # `jit_compile=True`. It also does not run those calls if their results are unused.
    ops = func_graph.get_operations()
    jitted = [
        op for op in ops if script_op_graphs.is_jitted_call(op) and script_op_graphs.has_effect(op)
    ]
    if not jitted:
        return
    effects = [op for op in ops if script_op_graphs.has_effect(op)]
    for before, after in pairwise(effects):
        if script_op_graphs.is_jitted_call(before) or script_op_graphs.is_jitted_call(after):
            script_op_graphs.add_control_edge(before, after)
    # They must run whenever the function runs, even if nothing uses their results.
    outputs = func_graph.control_outputs
    outputs.extend(op for op in jitted if op not in outputs)
