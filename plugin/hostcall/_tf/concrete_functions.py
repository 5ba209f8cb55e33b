"""ConcreteFunctions: how they are rebuilt, called directly, compiled to StableHLO and cached."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf

from hostcall._tf import eager_execution, features, script_op_graphs
from hostcall._tf.graph import function_edits, protos
from hostcall._tf.types import ConcreteFunction as Concrete
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, GraphDef

_VARIABLE = "TF_XLA_FLAGS"
_FLAG = "tf_xla_persistent_cache_directory="


def is_on() -> bool:
    """Return whether TensorFlow's disk cache may keep programs for other processes."""
    flags = os.environ.get(_VARIABLE, "")
    if flags and not flags.startswith("-"):  # then it names a file that holds the flags
        path = Path(flags)
        flags = path.read_text(encoding="utf-8") if path.is_file() else ""
    return _FLAG in flags


ConcreteFunction = features.ConcreteFunction
# Returns the SavedModel message of a directory, or raises an OSError.
read_saved_model = features.parse_saved_model
_HANDLES = frozenset({tf.resource, tf.variant})


def library_of(concrete: Concrete, graph_def: GraphDef) -> FunctionDefLibrary:
    """Return a FunctionDefLibrary of all functions that a function reaches, itself last."""
    library = protos.copy_of(graph_def.library)
    library.function.add().CopyFrom(concrete.function_def)
    function_edits.drop_replaced(library)
    return library


def like(concrete: Concrete, library: FunctionDefLibrary) -> Concrete:
    """Return a ConcreteFunction with the signature and the captures of another, and a new body."""
    # The new one keeps the other alive, since objects that are registered for its graph (Python
    # functions, custom gradients) die with it. `library` has the new body, under the old name, and
    # all functions that it calls; it is used up.
    features.REWRITING.require()
    name = concrete.function_def.signature.name
    function = next(f for f in library.function if f.signature.name == name)
    attributes = {key: value for key, value in function.attr.items() if key != "_input_shapes"}
    loaded = features.load_function_library(library, load_shared_name_suffix="")
    graph = loaded[name].graph
    graph.structured_input_signature = concrete.structured_input_signature
    outputs = iter(graph.outputs)
    graph.structured_outputs = tf.nest.map_structure(
        lambda value: None if value is None else next(outputs),
        concrete.graph.structured_outputs,
        expand_composites=True,
    )
    script_op_graphs.keep_alive(graph, concrete)
    new: Concrete = ConcreteFunction.from_func_graph(graph, concrete.function_type, attributes)
    new._arg_keywords = concrete._arg_keywords
    new._num_positional_args = concrete._num_positional_args
    features.restore_captures(new, concrete.captured_inputs)
    new.set_variables(concrete.variables)
    return new


def calls_are_plain() -> bool:
    """Return whether a function call on this thread only runs the function's program."""
    # A call does more while tapes or accumulators record, in asynchronous mode, and while a graph
    # is built, also in the eager mode of an `init_scope`: the graph has to learn of variables.
    context = features.context()
    return (
        eager_execution.has_no_tapes()
        and context.executing_eagerly()
        and not features.has_default_graph()
        and not _runs_later(context)
    )


def _runs_later(context: Any) -> bool:
    """Return whether this thread's calls are asynchronous: `is_async` at half of its cost."""
    executor = features.executor_for_thread(context._handle)
    try:
        return bool(features.executor_is_async(executor))
    finally:
        features.delete_executor(executor)


def has_scope() -> bool:
    """Return whether a strategy's scope, or a save, may have functions traced again."""
    return bool(
        features.get_default_graph()._distribution_strategy_stack or features.in_save_context()
    )


def depends_on_its_captures(function: Any) -> bool:
    """Return whether a `tf.function` is traced again for other types of what it captures."""
    return bool(function._function_captures.capture_types)


def traced(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Concrete, list[Any]]:
    """Return the traced function that a call of a `tf.function` runs, and the tensors it gets."""
    concrete = function._get_concrete_function_garbage_collected(*args, **kwargs)
    bound = function._function_type.bind_with_defaults(args, kwargs, function._default_values)
    own = concrete.function_type
    return concrete, own.unpack_inputs(own.bind(*bound.args, **bound.kwargs))


