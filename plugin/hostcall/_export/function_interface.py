"""The inputs and outputs of a traced function, as an exported program describes them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._functions import source_location
from hostcall._tf import autograph, concrete_functions, tensor_structures
from hostcall._tf.types import ConcreteFunction
from hostcall_mlir.exporting import manifests, structures
from hostcall_runtime._errors import NotExportableError


@dataclasses.dataclass(frozen=True)
class Captured:
    """The tensors and variables that a function captures.

    Attributes:
      inputs: the number of the program's inputs: arguments, constants and variables.
      constants: the values of captured tensors, by input number.
      variables: the captured variables, by input number.
      names: the variables' unique names, by input number.
    """

    inputs: int
    constants: dict[int, np.ndarray]
    variables: dict[int, tf.Variable]
    names: dict[int, str]

    def values_but_for(self, kept: Mapping[int, Any]) -> dict[int, np.ndarray]:
        """Return the values of all captured tensors and variables, except those in `kept`."""
        others = {n: v.numpy() for n, v in self.variables.items() if n not in kept}
        return self.constants | others


def trace(function: Any, specs: Sequence[Any]) -> tuple[Any, str, str]:
    """Return the concrete function for arguments like `specs`, its name and its description.

    Raises:
      TypeError: when `function` is no function of TensorFlow's.
      ValueError: when there are specs for a function that has been traced already.
    """
    if not isinstance(function, concrete_functions.ConcreteFunction):
        _check_function(function)
        traced = _traced_for(function, specs)
    elif specs:
        raise ValueError(
            "hostcall.export: a concrete function is for the dtypes and shapes that it was traced "
            "with, and takes no others: hostcall.export(concrete)."
        )
    else:
        traced = function
    python_function = autograph.without_autograph(getattr(function, "python_function", function))
    place = f"hostcall.export of {source_location.of_function(python_function)}"
    name = getattr(python_function, "__name__", type(function).__name__)
    return traced, str(name), place


def _check_function(function: Any) -> None:
    if hasattr(function, "trace") and hasattr(function, "lower"):
        raise TypeError(
            f"hostcall.export: {function!r} is a function of JAX's. Export what TensorFlow has of "
            "it: hostcall.export(hostcall.jax.to_tf(function), ...)."
        )
    classes = type(getattr(function, "__self__", None)).__mro__
    is_of_keras = any(kind.__module__.startswith("keras.") for kind in classes)
    if is_of_keras and getattr(function, "__name__", "") in ("fit", "evaluate", "predict"):
        raise TypeError(
            f"hostcall.export: {function.__name__} of a Keras model is a loop in Python over "
            "batches. Export what it runs for one: the model, hostcall.export(model, ...), which "
            "gives predictions, or a tf.function of yours."
        )
    if not callable(function) and not hasattr(function, "get_concrete_function"):
        raise TypeError(
            f"hostcall.export wants a tf.function or a function to make one of, and not "
            f"{function!r}."
        )


def _traced_for(function: Any, specs: Sequence[Any]) -> Any:
    """Return the concrete function for exactly these specs."""
    if not hasattr(function, "get_concrete_function"):
        function = tf.function(function)
    traced = function.get_concrete_function(*specs)
    is_wider = specs and _unknown_sizes(traced)  # from an earlier call, or the input signature
    if is_wider and isinstance(function, tf.types.experimental.PolymorphicFunction):
        again = tf.function(function.python_function, autograph=autograph.uses_autograph(function))
        traced = again.get_concrete_function(*specs)
    return traced


def check(traced: ConcreteFunction, place: str) -> None:
    """Raise a NotExportableError if an argument has an unknown size, or XLA lacks a dtype."""
    for leaf in _unknown_sizes(traced):
        raise NotExportableError(
            f"{place}: argument '{leaf.name}' has the shape {leaf.shape}, and a program is "
            "compiled for sizes that are known. Export it with the size that it is to run "
            "with, as hostcall.export(function, tf.TensorSpec([32, 3], tf.float32))."
        )
    arguments = [(f"argument '{leaf.name}'", leaf.dtype) for leaf in arguments_of(traced)]
    results = [(f"result {i}", result.dtype) for i, result in enumerate(_results_of(traced))]
    for what, dtype in arguments + results:
        if dtype in (tf.string, tf.resource, tf.variant):
            raise NotExportableError(
                f"{place}: {what} is of dtype {dtype.name}, which compiled programs do not have. "
                "Export what is between such tensors: a function of numbers."
            )


def _unknown_sizes(traced: ConcreteFunction) -> list[tf.TensorSpec]:
    return [leaf for leaf in arguments_of(traced) if not leaf.shape.is_fully_defined()]


def arguments_of(traced: ConcreteFunction) -> list[tf.TensorSpec]:
    """Return the specs of a concrete function's arguments, in the order of its inputs."""
    leaves = tf.nest.flatten(traced.structured_input_signature, expand_composites=True)
    return [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec)]


def arguments(traced: ConcreteFunction) -> list[manifests.Input]:
    """Describe the arguments as inputs of the program."""
    return [
        manifests.Input("argument", leaf.name or f"argument_{number}", _spec_of(leaf))
        for number, leaf in enumerate(arguments_of(traced))
    ]


