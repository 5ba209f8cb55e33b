"""What of TensorFlow's functions and methods hostcall replaces: one function a patch.

Each takes what is to be done there, and returns the patch, for the table in `hostcall._patches`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from hostcall._tf import (
    concrete_functions,
    features,
    gradient_tapes,
    names,
    op_kinds,
    script_op_graphs,
    token_registry,
)
from hostcall._tf.replacements import Replacement, attribute
from hostcall._tf.types import Graph, GraphDef, NodeDef
from hostcall_runtime._patching import Patch


def tokens(nonce: Callable[[], str]) -> Patch:
    """Makes tokens, TensorFlow's own ones too, that no other process makes: `pyfunc_N_NONCE`."""

    def wrap(count: Callable[..., str], patch: Replacement) -> Any:
        functions = token_registry.functions

        def next_token() -> str:
            token = count(functions)
            return f"{token}_{nonce()}" if patch.installed else token

        return next_token

    why = (
        "TensorFlow counts tokens from 0 in each process, so that an op of another one (out of a "
        "SavedModel, say) would call the function that happens to have its number here."
    )
    return attribute(token_registry.functions, "_next_unique_token", wrap, features.SCRIPT_OPS, why)


def frames_left_out(*directories: str) -> Patch:
    """Has TensorFlow leave packages' frames out of tracebacks, as it does its own.

    Args:
      *directories: the packages', with a separator at the end.
    """
    why = "Each error of a function would show frames that stand around TensorFlow's own functions."
    return attribute(
        names.traceback_utils,
        "_EXCLUDED_PATHS",
        lambda stock, _: (*stock, *directories),
        features.TRACEBACKS,
        why,
    )


def trace_hook(hook: Callable[[Any], None]) -> Patch:
    """Calls `hook` with each FuncGraph when its tracing has ended."""

    def install() -> None:
        if hook not in names.transform.FUNC_GRAPH_TRANSFORMS:
            names.transform.FUNC_GRAPH_TRANSFORMS.append(hook)

    def uninstall() -> None:
        if hook in names.transform.FUNC_GRAPH_TRANSFORMS:
            names.transform.FUNC_GRAPH_TRANSFORMS.remove(hook)

    return Patch(
        "tensorflow.python.eager.polymorphic_function.transform.FUNC_GRAPH_TRANSFORMS",
        install,
        uninstall,
        lambda: list(names.transform.FUNC_GRAPH_TRANSFORMS),
        "What set_shape says is nowhere in the graph: it is written onto the ops when their "
        "function has been traced.",
        features.TRACING.title,
    )


def higher_orders() -> Patch:
    """Prepares `gradient_tapes.more_orders_may_follow`."""

    def wrap(build: Callable[..., Any], patch: Replacement) -> Any:
        @functools.wraps(build)
        def build_and_tell(*args: Any, **kwargs: Any) -> Any:
            if not patch.installed:
                return build(*args, **kwargs)
            outer = gradient_tapes.more_orders_may_follow()
            gradient_tapes.building.higher_order = True
            try:
                return build(*args, **kwargs)
            finally:
                gradient_tapes.building.higher_order = outer

        return build_and_tell

    return attribute(
        names.HigherOrderFunctions,
        "_forward_and_backward_functions",
        wrap,
        features.NESTED_GRADIENTS,
        "Nothing else tells whether the gradient of a gradient may be asked for.",
    )


Run = Callable[[frozenset[str], Callable[[], Any]], Any]


def calls(owner: object, name: str, run: Run, recorded: Callable[[frozenset[str]], bool]) -> Patch:
    """Lets `run` carry out the calls of functions from eager code, or the runs of sessions.

    Args:
      owner: the class of the functions or sessions.
      name: the method that calls one.
      run: is given the tokens of the py_functions that a call can reach, where there are any, and
        the call, whose result it returns.
      recorded: whether py_functions with these tokens may be recorded in the call.
    """

    def wrap(method: Callable[..., Any], patch: Replacement) -> Any:
        tokens_of = script_op_graphs.tokens_of

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            # In this order: most functions need no more than the first question.
            tokens = tokens_of(self.graph) if patch.installed else None
            if not tokens or not recorded(tokens) or _is_building(self):
                return method(self, *args, **kwargs)
            return run(tokens, functools.partial(method, self, *args, **kwargs))

        return call

    why = "When a call ends, nobody may be left who can ask for what it has kept for gradients."
    return attribute(owner, name, wrap, features.RESIDUALS, why)


def _is_building(owner: object) -> bool:
    """Whether a call of a function goes into a graph, or to a thread that nobody waits for."""
    return isinstance(owner, names.ConcreteFunction) and (
        not names.executing_eagerly() or names.is_async()
    )


