"""Everything of TensorFlow's that hostcall replaces."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tensorflow.python.client import session as _session
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager import lift_to_graph as _lift_to_graph
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete_function
from tensorflow.python.eager.polymorphic_function import transform as _transform
from tensorflow.python.framework import errors as _errors
from tensorflow.python.framework import importer as _importer
from tensorflow.python.framework import ops as _ops
from tensorflow.python.framework import registry as _registry
from tensorflow.python.saved_model import save as _save
from tensorflow.python.util import traceback_utils as _traceback_utils

from hostcall._tf import (
    concrete_functions,
    gradient_tapes,
    op_kinds,
    script_op_graphs,
    token_registry,
)

F = TypeVar("F", bound=Callable[..., Any])

_nonce = ""


def renew_nonce() -> None:
    """Gives tokens that are made from now on another nonce than those that there are."""
    global _nonce
    _nonce = os.urandom(4).hex()


def add_nonce_to_tokens() -> None:
    """Makes tokens, TensorFlow's own ones too, that no other process makes: `pyfunc_N_NONCE`.

    TensorFlow counts them from 0 in each process, so that an op of another one (out of a
    SavedModel, say) would call the function that happens to have its number here.
    """
    count = type(token_registry.functions)._next_unique_token
    token_registry.functions._next_unique_token = lambda: (
        f"{count(token_registry.functions)}_{_nonce}"
    )


def leave_nonce_out_of_tokens() -> None:
    """Undoes `add_nonce_to_tokens`; tokens that there are stay as they are."""
    vars(token_registry.functions).pop("_next_unique_token", None)


def leave_out_frames_of(directory: str) -> None:
    """Has TensorFlow leave a package's frames out of tracebacks, as it does its own.

    Each error of a function would show some otherwise: of what stands around TensorFlow's own
    functions.
    """
    _traceback_utils._EXCLUDED_PATHS += (directory + os.sep,)


def add_trace_hook(hook: Callable[[Any], None]) -> None:
    """Calls `hook` with each FuncGraph when its tracing has ended."""
    if hook not in _transform.FUNC_GRAPH_TRANSFORMS:
        _transform.FUNC_GRAPH_TRANSFORMS.append(hook)


def remove_trace_hook(hook: Callable[[Any], None]) -> None:
    """Undoes `add_trace_hook`."""
    if hook in _transform.FUNC_GRAPH_TRANSFORMS:
        _transform.FUNC_GRAPH_TRANSFORMS.remove(hook)


def replace_gradient(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """Sets the gradient of EagerPyFunc and returns the one that it had."""
    entries = _ops.gradient_registry._registry
    old = entries[op_kinds.EAGER_PY_FUNC]
    entries[op_kinds.EAGER_PY_FUNC] = {
        _registry._TYPE_TAG: gradient,
        _registry._LOCATION_TAG: old[_registry._LOCATION_TAG],
    }
    stock: Callable[..., Any] = old[_registry._TYPE_TAG]
    return stock


def watch_higher_orders() -> None:
    """Prepares `more_orders_may_follow`."""
    kind = _concrete_function._HigherOrderTapeGradientFunctions
    build = kind._forward_and_backward_functions

    @functools.wraps(build)
    def build_and_tell(*args: Any, **kwargs: Any) -> Any:
        outer, gradient_tapes.building.higher_order = gradient_tapes.more_orders_may_follow(), True
        try:
            return build(*args, **kwargs)
        finally:
            gradient_tapes.building.higher_order = outer

    kind._forward_and_backward_functions = build_and_tell


def around_calls(
    run: Callable[[frozenset[str], Callable[[], Any]], Any],
    recorded: Callable[[frozenset[str]], bool],
) -> None:
    """Lets `run` carry out the calls of functions from eager code, and the runs of sessions.

    Args:
      run: is given the tokens of the py_functions that a call can reach, where there are any, and
        the call, whose result it returns.
      recorded: whether py_functions with these tokens may be recorded in the call.
    """
    _put_around(_concrete_function.ConcreteFunction, "_call_flat", run, recorded)
    _put_around(_session.BaseSession, "run", run, recorded)


def _put_around(
    owner: Any, name: str, run: Callable[..., Any], recorded: Callable[[frozenset[str]], bool]
) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        # In this order: most functions need no more than the first question.
        tokens = script_op_graphs.tokens_of(self.graph)
        if not tokens or not recorded(tokens) or _is_building(self):
            return method(self, *args, **kwargs)
        return run(tokens, functools.partial(method, self, *args, **kwargs))

    setattr(owner, name, call)


def _is_building(owner: Any) -> bool:
    """Whether a call of a function goes into a graph, or to a thread that nobody waits for."""
    return isinstance(owner, _concrete_function.ConcreteFunction) and (
        not _context.executing_eagerly() or _context.is_async()
    )


def on_forward_call(hook: Callable[[Any], None]) -> None:
    """Calls `hook` with the results of each function whose gradient a tape may ask for."""
    record = _concrete_function._ForwardBackwardCall.record

    @functools.wraps(record)
    def record_and_tell(self: Any, flat_outputs: Any) -> Any:
        hook(flat_outputs)
        return record(self, flat_outputs)

    _concrete_function._ForwardBackwardCall.record = record_and_tell


def on_error(hook: Callable[[Any, Any], None]) -> None:
    """Calls `hook` with each error of TensorFlow's that is made, and its message."""
    make = _errors.OpError.__init__

    @functools.wraps(make)
    def make_and_tell(
        self: Any, node_def: Any, op: Any, message: Any, error_code: Any, *args: Any
    ) -> None:
        make(self, node_def, op, message, error_code, *args)
        hook(self, message)

    _errors.OpError.__init__ = make_and_tell


