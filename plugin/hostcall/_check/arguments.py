"""The arguments of the trial calls.

Sizes that vary are the `None`s of a `tf.TensorSpec`. If the user has given only arrays, the leading
sizes vary: equal sizes of all arguments vary together.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from hostcall._callbacks.structures import BoundedSpec


def precision(dtype: np.dtype[Any]) -> float:
    """Return the machine epsilon of a floating-point dtype, and 0 for other dtypes."""
    if dtype.kind not in "fcV":
        return 0.0
    try:
        return float(ml_dtypes.finfo(dtype).eps)
    except (TypeError, ValueError):  # four-bit integers have no `finfo`
        return 0.0


# The random seed and the size for arguments that are given as specs.
_SEED = 19
_BASE = 3

# Each function turns a size into another one to try.
SIZES: Sequence[Callable[[int], int]] = (lambda size: size + 1, lambda _: 1)
_MOST_BYTES = 1 << 26


@dataclasses.dataclass(frozen=True)
class Sample:
    """One set of arguments."""

    tensors: tuple[Any, ...]  # the arguments, flat
    promised: bool = True  # whether the user's specs say that the function accepts these shapes

    def __str__(self) -> str:
        shapes = [str(tuple(tensor.shape)) for tensor in self.tensors]
        return f"arguments of shape {', '.join(shapes)}" if shapes else "no arguments"

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """The shapes and dtypes of the arguments."""
        return [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in self.tensors]

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Sample:
        """Return a sample whose values `change` has replaced."""
        return Sample(tuple(_tensor(change(_array(t)), t.dtype) for t in self.tensors))


class Arguments:
    """The arguments that the user has given: arrays, or specs of them."""

    def __init__(self, leaves: Sequence[Any], fixed: bool) -> None:
        # Whether no argument may change, as the parts of a ragged tensor depend on each other.
        self.fixed = fixed
        generator = np.random.default_rng(_SEED)
        jax = sys.modules.get("jax")
        # Whether some arguments are JAX arrays.
        self.of_jax = any(isinstance(leaf, getattr(jax, "Array", ())) for leaf in leaves)
        if self.of_jax:
            leaves = [leaf if _is_spec(leaf) else np.asarray(leaf) for leaf in leaves]
        # The spec of each argument, flat; sizes that the user lets vary are None.
        self.specs = [_spec(leaf) for leaf in leaves]
        # Whether some arguments may have any rank.
        self.any_rank = any(spec.shape.rank is None for spec in self.specs)
        # Whether the user's specs leave sizes open.
        self.has_free_sizes = any(not spec.shape.is_fully_defined() for spec in self.specs)
        self._given = [not _is_spec(leaf) for leaf in leaves]
        # Whether some values are made up, because the user has given specs.
        self.made_up = not all(self._given)
        self._bounds = [leaf.shape if isinstance(leaf, BoundedSpec) else None for leaf in leaves]
        self._apart = True
        tensors = [
            tf.convert_to_tensor(leaf) if given else _made_up(spec, shape, generator)
            for leaf, spec, given, shape in zip(
                leaves, self.specs, self._given, self._shapes(_BASE), strict=True
            )
        ]
        # The user's arrays, and small made-up arrays in the place of specs.
        self.base = Sample(tuple(tensors))

    @property
    def can_vary(self) -> bool:
        """True if any size may vary."""
        return not self.fixed and (self.has_free_sizes or bool(self._leading))

    @property
    def vary_alone(self) -> bool:
        """True if exactly one argument's size varies, so that no other size must vary with it."""
        if not self.has_free_sizes and len(set(self._leading)) != 1:
            return False
        return sum(axis is not None for axis in self._open_axes) == 1

    @property
    def _leading(self) -> list[int]:
        """The leading sizes of the user's arrays."""
        pairs = zip(self.base.tensors, self._given, strict=True)
        return [int(tensor.shape[0]) for tensor, given in pairs if given and tensor.shape.rank]

    @property
    def _open_axes(self) -> list[int | None]:
        """For each argument the first axis that may vary: 0 for arrays as long as the first one."""
        if self.has_free_sizes:
            return [
                0 if spec.shape.rank is None else next(iter(_open_sizes(spec)), None)
                for spec in self.specs
            ]
        first = self._leading[:1]
        pairs = zip(self.base.tensors, self._given, strict=True)
        return [
            0 if given and first and first == tensor.shape.as_list()[:1] else None
            for tensor, given in pairs
        ]

    def tie(self) -> bool:
        """Make all sizes that are None equal from now on, and return whether that changes any."""
        open_sizes = sum(
            1 if spec.shape.rank is None else len(_open_sizes(spec)) for spec in self.specs
        )
        if not self._apart or open_sizes < 2:
            return False
        self._apart = False
        self.base = self._resized(self._shapes(_BASE))
        return True

    def of_size(self, size: Callable[[int], int], apart: bool = True) -> Sample:
        """Return arguments of other sizes, of which `size` maps each to the new one."""
        # A size that the user leaves open starts as `_BASE`. `apart` makes the open sizes of one
        # argument differ from one another. For arrays, it changes all sizes equal to a leading one.
        if self.has_free_sizes:
            return self._resized(self._shapes(size(_BASE), apart))
        shapes = [
            [
                size(n) if given and n in self._leading and (apart or axis == 0) else n
                for axis, n in enumerate(tensor.shape.as_list())
            ]
            for tensor, given in zip(self.base.tensors, self._given, strict=True)
        ]
        return self._resized(shapes)

    def of_rank_0(self) -> Sample:
        """Return the arguments with scalars for those of any rank."""
        pairs = zip(self.specs, self._shapes(_BASE), strict=True)
        return self._resized([[] if spec.shape.rank is None else shape for spec, shape in pairs])

    def leading(self, size: int) -> Sample:
        """Return arguments whose first free size is `size`; a ValueError if they are too large."""
        shapes = [tensor.shape.as_list() for tensor in self.base.tensors]
        for shape, axis, bound in zip(shapes, self._open_axes, self._bounds, strict=True):
            if axis is not None:
                shape[axis] = size if bound is None else min(size, bound[axis])
        pairs = zip(shapes, self.base.tensors, strict=True)
        if sum(np.prod(shape, dtype=float) * t.dtype.size for shape, t in pairs) > _MOST_BYTES:
            raise ValueError(f"arguments with {size:,} rows take more than 64 MiB")
        return self._resized(shapes)

    def _shapes(self, size: int, apart: bool = True) -> list[list[int]]:
        """Return the shapes of all arguments, with a size for those that are open."""
        shapes = []
        for spec, bound in zip(self.specs, self._bounds, strict=True):
            shape = [size] if spec.shape.rank is None else spec.shape.as_list()
            for axis in [] if spec.shape.rank is None else _open_sizes(spec):
                free = size + axis if apart and self._apart and size else size
                shape[axis] = free if bound is None else min(free, bound[axis])
            shapes.append(shape)
        return shapes

    def _resized(self, shapes: Sequence[Sequence[int]]) -> Sample:
        pairs = zip(self.base.tensors, shapes, strict=True)
        tensors = [_tensor(_tiled(_array(t), shape), t.dtype) for t, shape in pairs]
        return Sample(tuple(tensors), promised=self.has_free_sizes)