def forward_calls(hook: Callable[[Any], None]) -> Patch:
    """Calls `hook` with the results of each function whose gradient a tape may ask for."""

    def wrap(record: Callable[..., Any], patch: Replacement) -> Any:
        @functools.wraps(record)
        def record_and_tell(self: Any, flat_outputs: Any) -> Any:
            if patch.installed:
                hook(flat_outputs)
            return record(self, flat_outputs)

        return record_and_tell

    why = "What a program has kept for gradients lives as long as the tensors that refer to it."
    return attribute(names.ForwardBackwardCall, "record", wrap, features.RESIDUALS, why)


def new_errors(hook: Callable[[Any, Any], None]) -> Patch:
    """Calls `hook` with each error of TensorFlow's that is made, and its message."""

    def wrap(make: Callable[..., None], patch: Replacement) -> Any:
        @functools.wraps(make)
        def make_and_tell(
            self: Any, node_def: NodeDef, op: Any, message: Any, error_code: Any, *args: Any
        ) -> None:
            make(self, node_def, op, message, error_code, *args)
            if patch.installed:
                hook(self, message)

        return make_and_tell

    why = "TensorFlow's error takes along the exceptions that it tells of, for hostcall.last_error."
    return attribute(tf.errors.OpError, "__init__", wrap, features.EXCEPTIONS, why)


def raised(owner: object, name: str, find: Callable[[Any], BaseException | None]) -> Patch:
    """Lets `find` name, for the error of a function or of a session's run, the one to raise.

    Args:
      owner: the module or class of what runs functions.
      name: of that.
      find: from an error of TensorFlow's to another one, or None.
    """

    def wrap(function: Callable[..., Any], patch: Replacement) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except tf.errors.OpError as error:
                exception = find(error) if patch.installed else None
                if exception is None:
                    raise
            except RuntimeError as error:
                # pybind11, of Ctrl-C that comes while it makes the exception of a failed call.
                if not patch.installed or "REPLACED BY KeyboardInterrupt" not in str(error):
                    raise
                exception = KeyboardInterrupt()
            raise exception

        return call

    why = "Ctrl-C in a callback has to end the program: TensorFlow makes an error of its own of it."
    return attribute(owner, name, wrap, features.INTERRUPTS, why)


def context_handle(reader: Callable[[], Callable[[Any, Any], Any]]) -> Patch:
    """Has something that is no Python code look up the handle of TensorFlow's context.

    Args:
      reader: returns what does: it takes the module of the context, and the registry that asks.
    """
    why = (
        "TensorFlow's kernel of tf.py_function looks it up before it calls Python. Where it is "
        "Python code, Ctrl-C may come in there, and ends the process."
    )

    def wrap(_: property, __: Replacement) -> Any:
        return property(functools.partial(reader(), names.context_module))

    return attribute(type(names.py_funcs), "_ctx", wrap, features.INTERRUPTS, why)


def importing(hook: Callable[[Iterator[Any]], None]) -> Patch:
    """Calls `hook` with the nodes that are imported into the default graph."""

    def wrap(load: Callable[..., Any], patch: Replacement) -> Any:
        @functools.wraps(load)
        def load_and_tell(graph_def: GraphDef, *args: Any, **kwargs: Any) -> Any:
            loaded = load(graph_def, *args, **kwargs)
            if patch.installed:
                hook(script_op_graphs.nodes_of(graph_def))
            return loaded

        return load_and_tell

    why = "A graph that is imported owns the functions that it calls, too."
    name = "_import_graph_def_internal"
    return attribute(names.importer, name, wrap, features.COPIED_GRAPHS, why)


def lifting(hook: Callable[[Iterator[Any]], None]) -> Patch:
    """Calls `hook` with the nodes that are copied into a graph, which is the default one then."""

    def wrap(lift: Callable[..., Any], patch: Replacement) -> Any:
        @functools.wraps(lift)
        def lift_and_tell(tensors: Any, graph: Graph, *args: Any, **kwargs: Any) -> Any:
            lifted = lift(tensors, graph, *args, **kwargs)
            if patch.installed:
                kinds = {*op_kinds.SCRIPT_OPS, "XlaCallModule"}
                ops = [op for op in lifted.values() if getattr(op, "type", None) in kinds]
                with graph.as_default():
                    hook(op.node_def for op in ops)
            return lifted

        return lift_and_tell

    why = "A pruned or frozen copy of a graph owns the functions that it calls, too."
    return attribute(names.lift_to_graph, "lift_to_graph", wrap, features.COPIED_GRAPHS, why)


def removed_functions() -> Patch:
    """Lets the functions that one owns be removed along with it."""

    def wrap(remove: Callable[..., None], patch: Replacement) -> Any:
        @functools.wraps(remove)
        def remove_with_owned(self: Any, name: Any) -> None:
            remove(self, name)
            owner = name.decode() if isinstance(name, bytes) else name
            owned = concrete_functions.owned
            if patch.installed and owner in owned and not self.has_function(name):
                for function in owned.pop(owner):
                    remove_with_owned(self, function)  # a cluster may own some itself

        return remove_with_owned

    why = "The functions that hostcall derives from one are removed along with it."
    return attribute(names.Context, "remove_function", wrap, features.REMOVED_FUNCTIONS, why)
