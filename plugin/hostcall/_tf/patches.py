"""The functions of TensorFlow that hostcall replaces, each with its reason.

TensorFlow initializes variables before the function runs, if it can lift their initial values out
of it. Else it runs the trace that creates and initializes them, and refuses to compile this trace.

Each takes the hook to run there, and returns the patch for the table in `hostcall._installation`.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from hostcall._tf import (
    concrete_functions,
    eager_execution,
    features,
    plain_calls,
    script_op_graphs,
    token_registry,
)
from hostcall._tf.features import Feature, Missing
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import Graph
from hostcall_runtime import _errors, _library
from hostcall_runtime._patching import Patch, Replacement

_REFUSAL = "We failed to lift variable creations out of this tf.function"


_REPEATED = "_hostcall_repeated_calls"


def function_calls(may_run: Callable[[], bool], new_table: Callable[[Any], Any]) -> Patch:
    """Return the patch of the calls of `tf.function`s."""
    # It runs, if `may_run`, functions that TensorFlow and XLA refuse. `new_table` returns the
    # table of a function's calls. Most functions have an empty one, with no look-ups left.

    def wrap(method: Callable[..., Any], patch: Replacement) -> Callable[..., object]:
        def call(self: Any, *args: Any, **kwargs: Any) -> object:
            if not patch.installed:
                return method(self, *args, **kwargs)
            table = self.__dict__.get(_REPEATED)
            if table is None:
                table = self.__dict__[_REPEATED] = new_table(self)
            elif table.runs and (found := table.find(args, kwargs)) is not None:
                run, tensors = found
                return run(tensors)
            try:
                result = method(self, *args, **kwargs)
            except tf.errors.UnimplementedError as error:
                if not (error.message.startswith(_REFUSAL) and patch.installed and may_run()):
                    raise
            else:
                if table.left > 0:
                    table.learn(self, args, kwargs)
                return result
            return _initialize_and_run(self, functools.partial(method, self), args, kwargs)

        # Traced ops keep the frames of a call, for messages. TensorFlow leaves out frames of its
        # own files, so this frame gets the name of one.
        file = inspect.getfile(features.PolymorphicFunction)
        call.__code__ = call.__code__.replace(co_filename=file)
        return functools.update_wrapper(call, method)

    why = (
        "TensorFlow compiles no function whose variables get initial values of its arguments, and "
        "takes longer to find the traced function of a call than many programs to run."
    )
    return attribute(features.PolymorphicFunction, "_call", wrap, features.FIRST_CALLS, why)


def _initialize_and_run(
    function: tf.types.experimental.GenericFunction, run: Callable[..., Any], args: Any, kwargs: Any
) -> object:
    """Call a `tf.function` with uninitialized variables; `run` calls it without creating any."""
    bound = function._function_type.bind_with_defaults(args, kwargs, function._default_values)

    def create() -> object:
        return function._concrete_variable_creation_fn(*bound.args, **bound.kwargs)

    if tf.executing_eagerly():
        return create()
    # The graph may run many times, and only its first run may set the initial values.
    variables = [reference() for reference in function._created_variables]
    initialized = [tf.raw_ops.VarIsInitializedOp(resource=v.handle) for v in variables]
    return tf.cond(tf.reduce_all(initialized), lambda: run(*args, **kwargs), create)


def attribute(
    owner: object, name: str, wrap: Callable[[Any, Replacement], Any], feature: Feature, why: str
) -> Patch:
    """Return the patch of one attribute of a module, a class or an object."""

    def read() -> object:
        return inspect.getattr_static(owner, name)

    def write(value: object) -> None:
        # If the value is the class's own, the object needs no attribute of its own any more.
        of_class = inspect.getattr_static(type(owner), name, None)
        if of_class is not None and value is of_class:
            delattr(owner, name)
        else:
            setattr(owner, name, value)

    target = f"{_name_of(owner)}.{name}"
    return Replacement(read, write, wrap).patch(target, why, feature.title)


def _name_of(owner: object) -> str:
    if isinstance(owner, Missing):
        return str(owner.name)
    if inspect.ismodule(owner):
        return owner.__name__
    kind = owner if isinstance(owner, type) else type(owner)
    return f"{kind.__module__}.{kind.__qualname__}"


_NAMES_FUNCTIONS = "A SavedModel names its Python functions so that other processes find them."


def around(owner: object, name: str, feature: Feature, why: str, ours: Callable[..., Any]) -> Patch:
    """Return the patch of a function or method; `ours` gets it and the arguments of each call."""

    def wrap(stock: Callable[..., Any], patch: Replacement) -> Callable[..., object]:
        @functools.wraps(stock)
        def call(*args: Any, **kwargs: Any) -> object:
            if not patch.installed:
                return stock(*args, **kwargs)
            return ours(stock, *args, **kwargs)

        return call

    return attribute(owner, name, wrap, feature, why)


def telling(
    owner: object,
    name: str,
    feature: Feature,
    why: str,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> Patch:
    """Return the patch that calls hooks around a function or method of a module or class."""
    # `before` takes the arguments of each call, and `after` takes its result and then these.

    def tell(stock: Callable[..., Any], /, *args: Any, **kwargs: Any) -> object:
        if before is not None:
            before(*args, **kwargs)
        result = stock(*args, **kwargs)
        if after is not None:
            after(result, *args, **kwargs)
        return result

    return around(owner, name, feature, why, tell)


def making_functions(
    hook: Callable[[Any], None], of_attributes: Callable[[Any, Any], None]
) -> Patch:
    """Return the patch that calls hooks with the graph of each function before it is made."""
    # The second one also gets the attributes of the function.
    owner, name = features.atomic_function, "from_func_graph"
    why = (
        "A function may run in another process of the job, which has to find what it calls; and "
        "what it captures is known here alone."
    )

    def before(_: Any, graph: Any, attrs: Any = None, *__: Any, **___: Any) -> None:
        hook(graph)
        of_attributes(graph, attrs)

    return telling(owner, name, features.OTHER_PROCESSES, why, before=before)


def extending_sessions(hook: Callable[[Any], None]) -> Patch:
    """Return the patch that calls `hook` with a session's graph before its new ops are sent."""
    owner, name = features.ExtendedSession, "_extend_graph"
    why = "Ops of a session may run on other tasks, which have to find what they call."
    return telling(
        owner, name, features.OTHER_PROCESSES, why, before=lambda session: hook(session.graph)
    )


