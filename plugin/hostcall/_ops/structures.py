"""Specs and structures: how nested arguments and results map to the flat lists of an op."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import tensorflow as tf

from hostcall._functions import source_location, specs
from hostcall._functions.specs import BoundedSpec as BoundedSpec
from hostcall._functions.specs import Declared, checked, says_shape_and_dtype, sizes_of
from hostcall._functions.specs import is_shape_function as is_shape_function
from hostcall._functions.user_function import gradients_listed
from hostcall._tf import eager_execution, features
from hostcall_runtime import _remedies, _trees
from hostcall_runtime._errors import ResultError, counted

# Dtypes whose tensors have no array, or an array of Python objects.
_NOT_IN_ARRAYS = (tf.string, tf.variant, tf.resource)

Spec: TypeAlias = tf.TensorSpec | BoundedSpec


def is_leaf(value: object) -> bool:
    """Return whether a value declares one tensor by a shape and a dtype, or is a TensorShape."""
    return isinstance(value, tf.TensorShape) or _says_both(value)


def check_integers(value: object, dtype: tf.DType) -> None:
    """Raise a ValueError for integers that a dtype does not hold; TensorFlow would cut them."""
    if dtype.is_integer:
        for number in (value,) if isinstance(value, int) else tf.nest.flatten(value):
            if isinstance(number, int) and not dtype.min <= number <= dtype.max:
                raise ValueError(f"{dtype.name} does not hold {number}")


def as_spec(value: object, dtype: tf.DType | None) -> Spec:
    """Return one result of a declaration as a spec: a shape, or a value with shape and dtype."""
    # The value is a TensorSpec, a BoundedSpec, a `jax.ShapeDtypeStruct` or the like, or a bare
    # shape. Without the op's `dtype` it has to contain one. Other values are a TypeError.
    if isinstance(value, BoundedSpec):
        return value
    if _says_both(value):
        return tf.TensorSpec(sizes_of(value.shape), value.dtype)
    if dtype is None:
        checked(value)  # raises a TypeError
    try:
        return tf.TensorSpec(value, dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"hostcall: a result is declared as a tf.TensorSpec, a hostcall.BoundedSpec or a "
            f"shape, and not as {value!r}."
        ) from error


def array_dtype(dtype: tf.DType) -> np.dtype[Any] | None:
    """Return the NumPy dtype for tensors of a dtype, or None for strings, variants, resources."""
    return None if dtype in _NOT_IN_ARRAYS else np.dtype(dtype.as_numpy_dtype)


def is_array_of(value: object, dtype: np.dtype[Any] | None) -> TypeGuard[np.ndarray]:
    """Return whether a value is an ndarray, not of a subclass, of a dtype from `array_dtype`."""
    # NumPy would compare None as float64.
    return type(value) is np.ndarray and dtype is not None and value.dtype == dtype


def is_known(spec: Spec) -> bool:
    """Return whether all sizes of a spec are known or bounded."""
    return isinstance(spec, BoundedSpec) or bool(spec.shape.is_fully_defined())


def admits(spec: Spec, shape: Sequence[int]) -> bool:
    """Return whether a result may have this shape."""
    if not static_shape(spec).is_compatible_with(shape):
        return False
    return not isinstance(spec, BoundedSpec) or all(
        shape[dim] <= spec.shape[dim] for dim in spec.dynamic_dims
    )


def merge(first: Spec, second: Spec | None) -> Spec:
    """Merge two specs, the bounds of the first that has any; raise a ValueError if they differ."""
    if second is None:
        return first
    plain = not (isinstance(first, BoundedSpec) or isinstance(second, BoundedSpec))
    if plain and first.shape == second.shape:  # a tenth of the time, and what most specs are
        return first
    shape = static_shape(first).merge_with(static_shape(second))
    for spec in (first, second):
        if isinstance(spec, BoundedSpec):
            sizes = [spec.shape[i] if size is None else size for i, size in enumerate(shape)]
            dynamic = [i for i in spec.dynamic_dims if shape[i] is None]
            return BoundedSpec(sizes, spec.dtype, dynamic)
    return tf.TensorSpec(shape, first.dtype)


def static_shape(spec: Spec) -> tf.TensorShape:
    """Return the static shape of `spec`, with None for dynamic dimensions."""
    return (spec.tensor_spec() if isinstance(spec, BoundedSpec) else spec).shape


def _says_both(value: object) -> TypeGuard[Declared]:
    if isinstance(value, tf.TypeSpec | features.CompositeTensor):
        return isinstance(value, tf.TensorSpec)  # the others describe several tensors
    return says_shape_and_dtype(value)


nest = tf.nest
Leaf: TypeAlias = tf.DType | tf.TypeSpec | BoundedSpec


class Inputs:
    """The arguments of one call."""

    def __init__(self, arguments: list[Any], expand_composites: bool) -> None:
        self._expand = expand_composites
        self.count = len(arguments)  # the number of arguments
        # The tensors, in the order of the op's inputs; empty once an op has them.
        self.flat: list[Any] = nest.flatten(arguments, expand_composites=expand_composites)
        self.size = len(self.flat)  # the number of the op's inputs
        # The structure holds types, so that it does not keep a graph's tensors alive.
        # The arguments with None for each tensor, and the TypeSpecs of composite tensors.
        self.structure = nest.map_structure(_type_of, arguments)
        # Whether an argument contains a composite tensor.
        self.composite = any(map(_is_composite, nest.flatten(self.structure)))
        # Whether an argument is a composite tensor, or a structure of tensors.
        self.nested = (
            self.composite or self.size != self.count or any(map(nest.is_nested, self.structure))
        )

    @property
    def form(self) -> Hashable:
        """A key for the structure; arguments with equal keys have equal structures."""
        return _trees.form(self.structure, _form_of_leaf) if self.nested else None

    def with_tensors(self, flat: Sequence[Any]) -> Inputs:
        """Return arguments of the same structure with other tensors."""
        inputs = copy.copy(self)
        inputs.flat = list(flat)
        return inputs

    def pack(self, flat: Sequence[Any]) -> list[Any]:
        """Return the user's arguments from the op's inputs."""
        if not self.nested:
            return list(flat)
        return list(nest.pack_sequence_as(self.structure, flat, expand_composites=self._expand))

    def flatten_gradients(self, gradients: object, of: str = "") -> list[Any]:
        """Flatten a gradient for each argument, in its structure, to a list for the inputs."""
        flat: list[Any] = []
        pairs = zip(self.structure, gradients_listed(gradients, self.count, of), strict=True)
        for argument, gradient in pairs:
            if gradient is None:
                flat.extend([None] * len(nest.flatten(argument, expand_composites=self._expand)))
            elif nest.is_nested(argument):
                flat.extend(features.flatten_up_to(argument, gradient))
            else:
                flat.append(gradient)
        return flat

    def pack_specs(self, specs: Sequence[Spec]) -> list[Any]:
        """Pack specs like the user's arguments; a composite tensor becomes a list of specs."""
        if not self.nested:
            return list(specs)
        remaining = iter(specs)

        def packed(leaf: Any) -> object:
            if not (self._expand and _is_composite(leaf)):
                return next(remaining)
            return [next(remaining) for _ in nest.flatten(leaf, expand_composites=True)]

        return list(nest.map_structure(packed, self.structure))


