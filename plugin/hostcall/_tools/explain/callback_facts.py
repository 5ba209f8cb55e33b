"""Facts on the script ops of a function, and advice on the ops between its clusters."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from hostcall._compiler import route_selection
from hostcall._compiler.analyses.effects import Effects
from hostcall._functions import source_location
from hostcall._ops import advice, lookup, requested_routes, result_shapes
from hostcall._ops.array_specs import NativeSpec
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec
from hostcall._ops.structures import BoundedSpec, Spec, merge
from hostcall._saved import decoding
from hostcall._tf import autograph, token_registry
from hostcall._tf.graph import attributes, function_names, op_kinds
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall._tools.explain.facts import ScriptOp, ValueFacts

# The attribute with static shapes, which TensorFlow writes with as_graph_def(add_shapes=True).
SHAPES = "_output_shapes"

# The facts on the nodes whose values a node takes, and the nodes that it only runs after.
Edges = dict[str, Any]


class Body:
    """One function, with its nodes in program order."""

    def __init__(self, function: FunctionDef, functions: Mapping[str, Any]) -> None:
        self.nodes = defs.program_order(function)
        self._by_name = {node.name: node for node in function.node_def}
        self._arguments = {arg.name: i for i, arg in enumerate(function.signature.input_arg)}
        self._attributes = function.arg_attr
        self._types = defs.Types(function, functions)

    def node(self, name: str) -> NodeDef:
        """Return the node with this name."""
        return self._by_name[name]

    def shape_of(self, value: str) -> tf.TensorShape:
        """Return the static shape of a value, named `argument` or `node:result:index`."""
        name, _, result = value.partition(":")
        if name in self._arguments:
            known = self._attributes[self._arguments[name]].attr
            index = 0
        else:
            known = self._by_name[name].attr
            # What replaces an op passes its results on under numbers: see `wrong_kernels`.
            output, _, number = result.partition(":")
            is_replaced = output not in self._types.of_node(name)
            index = int(number) if is_replaced else self._types.position(name, result)
        shapes = known[SHAPES].list.shape if SHAPES in known else []
        return tf.TensorShape(shapes[index] if index < len(shapes) else None)


class Bodies:
    """The functions of a library."""

    def __init__(self, library: FunctionDefLibrary) -> None:
        self.functions = defs.by_name(library)  # the FunctionDefs by name
        self._bodies: dict[str, Body] = {}
        # What calls Python or a compiled function, and what calls Python in program order.
        kinds = {node.op for node in defs.all_nodes(library)}
        self.mattering = Effects(self.functions, _matters_itself, kinds)
        self.effects = Effects(self.functions)

    def original(self, name: str) -> str:
        """Return the name of the user's function that a function is, or that it is a copy of."""
        return name if name in self.functions else function_names.before_digest(name)

    def __getitem__(self, name: str) -> Body:
        name = self.original(name)
        if name not in self._bodies:
            self._bodies[name] = Body(self.functions[name], self.functions)
        return self._bodies[name]

    def shape_of(self, function: str, value: str) -> tf.TensorShape:
        """Return the static shape of a value in a function; see `Body.shape_of`."""
        return self[function].shape_of(value)


def _matters_itself(node: NodeDef) -> bool:
    return op_kinds.calls_python(node) or defs.is_compiled(node)


