"""Finds the Python function of a script op, wherever the op came from."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks import result_shapes
from hostcall._callbacks.callback_spec import CallbackSpec, NumpySpec, ShapeFunction
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._callbacks.structures import Inputs, Outputs
from hostcall._functions import source_location
from hostcall._functions.declaration import Declaration
from hostcall._functions.declarations import declaration_of
from hostcall._tf import (
    attributes,
    autograph,
    eager_execution,
    op_kinds,
    py_function_gradient,
    script_op_graphs,
    token_registry,
)
from hostcall._tf.types import NodeDef
from hostcall_runtime import Target
from hostcall_runtime._errors import LoweringError, counted


def own_callbacks(nodes: Iterable[Any]) -> None:
    """Lets the default graph own the functions that nodes refer to which are copied into it."""
    nodes = list(nodes)
    own_modules(nodes)
    for token in _tokens(nodes):
        script_op_graphs.own(token_registry.find_present(token))
    if any(node.op == op_kinds.EAGER_PY_FUNC for node in nodes):
        for op in script_op_graphs.py_functions_of_default_graph():
            token = op.get_attr("token").decode(errors="replace")
            if token_registry.is_qualified(token):
                script_op_graphs.note_script_op(op)
            spec = token_registry.find_present(token)
            if isinstance(spec, EagerSpec) and spec.has_own_gradient:
                py_function_gradient.give_to(op)


def _tokens(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        if node.op in op_kinds.SCRIPT_OPS:
            yield token_of(node)


def wrap(
    entry: Any,
    token: str,
    inputs: Inputs,
    outputs: Outputs,
    make_shape_function: Callable[[Any, Inputs, Outputs], ShapeFunction | None],
) -> CallbackSpec:
    """A spec for what TensorFlow registered itself, before hostcall was imported.

    Its gradient, if it is a py_function, stays TensorFlow's.

    Args:
      entry: the registered function or EagerFunc.
      token: under which it is registered.
      inputs: of its op, flat.
      outputs: likewise.
      make_shape_function: finds what is declared of the user's function.
    """
    eager = isinstance(entry, token_registry.EagerFunc)
    users = autograph.unwrapped(entry._func if eager else entry)
    specs = vars(entry).setdefault("__hostcall_specs__", {})  # live as long as what they stand for
    wrapped = specs.get((inputs.size, *outputs.dtypes))
    if isinstance(wrapped, CallbackSpec):
        wrapped.shape_function = make_shape_function(
            users, inputs, outputs
        )  # may be declared by now
        wrapped.pending = [wrapped.shape_function is not None] * len(outputs.dtypes)
        return wrapped
    function = entry
    if eager:

        @functools.wraps(users)
        def function(*arrays: Any) -> list[Any]:
            with eager_execution.eager_mode():
                tensors = [eager_execution.to_eager_tensor(array, None) for array in arrays]
            returned = entry(None, token, tensors)
            values = returned if isinstance(returned, list) else [returned]
            return [value.numpy() for value in values if value is not None]

    spec = NumpySpec(function, inputs, outputs, make_shape_function(users, inputs, outputs))
    if not eager:
        spec.declaration = declaration_of(users) or Declaration()
    spec.title = token
    spec.description = f"{EagerSpec.op_name if eager else spec.op_name} of " + (
        source_location.of_function(users)
    )
    specs[inputs.size, *outputs.dtypes] = spec
    return spec


def spec_of(node: NodeDef) -> CallbackSpec | None:
    """The spec of the function that a script op calls, by its NodeDef.

    Returns:
      The spec, also for a function that TensorFlow registered itself; None where the function does
      not exist in this process.

    Raises:
      LoweringError: when the function is not made for the op.
    """
    entry = entry_of(node)
    if entry is None or isinstance(entry, CallbackSpec):
        return entry
    inputs = Inputs([None] * len(node.attr["Tin"].list.type), False)
    outputs = Outputs([tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type])
    return wrap(entry, token_of(node), inputs, outputs, result_shapes.declared_shape_function)


def existing_spec_of(node: NodeDef) -> CallbackSpec:
    """The same, of a function that has to exist.

    Raises:
      LoweringError: when it does not, or is not made for the op.
    """
    spec = spec_of(node)
    if spec is None:
        raise missing(node)
    return spec


def unchecked_entry_of(node: NodeDef) -> Any:
    """What TensorFlow's registry has of a script op, whether it is made for the op or not.

    It may be a spec, a function of TensorFlow's, or None. Where nothing is called, but something
    is to be said of the op.
    """
    return token_registry.find(token_of(node))


def token_of(node: NodeDef) -> str:
    """The token of a script op, by its NodeDef."""
    # Of a file that was damaged it may be any bytes.
    token: str = node.attr["token"].s.decode(errors="replace")
    return token


def entry_of(node: NodeDef) -> Any:
    """What TensorFlow's registry has of a script op: a spec, a function of TensorFlow's, or None.

    Raises:
      LoweringError: when it is not made for the op.
    """
    takes = len(node.attr["Tin"].list.type)
    returns = [tf.as_dtype(dtype) for dtype in node.attr["Tout"].list.type]
    return entry_for(token_of(node), f"'{node.name}' ({node.op})", node.op, takes, returns)


def entry_for(token: str, op: str, kind: str, takes: int, returns: list[tf.DType]) -> Any:
    """What the registry has under the token of an op.

    A graph that was altered may name the function of another op, and one of a process without
    hostcall does where its token, a mere number, is another function's here. The results of that
    would not be the op's.

    Args:
      token: the op's.
      op: what messages call it.
      kind: of op.
      takes: how many inputs it has.
      returns: the dtypes of its outputs.

    Raises:
      LoweringError: when what it has is not made for such an op.
    """
    entry = token_registry.find(token)
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
        entry.ordered = False  # which the token of a saved graph does not say
    return entry


def missing(node: NodeDef) -> LoweringError:
    """The error for an op whose function is not there."""
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
    """A program in a graph. The graph owns it, and so all that its host calls call.

    Attributes:
      kind: what the user has called to make it.
      name: of the function that it was made of.
      defined_at: `file:line` of that, or "".
      targets: what the runtime calls for its callbacks.
      has_token: whether it has side effects that happen in the order of the program.
    """

    kind: str
    name: str
    defined_at: str
    targets: Sequence[Target]
    has_token: bool

    def __post_init__(self) -> None:
        self._key = str(next(_keys)).encode()
        _modules[self._key] = self

    @contextlib.contextmanager
    def called(self) -> Iterator[None]:
        """Within it the op is created, and nothing else: it is marked as one that calls Python."""
        script_op_graphs.own(self)
        marks: dict[str, bool | bytes] = {}
        if self.targets:
            marks = {attributes.CALLS_PYTHON: True, attributes.MODULE: self._key}
            if self.has_token:
                marks[attributes.HAS_TOKEN] = True
        with script_op_graphs.marked_ops(marks):
            yield


def module_of(node: NodeDef) -> Module | None:
    """The module of an op, by its NodeDef; None for other ops, and where it is gone."""
    return _modules.get(node.attr[attributes.MODULE].s) if attributes.MODULE in node.attr else None


def any_module() -> bool:
    """Whether a graph of this process holds such a program."""
    return bool(_modules)


def own_modules(nodes: Iterable[Any]) -> None:
    """Lets the default graph own the modules of nodes that are copied into it."""
    for module in filter(None, map(module_of, nodes)):
        script_op_graphs.own(module)
