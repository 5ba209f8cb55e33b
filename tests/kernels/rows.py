"""Rows of tables of calls: what a row leaves open, the definition of its op tells."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from tests.kernels.call import ARRAY, Call, apply
from tests.kernels.data import Data, special, words
from tests.kernels.registry import dtypes

Part = Callable[[Data], Iterator[Call]]
Spec = Callable[[Data, tf.DType], Any]

_FIELDS = {field.name for field in dataclasses.fields(Call)} - {"op", "inputs", "attrs"}


class Each:
    """Values that a row takes in turn."""

    def __init__(self, *values: Any) -> None:
        self.values = values


def every(dtype: tf.DType) -> bool:
    return True


def floating(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating)


def integer(dtype: tf.DType) -> bool:
    return bool(dtype.is_integer)


def row(ops: str, *inputs: Any, **options: Any) -> Part:
    """Return what makes the calls of a row.

    Args:
      ops: the names of ops that take the same.
      *inputs: for each input of the ops a shape, for random numbers; a number or a list of them; a
        function of the data and the dtype; or `Each` of these. A list, for several tensors. Those
        of a variable are its initial value.
      **options: fields of `Call`, and attributes: a value, `Each` of some, or which dtypes, such as
        `every`. The dtypes of random numbers are all, those of others int32, unless it says so.
    """
    fields = {name: value for name, value in options.items() if name in _FIELDS}
    attrs = {name: value for name, value in options.items() if name not in _FIELDS}

    def calls(data: Data) -> Iterator[Call]:
        for op in words(ops):
            data.start(op)
            yield from _calls(data, op, inputs, attrs, fields)

    return calls


def rows(ops: str, *rows: tuple[Any, ...], **options: Any) -> Part:
    """Return what makes the calls of several rows with the same options: the inputs of each."""
    parts = [row(ops, *inputs, **options) for inputs in rows]
    return lambda data: itertools.chain.from_iterable(part(data) for part in parts)


def _calls(
    data: Data, op: str, specs: Any, attrs: dict[str, Any], fields: dict[str, Any]
) -> Iterator[Call]:
    definition = op_def_registry.get(op)
    args = list(definition.input_arg)
    names = [arg.type_attr or _of_variable(definition, arg) for arg in args]
    random = [name for name, spec in zip(names, specs, strict=True) if name and _is_random(spec)]
    inferred = dict.fromkeys((arg.type_attr for arg in args if arg.type_attr), tf.int32)
    options = {**inferred, **dict.fromkeys(random, every), **attrs}
    for chosen in itertools.product(*(_values(op, *option) for option in options.items())):
        values = dict(zip(options, chosen, strict=True))
        of_args = [values.get(name, arg.type) for name, arg in zip(names, args, strict=True)]
        rest = {name: value for name, value in values.items() if name not in inferred}
        for some in itertools.product(*map(_alternatives, specs)):
            made = (
                [_made(data, kind, spec) for spec in specs] if arg.number_attr
                else _made(data, kind, specs)
                for arg, kind, specs in zip(args, of_args, some, strict=True)
            )  # fmt: skip
            yield _call(op, args, tuple(made), rest, fields)


def _of_variable(definition: Any, arg: Any) -> str:
    """Return the attribute for the dtype of a variable that an op takes; "" if there is none."""
    found = [attr.name for attr in definition.attr if attr.name in ("T", "dtype")]
    return found[0] if found and arg.type == tf.resource.as_datatype_enum else ""


def _call(op: str, args: Any, inputs: Any, attrs: Any, fields: dict[str, Any]) -> Call:
    count = sum(arg.type == tf.resource.as_datatype_enum for arg in args)
    if not count:
        return Call(op, inputs, attrs, **fields)
    states = inputs[:count]
    said = ", ".join(f"{state.dtype}{list(state.shape)}" for state in states)
    fields = {"ulps": 8, "scale": ARRAY, "note": f"{said} {attrs or ''}", **fields}
    return Call(op, inputs[count:], function=_updating(op, states, attrs), **fields)


def _updating(op: str, states: Any, attrs: Any) -> Callable[..., Any]:
    """Return a function that makes variables, calls the op with them, and reads them."""
    variables: list[Any] = []

    def function(*inputs: Any) -> Any:
        if not variables:
            with tf.init_scope():  # tf.Variable makes none after the first call of a function
                variables.extend(map(ResourceVariable, states))
        made = [variable.assign(array) for variable, array in zip(variables, states, strict=True)]
        with tf.control_dependencies([tensor for tensor in made if not tf.executing_eagerly()]):
            done = apply(op, (*(variable.handle for variable in variables), *inputs), attrs)
        results = [] if done is None or isinstance(done, tf.Operation) else tf.nest.flatten(done)
        with tf.control_dependencies([done] if isinstance(done, tf.Operation) else []):
            return [*results, *(variable.read_value() for variable in variables)]

    return function


def _values(op: str, name: str, value: Any) -> Any:
    if callable(value):
        return [dtype for dtype in dtypes(op, name) if value(dtype)]
    return _alternatives(value)


def _alternatives(value: Any) -> tuple[Any, ...]:
    return value.values if isinstance(value, Each) else (value,)


def _is_random(spec: Any) -> bool:
    if isinstance(spec, Each):
        return any(map(_is_random, spec.values))
    some = spec[0] if isinstance(spec, list) and spec else spec
    return callable(some) or isinstance(some, tuple)


def _made(data: Data, dtype: Any, spec: Any) -> Any:
    dtype = tf.float32 if dtype == tf.resource.as_datatype_enum else tf.as_dtype(dtype)
    if callable(spec):
        return spec(data, dtype)
    if isinstance(spec, tuple):
        return data.normal(dtype, *spec)
    return np.array(spec).astype(dtype.as_numpy_dtype)


def _by(method: str, *shape: int, **limits: float) -> Spec:
    return lambda data, dtype: getattr(data, method)(dtype, *shape, **limits)


# Functions for the inputs of rows, which take a shape: numbers as `Data` makes them.
positive = functools.partial(_by, "positive")
unit = functools.partial(_by, "unit")
wide = functools.partial(_by, "wide")


def below(limit: int, *shape: int) -> Spec:
    return lambda data, dtype: data.integers(0, limit, *shape, dtype=dtype)


def specials(data: Data, dtype: tf.DType) -> Any:
    return special(dtype)