def _form_of_leaf(leaf: object) -> Hashable:
    # A new object equals nothing else: keys of other structures never match.
    return object() if nest.is_nested(leaf) or _is_composite(leaf) else None


def _type_of(value: object) -> tf.TypeSpec | None:
    if isinstance(value, features.CompositeTensor):
        return features.type_spec_from_value(value)
    # Saved arguments come as TypeSpecs already.
    return value if _is_composite(value) else None


def read_inputs(inp: Iterable[Any], eager: bool, pack_lists: bool = True) -> Inputs:
    """Read the arguments of a call of a script op: a list or tuple of them, or a lone one."""
    # Variables are read, and EagerTensors (`eager`) may be composite tensors. `pack_lists` stacks a
    # list of tensors that TensorFlow can stack into one, as the stock ops do.
    alone = isinstance(inp, tf.Tensor | tf.Variable | features.CompositeTensor | dict)
    arguments = features.convert_variables_to_tensors([inp] if alone else list(inp))
    if pack_lists:
        arguments = [pack_list(argument) for argument in arguments]
    return Inputs(arguments, expand_composites=eager)


def pack_list(argument: object) -> object:
    """Convert a list to one tensor if TensorFlow can; return any other value unchanged."""
    if not isinstance(argument, list | tuple):
        return argument
    leaves = _trees.leaves(argument, lambda part: isinstance(part, dict))
    if any(isinstance(leaf, features.CompositeTensor | dict) for leaf in leaves):
        return argument
    try:
        return eager_execution.convert_to_tensor(argument, None)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        return argument


