"""Exported programs as TensorFlow functions."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall import _versions
from hostcall._ops.lookup import Module
from hostcall._ops.structures import check_integers
from hostcall._tf import autograph, eager_execution, relayed_handlers
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds
from hostcall_mlir import Program
from hostcall_mlir.exporting import (
    custom_calls,
    files,
    function_lookup,
    manifests,
    portable,
    structures,
)
from hostcall_runtime import Target

_numbers = itertools.count(1)


class LoadedFunction(tf.Module):  # type: ignore[misc]
    """An exported program as a TensorFlow function, made by `hostcall.load`.

    It takes tensors in the structure of the exported function's arguments, eagerly or in a
    `tf.function`, with `jit_compile=True` or without. It returns tensors in the structure of the
    results. It has no gradient: export a function that computes it.

    Attributes:
      manifest: the description of the program; docs/exporting.md explains its fields.
      text: the program as readable text.
      variables: the `tf.Variable`s that it takes, as for every `tf.Module`; the program assigns
        those that the exported function assigned.
    """

    def __init__(
        self, program: Program, given: Mapping[str, Callable[..., Any]], imports: bool
    ) -> None:
        super().__init__(name=None)
        self.manifest: manifests.Manifest = program.manifest
        self.text = program.text
        functions, self._classes = function_lookup.find_functions(
            self.manifest, given, imports, tensors=True
        )
        registered = {
            callback.name: _register(callback, functions[callback.name], self._classes)
            for callback in self.manifest.callbacks
        }
        targets = [target for target, _ in registered.values()]
        numbers = {name: number for name, (_, number) in registered.items()}
        module = program.module()
        handlers = relayed_handlers.provide(custom_calls.targets_in(module))
        self._artifact, has_token = portable.convert(
            module, numbers, _versions.stablehlo(tf.__version__)
        )
        self._module = Module(
            "hostcall.load", self.manifest.function, "", targets, has_token, handlers
        )
        self._variables = {
            entry.name: tf.Variable(program.variables[entry.name], trainable=False, name=entry.name)
            for entry in self.manifest.inputs_of("variable")
        }
        specs = [_tensor_spec(entry.spec) for entry in self.manifest.inputs_of("argument")]
        self._flat = tf.function(self._run, input_signature=specs)

    def __repr__(self) -> str:
        return f"<LoadedFunction {manifests.title_of(self.manifest)}>"

    @autograph.do_not_convert
    def __call__(self, *args: Any) -> Any:
        """Run the program, with arguments and results in the exported function's structures.

        Raises:
          TypeError: when the arguments are of another structure (also a ValueError).
          ValueError: when one is of another dtype or shape.
        """
        tensors = [
            _as_tensor(value, entry.spec, f"{self.manifest.function}: argument '{entry.name}'")
            for entry, value in self.manifest.with_inputs(args)
        ]
        results = self._flat(*tensors)
        return structures.pack(self.manifest.results, results, self._classes)

    call = __call__  # the name in `hostcall_mlir`'s programs, too

    def _run(self, *tensors: Any) -> list[Any]:
        """Run the program on flat arguments, assign the variables, and return the flat results."""
        outputs = self.manifest.outputs
        state = [variable.read_value() for variable in self._variables.values()]
        specs = [_tensor_spec(output.spec) for output in outputs]
        inputs = [tf.cast(tensor, defs.wide(tensor.dtype)) for tensor in (*tensors, *state)]
        wanted = [tf.TensorSpec(spec.shape, defs.wide(spec.dtype)) for spec in specs]
        with self._module.called():
            values = op_kinds.call_module(inputs, self._artifact, wanted)
        results = []
        for output, spec, crossed in zip(outputs, specs, values, strict=True):
            value = tf.cast(crossed, spec.dtype)
            if output.kind == "variable":
                self._variables[output.name].assign(value)
            else:  # no output is a size, since loading refuses bounded sizes
                results.append(value)
        return results


def load(
    directory: str | os.PathLike[str], callbacks: Mapping[str, Callable[..., Any]], imports: bool
) -> LoadedFunction:
    """Load a program; see `hostcall.load`."""
    eager_execution.refuse()
    return LoadedFunction(files.read(directory), callbacks, imports)


def _register(
    callback: manifests.ManifestCallback, function: Callable[..., Any], classes: Mapping[str, type]
) -> tuple[Target, int]:
    """Register a callback with the runtime, and return its target and callback id."""
    call = function_lookup.host_function(callback, function, classes)
    if callback.kind == "eager":
        # All calls of a callback have results of the same dtypes.
        dtypes = [tf.as_dtype(manifests.dtype_of(spec.dtype)) for spec in callback.calls[0].results]
        call = functools.partial(_call_with_tensors, call, dtypes)
        call = functools.partial(eager_execution.apart, call)
    name = f"{callback.name}/loaded {next(_numbers)}"
    return function_lookup.register(callback, call, function_lookup.places_of(callback), name)


def _call_with_tensors(
    function: Callable[..., Any], dtypes: Sequence[tf.DType], *arrays: np.ndarray
) -> list[Any]:
    """Call a function of tensors with arrays, and return its results as arrays of these dtypes."""
    returned = function(*map(tf.convert_to_tensor, arrays))
    values = [] if returned is None else returned
    values = list(values) if isinstance(values, list | tuple) else [values]
    if len(values) != len(dtypes):
        return values  # the runtime reports the wrong number
    return [tf.convert_to_tensor(v, dtype).numpy() for v, dtype in zip(values, dtypes, strict=True)]


def _tensor_spec(spec: manifests.Spec) -> tf.TensorSpec:
    return tf.TensorSpec(spec.shape, tf.as_dtype(manifests.dtype_of(spec.dtype)))


def _as_tensor(value: object, spec: manifests.Spec, what: str) -> tf.Tensor:
    expected = _tensor_spec(spec)
    # With a dtype hint TensorFlow would cast arrays, and wrap integers around.
    hint = None if hasattr(value, "dtype") else expected.dtype
    try:
        if hint is not None:
            check_integers(value, hint)
        tensor = tf.convert_to_tensor(value, dtype_hint=hint)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{what} is {value!r}, of which no {expected.dtype.name} tensor can be made: {error}"
        ) from error
    if tensor.dtype != expected.dtype or not tensor.shape.is_compatible_with(expected.shape):
        raise ValueError(
            f"{what} is {tensor.dtype.name}{tensor.shape}, and the program was exported for "
            f"{expected.dtype.name}{expected.shape}. Cast or reshape it, or export the function "
            "for what you have."
        )
    return tensor