def variables(kept: Mapping[int, tf.Variable], captured: Captured) -> list[manifests.Input]:
    """Describe variables as inputs of the program."""
    return [
        manifests.Input("variable", captured.names[number], _spec_of(variable))
        for number, variable in kept.items()
    ]


def outputs(
    traced: ConcreteFunction,
    types: Sequence[manifests.Spec],
    updates: Mapping[int, int],
    sizes: Sequence[tuple[int, int]],
    captured: Captured,
) -> tuple[manifests.Output, ...]:
    """Describe the program's outputs: results, new values of variables, and true sizes.

    Args:
      traced: the concrete function.
      types: the specs of the outputs in the program.
      updates: for each output that is the new value of a variable, the variable's input number.
      sizes: for each output after these, the output whose size it is, and the dimension.
      captured: what the function captures.
    """
    found, results = [], _results_of(traced)
    for number, spec in enumerate(types):
        bounded = tuple(dim for of, dim in sizes if of == number)
        if number < len(results):
            name = results[number].op.name
            found.append(
                manifests.Output("result", name, manifests.Spec(spec.dtype, spec.shape, bounded))
            )
        elif number in updates:
            found.append(manifests.Output("variable", captured.names[updates[number]], spec))
        else:
            of, dim = sizes[number - len(types) + len(sizes)]
            found.append(manifests.Output("size", f"size of dimension {dim}", spec, of, dim))
    return tuple(found)


def _results_of(traced: ConcreteFunction) -> list[tf.Tensor]:
    """Return the function's results, without those that TensorFlow adds for branch gradients."""
    leaves = tf.nest.flatten(traced.structured_outputs, expand_composites=True)
    return list(traced.outputs[: sum(tf.is_tensor(leaf) for leaf in leaves)])


def _spec_of(value: tf.TensorSpec) -> manifests.Spec:
    return manifests.Spec(np.dtype(value.dtype.as_numpy_dtype).name, tuple(value.shape.as_list()))


def argument_structure(traced: ConcreteFunction, place: str) -> structures.Structure:
    """Return the structure of the positional arguments; Python values in it are fixed."""
    args, kwargs = traced.structured_input_signature
    if _has_tensors(kwargs):
        raise NotExportableError(
            f"{place}: {', '.join(map(repr, kwargs))} can be given by name alone, and a program "
            "has its arguments in an order. Export a function that takes them by position."
        )
    args = list(args)
    while args and not _has_tensors(args[-1]):
        args.pop()  # for example training=False
    return _structure_of(tuple(args), f"{place}: an argument")


def _has_tensors(value: object) -> bool:
    return any(isinstance(leaf, tensor_structures.TypeSpec) for leaf in tf.nest.flatten(value))


def result_structure(traced: ConcreteFunction, place: str) -> structures.Structure:
    """Return the structure of the results."""
    return _structure_of(traced.structured_outputs, f"{place}: a result")


def _structure_of(value: object, what: str) -> structures.Structure:
    """Return the structure of a value, its tensors numbered as TensorFlow flattens them.

    The value holds tensors or specs, and perhaps Python values, which become None.
    """
    leaves = tf.nest.flatten(value)
    for leaf in leaves:
        if isinstance(
            leaf, tensor_structures.CompositeTensor | tensor_structures.TypeSpec
        ) and not isinstance(leaf, tf.Tensor | tf.TensorSpec):
            raise NotExportableError(
                f"{what} is a {type(leaf).__name__}, which is no single tensor. Pass what it is "
                "made of: of a tf.RaggedTensor its values and row_splits."
            )
    numbers = iter(range(len(leaves)))
    numbered = [
        next(numbers) if tf.is_tensor(leaf) or isinstance(leaf, tf.TensorSpec) else None
        for leaf in leaves
    ]
    return structures.structure_of(tf.nest.pack_sequence_as(value, numbered), what)


def captured_by(traced: ConcreteFunction, place: str) -> Captured:
    """Return the captures of a function; raise a NotExportableError unless XLA has all of them."""
    known = {id(variable.handle): variable for variable in traced.variables}
    first = len(traced.inputs) - len(traced.captured_inputs)
    passed = [tensor for tensor in traced.captured_inputs if not _is_left_out(tensor)]
    captured = Captured(first + len(passed), {}, {}, {})
    for number, tensor in enumerate(passed, first):
        if _holds_values(tensor):
            captured.constants[number] = tensor.numpy()
            continue
        variable = known.get(id(tensor))
        if variable is None:
            raise NotExportableError(
                f"{place}: it uses {tensor!r}, which is neither a tensor nor a tf.Variable (a "
                "lookup table, say, or a dataset). XLA has no such things: use it outside of the "
                "function, and pass the function what comes of it."
            )
        captured.variables[number] = variable
        captured.names[number] = _unused(variable.name.partition(":")[0], captured.names.values())
    return captured


def _holds_values(tensor: tf.Tensor) -> bool:
    return tensor.dtype not in (tf.resource, tf.variant)


def _is_left_out(tensor: tf.Tensor) -> bool:
    """Return whether TensorFlow writes the tensor into the program, instead of passing it."""
    return _holds_values(tensor) and tensor.shape.num_elements() == 0


def _unused(name: str, taken: Collection[str]) -> str:
    others = (f"{name}_{number}" for number in itertools.count(1))
    return next(one for one in itertools.chain([name], others) if one not in taken)
