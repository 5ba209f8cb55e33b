"""`hostcall.explain`, for functions, programs and the steps of Keras models."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import tensorflow as tf

from hostcall import _control
from hostcall._compiler import devices, plan
from hostcall._compiler.analyses import node_places
from hostcall._tf import concrete_functions, eager_execution
from hostcall._tf.types import ConcreteFunction, FunctionDefLibrary
from hostcall._tools.explain import assigned_variables
from hostcall._tools.explain.callback_facts import SHAPES, Locate
from hostcall._tools.explain.explanation import Explanation
from hostcall._tools.explain.walk import Walk
from hostcall_runtime._errors import counted

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
    "These Python functions, which the file names, cannot be called here yet: {listed}. What is "
    "said of shapes and routes is what the graph alone tells. `hostcall inspect` says what to "
    "write."
)

_REFUSED_PARTS = (
    "XLA has refused {parts} of it as well: {said}. What is in them runs in smaller clusters, and "
    "by TensorFlow's kernels."
)

_NO_GPUS = (
    "TensorFlow is built without GPUs here. This is how the function would run on one if XLA "
    "compiled the same ops for it as for a CPU."
)

_NAMES = ("x", "y", "sample_weight")

_NOT_COMPILED = (
    "hostcall.explain: {model} is not compiled, so that there is no step of fit to explain. Call "
    "model.compile(...) first, or leave out y: hostcall.explain(model, x) is about predict."
)
_NO_BATCH = (
    "hostcall.explain of a Keras model needs a batch, of arrays or tf.TensorSpecs: "
    "hostcall.explain(model, x, y) for the step of fit, hostcall.explain(model, x) for predict."
)


def explain(function: object, *args: Any, **kwargs: Any) -> Explanation:
    """Find out how a function and all that it calls will run, without running it.

    The answer is for the device of the innermost `tf.device`, or for the CPU without one.

    `print` shows the answer as a table, a notebook as a picture, and `to_html()` returns the
    picture as a page.

    Args:
      function: a `tf.function`, compiled or not, a `ConcreteFunction`, or a Keras model.
      *args: for a `tf.function` the arguments of a call, or `tf.TensorSpec`s in place of tensors.
        It is traced for them unless it has been already. For a Keras model a batch: `x, y` (and
        sample weights) explain the step of `fit`, `x` alone that of `predict`.
      **kwargs: the same by keyword.

    Returns:
      An `Explanation`. Each script op has its place in your code, route, reason, shapes, order and
      the bytes that a call copies. Clusters list their ops. A function partitioned for another
      device than the CPU lists the values that cross between the device and the host. In functions
      that hostcall takes, each op is listed whose errors of values the program raises, and each
      that is rewritten, since XLA would compute something else. Risks are the ops that XLA may get
      wrong in functions that hostcall does not change. Notes name the variables that callbacks
      refer to and the program assigns.

    Raises:
      TypeError: for another `function`, if a `ConcreteFunction` comes with arguments, or if
        a Keras model comes without a batch, or comes with y and is not compiled.

    Examples:
      >>> program = tf.function(
      ...     lambda x: tf.numpy_function(np.unique, [x], tf.float32), jit_compile=True
      ... )
      >>> explanation = hostcall.explain(program, tf.TensorSpec([3], tf.float32))
      >>> [(op.route, op.reason) for op in explanation.script_ops]
      [('partition', 'the shape of result 0 is not known: <unknown>')]
    """
    title = ""
    if isinstance(function, getattr(sys.modules.get("keras"), "Model", ())):
        function, title = _step_of(function, args, **kwargs)
        args, kwargs = (), {}
    concrete = _concrete(function, args, kwargs)
    name = concrete.function_def.signature.name
    title = title or getattr(getattr(function, "python_function", None), "__name__", "") or name
    device = eager_execution.device_in_scope()
    device = device if devices.is_accelerator(device) else ""
    library, locate = library_of(concrete), node_places.locator(concrete)
    found = explain_library(library, name, locate, title, device)
    notes = assigned_variables.notes(concrete, library, found.script_ops)
    return dataclasses.replace(found, notes=(*found.notes, *notes))


@plan.limited
def explain_library(
    library: FunctionDefLibrary,
    entry: str,
    locate: Locate = lambda function, node: "",  # noqa: ARG005
    title: str = "",
    device: str = "",
) -> Explanation:
    """Explain the function `entry` of a library; `title` is the user's name for it."""
    # `locate` finds the `file:line` of a node, by the names of its function and of the node.
    # `device` is the full name of the device that it runs on, if that is no CPU.
    walk = Walk(library, locate, device)
    walk.function(entry)
    notes = []
    if walk.script_ops and not _control.is_enabled():
        notes.append(_DISABLED)
    if absent := [op.node for op in walk.script_ops if not op.callback]:
        notes.append(_ABSENT.format(ops=", ".join(map(repr, absent))))
    if refused := {op.callback: op.problem for op in walk.script_ops if op.problem}:
        listed = "; ".join(f"{name}: {problem}" for name, problem in refused.items())
        notes.append(_REFUSED.format(listed=listed))
    if parts := walk.refused_parts:
        said = ", ".join(map(repr, dict.fromkeys(parts)))
        notes.append(_REFUSED_PARTS.format(parts=counted(len(parts), "cluster"), said=said))
    if devices.type_of(device) == "GPU" and not devices.knows_gpus():
        notes.append(_NO_GPUS)
    return Explanation(
        title or entry,
        tuple(walk.functions),
        tuple(walk.script_ops),
        tuple(notes),
        tuple(walk.risks),
        walk.semantics.checks,
        walk.semantics.rewritten,
    )


