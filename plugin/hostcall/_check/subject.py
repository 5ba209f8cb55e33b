"""What is checked: a function, what is declared of it, and how it is called."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import declared_results, result_shapes, structures
from hostcall._callbacks.specs import Spec, is_leaf
from hostcall._check import lending
from hostcall._check.arguments import Arguments, Sample
from hostcall._check.declared import Declared
from hostcall._check.lending import Called
from hostcall._functions import keyword_arguments, source_location
from hostcall._tf import eager_execution, tensor_structures, token_registry

_UNSIZED = (
    "out=True makes the arrays for the results before the call, and the sizes of result {index} "
    "are not declared"
)


class UnsizedError(ValueError):
    """A function cannot be called that writes results whose sizes nobody knows."""


class Subject:
    """A function with what is declared of it, and arguments to try it with.

    Attributes:
      declared: what is declared.
      arguments: what the user has given for its arguments.
      inputs, outputs: the structures of arguments and results.
      program: calls it on tensors, as programs do.
      calls: how often it was called.
    """

    def __init__(self, declared: Declared, args: Sequence[Any]) -> None:
        self.declared = declared
        self.declaration = declared.declaration
        self.function = declared.function
        self.eager = declared.eager
        self.calls = 0
        self._structure = tensor_structures.convert_variables_to_tensors(list(args))
        leaves = tf.nest.flatten(self._structure)
        self.arguments = Arguments(_components(leaves), any(map(_is_composite, leaves)))
        self.inputs = structures.read_inputs(
            self.nested(self.arguments.base.tensors), self.eager, pack_lists=False
        )
        result = self.declaration.result if declared.dtypes is None else declared.dtypes
        self.outputs = structures.Outputs(self._results(result), strict=True)
        self._shape_function = result_shapes.make_shape_function(
            self.declaration, self.function, self.inputs, self.outputs
        )
        self.program = declared.program(self.outputs)

    def _results(self, result: Any) -> Any:
        """The structure of the results; what one call shows where the shape function fails."""
        if not self.has_shape_function or self.declared.dtypes is not None:
            return declared_results.specs_for(result, self.inputs)
        try:
            result(*self.inputs.pack_specs(self.arguments.base.specs))
        except Exception:  # the check of shapes meets it again
            called = self.call(self.arguments.base)
            return tf.nest.map_structure(_spec_of, called.returned)
        return declared_results.specs_for(result, self.inputs)

    @property
    def description(self) -> str:
        """The function and where it is defined."""
        return source_location.of_function(self.function)

    @property
    def user_function(self) -> Any:
        """The user's function, without the keywords that it is called with."""
        return keyword_arguments.parts(self.function)[0]

    @property
    def name(self) -> str:
        """What the user calls it."""
        name = str(getattr(self.user_function, "__name__", ""))
        return name if name.isidentifier() else "function"

    @property
    def is_pure(self) -> bool:
        """Whether it is declared to do nothing but return results."""
        how = self.declaration
        return not self.declared.stateful or how.pure or how.table is not None

    @property
    def has_shape_function(self) -> bool:
        """Whether the shapes of the results follow from those of the arguments."""
        return callable(self.declaration.result) and not is_leaf(self.declaration.result)

    def specs(self, known: Sequence[Spec]) -> list[Spec]:
        """What is declared of the results for arguments, flat."""
        said = self._shape_function(known)
        pairs = zip(said, self.outputs.dtypes, strict=True)
        return [tf.TensorSpec(None, dtype) if one is None else one for one, dtype in pairs]

    def nested(self, tensors: Sequence[Any]) -> list[Any]:
        """Tensors as the user passes them to the program."""
        remaining = iter(tensors)

        def leaf(given: Any) -> Any:
            if not _is_composite(given):
                return next(remaining)
            parts = tf.nest.flatten(given, expand_composites=True)
            taken = [next(remaining) for _ in parts]
            return tf.nest.pack_sequence_as(given, taken, expand_composites=True)

        nested: list[Any] = tf.nest.map_structure(leaf, self._structure)
        return nested

    def values(self, sample: Sample) -> list[Any]:
        """New values of arguments, flat, as programs pass them."""
        if self.eager:
            return [tf.identity(tensor) for tensor in sample.tensors]
        return [tensor.numpy() for tensor in sample.tensors]

    def call(self, sample: Sample, poison: int = 0x55) -> Called:
        """Calls the function once, as programs do.

        Args:
          sample: its arguments.
          poison: the byte that arrays are full of which it is to write.
        """
        specs = self.specs(sample.specs) if self.declaration.out else []
        return self.call_on(self.values(sample), specs, poison)

    def call_on(
        self, values: Sequence[Any], specs: Sequence[Spec] = (), poison: int = 0x55
    ) -> Called:
        """The same, on arrays (or EagerTensors) that are given flat.

        Args:
          values: the arguments.
          specs: those of the results, where the function writes them into arrays.
          poison: the byte that these arrays are full of.
        """
        self.calls += 1
        unsized = [i for i, spec in enumerate(specs) if not _has_sizes(spec)]
        if unsized:
            return Called(UnsizedError(_UNSIZED.format(index=unsized[0])), arguments=tuple(values))
        try:
            with eager_execution.eager_mode():
                if self.declaration.on_device:
                    return lending.on_loan(
                        self.function, self.inputs.pack, values, self.description
                    )
                if self.declaration.shares_memory:
                    return self._borrowing(values, specs, poison)
                returned = self.function(*self.inputs.pack(values))
        except Exception as error:
            return Called(error, arguments=tuple(values))
        return Called(returned=returned, arguments=tuple(values))

    def results(self, called: Called) -> list[Any]:
        """What a call has returned for each result, as it has returned them.

        Raises:
          ValueError, TypeError: when the structure is another one than is declared.
        """
        if self.declaration.line is not None:
            return []
        if called.outs:
            return list(called.outs)
        function, composite = self.function, self.inputs.composite
        results: list[Any] = self.outputs.flatten(called.returned, function, composite)
        return results

    def arrays(self, called: Called) -> list[np.ndarray]:
        """The results of a call that is as declared, as arrays of their own."""
        pairs = zip(self.results(called), self.outputs.dtypes, strict=True)
        return [np.array(self.as_array(value, dtype)) for value, dtype in pairs]

    def as_array(self, value: Any, dtype: tf.DType) -> np.ndarray:
        """One result as the array that programs make of it."""
        if self.eager:
            with eager_execution.eager_mode():
                return np.asarray(tf.convert_to_tensor(value, dtype).numpy())
        is_empty = isinstance(value, list) and not value
        wanted = np.dtype(dtype.as_numpy_dtype) if is_empty else None
        return np.asarray(token_registry.to_array(value, wanted))

    def _borrowing(self, values: Sequence[Any], specs: Sequence[Spec], poison: int) -> Called:
        how = self.declaration
        outs = tuple(lending.poisoned(spec, poison) for spec in specs)
        given: Mapping[str, Any] = {}
        if how.out:
            given = {"out": self.outputs.pack(outs) if len(outs) != 1 else outs[0]}
        views = [v for v in values if isinstance(v, np.ndarray)] if how.borrow else []
        call = functools.partial(self.function, **given)
        lent = lending.Lent(views, outs, given.get("out"))
        # That is the call which is looked at: to collect garbage takes time.
        return lent.to(call, self.inputs.pack, values, collects=self.calls == 1)


def _spec_of(value: Any) -> tf.TensorSpec:
    array = np.asarray(value)
    is_text = array.dtype.kind in "OSU"
    return tf.TensorSpec(None, tf.string if is_text else tf.as_dtype(array.dtype))


def _has_sizes(spec: Spec) -> bool:
    return isinstance(spec, tf.TensorSpec) and bool(spec.shape.is_fully_defined())


def _is_composite(leaf: object) -> bool:
    return isinstance(leaf, tensor_structures.CompositeTensor)


def _components(leaves: Sequence[Any]) -> list[Any]:
    return [
        part
        for leaf in leaves
        for part in (
            tf.nest.flatten(leaf, expand_composites=True) if _is_composite(leaf) else [leaf]
        )
    ]