# The directory of the SavedModel that this thread writes.
_directory: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "hostcall_saved_model", default=None
)


def directories() -> Patch:
    """Return the patch that records a SavedModel's directory for the patch `saving`."""

    def save(
        stock: Callable[..., Any], obj: Any, export_dir: Any, *args: Any, **how: Any
    ) -> object:
        before = _directory.set(os.fspath(export_dir))
        try:
            return stock(obj, export_dir, *args, **how)
        finally:
            _directory.reset(before)

    name, why = "save_and_return_nodes", "Functions that a SavedModel carries lie in its directory."
    return around(features.save, name, features.SAVED_MODELS, why, save)


def is_saving() -> bool:
    """Return whether this thread writes a SavedModel, which traces all gradients of its ops."""
    return _directory.get() is not None


def saving(hook: Callable[[Any, str | None], None]) -> Patch:
    """Return the patch that calls `hook` with each SavedModel's MetaGraphDef before its writing."""
    # The second argument is the SavedModel's directory, None for a MetaGraphDef alone.
    return telling(
        features.save,
        "_build_meta_graph_impl",
        features.SAVED_MODELS,
        _NAMES_FUNCTIONS,
        after=lambda built, *_, **__: hook(built[0], _directory.get()),
    )


def saving_of_version_1(hook: Callable[[Any, str | None], None]) -> Patch:
    """Return a patch like `saving` for the SavedModels of `tf.compat.v1.saved_model`."""
    return telling(
        features.SavedModelBuilder,
        "_tag_and_add_meta_graph",
        features.SAVED_MODELS,
        _NAMES_FUNCTIONS,
        before=lambda builder, graph, *_, **__: hook(graph, os.fspath(builder._export_dir)),
    )