def unrecorded_call(concrete: Concrete) -> Callable[[list[Any]], Any] | None:
    """Return a short form of a ConcreteFunction's `_call_flat` for when `calls_are_plain`."""
    # It takes the input EagerTensors, captured ones last. There is none if TensorFlow does more:
    # for composite or resource arguments and results, and for subclasses.
    if not features.BOUND_CALLS.available:
        return None
    inference = concrete.inference_fn
    signature = inference.function_type
    flat = [*signature.flat_inputs, *signature.flat_outputs]
    kind: Any = type(concrete)
    if kind._call_flat is not ConcreteFunction._call_flat or any(
        type(spec) is not tf.TensorSpec or spec.dtype.base_dtype in _HANDLES for spec in flat
    ):
        return None
    context, name, count = inference._bound_context, inference.name, len(signature.flat_outputs)
    op_name = name.decode()

    def call(tensors: list[Any]) -> object:
        options = context.function_call_options
        config, executor = options.config_proto_serialized, options.executor_type
        try:
            if features.cancellation_context() is not None or config is None:
                outputs = context.call_function(name, tensors, count)
            else:  # the body of `call_function` for this case
                attrs = ("executor_type", executor or "", "config_proto", config)
                outputs = features.execution.execute(op_name, count, tensors, attrs, context)
        except tf.errors.OpError:
            with features.InterpolateRuntimeError(inference):  # adds the user's lines
                raise
        return signature.pack_output(outputs)

    return call


def captured_by(concrete: Concrete) -> list[Any]:
    """Return the EagerTensors that a ConcreteFunction captures; evaluate deferred ones now."""
    captured: list[Any] = concrete._captured_inputs
    for value in captured:
        if type(value) is not eager_execution.EagerTensor:
            return concrete.captured_inputs
    return captured


def exact_check(specs: list[Any]) -> Callable[[Any], bool]:
    """Return a function that tells whether values are EagerTensors of exactly the known specs."""
    wanted = [
        (spec.dtype.as_datatype_enum, tuple(spec.shape) if spec.shape.is_fully_defined() else None)
        for spec in specs
    ]

    def fit(values: Sequence[Any]) -> bool:
        for value, (dtype, shape) in zip(values, wanted, strict=True):
            if (
                type(value) is not eager_execution.EagerTensor
                or value._datatype_enum() != dtype
                or value._shape_tuple() != shape
            ):
                return False
        return True

    return fit


def compiler_ir(
    concrete: Concrete, functions: list[FunctionDef], name: str, stage: Literal["hlo", "stablehlo"]
) -> str:
    """Return the HLO or StableHLO that TensorFlow makes of the function `name`, as text."""
    # It takes the arguments and captures of `concrete`. `functions` are in the context for this
    # call only. A ValueError or tf.errors.OpError says that XLA cannot compile it.
    features.EXPORTING.require()
    context = features.context()
    context.ensure_initialized()
    new = [function for function in functions if not context.has_function(function.signature.name)]
    for function in new:
        context.add_function_def(function)
    try:
        arguments = tf.nest.flatten(concrete.structured_input_signature, expand_composites=True)
        text: bytes = context.get_compiler_ir(
            device_name="/job:localhost/replica:0/task:0/device:CPU:0",
            platform_name=None,
            function_name=name,
            flat_args=[a for a in arguments if isinstance(a, tf.TensorSpec)],
            captured_inputs=concrete.captured_inputs,
            stage=stage,
        )
    finally:
        for function in new:
            context.remove_function(function.signature.name)
    return text.decode()


def function_of_context(name: str) -> FunctionDef | None:
    """Return the eager context's FunctionDef of that name, or None."""
    try:  # not a question before: another thread may remove the function in between
        found: FunctionDef = features.context().get_function_def(name)
    except tf.errors.NotFoundError:
        return None
    return found


owned: dict[str, list[str]] = {}
# Texts about functions of the eager context, by their names, as long as it has them.
_notes: dict[str, dict[str, str]] = {}


def note(function: str, key: str, text: str) -> None:
    """Keep a text about a function of the eager context as long as that has the function."""
    if features.context().has_function(function):
        _notes.setdefault(function, {})[key] = text


def noted(function: str, key: str) -> str:
    """Return the text that is kept about a function, or ""."""
    return _notes.get(function, {}).get(key, "")


def forget(function: str) -> None:
    """Drop the texts about a function that the eager context has no more."""
    _notes.pop(function, None)


def derived_from(owner: str) -> Iterator[str]:
    """Yield the functions that hostcall has made of one, and of these."""
    for name in owned.get(owner, ()):
        yield name
        yield from derived_from(name)


def own_functions(owner: str, functions: list[FunctionDef]) -> bool:
    """Add functions to the eager context while it has `owner`; return whether all were new."""
    context = features.context()
    if not context.has_function(owner):
        return False
    names_of_owner = owned.setdefault(owner, [])
    new = [function for function in functions if function.signature.name not in names_of_owner]
    for function in new:
        names_of_owner.append(function.signature.name)
        context.add_function_def(function)
    return len(new) == len(functions)
