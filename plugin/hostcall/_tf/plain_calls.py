"""Calls of traced functions that do no more than to run the program, without Python code.

What TensorFlow's Python and ours look at before such a call, C++ reads in less than a microsecond.
Where it finds anything but the usual, it runs nothing and leaves the call to Python. Results,
errors and events of the profiler are those of TensorFlow's own call.
"""

from __future__ import annotations

import functools
import itertools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from hostcall._tf import eager_execution, features
from hostcall._tf.types import ConcreteFunction
from hostcall_runtime import _errors, _library, _patching

# The functions around TensorFlow's that raise Ctrl-C, which plain calls do themselves, each with
# TensorFlow's.
raising: weakref.WeakKeyDictionary[Callable[..., Any], Callable[..., Any]]
raising = weakref.WeakKeyDictionary()


def quick_call(
    concrete: ConcreteFunction, specs: tuple[Any, ...]
) -> Callable[[tuple[Any, ...]], Any]:
    """Return how to run a ConcreteFunction that has an `unrecorded_call`.

    What is returned takes tensors and arrays in the structure of the TensorSpecs. It gives the
    results, or NotImplemented, having run nothing, if a value is not of its spec or the call has to
    do more.
    """
    if not _can_read_context():
        return lambda _: NotImplemented
    inference = concrete.inference_fn
    signature = inference.function_type
    is_single = type(signature.output) is tf.TensorSpec
    program = _library.load("hostcall._tensorflow").PlainCall(
        inference._bound_context,
        inference.name.decode(),
        _numbered(specs, itertools.count()),
        [*map(_described, tf.nest.flatten(specs))],
        len(signature.flat_outputs),
        is_single,
    )
    run = program.run

    def call(values: tuple[Any, ...]) -> object:
        try:
            results = run(values, concrete._captured_inputs)
        except tf.errors.OpError as error:
            _raise(error, inference)
        if is_single or results is NotImplemented:
            return results
        return signature.pack_output(results)

    return call


def _numbered(specs: Any, numbers: Iterator[int]) -> Any:
    """Return a structure of specs with their numbers; None for a part that is left to Python."""
    kind = type(specs)
    if kind is tuple or kind is list:
        return kind(_numbered(part, numbers) for part in specs)
    if kind is dict:
        return {key: _numbered(specs[key], numbers) for key in sorted(specs)}
    return next(numbers) if isinstance(specs, tf.TensorSpec) else None


def _described(spec: tf.TensorSpec) -> tuple[int, np.dtype | None, list[int | None] | None]:
    """Return a spec for C++: dtypes of TensorFlow and, if it is to copy arrays, NumPy; sizes."""
    array = np.dtype(spec.dtype.as_numpy_dtype) if eager_execution.has_cpus_alone() else None
    sizes = None if spec.shape.rank is None else spec.shape.as_list()
    return spec.dtype.as_datatype_enum, array, sizes


def _raise(error: tf.errors.OpError, inference: Any) -> NoReturn:
    """Raise the Ctrl-C behind an error, as the patch of `execute` does, or the error itself."""
    if features.INTERRUPTS.available and _patching.are_installed():
        interrupt = _errors.interrupt_behind(error.message)
        if interrupt is not None:
            raise interrupt
    with features.InterpolateRuntimeError(inference):  # adds the user's lines
        raise error


@functools.cache
def _can_read_context() -> bool:
    """Return whether C++ finds in TensorFlow's context what Python does; prepare plain calls."""
    if not features.PLAIN_CALLS.available:
        return False
    bindings = _library.load("hostcall._tensorflow")
    bindings.set_surroundings(
        features.default_graphs,
        vars(features.cancellation),
        vars(features.execution),
        _is_stock,
        np.ndarray,
    )
    context = features.context()
    local = context._thread_local_data

    def agree() -> bool:
        # The objects must be the same, and not only equal.
        seen = (context.executing_eagerly(), context.device_name, local.function_call_options)
        found = bindings.thread_settings(context)
        return all(a is b for a, b in zip(seen, found or (None,) * 3, strict=True))

    options, local.function_call_options = local.function_call_options, object()
    try:
        with tf.Graph().as_default():
            in_graph = agree()
        with eager_execution.eager_mode(), tf.device("CPU:0"):
            return in_graph and agree()
    finally:
        local.function_call_options = options


def _is_stock(execute: Any) -> bool:
    """Return whether a function in the place of TensorFlow's `execute` does no more than that."""
    if isinstance(execute, types.FunctionType):
        execute = raising.get(execute, execute)
    return execute is features.quick_execute
