"""The facts on one script op: who is called, from where, with what."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks import call_modules, lookup, result_shapes
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._callbacks.native_spec import NativeSpec
from hostcall._callbacks.specs import BoundedSpec, Spec, merge
from hostcall._explain.bodies import SHAPES, Body
from hostcall._explain.boundary_advice import of_script_op
from hostcall._explain.facts import ScriptOp, Value
from hostcall._functions import source_location
from hostcall._saving import checking
from hostcall._tf import attributes, autograph, op_kinds, token_registry
from hostcall._tf.types import NodeDef

# Finds `file:line` of a node, by the names of its function and its own.
Locate = Callable[[str, str], str]

# What the user has called to make an op, as far as the op tells.
KINDS = {
    "EagerPyFunc": "tf.py_function",
    "PyFunc": "tf.numpy_function",
    "PyFuncStateless": "tf.compat.v1.py_func",
}


def script_op(node: NodeDef, body: Body, function: str, locate: Locate, **placed: Any) -> ScriptOp:
    """The facts on a script op.

    Args:
      node: its NodeDef.
      body: the function that it stands in.
      function: the name of that.
      locate: finds lines of the user's code.
      **placed: the fields of ScriptOp that say where and how it runs.
    """
    if node.op not in op_kinds.SCRIPT_OPS:
        return _module_call(node, body, function, locate, **placed)
    spec = lookup.unchecked_entry_of(node)
    kind, callback, defined_at, called_at = _names(node, spec)
    file, line = parse_location(called_at or locate(function, node.name))
    operands = _operands(node, body)
    results = _results(node, spec)
    return ScriptOp(
        node=node.name,
        function=function,
        kind=kind,
        callback=callback,
        defined_at=defined_at,
        file=file,
        line=line,
        stateful=node.op in op_kinds.STATEFUL_SCRIPT_OPS,
        operands=tuple(operands),
        results=tuple(results),
        bytes_copied=_bytes_copied(spec, placed["route"], operands, results),
        advice=of_script_op(node, spec) if placed["route"] == "partition" else "",
        memo=isinstance(spec, CallbackSpec) and spec.declaration.table is not None,
        problem=_problem(node) if spec is None else "",
        **placed,
    )


def _module_call(
    node: NodeDef, body: Body, function: str, locate: Locate, **placed: Any
) -> ScriptOp:
    """The facts on a program that calls Python, as far as its op tells them."""
    module = call_modules.module_of(node)
    results = [
        tf.TensorSpec(tf.TensorShape(shape), tf.as_dtype(dtype))
        for shape, dtype in zip(
            node.attr["Sout"].list.shape, node.attr["Tout"].list.type, strict=True
        )
    ]
    file, line = parse_location(locate(function, node.name))
    called = list(dict.fromkeys(target.title for target in module.targets)) if module else []
    return ScriptOp(
        node=node.name,
        function=function,
        kind=module.kind if module else node.op,
        callback=f"{module.name}, which calls {', '.join(called)}" if module else "",
        defined_at=module.defined_at if module else "",
        file=file,
        line=line,
        stateful=op_kinds.is_ordered(node),
        operands=tuple(_operands(node, body)),
        results=tuple(map(value_of, results)),
        bytes_copied=None,
        **placed,
    )


def parse_location(location: str) -> tuple[str, int | None]:
    """The file and the line of `file:line`; of "" none."""
    file, _, line = location.rpartition(":")
    return (file, int(line)) if file else ("", None)


def _names(node: NodeDef, spec: CallbackSpec) -> tuple[str, str, str, str]:
    if isinstance(spec, CallbackSpec):
        return source_location.split_description(spec.description)
    kind = KINDS[node.op]
    if spec is None:
        label, record, _ = checking.judged(lookup.token_of(node), node, None)
        return kind, *(("", "", "") if record is None else (label, "", record.place_of_call))
    # Registered before hostcall was imported.
    users = spec._func if isinstance(spec, token_registry.EagerFunc) else spec
    described = source_location.of_function(autograph.unwrapped(users))
    return (kind, *source_location.split_description(f"{kind} of {described}")[1:])


def _problem(node: NodeDef) -> str:
    """Why a function is not here that a saved graph names."""
    _, record, problem = checking.judged(lookup.token_of(node), node, None)
    return "" if record is None or problem is None else problem.reason


def _operands(node: NodeDef, body: Body) -> list[Value]:
    inputs = [value for value in node.input if not value.startswith("^")]
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tin"].list.type]
    return [
        value_of(tf.TensorSpec(body.shape_of(value), dtype))
        for value, dtype in zip(inputs, dtypes, strict=True)
    ]


def _results(node: NodeDef, spec: CallbackSpec) -> list[Value]:
    """The results that the user sees."""
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type]
    said: Sequence[Spec] = []
    ruled: Sequence[bool] = []
    if isinstance(spec, CallbackSpec):
        dtypes = dtypes[
            : len(spec.outputs.dtypes)
        ]  # the handle of a tape residual is nobody's business
        said, ruled = spec.static_specs, spec.pending
    values = []
    for index, dtype in enumerate(dtypes):
        merged: Spec = said[index] if index < len(said) else tf.TensorSpec(None, dtype)
        for name in (attributes.SHAPES, SHAPES):
            shapes = node.attr[name].list.shape if name in node.attr else []
            if index < len(shapes):
                merged = _merge(merged, tf.TensorSpec(tf.TensorShape(shapes[index]), dtype))
        if isinstance(spec, CallbackSpec):
            merged = result_shapes.with_consumers(spec, index, merged)
        values.append(value_of(merged, index < len(ruled) and ruled[index]))
    return values


def _merge(spec: Spec, other: tf.TensorSpec) -> Spec:
    try:
        return merge(spec, other)
    except ValueError:
        return spec  # a contradiction, which the lowering tells the user of


def value_of(spec: Spec, ruled: bool = False) -> Value:
    """A tensor's facts.

    Args:
      spec: what is known of it.
      ruled: whether a shape function gives the rest when XLA compiles.
    """
    bounded = isinstance(spec, BoundedSpec)
    full = bounded or spec.shape.is_fully_defined()
    known = (
        ("bounded" if bounded else "known") if full else "shape_function" if ruled else "unknown"
    )
    size = _item_size(spec.dtype)
    nbytes = math.prod(spec.shape) * size if full and size is not None else None
    return Value(spec.dtype.name, str(spec) if bounded else str(spec.shape), known, nbytes)


def _item_size(dtype: tf.DType) -> int | None:
    if dtype in (tf.string, tf.variant, tf.resource):
        return None
    return int(dtype.size)


def _bytes_copied(
    spec: CallbackSpec, route: str, operands: Sequence[Value], results: Sequence[Value]
) -> int | None:
    """What a call copies at most.

    Custom calls copy all that goes in and comes out, but for those of native code, and so do NumPy
    functions in partitioned ones. Other than that, functions are shown the tensors' memory, and
    only NumPy's results are copied.
    """
    if isinstance(spec, NativeSpec) and route == "custom_call":
        return 0
    eager = isinstance(spec, EagerSpec | token_registry.EagerFunc)
    if route == "custom_call" or (route == "partition" and not eager):
        hidden = spec.shape_only if isinstance(spec, CallbackSpec) else frozenset()
        copied = [v for i, v in enumerate(operands) if i not in hidden] + list(results)
    elif eager:
        copied = []
    else:
        copies = isinstance(spec, CallbackSpec) and spec.gives_copies
        copied = [*(operands if copies else []), *results]
    sizes = [value.nbytes for value in copied]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