def _concrete(function: Any, args: Any, kwargs: Any) -> ConcreteFunction:
    if isinstance(function, concrete_functions.ConcreteFunction):
        if args or kwargs:
            raise TypeError(
                "hostcall.explain: a ConcreteFunction is explained as it is. Leave out the "
                "arguments."
            )
        traced: ConcreteFunction = function
    elif not hasattr(function, "get_concrete_function"):
        raise TypeError(
            f"hostcall.explain explains a tf.function, a ConcreteFunction or a Keras model, and "
            f"not {function!r}. Write hostcall.explain(tf.function(f, jit_compile=True), ...)."
        )
    else:
        traced = function.get_concrete_function(*args, **kwargs)
    return traced


def library_of(concrete: ConcreteFunction) -> FunctionDefLibrary:
    """Return a FunctionDefLibrary with a function and all that it reaches, shapes included."""
    graph_def = concrete.graph.as_graph_def(add_shapes=True)
    library: FunctionDefLibrary = concrete_functions.library_of(concrete, graph_def)
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


def _step_of(model: Any, batch: tuple[Any, ...], **by_name: Any) -> tuple[Any, str]:
    """Return the concrete function that a model runs for a batch, and its title for users."""
    # The batch is x for the step of `predict`; x, y and perhaps sample weights for that of `fit`.
    batch += tuple(by_name.pop(name) for name in _NAMES[len(batch) :] if name in by_name)
    if by_name or not 1 <= len(batch) <= 3:
        raise TypeError(_NO_BATCH)
    specs = tf.nest.map_structure(_spec_of, batch)
    trains = len(specs) > 1
    if trains and not model.compiled:
        raise TypeError(_NOT_COMPILED.format(model=model.name))
    _build(model, specs)

    def fit_step(*data: Any) -> object:
        return model.train_step(data)

    def predict_step(x: Any) -> object:
        return model.predict_step((x,))

    step = fit_step if trains else predict_step
    compiled = tf.function(step, jit_compile=bool(model.jit_compile) or None)
    title = f"{'fit' if trains else 'predict'} of {model.name}, for one batch"
    return compiled.get_concrete_function(*specs), title


def _build(model: Any, specs: tuple[Any, ...]) -> None:
    """Create the variables of a model, its metrics and its optimizer, as `fit` does at first."""
    if len(specs) == 1:
        if not model.built:
            model.build(tuple(specs[0].shape))
    elif hasattr(model, "_symbolic_build"):  # a private method of Keras 3
        model._symbolic_build(data_batch=specs)
    elif not (model.built and model.optimizer.built):
        raise TypeError(
            "hostcall.explain: this version of Keras has no _symbolic_build, by which the "
            "variables of a step are made. Train the model on one batch first, "
            "model.train_on_batch(x, y), and explain it then."
        )


def _spec_of(value: Any) -> object:
    """Return the spec of the tensor that Keras makes of a user's array."""
    if isinstance(value, tf.TypeSpec):
        return value
    value = value if hasattr(value, "dtype") else tf.convert_to_tensor(value)
    dtype = tf.as_dtype(value.dtype)
    if dtype.is_floating:
        dtype = tf.as_dtype(sys.modules["keras"].config.floatx())
    return tf.TensorSpec(value.shape, dtype)
