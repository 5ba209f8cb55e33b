"""Lookup of the Python function of a script op, and of a program in a graph, by NodeDef."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from hostcall._functions.declarations import declaration_of
from hostcall._functions.options import Options
from hostcall._functions.user_function import NUMPY_FUNCTION, PY_FUNCTION, UserFunction
from hostcall._ops import result_shapes
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec, NumpySpec
from hostcall._ops.structures import Inputs, Outputs
from hostcall._tf import (
    autograph,
    eager_execution,
    patches,
    relayed_handlers,
    script_op_graphs,
    token_registry,
)
from hostcall._tf.graph import attributes, op_kinds
from hostcall._tf.types import AnyNode, NodeDef
from hostcall_runtime import Target
from hostcall_runtime._errors import LoweringError, counted


def own_callbacks(nodes: Iterable[Any]) -> None:
    """Make the default graph own the functions and modules of nodes that are copied into it."""
    nodes = list(nodes)
    for module in filter(None, map(module_of, nodes)):
        script_op_graphs.own(module)
    for node in nodes:
        if node.op in op_kinds.SCRIPT_OPS:
            script_op_graphs.own(token_registry.find_present(token_of(node)))
    if any(node.op == op_kinds.EAGER_PY_FUNC for node in nodes):
        for op in script_op_graphs.py_functions_of_default_graph():
            token = op.get_attr("token").decode(errors="replace")
            if token_registry.is_qualified(token):
                script_op_graphs.note_script_op(op)
            spec = token_registry.find_present(token)
            if isinstance(spec, EagerSpec) and spec.has_own_gradient:
                patches.give_gradient_to(op)


def _wrap(entry: Any, token: str, inputs: Inputs, outputs: Outputs) -> CallbackSpec:
    """Return a spec for what TensorFlow registered before hostcall was imported."""
    # The `entry` is a function or EagerFunc. The gradient of a py_function stays TensorFlow's.
    eager = isinstance(entry, token_registry.EagerFunc)
    users = autograph.unwrapped(entry._func if eager else entry)
    specs = vars(entry).setdefault("__hostcall_specs__", {})  # the specs live as long as the entry
    wrapped = specs.get((inputs.size, *outputs.dtypes))
    declared = declaration_of(users) or Options()
    shape_function = result_shapes.make_shape_function(declared, users, inputs, outputs)
    if isinstance(wrapped, CallbackSpec):
        wrapped.shape_function = shape_function  # it may be declared since the last call
        wrapped.pending = [shape_function is not None] * len(outputs.dtypes)
        return wrapped
    function = entry
    if eager:

        @functools.wraps(users)
        def function(*arrays: Any) -> list[Any]:
            with eager_execution.eager_mode():
                tensors = list(map(eager_execution.to_eager_tensor, arrays))
            returned = entry(None, token, tensors)
            values = returned if isinstance(returned, list) else [returned]
            return [value.numpy() for value in values if value is not None]

    named = UserFunction(
        users,
        Options() if eager else declared,
        called_as=PY_FUNCTION if eager else NUMPY_FUNCTION,
    )
    user = dataclasses.replace(named.described(""), function=function)
    spec = NumpySpec(user, inputs, outputs, shape_function)
    spec.title = token
    specs[inputs.size, *outputs.dtypes] = spec
    return spec


def spec_of(node: AnyNode) -> CallbackSpec | None:
    """Return the spec of a script op's function, or None; raise a LoweringError for a wrong one."""
    entry = entry_of(node)
    if entry is None or isinstance(entry, CallbackSpec):
        return entry
    inputs = Inputs([None] * len(node.attr["Tin"].list.type), False)
    outputs = Outputs([tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type])
    return _wrap(entry, token_of(node), inputs, outputs)


def existing_spec_of(node: AnyNode) -> CallbackSpec:
    """Return the spec of a script op's function; raise a LoweringError if there is none."""
    spec = spec_of(node)
    if spec is None:
        raise missing(node)
    return spec


def unchecked_entry_of(node: AnyNode) -> object:
    """Return the registry's entry for a script op, which may be made for another op, or None."""
    return token_registry.entry_of(token_of(node))


def own_spec_of(node: AnyNode) -> CallbackSpec | None:
    """Return the unchecked entry for a script op if it is a spec of hostcall's, or None."""
    entry = unchecked_entry_of(node)
    return entry if isinstance(entry, CallbackSpec) else None


