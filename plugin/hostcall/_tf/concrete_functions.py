"""ConcreteFunctions: created anew, called directly, compiled to StableHLO, cached on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from hostcall._tf import eager_execution, features, script_op_graphs
from hostcall._tf.types import ConcreteFunction as Concrete
from hostcall._tf.types import FunctionDef, FunctionDefLibrary

_VARIABLE = "TF_XLA_FLAGS"
_FLAG = "tf_xla_persistent_cache_directory="


def is_on() -> bool:
    """Whether programs may be kept for other processes."""
    flags = os.environ.get(_VARIABLE, "")
    if flags and not flags.startswith("-"):  # then it names a file that has them
        path = Path(flags)
        flags = path.read_text(encoding="utf-8") if path.is_file() else ""
    return _FLAG in flags


ConcreteFunction = features.ConcreteFunction
_HANDLES = frozenset({tf.resource, tf.variant})


def like(concrete: Concrete, library: FunctionDefLibrary) -> Any:
    """A ConcreteFunction with the signature and the captures of another one, and a new body.

    Args:
      concrete: the other one, which the new one keeps alive: what has been registered for its graph
        (Python functions, custom gradients) dies with it.
      library: a FunctionDefLibrary with the new body, under the old name, and all that it calls;
        used up.
    """
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
    new = ConcreteFunction.from_func_graph(graph, concrete.function_type, attributes)
    new._arg_keywords = concrete._arg_keywords
    new._num_positional_args = concrete._num_positional_args
    features.restore_captures(new, concrete.captured_inputs)
    new.set_variables(concrete.variables)
    return new


def read_saved_model(path: str) -> Any:
    """The SavedModel message of a directory.

    Raises:
      OSError: when it holds none, or one that cannot be read.
    """
    return features.parse_saved_model(path)


def calls_are_plain() -> bool:
    """Whether a call of a function on this thread is no more than a run of its program.

    It is more where tapes or accumulators record, where a graph is being built (also in the eager
    mode of an `init_scope`, as the graph wants to know of variables), and in asynchronous mode.
    """
    context = features.context()
    return (
        eager_execution.has_no_tapes()
        and context.executing_eagerly()
        and not features.has_default_graph()
        and not _runs_later(context)
    )


def _runs_later(context: Any) -> bool:
    """Whether calls of this thread are asynchronous: `is_async`, at half of its cost."""
    executor = features.executor_for_thread(context._handle)
    try:
        return bool(features.executor_is_async(executor))
    finally:
        features.delete_executor(executor)


def unrecorded_call(concrete: Concrete) -> Callable[[list[Any]], Any] | None:
    """What `_call_flat` of a ConcreteFunction comes to where `calls_are_plain`.

    Returns:
      A function of the EagerTensors that go in, captured ones last, which returns what the function
      returns. None where TensorFlow does more: for arguments and results that are composite or
      stand for resources, for subclasses, and where names of TensorFlow are missing.
    """
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

    def call(tensors: list[Any]) -> Any:
        options = context.function_call_options
        config, executor = options.config_proto_serialized, options.executor_type
        try:
            if features.cancellation_context() is not None or config is None:
                outputs = context.call_function(name, tensors, count)
            else:  # what that comes to
                attrs = ("executor_type", executor or "", "config_proto", config)
                outputs = features.execution.execute(op_name, count, tensors, attrs, context)
        except tf.errors.OpError:
            with features.InterpolateRuntimeError(inference):  # adds lines of the user's
                raise
        return signature.pack_output(outputs)

    return call


def captured_by(concrete: Concrete) -> list[Any]:
    """The EagerTensors that a ConcreteFunction has captured, deferred ones as they are now."""
    captured: list[Any] = concrete._captured_inputs
    for value in captured:
        if type(value) is not eager_execution.EagerTensor:
            return concrete.captured_inputs
    return captured


def exact_check(specs: list[Any]) -> Callable[[Any], bool]:
    """A function that tells whether values are EagerTensors, each just as its TensorSpec says.

    It is for the common case, and says no of tensors whose spec leaves a size open.
    """
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


def parameter_names(concrete: Concrete) -> list[str]:
    """The names of the parameters of a ConcreteFunction, in order."""
    return list(concrete.function_type.parameters)


def stablehlo_of(concrete: Concrete, functions: list[FunctionDef], name: str) -> str:
    """The StableHLO that TensorFlow makes of a concrete function, as text.

    Args:
      concrete: whose arguments and captures it is compiled for.
      functions: FunctionDefs that the context lacks but for this call.
      name: the function that is compiled, which takes what `concrete` takes.

    Raises:
      ValueError, tf.errors.OpError: when XLA cannot compile it.
    """
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
            stage="stablehlo",
        )
    finally:
        for function in new:
            context.remove_function(function.signature.name)
    return text.decode()


def function_of_context(name: str) -> Any:
    """The FunctionDef that the eager context has of that name, or None."""
    context = features.context()
    return context.get_function_def(name) if context.has_function(name) else None


owned: dict[str, list[str]] = {}


def own_functions(owner: str, functions: list[FunctionDef]) -> bool:
    """Adds functions to the eager context's library, for as long as that has the function `owner`.

    Args:
      owner: a function's name; one that the context does not have owns nothing.
      functions: FunctionDefs.

    Returns:
      Whether all of them were new.
    """
    context = features.context()
    if not context.has_function(owner):
        return False
    names_of_owner = owned.setdefault(owner, [])
    new = [function for function in functions if function.signature.name not in names_of_owner]
    for function in new:
        names_of_owner.append(function.signature.name)
        context.add_function_def(function)
    return len(new) == len(functions)