def raise_instead(find: Callable[[Any], BaseException | None]) -> None:
    """Lets `find` name, for the error of a function or of a session's run, the one to raise."""
    _execute.execute = _raising(_execute.execute, find)
    _session.BaseSession.run = _raising(_session.BaseSession.run, find)


def _raising(function: F, find: Callable[[Any], BaseException | None]) -> F:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except _errors.OpError as error:
            exception = find(error)
            if exception is None:
                raise
        except RuntimeError as error:
            # pybind11, of Ctrl-C that comes while it makes the exception of a failed call.
            if "REPLACED BY KeyboardInterrupt" not in str(error):
                raise
            exception = KeyboardInterrupt()
        raise exception

    return call  # type: ignore[return-value]


def on_saved(hook: Callable[[Any], None]) -> None:
    """Calls `hook` with the MetaGraphDef of every SavedModel that this process writes."""
    write = _save._build_meta_graph_impl

    @functools.wraps(write)
    def write_and_tell(*args: Any, **kwargs: Any) -> Any:
        written = write(*args, **kwargs)
        hook(written[0])
        return written

    _save._build_meta_graph_impl = write_and_tell


def on_copied(hook: Callable[[Iterator[Any]], None]) -> None:
    """Calls `hook` with the nodes that are copied into the default graph, or some more."""
    load, lift = _importer._import_graph_def_internal, _lift_to_graph.lift_to_graph

    @functools.wraps(load)
    def load_and_tell(graph_def: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = load(graph_def, *args, **kwargs)
        hook(script_op_graphs.nodes_of(graph_def))
        return loaded

    @functools.wraps(lift)
    def lift_and_tell(tensors: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        lifted = lift(tensors, graph, *args, **kwargs)
        kinds = {*op_kinds.SCRIPT_OPS, "XlaCallModule"}
        ops = [op for op in lifted.values() if getattr(op, "type", None) in kinds]
        with graph.as_default():
            hook(op.node_def for op in ops)
        return lifted

    _importer._import_graph_def_internal = load_and_tell
    _lift_to_graph.lift_to_graph = lift_and_tell


def remove_owned_functions() -> None:
    """Lets the functions that one owns be removed along with it."""
    remove = _context.Context.remove_function

    @functools.wraps(remove)
    def remove_with_owned(self: Any, name: Any) -> None:
        remove(self, name)
        owner = name.decode() if isinstance(name, bytes) else name
        if owner in concrete_functions.owned and not self.has_function(name):
            for owned in concrete_functions.owned.pop(owner):
                remove_with_owned(self, owned)  # a cluster may own some itself

    _context.Context.remove_function = remove_with_owned