def token_of(node: AnyNode) -> str:
    """Return the token of a script op, by its NodeDef."""
    # In a damaged file the token may be any bytes.
    return str(node.attr["token"].s.decode(errors="replace"))


def entry_of(node: AnyNode) -> object:
    """Return the registry's entry for a script op; a LoweringError if it does not fit the op."""
    takes = len(node.attr["Tin"].list.type)
    returns = [tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type]
    return entry_for(token_of(node), f"'{node.name}' ({node.op})", node.op, takes, returns)


def entry_for(token: str, op: str, kind: str, takes: int, returns: list[tf.DType]) -> object:
    """Return the registry's entry for the token of an op; a LoweringError if it does not fit."""
    # The token may name the function of another op, whose results would be wrong. This happens in
    # an altered graph, and in one from a process without hostcall: its tokens are mere numbers,
    # which may belong to other functions here. The op has the type `kind`, `takes` inputs and
    # `returns` these dtypes.
    entry = token_registry.entry_of(token)
    if entry is None:
        return None
    of_tensors = isinstance(entry, token_registry.EagerFunc)
    fits, known, signature = of_tensors == (kind == "EagerPyFunc"), "", ""
    if isinstance(entry, CallbackSpec):
        fits = fits and entry.inputs.size == takes and entry.op_dtypes == returns
        known = f", {entry.description},"
        signature = f", which {_listed(entry.inputs.size, entry.op_dtypes)}"
    if not fits:
        raise LoweringError(
            f"hostcall: op {op} {_listed(takes, returns)}. The function with its key, "
            f"{token_registry.title_of(token)}{known} was made for another op: "
            f"{'EagerPyFunc' if of_tensors else 'PyFunc'}{signature}. The graph was altered, "
            "or it comes from another process, where the key stands for another function. Build "
            "the function again in this process."
        )
    if isinstance(entry, CallbackSpec) and kind == "PyFuncStateless":
        # The token of a saved graph does not tell.
        entry.user = dataclasses.replace(entry.user, stateful=False)
    return entry


def missing(node: AnyNode) -> LoweringError:
    """Return the error for an op whose function does not exist."""
    if (why := token_registry.why_missing(token_of(node))) is not None:
        return why
    return LoweringError(
        f"hostcall: op '{node.name}' ({node.op}) calls a Python function that does not exist in "
        f"this process. Could not find callback with key={token_of(node)} in the registry. Either "
        "the graph comes from another process (a SavedModel holds no Python code), or the function "
        "died with the graph that it was traced in. Build the function again in this process, and "
        "keep the tf.function or the model."
    )


def _listed(takes: int, returns: list[tf.DType]) -> str:
    dtypes = ", ".join(dtype.name for dtype in returns) or "nothing"
    return f"takes {counted(takes, 'input')} and returns {dtypes}"


_keys = itertools.count(1)
_modules: weakref.WeakValueDictionary[bytes, Module] = weakref.WeakValueDictionary()


@dataclasses.dataclass(eq=False)
class Module:
    """A program in a graph. The graph owns it, and with it the targets of its host calls."""

    kind: str  # the name of the API that the user has called to make it
    name: str  # the name of the function that it was made from
    defined_at: str  # `file:line` of that function, or ""
    targets: Sequence[Target]  # the objects that the runtime calls for its callbacks
    has_token: bool  # whether it has side effects that happen in program order
    handlers: Collection[str] = ()  # the targets of its custom calls whose handlers are JAX's

    def __post_init__(self) -> None:
        self._key = str(next(_keys)).encode()
        _modules[self._key] = self

    @contextlib.contextmanager
    def called(self) -> Iterator[None]:
        """Mark the op that is created inside the context as one that calls Python or handlers."""
        script_op_graphs.own(self)
        marks: dict[str, bool | bytes] = {}
        if self.handlers:
            marks[relayed_handlers.TARGETS] = "\n".join(sorted(self.handlers)).encode()
        if self.targets or self.has_token:  # without targets, it raises errors of values
            marks |= {attributes.CALLS_PYTHON: True, attributes.MODULE: self._key}
            if self.has_token:
                marks[attributes.HAS_TOKEN] = True
        with script_op_graphs.marked_ops(marks):
            yield


def module_of(node: NodeDef) -> Module | None:
    """Return the module of an op, by its NodeDef; None for other ops, and if it is gone."""
    return _modules.get(node.attr[attributes.MODULE].s) if attributes.MODULE in node.attr else None
