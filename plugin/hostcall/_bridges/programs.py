"""JAX functions as programs that TensorFlow can hold, their callbacks among them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from hostcall import _versions
from hostcall._bridges import jax_exports
from hostcall._callbacks.call_modules import Module
from hostcall._functions import source_location
from hostcall._tf import eager_threads
from hostcall.jax import _effects, _names, _reducers, _rules
from hostcall.jax._functions import Function
from hostcall.jax._primitive import call_p
from hostcall_runtime import Target, _interception, register

_numbers = itertools.count(1)


@dataclasses.dataclass
class Callbacks:
    """The callbacks of a program.

    Attributes:
      targets: what the runtime calls for them.
      losable: how many of them JAX leaves out of loops that it differentiates.
    """

    targets: list[Target] = dataclasses.field(default_factory=list)
    losable: int = 0

    def add(self, target: Target, effect: Any | None) -> None:
        """Counts one more."""
        self.targets.append(target)
        self.losable += effect is not None and _effects.is_lost_in_loops(effect)


@dataclasses.dataclass(frozen=True)
class Program:
    """A JAX function for arguments of certain dtypes and shapes.

    Attributes:
      exported: the `jax.export.Exported`.
      callbacks: those in it.
      module: what TensorFlow knows of it; the graphs that call it own it, and so its callbacks.
    """

    exported: Any
    callbacks: Callbacks
    module: Module

    @property
    def has_effects(self) -> bool:
        """Whether it does more than to return its results."""
        return jax_exports.has_effects(self.exported)


def export(jitted: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Program:
    """Traces and lowers a function that `jax.jit` has made.

    Args:
      jitted: the function.
      args: ShapeDtypeStructs in structures; sizes may be symbolic.
      kwargs: the same.
    """
    callbacks = Callbacks()
    rules: dict[Any, Callable[..., Any]] = {call_p: functools.partial(_lower_call, callbacks)}
    if _names.has(_names.JAX_CALLBACKS):
        rules |= _rules_of_jax_callbacks(callbacks, jitted.trace(*args, **kwargs).jaxpr)
    exported = jax_exports.export(jitted, rules, _rules.TARGET)(*args, **kwargs)
    exported = jax_exports.readable(exported, _versions.stablehlo(tf.__version__))
    _, name, defined_at, _ = source_location.split_description(
        f"f of {source_location.of_function(jitted)}"
    )
    has_token = jax_exports.has_ordered_effects(exported)
    module = Module("hostcall.jax.to_tf", name, defined_at, callbacks.targets, has_token)
    return Program(exported, callbacks, module)


def run(program: Program, tensors: Sequence[Any]) -> list[Any]:
    """The results of a program for flat tensors: those of an op, in a graph."""
    with program.module.called():
        return jax_exports.run_in_tensorflow(program.exported, tensors)


def _rules_of_jax_callbacks(callbacks: Callbacks, jaxpr: Any) -> dict[Any, Callable[..., Any]]:
    """The lowering rules of JAX's own callbacks in a program."""
    from hostcall._bridges import jax_callbacks  # which a version of JAX may not have

    _reducers.check(jaxpr, jax_callbacks.KINDS)
    return {
        primitive: functools.partial(_lower_jax_callback, callbacks, read, jax_callbacks.line_of)
        for primitive, read in jax_callbacks.READERS.items()
    }


def _lower_call(
    callbacks: Callbacks,
    context: Any,
    *operands: Any,
    function: Function,
    effect: Any | None,
    joint: tuple[str, ...] | None,
    **_: Any,
) -> Any:
    if joint:
        raise NotImplementedError(
            f"{function.description}: with this sharding= it is called for parts of arrays, on "
            "several devices, and TensorFlow runs a function of hostcall.jax.to_tf on one. Leave "
            "sharding= out, or say jax.P()."
        )
    target, callback_id = function.register(effect is _effects.ORDERED)
    target.host_function = functools.partial(eager_threads.apart, target.host_function)
    callbacks.add(target, effect)
    return _rules.emit(context, operands, callback_id, effect)


def _lower_jax_callback(
    callbacks: Callbacks,
    read: Callable[..., Any],
    line_of: Callable[[Any], str],
    context: Any,
    *operands: Any,
    **params: Any,
) -> Any:
    callback = read(**params)
    name = callback.user_function
    name = name if isinstance(name, str) else source_location.of_function(name)
    place = f"{callback.kind} of {name}, called at {line_of(context)}"
    target = Target(_as_host_function(callback.function), callback.kind, place)
    ordered = callback.effect is not None and _effects.is_ordered(callback.effect)
    target.site = _interception.Site(name, place, callback.function, ordered=ordered)
    callback_id = register(target, f"{callback.kind}/{next(_numbers)}", label=place)
    callbacks.add(target, callback.effect)
    return _rules.emit(context, operands, callback_id, callback.effect, callback.sharding)


def _as_host_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose results have dtypes that JAX has."""

    def call(*arrays: Any) -> list[Any]:
        return [_canonical(np.asarray(value)) for value in eager_threads.apart(function, *arrays)]

    return call


def _canonical(array: np.ndarray) -> Any:
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