class Outputs:
    """The results of one call."""

    def __init__(self, structure: object, strict: bool = False) -> None:
        # Whether a function must return the exact number of values, and the call returns a tuple
        # for a tuple, as for `hostcall.callback`.
        self.strict = strict
        # TensorFlow's script ops return a list for a tuple of dtypes.
        self._sequence: Any = tuple if strict and isinstance(structure, tuple) else list
        self.structure = structure  # the types in their structure, as the user wrote them
        # Whether it is a single result, and no structure.
        self.alone = not isinstance(structure, list | tuple | dict)
        self._leaves: list[Leaf] = [
            leaf if isinstance(leaf, tf.TypeSpec | BoundedSpec) else tf.as_dtype(leaf)
            for leaf in _flatten_types(structure)
        ]
        self._plain = self.alone or (
            isinstance(structure, list | tuple)
            and not hasattr(structure, "_fields")
            and not any(nest.is_nested(item) for item in structure)
        )
        components = [_components(leaf) for leaf in self._leaves]
        # Whether a result is a composite tensor.
        self.composite = any(_is_composite(leaf) for leaf in self._leaves)
        # Whether the function's return values are the op's outputs without a conversion.
        self.trivial = self._plain and not self.composite
        # The dtypes of the op's outputs, a list.
        self.dtypes: list[tf.DType] = [dtype for parts in components for dtype, _ in parts]
        # For each output the TensorSpec or BoundedSpec that `Tout` holds, or None.
        self.specs: list[Spec | None] = [spec for parts in components for _, spec in parts]

    @property
    def form(self) -> Hashable:
        """A key for the structure; outputs with equal keys flatten equal values alike."""
        return None if self.trivial else _trees.form(self.structure, _form_of_leaf)

    def remedy_of_count(self, returned: object) -> _remedies.Remedy:
        """Return the lines to write where a function returns too many or too few values."""
        if not self._plain:
            return _remedies.for_structure(self.structure, returned)
        return _remedies.for_count(returned, [dtype.name for dtype in self.dtypes])

    def flatten(
        self, returned: object, function: Callable[..., Any], composite_inputs: bool = False
    ) -> list[Any]:
        """Flatten what the user's function returned; raise an error for another structure."""
        if self._plain and not self.strict:
            return self._flatten_as_stock(returned, function, composite_inputs)
        values = self._values(returned, function)
        if not self.composite:
            return values
        if len(values) != len(self._leaves):
            raise ValueError(
                f"{function} returned {counted(len(values), 'value')}, but Tout="
                f"{self.structure!r} wants {len(self._leaves)}."
            )
        return self._flatten_values(values, function, returned)

    def _flatten_as_stock(
        self, returned: object, function: Callable[..., Any], composite_inputs: bool
    ) -> list[Any]:
        """Flatten as stock TensorFlow does, which takes the first of too many values."""
        wraps = composite_inputs or any(isinstance(leaf, tf.TypeSpec) for leaf in self._leaves)
        if wraps and not self._leaves:
            return []
        if not self._leaves and not isinstance(returned, list | tuple | types.NoneType):
            raise IndexError("list index out of range")
        if not wraps:
            return self._values(returned, function)[: len(self._leaves)]
        values = returned if isinstance(returned, list | tuple) else [returned]
        return self._flatten_values(self._values(values, function), function, values)

    def _flatten_values(self, values: list[Any], function: object, returned: object) -> list[Any]:
        flat = []
        for value, leaf in zip(values, self._leaves, strict=False):
            if _is_composite(leaf) and leaf.is_compatible_with(value):
                flat.extend(nest.flatten(value, expand_composites=True))
            elif _is_composite(leaf) or isinstance(value, features.CompositeTensor):
                what = f"compatible with {leaf!r}" if _is_composite(leaf) else "a Tensor"
                raise ValueError(
                    f"py_function: func={function} returned {returned!r}, which did not match "
                    f"Tout={self._leaves!r}.\nIn particular, {value!r} is not {what}."
                )
            else:
                flat.append(value)
        return flat

    def _of_other_structure(self, returned: object, function: Callable[..., Any]) -> ResultError:
        remedy = _remedies.for_structure(self.structure, returned)
        return ResultError(
            f"hostcall: {source_location.of_function(function)} returned {_names_of(returned)!r}, "
            f"which does not have the declared structure.{remedy}"
        )

    def pack(self, tensors: Sequence[Any]) -> object:
        """Pack the op's outputs into the value that the call returns to the user."""
        if self.trivial:
            return tensors[0] if self.alone else self._sequence(tensors)
        return nest.pack_sequence_as(self.structure, list(tensors), expand_composites=True)

    def unpack(self, packed: object) -> list[Any]:
        """Return the op's outputs from the value that `pack` made of them."""
        return list(nest.flatten(packed, expand_composites=True))

    def _values(self, returned: object, function: Callable[..., Any]) -> list[Any]:
        if not self._plain:
            try:
                # Functions often return tuples where Tout is a list.
                return list(features.flatten_up_to(self.structure, returned, check_types=False))
            except (TypeError, ValueError):
                raise self._of_other_structure(returned, function) from None
        if returned is None:
            return []
        if self.alone and isinstance(returned, list) and not returned:
            return [returned]  # an empty list is one value without elements
        return list(returned) if isinstance(returned, list | tuple) else [returned]


