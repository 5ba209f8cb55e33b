"""`hostcall.explain`: what becomes of a function, without running it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall import _control
from hostcall._compiler import device_calls, nesting_depth
from hostcall._compiler.partition import placement
from hostcall._explain import keras_steps
from hostcall._explain.bodies import SHAPES
from hostcall._explain.callback_facts import Locate
from hostcall._explain.explanation import Explanation
from hostcall._explain.walk import Walk
from hostcall._tf import concrete_functions, eager_execution, op_locations, script_op_graphs
from hostcall._tf import function_defs as defs
from hostcall._tf.types import ConcreteFunction, FunctionDefLibrary

_DISABLED = (
    "hostcall is disabled: compiled functions with script ops fail until hostcall.enable() is "
    "called. This is how they run when it is enabled."
)
_ABSENT = (
    "This process does not have the Python functions behind {ops}. A SavedModel holds none, and a "
    "function dies with the graph that it was traced in. Calling them fails here; what is said of "
    "shapes and routes is what the graph alone tells."
)

_REFUSED = (
    "These Python functions, which the file names, cannot be called here as yet: {listed}. What is "
    "said of shapes and routes is what the graph alone tells. `hostcall inspect` says what to "
    "write."
)

_NO_GPUS = (
    "TensorFlow is built without GPUs here. This is how the function would run on one if XLA "
    "compiled the same ops for it as for a CPU."
)


def explain(function: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Finds out how a function and all that it calls will run; the function itself does not.

    It would run on the device of the innermost `tf.device`, and on the CPU without one.

    `print` shows the answer as a table, a notebook as a picture, and `to_html()` returns the
    picture as a page.

    Args:
      function: a `tf.function`, compiled or not, a `ConcreteFunction`, or a Keras model.
      *args: for a `tf.function` what it would be called with, or `tf.TensorSpec`s in the place of
        tensors. It is traced for them, if it has not been yet. For a Keras model a batch: `x, y`
        (and sample weights) explain the step of `fit`, `x` alone that of `predict`.
      **kwargs: likewise.

    Returns:
      An `Explanation`: for each script op its place in your code, route, reason, shapes, order and
      the bytes that a call copies; the clusters with their ops; for a function that is partitioned
      for another device than the CPU, what crosses between that and the host; and the ops that XLA
      may get wrong where hostcall changes nothing.

    Raises:
      TypeError: when `function` is none of these, arguments come with a `ConcreteFunction`, or none
        with a Keras model, or y with a model that is not compiled.

    Examples:
      >>> program = tf.function(
      ...     lambda x: tf.numpy_function(np.unique, [x], tf.float32), jit_compile=True
      ... )
      >>> explanation = hostcall.explain(program, tf.TensorSpec([3], tf.float32))
      >>> [(op.route, op.reason) for op in explanation.script_ops]
      [('partition', 'the shape of result 0 is not known: <unknown>')]
    """
    title = ""
    if keras_steps.is_model(function):
        function, title = keras_steps.step_of(function, args, **kwargs)
        args, kwargs = (), {}
    concrete = _concrete(function, args, kwargs)
    name = concrete.function_def.signature.name
    title = title or _title(function, name)
    device = eager_execution.device_in_scope()
    device = device if placement.is_accelerator(device) else ""
    return explain_library(library_of(concrete), name, _locator(concrete), title, device)


@nesting_depth.limited
def explain_library(
    library: FunctionDefLibrary,
    entry: str,
    locate: Locate | None = None,
    title: str = "",
    device: str = "",
) -> Explanation:
    """The same for a function in a FunctionDefLibrary.

    Args:
      library: holds the function and all that it reaches.
      entry: the name of the function.
      locate: finds `file:line` of a node, by the names of its function and its own.
      title: what the user calls the function.
      device: what it runs on, by its full name, where that is no CPU.
    """
    walk = Walk(library, locate or _nowhere, device)
    walk.function(entry)
    notes = []
    if walk.script_ops and not _control.is_enabled():
        notes.append(_DISABLED)
    absent = [op.node for op in walk.script_ops if not op.callback]
    if absent:
        notes.append(_ABSENT.format(ops=", ".join(map(repr, absent))))
    refused = {op.callback: op.problem for op in walk.script_ops if op.problem}
    if refused:
        listed = "; ".join(f"{name}: {problem}" for name, problem in refused.items())
        notes.append(_REFUSED.format(listed=listed))
    if placement.type_of(device) == "GPU" and not device_calls.knows_gpus():
        notes.append(_NO_GPUS)
    return Explanation(
        title or entry,
        tuple(walk.functions),
        tuple(walk.script_ops),
        tuple(notes),
        tuple(walk.risks),
    )


def _nowhere(function: str, node: str) -> str:  # noqa: ARG001 - a Locate
    return ""


def _concrete(function: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(function, concrete_functions.ConcreteFunction):
        if args or kwargs:
            raise TypeError(
                "hostcall.explain: a ConcreteFunction is explained as it is. Leave out the "
                "arguments."
            )
        return function
    if not hasattr(function, "get_concrete_function"):
        raise TypeError(
            f"hostcall.explain explains a tf.function, a ConcreteFunction or a Keras model, and "
            f"not {function!r}. Write hostcall.explain(tf.function(f, jit_compile=True), ...)."
        )
    return function.get_concrete_function(*args, **kwargs)


def _title(function: object, name: str) -> str:
    python_function = getattr(function, "python_function", None)
    return str(getattr(python_function, "__name__", "") or name)


def library_of(concrete: ConcreteFunction) -> Any:
    """A FunctionDefLibrary of a function and all that it reaches, shapes included."""
    graph_def = concrete.graph.as_graph_def(add_shapes=True)
    library = defs.library_of(concrete, graph_def)
    function = library.function[-1]
    shapes = {node.name: node.attr[SHAPES] for node in graph_def.node if SHAPES in node.attr}
    for node in function.node_def:
        if node.name in shapes:
            node.attr[SHAPES].CopyFrom(shapes[node.name])
    for index, tensor in enumerate(concrete.inputs):
        known = function.arg_attr[index].attr[SHAPES].list
        known.ClearField("shape")
        known.shape.append(tf.TensorShape(tensor.shape).as_proto())
    return library


def _locator(concrete: ConcreteFunction) -> Locate:
    """Finds the lines of nodes in the graphs that Python still has."""
    graphs = script_op_graphs.graphs_of(concrete.graph)
    graphs[concrete.function_def.signature.name] = concrete.graph

    def locate(function: str, node: str) -> str:
        if function not in graphs:
            return ""
        try:
            op = graphs[function].get_operation_by_name(node)
        except KeyError:
            return ""
        return op_locations.of_op(op)

    return locate
