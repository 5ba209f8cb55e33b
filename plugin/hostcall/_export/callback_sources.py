"""What is known of a callback that a program calls, whoever has made it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hostcall._callbacks.callback_spec import CallbackSpec, Origin, Recording, spec_of_callback_id
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._export.function_interface import structure_of
from hostcall_mlir.program.structures import Structure
from hostcall_runtime._targets import target_of


class NotExportableError(Exception):
    """Says why a callback cannot be exported, and what to do."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A callback.

    Attributes:
      function: the user's.
      given_name: the name that the user has given it, or None.
      description: for messages, with the file and line of the function and the call.
      arguments, results: the structures of what it is called with, and of what it returns.
      takes_tensors: whether its arguments are EagerTensors.
      borrow, out, timeout: as declared.
      dtypes: of the results, where what the function returns is made tensors of them.
      has_state: whether calls have the number of a state for their last result.
    """

    function: Callable[..., Any]
    given_name: str | None
    description: str
    arguments: Structure
    results: Structure
    takes_tensors: bool = False
    borrow: bool = False
    out: bool = False
    timeout: float | None = None
    dtypes: tuple[tf.DType, ...] = ()
    has_state: bool = False


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
    )


def _placeholders(count: int) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([], tf.float32) for _ in range(count)]


def _is_placeholder(leaf: object) -> bool:
    return isinstance(leaf, tf.TensorSpec)