def _names_of(structure: object) -> object:
    """Return a structure with the types of its leaves, for a message."""
    if isinstance(structure, dict):
        return {key: _names_of(value) for key, value in structure.items()}
    if isinstance(structure, list | tuple):
        return [*map(_names_of, structure)]
    return BareText(type(structure).__name__)


class BareText(str):
    """A text whose `repr` is the text itself."""

    __repr__ = str.__str__


def _flatten_types(structure: object) -> list[Any]:
    """Return the leaves of `Tout`; a value without any, as [{}], stays a leaf, to be refused."""
    if isinstance(structure, list | tuple) and not hasattr(structure, "_fields"):
        return [leaf for item in structure for leaf in nest.flatten(item) or [item]]
    return nest.flatten(structure) or [structure]


def _is_composite(leaf: object) -> TypeGuard[tf.TypeSpec]:
    return isinstance(leaf, tf.TypeSpec) and not isinstance(leaf, tf.TensorSpec)


def _components(leaf: Leaf) -> list[tuple[tf.DType, Spec | None]]:
    """Return (dtype, declared spec) of each op output that belongs to a leaf of `Tout`."""
    if isinstance(leaf, tf.DType):
        return [(leaf, None)]
    if not _is_composite(leaf):
        return [(leaf.dtype, leaf)]
    parts = nest.flatten(leaf, expand_composites=True)
    return [(part.dtype, part if isinstance(part, tf.TensorSpec) else None) for part in parts]


def specs_for(result: Any, inputs: Inputs, function: Callable[..., Any]) -> object:
    """Return the result that is declared of a function for these inputs, a structure of specs."""
    if is_shape_function(result):
        known = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs.flat]
        try:
            result = specs.ask(result, inputs.pack_specs(known), function)
        except Exception as error:
            if specs.is_of_arity(error):
                raise
            # The shape function may compute with sizes that tracing does not know. With ones in
            # their place it still returns the right dtypes and ranks.
            guessed = [tf.TensorSpec(_with_ones(spec.shape), spec.dtype) for spec in known]
            return tf.nest.map_structure(
                _without_sizes, result_leaves(result(*inputs.pack_specs(guessed)))
            )
    return result_leaves(result)


def result_leaves(result: object) -> object:
    """Return a declared result with each leaf as a spec that has a dtype."""

    def is_one(part: object) -> bool:
        return is_leaf(part) or (is_shape(part) and part not in ([], ()))

    return _trees.map_leaves(lambda leaf: as_spec(leaf, None), result, is_one)


def is_shape(value: object) -> bool:
    """Return whether a value is a shape such as [2, 3] or (None, 3), or [] of a scalar."""
    return isinstance(value, list | tuple) and all(n is None or isinstance(n, int) for n in value)


def _with_ones(shape: tf.TensorShape) -> tf.TensorShape:
    return tf.TensorShape(None if shape.rank is None else [dim or 1 for dim in shape])


def _without_sizes(spec: Spec) -> Spec:
    if isinstance(spec, BoundedSpec):
        spec = spec.tensor_spec()
    rank = spec.shape.rank
    return tf.TensorSpec(None if rank is None else [None] * rank, spec.dtype)