def called(node: NodeDef, functions: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the role ("" for a plain call) and name of each of `functions` that a node calls."""
    if node.op in functions:
        yield "", node.op
    for attr, value in sorted(node.attr.items()):
        if value.HasField("func") and value.func.name in functions:
            yield ("" if attr == "f" else attr), value.func.name
        for index, function in enumerate(value.list.func):
            if function.name in functions:
                yield f"{attr}[{index}]", function.name


def sources(nodes: Iterable[Any], shown: set[str]) -> dict[str, Edges]:
    """Return, for each NodeDef, the shown nodes that it takes values from or only waits for."""
    waits = []
    for node in nodes:
        values = [*map(defs.source, defs.data_inputs(node))]
        order = [value[1:] for value in node.input if value.startswith("^")]
        waits.append((node.name, values, order))
    return {
        name: {
            "takes_from": tuple(source for source, is_value in found.items() if is_value),
            "waits_for": tuple(source for source, is_value in found.items() if not is_value),
        }
        for name, found in through(waits, shown).items()
    }


def through(
    waits: Iterable[tuple[str, Iterable[str], Iterable[str]]], shown: set[str]
) -> dict[str, dict[str, bool]]:
    """Return, for each node, the shown nodes that it waits for, directly or through hidden ones."""
    # `waits` has for each node its name, the nodes whose values it takes, and the nodes that it
    # only runs after, in an order in which they can run. Each node found comes with whether a value
    # comes from there.
    edges: dict[str, dict[str, bool]] = {}
    reached: dict[str, dict[str, bool]] = {}
    for name, values, order in waits:
        found: dict[str, bool] = {}
        for is_value, names in ((True, values), (False, order)):
            for source in names:
                for origin, carries in reached.get(source, {}).items():
                    found[origin] = found.get(origin, False) or (is_value and carries)
        edges[name] = found
        reached[name] = {name: True} if name in shown else found
    return edges


_DATA = "nothing, where it is data. Otherwise give it as a Python number, or compute it from shapes"
_NO_KERNEL = (
    "nothing helps: XLA cannot compile {op}. Do it before or after the compiled function, or in a "
    "callback with a declared result"
)


def _of_script_op(node: NodeDef, spec: CallbackSpec) -> str:
    """Return the advice for a script op on the host; `spec` is its registered entry, or None."""
    choice = route_selection.choose(node)
    if requested_routes.asked(node) == requested_routes.PARTITION:
        return "remove route='partition', where hostcall.configure, scope or declare says it"
    if choice.route != requested_routes.PARTITION:
        return "nothing here: it is on the host because of what calls it"
    if choice.is_bounded:
        return "let the function return an array of a fixed size, padded, and declare that"
    if not isinstance(spec, CallbackSpec):
        return "nothing can be said: this process does not have the Python function"
    if choice.fits_region:
        return "nothing here: one program calls it where nothing else is on the host"
    return advice.declaration_as_seen(spec, route_selection.known_results(spec, node))


_OTHERS_DECLARED = (
    "nothing here: once the shapes of the callbacks' results are declared, one program calls it "
    "where nothing else is on the host"
)


def advise_host_op(node: NodeDef, reason: str, calls: Sequence[str], lacks_shapes: bool) -> str:
    """Return the advice for a host op that is not a script op, by its reason to be there, or ""."""
    # `lacks_shapes` tells whether the program is partitioned because a callback has no shape.
    if calls:
        return ""  # the ops in these functions have their own advice
    if node.op in ("PrintV2", "StringFormat"):
        return "hostcall.callback(print, result=[])(x)    # in the place of tf.print(x)"
    if reason.startswith("XLA would drop"):
        return "hostcall.configure(semantics='graph'), the default, keeps it in the program"
    if "depends on data" in reason:
        return _DATA
    if lacks_shapes and ("string" in reason or "no XLA kernel" in reason):
        return _OTHERS_DECLARED
    if "string" in reason:
        return "nothing helps: XLA has no strings or variants. Pass numbers, such as indices"
    return _NO_KERNEL.format(op=node.op) if "no XLA kernel" in reason else ""


# Finds the `file:line` of a node, by the names of its function and of the node.
Locate = Callable[[str, str], str]

# The API that made a script op, judged by the op alone.
KINDS = {
    "EagerPyFunc": "tf.py_function",
    "PyFunc": "tf.numpy_function",
    "PyFuncStateless": "tf.compat.v1.py_func",
}


def script_op(node: NodeDef, body: Body, function: str, locate: Locate, **placed: Any) -> ScriptOp:
    """Return the facts on an op that calls Python; `placed` has those on where and how it runs."""
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tin"].list.type]
    operands = tuple(
        value_of(tf.TensorSpec(body.shape_of(value), dtype))
        for value, dtype in zip(defs.data_inputs(node), dtypes, strict=True)
    )
    if node.op in op_kinds.SCRIPT_OPS:
        found = _of_callback(node, placed["route"], operands)
    else:
        found = _of_module(node)
    file, line = parse_location(found.pop("called_at", "") or locate(function, node.name))
    placed |= {"file": file, "line": line, "operands": operands}
    return ScriptOp(node=node.name, function=function, **found, **placed)


def _of_callback(node: NodeDef, route: str, operands: Sequence[ValueFacts]) -> dict[str, Any]:
    """Return the facts on the Python function of a script op, and the location of the call."""
    spec: Any = lookup.unchecked_entry_of(node)
    results = _results(node, spec)
    return {
        "stateful": node.op in op_kinds.STATEFUL_SCRIPT_OPS,
        "results": tuple(results),
        "bytes_copied": _bytes_copied(spec, route, operands, results),
        "advice": _of_script_op(node, spec) if route == "partition" else "",
        "memo": isinstance(spec, CallbackSpec) and spec.options.table is not None,
        **_names(node, spec),
    }


def _of_module(node: NodeDef) -> dict[str, Any]:
    """Return the facts on an op that holds a program of JAX's which calls Python."""
    module = lookup.module_of(node)
    shapes, dtypes = node.attr["Sout"].list.shape, node.attr["Tout"].list.type
    called = ", ".join(dict.fromkeys(target.title for target in module.targets)) if module else ""
    return {
        "kind": module.kind if module else node.op,
        "callback": f"{module.name}{called and f', which calls {called}'}" if module else "",
        "defined_at": module.defined_at if module else "",
        "stateful": op_kinds.is_ordered(node),
        "results": tuple(
            value_of(tf.TensorSpec(tf.TensorShape(shape), tf.as_dtype(dtype)))
            for shape, dtype in zip(shapes, dtypes, strict=True)
        ),
        "bytes_copied": None,
    }


def parse_location(location: str) -> tuple[str, int | None]:
    """Split `file:line` into file and line; return "" and None for ""."""
    file, _, line = location.rpartition(":")
    return (file, int(line)) if file else ("", None)


def _names(node: NodeDef, spec: CallbackSpec) -> dict[str, str]:
    """Return kind, name, both locations, and why this process cannot call what a graph names."""
    kind = KINDS[node.op]
    if spec is None:
        label, record, problem = decoding.judged(lookup.token_of(node), node, None)
        found = {"kind": kind, "callback": "", "defined_at": ""}
        if record is not None:
            reason = problem.reason if problem else ""
            found |= {"callback": label, "called_at": record.root.at, "problem": reason}
        return found
    if isinstance(spec, CallbackSpec):
        description = spec.description
    else:  # the function was registered before hostcall was imported
        users = spec._func if isinstance(spec, token_registry.EagerFunc) else spec
        description = f"{kind} of {source_location.of_function(autograph.unwrapped(users))}"
    names = ("kind", "callback", "defined_at", "called_at")
    return dict(zip(names, source_location.split_description(description), strict=True))


def _results(node: NodeDef, spec: CallbackSpec) -> list[ValueFacts]:
    """Return the results that the user sees."""
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type]
    said: Sequence[Spec] = []
    ruled: Sequence[bool] = []
    if isinstance(spec, CallbackSpec):
        dtypes = dtypes[: len(spec.outputs.dtypes)]  # without the handle of a tape residual
        said, ruled = spec.static_specs, spec.pending
    values = []
    for index, dtype in enumerate(dtypes):
        merged: Spec = said[index] if index < len(said) else tf.TensorSpec(None, dtype)
        for name in (attributes.SHAPES, SHAPES):
            shapes = node.attr[name].list.shape if name in node.attr else []
            if index < len(shapes):
                with contextlib.suppress(ValueError):  # the lowering reports contradictions
                    merged = merge(merged, tf.TensorSpec(tf.TensorShape(shapes[index]), dtype))
        if isinstance(spec, CallbackSpec):
            merged = result_shapes.with_consumers(spec, index, merged)
        values.append(value_of(merged, index < len(ruled) and ruled[index]))
    return values


