"""What a user has declared of a function, however: `hostcall.callback`, `declare`, or `result=`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.specs import is_leaf
from hostcall._callbacks.structures import Outputs
from hostcall._functions import source_location
from hostcall._functions.callback import Callback
from hostcall._functions.declaration import Declaration
from hostcall._functions.declaration_checks import check_callback, check_function
from hostcall._functions.declarations import declaration_of
from hostcall._functions.native.native_code import NativeCode

_NOTHING = (
    "hostcall.check: nothing is declared of the results of {function}. Write "
    "hostcall.check({name}, ..., result=tf.TensorSpec([3], tf.float32)), for one, or declare it: "
    "hostcall.declare({name}, result=...)."
)
_NO_KEYWORDS = (
    "hostcall.check: kwargs= is for a hostcall.callback, and script ops pass no arguments by "
    "keyword. Write hostcall.check(hostcall.callback({name}, result=...), ..., kwargs=...)."
)
_TWICE = (
    "hostcall.check: {option}= is for plain functions, and {function!r} says it itself. Take "
    "{option}= away."
)
_PROGRAM = (
    "hostcall.check tries a function that programs call, and {function!r} is a program. "
    "hostcall.explain shows what becomes of it."
)


@dataclasses.dataclass(frozen=True)
class Declared:
    """A function and what is declared of it.

    Attributes:
      function: what is called by position.
      declaration: what is declared.
      eager: whether the function takes EagerTensors.
      stateful: whether calls may have side effects.
      grad: the gradient that the user has given it, or None.
      given_name: the name that the user has given it, or None.
      is_callback: whether the user has made a `hostcall.callback` of it.
      dtypes: the structure of the results where the declaration does not say it, or None.
      program: from the structure of the results to what calls the function on tensors.
    """

    function: Callable[..., Any]
    declaration: Declaration
    eager: bool
    stateful: bool
    grad: Callable[..., Any] | None
    given_name: str | None
    is_callback: bool
    dtypes: Any
    program: Callable[[Outputs], Callable[..., Any]]


def of_callback(
    callback: Callback, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Declared, tuple[Any, ...]]:
    """What a callback says of itself, and its arguments by position."""
    inputs, call = callback._sorted(args, dict(kwargs))
    program = callback
    if kwargs:
        program = Callback(
            call.function, call.declaration, callback.kind, callback.stateful, None, call.grad
        )
    declared = Declared(
        call.function,
        call.declaration,
        callback.kind == "eager",
        callback.stateful,
        call.grad,
        callback.name,
        True,
        None,
        lambda _: program,
    )
    return declared, inputs


def of_function(function: Any, result: object, kind: str, stateful: bool | None) -> Declared:
    """What is declared of a plain function, and what `hostcall.check` is told.

    Args:
      function: the function.
      result: as `hostcall.callback` takes it, or dtypes; None where the declaration says enough.
      kind: "numpy" or "eager".
      stateful: whether calls may have side effects; None for what the declaration says.

    Raises:
      TypeError: when it is no function, or nothing is declared of its results.
    """
    if hasattr(function, "get_concrete_function"):
        raise TypeError(_PROGRAM.format(function=function))
    check_function(function, "hostcall.check")
    declaration = declaration_of(function) or Declaration()
    eager = kind == "eager"
    if stateful is None:
        stateful = eager or not (declaration.pure or declaration.table is not None)
    check_callback(kind, None, None, stateful, None)
    result = _with_specs(result)
    if declaration.result is not None:
        call = functools.partial(_by_script_op, function, eager, stateful)
        return Declared(function, declaration, eager, stateful, None, None, False, result, call)
    if result is None:
        name = getattr(function, "__name__", "f")
        where = source_location.of_function(function)
        raise TypeError(_NOTHING.format(function=where, name=name))
    declaration = dataclasses.replace(declaration, result=result)
    made = Callback(function, declaration, kind, stateful, None, None)
    return Declared(function, declaration, eager, stateful, None, None, False, None, lambda _: made)


def of(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    result: object,
    kind: str | None,
    stateful: bool | None,
) -> tuple[Declared, tuple[Any, ...]]:
    """What is declared of a function or callback, and its arguments by position.

    Raises:
      TypeError: when it is neither, or what is said of it is too little or too much.
    """
    if isinstance(function, Callback):
        given = {"result": result, "kind": kind, "stateful": stateful}
        for option, value in given.items():
            if value is not None:
                raise TypeError(_TWICE.format(option=option, function=function))
        return of_callback(function, args, kwargs)
    if kwargs:
        raise TypeError(_NO_KEYWORDS.format(name=getattr(function, "__name__", "f")))
    if isinstance(function, NativeCode) and stateful is None:
        stateful = False  # nothing of it is Python's
    return of_function(function, result, kind or "numpy", stateful), args


def _by_script_op(
    function: Callable[..., Any], eager: bool, stateful: bool, outputs: Outputs
) -> Callable[..., Any]:
    tout = tf.nest.map_structure(lambda leaf: getattr(leaf, "dtype", leaf), outputs.structure)

    def call(*args: Any) -> Any:
        if eager:
            return tf.py_function(function, args, tout)
        return tf.numpy_function(function, args, tout, stateful=stateful)

    return call


def _with_specs(result: object) -> Any:
    """A declared result with specs in the place of dtypes."""
    if isinstance(result, dict):
        return {key: _with_specs(value) for key, value in result.items()}
    if isinstance(result, list | tuple) and not hasattr(result, "_fields"):
        return type(result)(map(_with_specs, result))
    is_dtype = isinstance(result, tf.DType | np.dtype) or (
        isinstance(result, type) and issubclass(result, np.generic)
    )
    if is_dtype and not is_leaf(result):
        return tf.TensorSpec(None, tf.as_dtype(result))
    return result
