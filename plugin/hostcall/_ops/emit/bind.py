"""`hostcall.bind`: calls of a function without the Python that `tf.function` runs for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._ops.emit import repeated_calls
from hostcall._ops.structures import check_integers
from hostcall._tf import concrete_functions, eager_execution, features
from hostcall._tf.types import ConcreteFunction
from hostcall_runtime._errors import counted

# Types that TensorFlow converts to the requested dtype; all others have a dtype of their own.
_PYTHON_VALUES = (bool, int, float, complex, str, bytes, list, tuple)


def bind(fn: Any, *specs: Any) -> Bound:
    """Bind a function to the dtypes and shapes of its arguments, for calls with little overhead.

    `fn` is traced once, now. A call of the result checks its arguments and runs the program.

    Args:
      fn: a `tf.function`, a `ConcreteFunction`, or a Python function, which is compiled, as by
        `tf.function(fn, jit_compile=True)`.
      *specs: for each positional argument a `tf.TensorSpec`, or a tensor or array like those of the
        calls; or a structure of them, if `fn` takes one. They may be left out if `fn` has its own,
        as a `ConcreteFunction` or a `tf.function` with an `input_signature` does.

    Returns:
      A `Bound`, which is called like `fn`.

    Raises:
      TypeError: when `fn` is not a function, when it takes keyword-only arguments or arguments that
        are not tensors, or when a spec is invalid.
      ValueError: when `fn` is a `ConcreteFunction` of other dtypes or shapes than `specs`.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def program(x, scale):
      ...     return scale * tf.numpy_function(np.sort, [x], tf.TensorSpec([2], tf.float32))
      >>> vector, scalar = tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.float32)
      >>> step = hostcall.bind(program, vector, scalar)
      >>> step(tf.constant([3.0, 1.0]), 10.0).numpy()
      array([10., 30.], dtype=float32)
    """
    specs = tf.nest.map_structure(_as_spec, specs)
    if isinstance(fn, concrete_functions.ConcreteFunction):
        concrete = fn
    else:
        if not callable(fn):
            raise TypeError(
                f"hostcall.bind was given {fn!r}, which is not a function. Give it a tf.function, "
                "a ConcreteFunction or a Python function."
            )
        if not hasattr(fn, "get_concrete_function"):
            fn = tf.function(fn, jit_compile=True)
        concrete = fn.get_concrete_function(*specs)
    own = _specs_of(concrete)
    if specs:
        _check_specs(concrete, specs, own)
    return Bound(fn, concrete, specs or own)


class Bound:
    """A function that `hostcall.bind` has bound to the dtypes and shapes of its arguments.

    It takes a tensor, a NumPy array or a Python value for each spec, and returns the function's
    results. It keeps the function and its variables alive. Any number of threads may call it. If a
    call is recorded (by a tape or a `ForwardAccumulator`) or goes into a graph, it calls
    `concrete_function`, so that recording and tracing work as usual.

    Attributes:
      concrete_function: the `ConcreteFunction` that it runs.
      input_specs: a tuple with a `tf.TensorSpec` for each argument, or a structure of them.

    Raises:
      TypeError: when called with another number or structure of arguments, or another dtype.
      ValueError: when called with an array of another shape.

    Examples:
      >>> add_one = hostcall.bind(lambda x: x + 1.0, tf.TensorSpec([2], tf.float32))
      >>> add_one
      <hostcall.Bound <lambda>(x: float32[2])>
      >>> add_one(np.array([1.0, 2.0], np.float32)).numpy()
      array([2., 3.], dtype=float32)
    """

    def __init__(
        self, fn: Any, concrete_function: ConcreteFunction, input_specs: tuple[Any, ...]
    ) -> None:
        self.concrete_function = concrete_function
        self.input_specs = input_specs
        # TensorFlow holds variables, and the object of a method, only weakly.
        self._owned = (fn, concrete_function.variables)
        self._specs: list[Any] = tf.nest.flatten(input_specs)
        self._is_flat = not any(map(tf.nest.is_nested, input_specs))
        self._run = None
        if all(isinstance(spec, tf.TensorSpec) for spec in self._specs):
            self._run = repeated_calls.plain_call(concrete_function)
            self._fit = concrete_functions.exact_check(self._specs)
        if self._run is not None:
            self._quick = repeated_calls.quick_call(concrete_function, input_specs)

    def __call__(self, *args: Any) -> Any:
        """Call the function.

        Args:
          *args: an argument for each spec, with the spec's dtype and shape, or a structure of
            them. NumPy arrays are copied. Dtypes are not converted. Only Python's own numbers,
            strings and lists of them take the spec's dtype, as they have none.

        Returns:
          The results of the function.

        Raises:
          TypeError: when there are too many or too few arguments, or one has another dtype or
            structure.
          ValueError: when one has another shape.
          tf.errors.OpError: as a call of the function.
        """
        run = self._run
        if run is None:
            return self.concrete_function(*args)
        if (results := self._quick(args)) is not NotImplemented:
            return results
        tensors = self._tensors(args)
        if not concrete_functions.calls_are_plain():
            return self.concrete_function(*tf.nest.pack_sequence_as(self.input_specs, tensors))
        return run(tensors)

    def __repr__(self) -> str:
        inputs = zip(_names(self), self._specs, strict=True)
        listed = ", ".join(f"{name}: {_described(spec)}" for name, spec in inputs)
        return f"<hostcall.Bound {self.concrete_function.graph.name}({listed})>"

    def _tensors(self, args: tuple[Any, ...]) -> Sequence[Any]:
        """Return the arguments as tensors, one for each spec."""
        given = len(self.input_specs)
        if len(args) != given:
            raise TypeError(
                f"{self!r} takes {counted(given, 'argument')} and was called with {len(args)}."
            )
        flat = args if self._is_flat else self._flattened(args)
        if self._fit(flat):
            return flat
        tensors = [
            value if isinstance(value, tf.Tensor) else self._converted(value, index)
            for index, value in enumerate(flat)
        ]
        if not self._fit(tensors):
            for index, tensor in enumerate(tensors):
                self._check(tensor, index)
        return tensors

    def _flattened(self, args: tuple[Any, ...]) -> list[Any]:
        try:
            return list(features.flatten_up_to(self.input_specs, args))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"The arguments of {self!r} have another structure than its specs, which are "
                f"{self.input_specs}: {error}"
            ) from error

    def _converted(self, value: object, index: int) -> tf.Tensor:
        """Convert a non-tensor."""
        spec = self._specs[index]
        try:
            if isinstance(value, np.ndarray) and tf.executing_eagerly():
                return eager_execution.copy_of(value, spec.dtype)
            # NumPy's float64 is a subclass of float, but has a dtype.
            is_python = isinstance(value, _PYTHON_VALUES) and not isinstance(value, np.generic)
            if is_python:
                check_integers(value, spec.dtype)
            return tf.convert_to_tensor(value, spec.dtype if is_python else None)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{self._argument(index)} is a {type(value).__name__}, of which no tensor of "
                f"{_described(spec)} can be made: {error}"
            ) from error

    def _check(self, tensor: tf.Tensor, index: int) -> None:
        """Check one leaf of the arguments against its spec."""
        spec = self._specs[index]
        if tensor.dtype != spec.dtype:
            wanted = spec.dtype.name
            raise TypeError(
                f"{self._argument(index)} has dtype {tensor.dtype.name}, but it is bound to "
                f"{wanted}. hostcall.bind converts no dtypes, and NumPy's floats are float64 "
                f"unless you say otherwise. Write array.astype({wanted!r}) or "
                f"tf.cast(tensor, {wanted!r})."
            )
        if not spec.shape.is_compatible_with(tensor.shape):
            raise ValueError(
                f"{self._argument(index)} has shape {tensor.shape}, but it is bound to shape "
                f"{spec.shape}. Give hostcall.bind a spec with None where a size varies, or bind "
                "the function once for each shape."
            )

    def _argument(self, index: int) -> str:
        return f"Argument {_names(self)[index]} of {self!r}"


def _as_spec(value: object) -> tf.TypeSpec:
    """Return the spec of a leaf of the arguments of `bind`."""
    if isinstance(value, tf.TypeSpec):
        return value
    if isinstance(value, np.ndarray | np.generic | tf.Tensor | tf.Variable):
        return tf.TensorSpec(value.shape, value.dtype)
    if isinstance(value, features.CompositeTensor):
        return features.type_spec_from_value(value)
    raise TypeError(
        f"hostcall.bind was given {value!r} as a spec. The arguments of a bound function are "
        "tensors: give a tf.TensorSpec for each, or a tensor or NumPy array like it. What stays "
        "the same belongs into the function: hostcall.bind(lambda x: fn(x, True), spec)."
    )


def _specs_of(concrete: ConcreteFunction) -> tuple[Any, ...]:
    """Return the specs of a ConcreteFunction's arguments, without trailing non-tensor defaults."""
    args, by_name = concrete.structured_input_signature or ((), {"?": None})
    while args and not any(isinstance(leaf, tf.TypeSpec) for leaf in tf.nest.flatten(args[-1])):
        args = args[:-1]
    leaves = tf.nest.flatten(args)
    if all(isinstance(leaf, tf.TypeSpec) for leaf in leaves) and not any(
        isinstance(leaf, tf.TypeSpec) or name == "?" for name, leaf in by_name.items()
    ):
        return tuple(args)
    raise TypeError(
        f"{concrete.graph.name} takes arguments that are not tensors, or that are given by name, "
        "which hostcall.bind cannot pass. Bind a function around it that takes the tensors alone: "
        "hostcall.bind(lambda x: fn(name=x), spec)."
    )


