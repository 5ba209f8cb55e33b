"""Programs made of JAX functions, with the gradients that JAX has of them.

TensorFlow's gradients of complex values are the conjugates of JAX's. Integers have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import tensorflow as tf

from hostcall._bridges import programs
from hostcall._tf import gradient_tapes


class Differentiable:
    """A program as a function of flat tensors, which TensorFlow can differentiate.

    A function without side effects runs once more for its gradient, as those of `jax2tf` do. One
    with side effects must not: it returns what its gradient needs, too, if one can be asked for.

    Attributes:
      out_tree: the structure of the results.
    """

    def __init__(self, jitted: Any, program: programs.Program, description: str) -> None:
        self.out_tree = program.exported.out_tree
        self._program = program
        self._jitted = jitted
        self._description = description
        self._floats_in = list(map(_is_float, program.exported.in_avals))
        self._floats_out = list(map(_is_float, program.exported.out_avals))
        self._gradient: Differentiable | None = None
        self._split: _Split | None = None

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        unrecorded = tf.executing_eagerly() and gradient_tapes.has_no_tapes()
        if unrecorded or not (any(self._floats_in) and any(self._floats_out)):
            return programs.run(self._program, tensors)
        forward = self._forward_once if self._program.has_effects else self._forward
        return _with_gradient(forward, tensors)

    def _forward(self, *tensors: Any) -> Any:
        """The results, and the gradient as TensorFlow asks for it."""

        def gradient(*upstream: Any, **_: Any) -> list[Any]:
            if self._gradient is None:
                self._gradient = self._export_gradient()
            return self._all(self._gradient([*tensors, *self._chosen(upstream)]))

        return programs.run(self._program, tensors), gradient

    def _forward_once(self, *tensors: Any) -> Any:
        """The same, where the program must not run again."""
        if self._split is None:
            avals = self._program.exported.in_avals
            self._split = _Split(self._pull_back, avals, self._program, self._description)
        split = self._split
        results, residuals = split.forward(tensors)

        def gradient(*upstream: Any, **_: Any) -> list[Any]:
            return self._all(split.backward([*residuals, *self._chosen(upstream)]))

        return results, gradient

    def _pull_back(self, *flat: Any) -> tuple[list[Any], Any]:
        """The flat results, and JAX's function from their cotangents to those of the arguments."""

        def of_floats(*floats: Any) -> tuple[list[Any], list[Any]]:
            remaining = iter(floats)
            both = zip(flat, self._floats_in, strict=True)
            whole = [next(remaining) if is_float else value for value, is_float in both]
            args, kwargs = jax.tree.unflatten(self._program.exported.in_tree, whole)
            results = jax.tree.leaves(self._jitted(*args, **kwargs))
            return self._chosen(results), results

        floats = [value for value, is_float in zip(flat, self._floats_in, strict=True) if is_float]
        _, pull_back, results = jax.vjp(of_floats, *floats, has_aux=True)
        return results, pull_back

    def _export_gradient(self) -> Differentiable:
        avals = self._program.exported.in_avals

        def gradient(*flat: Any) -> list[Any]:
            _, pull_back = self._pull_back(*flat[: len(avals)])
            return _conjugated(pull_back(_conjugated(flat[len(avals) :])))

        jitted = jax.jit(gradient)
        cotangents = self._chosen(self._program.exported.out_avals)
        program = programs.export(jitted, _structs([*avals, *cotangents]), {})
        return Differentiable(jitted, program, f"the gradient of {self._description}")

    def _chosen(self, of_results: Sequence[Any]) -> list[Any]:
        """Those of the results that have gradients."""
        both = zip(of_results, self._floats_out, strict=True)
        return [value for value, is_float in both if is_float]

    def _all(self, gradients: Sequence[Any]) -> list[Any]:
        """With None for the arguments that have no gradients."""
        remaining = iter(gradients)
        return [next(remaining) if is_float else None for is_float in self._floats_in]


class _Split:
    """A program with side effects as two: one also returns what the other, its gradient, needs."""

    def __init__(
        self, pull_back: Callable[..., Any], avals: Any, whole: programs.Program, description: str
    ) -> None:
        self._whole = whole
        self._count = len(whole.exported.out_avals)
        self._description = description
        self._tree: Any = None
        self._backward: programs.Program | None = None
        self._error: Exception | None = None

        def with_residuals(*flat: Any) -> list[Any]:
            results, function = pull_back(*flat)
            residuals, self._tree = jax.tree.flatten(function)
            return [*results, *residuals]

        try:
            self._forward = programs.export(jax.jit(with_residuals), _structs(avals), {})
            self._check_effects()
        except Exception as error:  # it has none, which does not matter before it is asked for
            self._error, self._forward = error, whole

    def _check_effects(self) -> None:
        if self._forward.callbacks.losable != self._whole.callbacks.losable:
            raise NotImplementedError(
                "where JAX differentiates a loop, it leaves out some calls in it (of "
                "jax.experimental.io_callback). Use hostcall.jax.call in its place, which stays."
            )

    def forward(self, tensors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The results, and what the gradient needs."""
        returned = programs.run(self._forward, tensors)
        return returned[: self._count], [*returned[self._count :], *self._sized(tensors)]

    def backward(self, tensors: Sequence[Any]) -> list[Any]:
        """The gradients of the arguments that have any.

        Args:
          tensors: what `forward` returned for it, and the gradients of the results that have any.
        """
        if self._error is not None:
            raise ValueError(
                f"hostcall.jax.to_tf of {self._description}: JAX has no gradient of it: "
                f"{self._error}"
            ) from self._error
        if self._backward is None:
            self._backward = self._export_backward()
        program = self._backward

        def once(*tensors: Any) -> Any:
            return programs.run(program, tensors), self._refuse

        return _with_gradient(once, tensors)

    def _export_backward(self) -> programs.Program:
        residuals = self._forward.exported.out_avals[self._count :]
        sized = self._sized(self._whole.exported.in_avals)
        cotangents = [aval for aval in self._whole.exported.out_avals if _is_float(aval)]

        def backward(*flat: Any) -> list[Any]:
            pull_back = jax.tree.unflatten(self._tree, flat[: len(residuals)])
            return _conjugated(pull_back(_conjugated(flat[len(residuals) + len(sized) :])))

        avals = [*residuals, *sized, *cotangents]
        return programs.export(jax.jit(backward), _structs(avals), {})

    def _sized(self, of_arguments: Sequence[Any]) -> list[Any]:
        """Those of the arguments that have sizes with names, which only arguments tell."""
        avals = self._whole.exported.in_avals
        return [
            value
            for value, aval in zip(of_arguments, avals, strict=True)
            if not all(isinstance(size, int) for size in aval.shape)
        ]

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ValueError(
            f"hostcall.jax.to_tf of {self._description}: its second derivative is asked for, and "
            "it has side effects, which would happen again. Take jax.grad of it in JAX, and "
            "convert the result."
        )


def _with_gradient(function: Callable[..., Any], tensors: Sequence[Any]) -> list[Any]:
    """The results of a function of `tf.custom_gradient`."""
    results = list(tf.custom_gradient(function)(*tensors))
    if results and not tf.executing_eagerly():
        gradient_tapes.own_custom_gradient(results[0].op)
    return results


def _is_float(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jnp.inexact))


def _conjugated(values: Sequence[Any]) -> list[Any]:
    return [jnp.conj(value) for value in values]


def _structs(avals: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
