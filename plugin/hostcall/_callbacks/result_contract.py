"""The declared results of a callback in the runtime's terms; the runtime checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from hostcall._callbacks.structures import BoundedSpec, Outputs, Spec
from hostcall._tf import token_registry
from hostcall_runtime._prepared import prepared

# The dtype names of TensorFlow's C++, where they differ from Python's.
_NAMES = {"float16": "half", "float32": "float", "float64": "double"}


class Callback(Protocol):
    """The names of a callback in messages, and the structure of its results.

    `CallbackSpec` has them. Its module imports this one.
    """

    title: str
    outputs: Outputs

    @property
    def description(self) -> str: ...


class ResultContract(Protocol):
    """The runtime's class; see csrc/runtime/result_contract.h."""

    def arrays(self, returned: Any) -> list[np.ndarray]:
        """Convert the value that a callback has returned to arrays.

        Raises:
          ResultError: when a result is not as declared.
        """

    def check_shapes(self, shapes: Sequence[Any]) -> None:
        """Check the shapes of results alone.

        Raises:
          ResultError: when a shape is not as declared.
        """


def of(spec: Callback, declared: Sequence[Spec]) -> ResultContract:
    """Return the contract for the results of a callback.

    Args:
      spec: the callback.
      declared: the known specs of the results.
    """
    contract: ResultContract = prepared().ResultContract(
        title=spec.title,
        description=spec.description,
        dtypes=[_NAMES.get(result.dtype.name, result.dtype.name) for result in declared],
        shapes=[_sizes(result.shape) for result in declared],
        bounded=[_bounded(result) for result in declared],
        convert=token_registry.to_array,
    )
    return contract


def count_message(spec: Callback, returned: int) -> str:
    """Return the message for a callback that returns too many results, or too few."""
    message: str = prepared().count_message(spec.title, returned, len(spec.outputs.dtypes))
    return message


def shape_message(spec: Callback, index: int, actual: Any, declared: Spec) -> str:
    """Return the message for a result whose shape is not as declared."""
    shown = declared if isinstance(declared, BoundedSpec) else declared.shape
    message: str = prepared().shape_message(spec.title, index, str(tuple(actual)), str(shown))
    return f"{message} This is {spec.description}."


def _sizes(shape: tf.TensorShape) -> list[int] | None:
    if shape.rank is None:
        return None
    return [prepared().ANY_SIZE if size is None else size for size in shape.as_list()]


def _bounded(declared: Spec) -> list[bool]:
    if not isinstance(declared, BoundedSpec):
        return []
    return [dim in declared.dynamic_dims for dim in range(len(declared.shape))]