def _check_specs(concrete: ConcreteFunction, specs: tuple[Any, ...], own: tuple[Any, ...]) -> None:
    """Check that a function takes all arguments that `specs` admit."""
    try:
        tf.nest.assert_same_structure(specs, own)
        pairs = zip(tf.nest.flatten(specs), tf.nest.flatten(own), strict=True)
        fits = all(_is_within(given, wanted) for given, wanted in pairs)
    except (TypeError, ValueError):  # the structures differ
        fits = False
    if not fits:
        raise ValueError(
            f"hostcall.bind was given the specs {specs}, but {concrete.graph.name} takes {own}. "
            "Give specs that it takes, or bind a function around it that does without the rest: "
            "hostcall.bind(lambda x: fn(x), spec)."
        )


def _is_within(spec: tf.TypeSpec, wanted: tf.TypeSpec) -> bool:
    """Return whether another TypeSpec accepts all values of a TypeSpec; names do not count."""
    if isinstance(spec, tf.TensorSpec) and isinstance(wanted, tf.TensorSpec):
        return bool(spec.dtype == wanted.dtype and spec.shape.is_subtype_of(wanted.shape))
    return bool(spec.is_subtype_of(wanted))


def _names(bound: Bound) -> list[str]:
    """Return the name of each leaf of the arguments in messages: `x`, or `batch['a']`."""
    parameters = list(bound.concrete_function.function_type.parameters)
    return [
        parameters[first] + "".join(f"[{key!r}]" for key in rest)
        for (first, *rest), _ in features.flatten_with_tuple_paths(bound.input_specs)
    ]


def _described(spec: object) -> str:
    if not isinstance(spec, tf.TensorSpec):
        return repr(spec)
    if spec.shape.rank is None:
        return f"{spec.dtype.name}<unknown>"
    return f"{spec.dtype.name}[{', '.join('?' if n is None else str(n) for n in spec.shape)}]"