def writing_graphs(named: Callable[[Any], Any]) -> list[Patch]:
    """Return the patches that apply `named` to graphs that are written to files, also `Saver`'s."""

    def write(stock: Callable[..., Any], graph_or_graph_def: Any, *args: Any, **how: Any) -> object:
        graph = graph_or_graph_def
        graph = graph.as_graph_def() if isinstance(graph, tf.Graph) else graph
        return stock(named(graph), *args, **how)

    why = "The Python functions of a graph in a file are to be found by other processes."
    v1 = tf.compat.v1
    owners = (features.graph_io, tf.io, v1.io, v1.train)
    return [around(o, "write_graph", features.SAVED_MODELS, why, write) for o in owners]


def loading(hook: Callable[[Any, str], None]) -> Patch:
    """Return the patch that calls `hook` with the message and path of each loaded SavedModel."""
    return telling(
        features.loader,
        "parse_saved_model",
        features.SAVED_MODELS,
        "Whoever loads a SavedModel is told at once which Python functions cannot be called.",
        after=lambda model, export_dir, *_, **__: hook(model, os.fspath(export_dir)),
    )


def resolving(resolve: Callable[[str], Any]) -> Patch:
    """Return the patch that makes `resolve` find the spec of an unknown token on first use."""

    def wrap(get: Callable[..., Any], patch: Replacement) -> Callable[..., object]:
        functions = token_registry.functions

        @functools.wraps(get)
        def get_or_resolve(token: str, default: Any = None) -> object:
            found = get(functions, token)
            if found is None and patch.installed:
                found = resolve(token)
            return default if found is None else found

        return get_or_resolve

    why = "TensorFlow's kernels look a function up here, and it may have to be found by its name."
    return attribute(token_registry.functions, "get", wrap, features.SCRIPT_OPS, why)


def tokens() -> Patch:
    """Return the patch that makes all tokens differ between processes: `pyfunc_N_NONCE`."""

    def wrap(count: Callable[..., str], patch: Replacement) -> Callable[..., object]:
        functions = token_registry.functions

        def next_token() -> str:
            token = count(functions)
            return f"{token}_{token_registry.nonce()}" if patch.installed else token

        return next_token

    why = (
        "TensorFlow counts tokens from 0 in each process, so that an op of another one (from a "
        "SavedModel, for example) would call the function that happens to have its number here."
    )
    return attribute(token_registry.functions, "_next_unique_token", wrap, features.SCRIPT_OPS, why)


def frames_left_out(*directories: str) -> Patch:
    """Return the patch that hides packages' frames; their directories end with a separator."""
    why = "Each error of a function would show frames that stand around TensorFlow's own functions."
    return attribute(
        features.traceback_utils,
        "_EXCLUDED_PATHS",
        lambda stock, _: (*stock, *directories),
        features.TRACEBACKS,
        why,
    )


def trace_hook(hook: Callable[[Any], None]) -> Patch:
    """Return the patch that calls `hook` with each FuncGraph when its tracing has ended."""
    return attribute(
        features.transform,
        "FUNC_GRAPH_TRANSFORMS",
        lambda stock, _: [*stock, hook],
        features.TRACING,
        "What set_shape says is nowhere in the graph: it is written onto the ops when their "
        "function has been traced.",
    )


