"""Functions that TensorFlow registered before hostcall was imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hostcall._callbacks.callback_spec import CallbackSpec, NumpySpec, ShapeFunction
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._callbacks.structures import Inputs, Outputs
from hostcall._functions import source_location
from hostcall._functions.declaration import Declaration
from hostcall._functions.declarations import declaration_of
from hostcall._tf import autograph, eager_execution, token_registry


def wrap(
    entry: Any,
    token: str,
    inputs: Inputs,
    outputs: Outputs,
    make_shape_function: Callable[[Any, Inputs, Outputs], ShapeFunction | None],
) -> CallbackSpec:
    """A spec for what TensorFlow registered itself, before hostcall was imported.

    Its gradient, if it is a py_function, stays TensorFlow's.

    Args:
      entry: the registered function or EagerFunc.
      token: under which it is registered.
      inputs: of its op, flat.
      outputs: likewise.
      make_shape_function: finds what is declared of the user's function.
    """
    eager = isinstance(entry, token_registry.EagerFunc)
    users = autograph.unwrapped(entry._func if eager else entry)
    specs = vars(entry).setdefault("__hostcall_specs__", {})  # live as long as what they stand for
    wrapped = specs.get((inputs.size, *outputs.dtypes))
    if isinstance(wrapped, CallbackSpec):
        wrapped.shape_function = make_shape_function(
            users, inputs, outputs
        )  # may be declared by now
        wrapped.pending = [wrapped.shape_function is not None] * len(outputs.dtypes)
        return wrapped
    function = entry
    if eager:

        @functools.wraps(users)
        def function(*arrays: Any) -> list[Any]:
            with eager_execution.eager_mode():
                tensors = [eager_execution.to_eager_tensor(array, None) for array in arrays]
            returned = entry(None, token, tensors)
            values = returned if isinstance(returned, list) else [returned]
            return [value.numpy() for value in values if value is not None]

    spec = NumpySpec(function, inputs, outputs, make_shape_function(users, inputs, outputs))
    if not eager:
        spec.declaration = declaration_of(users) or Declaration()
    spec.title = token
    spec.description = f"{EagerSpec.op_name if eager else spec.op_name} of " + (
        source_location.of_function(users)
    )
    specs[inputs.size, *outputs.dtypes] = spec
    return spec