def varied(number: int, rolls: bool = True) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that changes the values of an array but keeps their kind."""
    # The `number` is different for each change, 0 for none. If it `rolls`, elements are moved.

    def change(array: np.ndarray) -> np.ndarray:
        if precision(array.dtype) and array.size:
            factor = np.asarray(1 - number / 16).astype(array.dtype)
            array = (array * factor).astype(array.dtype)
        return np.roll(array, number) if array.ndim and rolls else array

    return change


def _is_spec(leaf: object) -> bool:
    """Return whether a leaf is a spec, for an argument without a value from the user."""
    return isinstance(leaf, tf.TensorSpec | BoundedSpec)


def _spec(leaf: object) -> tf.TensorSpec:
    if isinstance(leaf, BoundedSpec):
        return leaf.tensor_spec()
    if isinstance(leaf, tf.TensorSpec):
        return leaf
    if isinstance(leaf, tf.TypeSpec):
        raise TypeError(
            f"hostcall.check makes up tensors and no {leaf.value_type.__name__}, as {leaf!r} asks "
            "for. Pass a value: tf.ragged.constant([[1.0], []]), for one."
        )
    tensor = tf.convert_to_tensor(leaf)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _open_sizes(spec: tf.TensorSpec) -> list[int]:
    """Return the axes of a spec that has a rank whose sizes are None."""
    return [axis for axis, size in enumerate(spec.shape) if size is None]


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.numpy())


def _tensor(array: np.ndarray, dtype: tf.DType) -> Any:
    return tf.constant(array.tolist() if dtype == tf.string else array, dtype, array.shape)


def _tiled(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Repeat the values until they fill a shape, or cut them to it."""
    if array.ndim != len(shape):
        array = array.ravel()[:1].reshape([1] * len(shape))
    if not array.size:  # there is nothing to repeat
        return np.zeros(shape, array.dtype)
    indices = [np.arange(size) % count for size, count in zip(shape, array.shape, strict=True)]
    return np.asarray(array[np.ix_(*indices)])


def _made_up(spec: tf.TensorSpec, shape: Sequence[int], generator: np.random.Generator) -> Any:
    dtype = spec.dtype
    if dtype == tf.string:
        words = itertools.cycle([b"one", b"two", b"", b"three"])
        count = int(np.prod(shape))
        return tf.reshape(tf.constant([next(words) for _ in range(count)], tf.string), shape)
    if dtype == tf.bool:
        return tf.constant(generator.random(shape) < 0.5, dtype)
    if dtype.is_integer:
        return tf.cast(tf.constant(generator.integers(0, 2, shape), tf.int32), dtype)
    values = generator.normal(size=shape)
    if dtype.is_complex:
        values = values + 1j * generator.normal(size=shape)
    return tf.constant(values.astype(dtype.as_numpy_dtype), dtype)