def higher_orders() -> Patch:
    """Return the patch that sets the flag of `eager_execution.more_orders_may_follow`."""

    def build(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> object:
        outer = eager_execution.more_orders_may_follow()
        eager_execution.building.higher_order = True
        try:
            return stock(*args, **kwargs)
        finally:
            eager_execution.building.higher_order = outer

    return around(
        features.HigherOrderFunctions,
        "_forward_and_backward_functions",
        features.NESTED_GRADIENTS,
        "Nothing else tells whether the gradient of a gradient may be asked for.",
        build,
    )


Run = Callable[[frozenset[str], Callable[[], Any]], Any]


def calls(owner: object, name: str, run: Run, recorded: Callable[[frozenset[str]], bool]) -> Patch:
    """Return the patch by which `run` carries out eager calls of functions, or session runs."""
    # `run` takes the tokens of the py_functions that a call can reach, and the call, whose result
    # it returns. Calls skip it that reach no py_function, or none that is `recorded`.

    def wrap(method: Callable[..., Any], patch: Replacement) -> Callable[..., object]:
        tokens_of = script_op_graphs.tokens_of

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> object:
            # The cheapest check comes first, and suffices for most functions.
            tokens = tokens_of(self.graph) if patch.installed else None
            if not tokens or not recorded(tokens) or _is_building(self):
                return method(self, *args, **kwargs)
            return run(tokens, functools.partial(method, self, *args, **kwargs))

        return call

    why = "When a call ends, residuals whose gradient nothing can ask for any more are dropped."
    return attribute(owner, name, wrap, features.RESIDUALS, why)


def _is_building(owner: object) -> bool:
    """Return whether a function call goes into a graph, or runs asynchronously on a thread."""
    return isinstance(owner, features.ConcreteFunction) and (
        not features.executing_eagerly() or features.is_async()
    )


def forward_calls(hook: Callable[[Any], None]) -> Patch:
    """Return the patch that calls `hook` with the results of each function that tapes record."""
    owner, name = features.ForwardBackwardCall, "record"
    why = "What a program has kept for gradients lives as long as the tensors that refer to it."
    return telling(
        owner, name, features.RESIDUALS, why, before=lambda _, flat_outputs: hook(flat_outputs)
    )


def new_errors(completed: Callable[[str], str]) -> Patch:
    """Return the patch that attaches to each new error of TensorFlow's the exceptions behind it."""
    # `completed` returns the error's text with the lines to write, if TensorFlow's kernel made it.

    def make(
        stock: Callable[..., None],
        error: Any,
        node_def: Any,
        op: Any,
        message: Any,
        *rest: Any,
        **named: Any,
    ) -> None:
        if isinstance(message, str):
            message = completed(message)
        stock(error, node_def, op, message, *rest, **named)
        _errors.hand_over(error, message)

    return around(
        tf.errors.OpError,
        "__init__",
        features.EXCEPTIONS,
        "TensorFlow's error keeps the exceptions that it describes, for hostcall.last_error, "
        "and says what to write where results are not as declared.",
        make,
    )


def noted_errors(note: Callable[[Any], None]) -> Patch:
    """Return the patch that calls `note` with each new error of TensorFlow's."""
    return telling(
        tf.errors.OpError,
        "__init__",
        features.EXCEPTIONS,
        "An error that TensorFlow raises because hostcall is switched off says so.",
        after=lambda _, error, *__, **___: note(error),
    )


def raised(owner: object, name: str) -> Patch:
    """Return the patch that raises the Ctrl-C behind an error when a function or run fails."""

    def wrap(function: Callable[..., Any], patch: Replacement) -> Callable[..., object]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> object:
            try:
                return function(*args, **kwargs)
            except tf.errors.OpError as error:
                exception = _errors.interrupt_behind(error.message) if patch.installed else None
                if exception is None:
                    raise
            except RuntimeError as error:
                # pybind11's error if Ctrl-C comes while it makes the exception of a failed call.
                if not patch.installed or "REPLACED BY KeyboardInterrupt" not in str(error):
                    raise
                exception = KeyboardInterrupt()
            raise exception

        plain_calls.raising[call] = function
        return call

    why = "Ctrl-C in a callback has to end the program: TensorFlow makes an error of its own of it."
    return attribute(owner, name, wrap, features.INTERRUPTS, why)


def context_handle() -> Patch:
    """Return the patch that makes native code look up the handle of TensorFlow's context."""
    why = (
        "TensorFlow's kernel of tf.py_function looks it up before it calls Python. Where it is "
        "Python code, Ctrl-C may come in there, and ends the process."
    )

    def wrap(_: property, __: Replacement) -> property:
        reader = _library.load("hostcall._tensorflow").context_handle
        return property(functools.partial(reader, features.context_module))

    return attribute(type(features.py_funcs), "_ctx", wrap, features.INTERRUPTS, why)


def importing(hook: Callable[[Iterator[Any]], None]) -> Patch:
    """Return the patch that calls `hook` with the nodes imported into the default graph."""
    return telling(
        features.importer,
        "_import_graph_def_internal",
        features.COPIED_GRAPHS,
        "A graph that is imported owns the functions that it calls, too.",
        after=lambda _, graph_def, *__, **___: hook(script_op_graphs.nodes_of(graph_def)),
    )


def lifting(hook: Callable[[Iterator[Any]], None]) -> Patch:
    """Return the patch that calls `hook` with nodes copied into a graph, made the default one."""

    def tell(lifted: Any, tensors: Any, graph: Graph, *_: Any, **__: Any) -> None:  # noqa: ARG001
        kinds = {*op_kinds.SCRIPT_OPS, op_kinds.XLA_CALL_MODULE}
        ops = [op for op in lifted.values() if getattr(op, "type", None) in kinds]
        with graph.as_default():
            hook(op.node_def for op in ops)

    why = "A pruned or frozen copy of a graph owns the functions that it calls, too."
    return telling(features.lift_to_graph, "lift_to_graph", features.COPIED_GRAPHS, why, after=tell)


# The attribute that names an op's own gradient, as a `gradient_override_map` sets it.
_OVERRIDDEN = "_gradient_op_type"

# The gradient function that hostcall registers, once it is known, and TensorFlow's own.
_gradients: list[Callable[..., Any]] = []
_stock: list[Callable[..., Any]] = []


def stock_gradient() -> Callable[..., Any]:
    """Return TensorFlow's own gradient function."""
    return _stock[-1]


def py_function_gradient(gradient: Callable[..., Any]) -> Patch:
    """Return the patch that replaces TensorFlow's gradient function by another one."""
    _gradients[:] = [gradient]
    why = (
        "TensorFlow's gradient mixes up calls that share an op, and cannot be compiled. A gradient "
        "can be registered only once."
    )
    return _gradient_of(op_kinds.EAGER_PY_FUNC, gradient, why, _stock)


def missing_gradients(gradient: Callable[..., Any]) -> list[Patch]:
    """Return the patches that have a function called for the gradients of ops that have none."""
    why = "A gradient of a function of arrays is None, and the log says so."
    return [_gradient_of(kind, gradient, why) for kind in ("PyFunc", "PyFuncStateless")]


def _gradient_of(
    kind: str, gradient: Callable[..., Any], why: str, stock: list[Any] | None = None
) -> Patch:
    """Return the patch of the gradient of a kind of op; `stock` gets TensorFlow's own."""

    def wrap(entry: dict[str, Any], _: Replacement) -> dict[str, Any]:
        if stock is not None:
            stock[:] = [entry[features.TYPE_TAG]]
        return {**entry, features.TYPE_TAG: gradient}

    def read() -> object:
        return features.py_function_gradients[kind]

    def write(entry: object) -> None:
        features.py_function_gradients[kind] = entry

    target = f'tensorflow.python.framework.ops.gradient_registry["{kind}"]'
    return Replacement(read, write, wrap).patch(target, why, features.GRADIENTS.title)


def give_gradient_to(op: Any) -> None:
    """Make an op of a graph keep our gradient when the registry has TensorFlow's own again."""
    # An op inside a `tf.Graph.gradient_override_map` keeps the gradient that the user chose there.
    if op._gradient_function is None and _OVERRIDDEN not in op.node_def.attr:
        op._gradient_function = _gradients[-1]


def gradient_given_to(op: object) -> Callable[..., Any] | None:
    """Return the gradient that the user has given an op of a graph after its creation, or None."""
    # For an op inside a `gradient_override_map`, TensorFlow calls the user's gradient itself. But a
    # tape knows only the kind of an op, and calls the gradient of that kind.
    if not isinstance(op, tf.Operation) or _OVERRIDDEN not in op.node_def.attr:
        return None
    name = op.get_attr(_OVERRIDDEN).decode()
    found: Callable[..., Any] = features.gradient_registry.lookup(name)
    return found


def removed_functions() -> Patch:
    """Return the patch that removes the functions that a function owns along with it."""

    def remove(stock: Callable[..., None], context: Any, name: Any) -> None:
        stock(context, name)
        owner = name.decode() if isinstance(name, bytes) else name
        if context.has_function(name):
            return
        concrete_functions.forget(owner)
        for function in concrete_functions.owned.pop(owner, ()):
            remove(stock, context, function)  # a cluster may own functions, too

    why = "The functions that hostcall derives from one are removed along with it."
    return around(features.Context, "remove_function", features.REMOVED_FUNCTIONS, why, remove)