def value_of(spec: Spec, ruled: bool = False) -> ValueFacts:
    """Return the facts on a tensor; `ruled` says that XLA's compilation gives the open sizes."""
    bounded = isinstance(spec, BoundedSpec)
    if bounded or spec.shape.is_fully_defined():
        known = "bounded" if bounded else "known"
        sized = spec.dtype not in (tf.string, tf.variant, tf.resource)
        nbytes = math.prod(spec.shape) * int(spec.dtype.size) if sized else None
    else:
        known, nbytes = "shape_function" if ruled else "unknown", None
    return ValueFacts(spec.dtype.name, str(spec) if bounded else str(spec.shape), known, nbytes)


def _bytes_copied(
    spec: CallbackSpec, route: str, operands: Sequence[ValueFacts], results: Sequence[ValueFacts]
) -> int | None:
    """Return the most bytes that one call copies, or None if a size is not known."""
    # Custom calls copy all operands and results, except that native code copies none. NumPy
    # functions in partitioned functions copy all, too. Other functions see the tensors' memory, so
    # only NumPy's results are copied.
    native = isinstance(spec, NativeSpec)
    eager = isinstance(spec, EagerSpec | token_registry.EagerFunc)
    if (native and route == "custom_call") or (eager and route != "custom_call"):
        return 0
    copied = list(results)
    if route != "plain":
        hidden = spec.shape_only if isinstance(spec, CallbackSpec) else frozenset()
        copied += [value for i, value in enumerate(operands) if i not in hidden]
    elif isinstance(spec, CallbackSpec) and spec.gives_copies:
        copied += operands
    sizes = [value.nbytes for value in copied]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
