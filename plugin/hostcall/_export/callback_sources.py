"""What is known of a callback that a program calls, whoever has made it."""

from __future__ import annotations

import tensorflow as tf

from hostcall._callbacks.callback_spec import CallbackSpec, Origin, Recording, spec_of_callback_id
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._export.function_interface import structure_of
from hostcall._functions.exportable import Source, on_device
from hostcall_runtime._errors import NotExportableError
from hostcall_runtime._targets import target_of


def source_of(callback_id: int) -> Source:
    """The callback of an id.

    Raises:
      NotExportableError: when it cannot be exported.
    """
    spec, recording = spec_of_callback_id(callback_id)
    if spec is not None:
        return _of_spec(spec, recording)
    target = target_of(callback_id)
    if target is None or isinstance(target.origin, Origin):
        raise NotExportableError("a callback that is gone")
    if target.origin is None:
        raise NotExportableError(
            f"{target.description}: programs can be exported with calls of hostcall.jax.call and "
            "of hostcall.callback objects, and not with JAX's own callbacks, whose results have no "
            "structure that another process could know"
        )
    source: Source = target.origin.source()
    return source


def _of_spec(spec: CallbackSpec, recording: Recording) -> Source:
    if recording or (isinstance(spec, EagerSpec) and spec.order):
        raise NotExportableError(
            f"{spec.description}: the program computes its gradient, which only the process knows "
            "how to that has made the call. Give it a gradient of its own: hostcall.callback(..., "
            "grad=...), or export a function without the gradient"
        )
    if spec.inputs.composite or spec.outputs.composite:
        raise NotExportableError(
            f"{spec.description}: it takes or returns tensors that are made of several"
        )
    if spec.declaration.on_device:
        raise on_device(spec.description)
    arguments = tuple(spec.inputs.pack(_placeholders(spec.inputs.size)))
    results = spec.outputs.pack(_placeholders(len(spec.outputs.dtypes)))
    return Source(
        spec.function,
        spec.given_name,
        spec.description,
        structure_of(arguments, _is_placeholder, f"an argument of {spec.description}"),
        structure_of(results, _is_placeholder, f"a result of {spec.description}"),
        spec.takes_tensors,
        spec.declaration.borrow,
        spec.declaration.out,
        spec.timeout,
        tuple(spec.outputs.dtypes) if spec.takes_tensors else (),
        isinstance(spec, EagerSpec) and spec.differentiable,
        spec.declaration.concurrent,
    )


def _placeholders(count: int) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([], tf.float32) for _ in range(count)]


def _is_placeholder(leaf: object) -> bool:
    return isinstance(leaf, tf.TensorSpec)
