"""The arguments of the trial calls.

Sizes that vary are the `None`s of a `tf.TensorSpec`. If the user has given only arrays, the leading
sizes vary: equal sizes of all arguments vary together.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from hostcall._ops.structures import BoundedSpec


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
        shapes = [str(tuple(shape)) for shape in self.shapes]
        return f"arguments of shape {', '.join(shapes)}" if shapes else "no arguments"

    @property
    def shapes(self) -> list[list[int]]:
        """The shapes of the arguments."""
        return [tensor.shape.as_list() for tensor in self.tensors]

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """The shapes and dtypes of the arguments."""
        return [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in self.tensors]

    def varied(self, number: int, rolls: bool) -> Sample:
        """Return a sample with other values of the same kind, which are moved if it `rolls`."""
        # The `number` is different for each change, 0 for none.
        arrays = [(_array(tensor), tensor.dtype) for tensor in self.tensors]
        return Sample(tuple(tensor_of(_varied(a, number, rolls), dtype) for a, dtype in arrays))

    def with_tensor(self, number: int, tensor: Any) -> Sample:
        """Return a sample with another tensor for one argument."""
        return Sample((*self.tensors[:number], tensor, *self.tensors[number + 1 :]))


class GivenArguments:
    """The arguments that the user has given: arrays, or specs of them."""

    def __init__(self, leaves: Sequence[Any], fixed: bool) -> None:
        # Whether no argument may change, as the parts of a ragged tensor depend on each other.
        self.fixed = fixed
        jax = sys.modules.get("jax")
        # Whether some arguments are JAX arrays.
        self.of_jax = any(isinstance(leaf, getattr(jax, "Array", ())) for leaf in leaves)
        if self.of_jax:
            leaves = [leaf if _is_spec(leaf) else np.asarray(leaf) for leaf in leaves]
        # The spec of each argument, flat; sizes that the user lets vary are None.
        self._specs = [_spec(leaf) for leaf in leaves]
        # Whether some arguments may have any rank.
        self.any_rank = any(spec.shape.rank is None for spec in self._specs)
        # Whether the user's specs leave sizes open.
        self.has_free_sizes = any(not spec.shape.is_fully_defined() for spec in self._specs)
        given = [not _is_spec(leaf) for leaf in leaves]
        # Whether some values are made up, because the user has given specs.
        self.made_up = not all(given)
        self._bounds = [leaf.shape if isinstance(leaf, BoundedSpec) else None for leaf in leaves]
        self._free = self._free_axes(given)
        generator = np.random.default_rng(_SEED)
        # The sizes that are open differ from one another at first.
        shapes = self._bounded(
            [_BASE + i if n is None else n for i, n in enumerate(_sizes(spec))]
            for spec in self._specs
        )
        tensors = [
            tf.convert_to_tensor(leaf) if is_given else _made_up(spec, shape, generator)
            for leaf, is_given, spec, shape in zip(leaves, given, self._specs, shapes, strict=True)
        ]
        # The user's arrays, and small made-up arrays in the place of specs.
        self.base = Sample(tuple(tensors))

    @property
    def can_vary(self) -> bool:
        """True if any size may vary."""
        return not self.fixed and any(self._free)

    @property
    def vary_alone(self) -> bool:
        """True if exactly one argument's size varies, so that no other size must vary with it."""
        return sum(map(bool, self._free)) == 1

    def _free_axes(self, given: Sequence[bool]) -> list[list[int]]:
        """Return for each argument the axes that may vary; those of a leading size, for arrays."""
        if self.has_free_sizes:
            return [[i for i, n in enumerate(_sizes(spec)) if n is None] for spec in self._specs]
        pairs = zip(self._specs, given, strict=True)
        arrays = [_sizes(spec) if is_given else [] for spec, is_given in pairs]
        leading = {size for sizes in arrays for size in sizes[:1]}
        return [[i for i, n in enumerate(sizes) if n in leading] for sizes in arrays]

    def _bounded(self, shapes: Iterable[Sequence[int]]) -> list[list[int]]:
        pairs = zip(shapes, self._bounds, strict=True)
        return [[*map(min, shape, bound)] if bound else [*shape] for shape, bound in pairs]

    def tie(self) -> bool:
        """Make all sizes that are None equal from now on, and return whether there are several."""
        are_several = self.has_free_sizes and sum(map(len, self._free)) > 1
        if are_several:
            self.base = self.of_size(lambda _: _BASE)
        return are_several

    def of_size(self, size: Callable[[int], int], apart: bool = True) -> Sample:
        """Return arguments of other sizes, of which `size` maps each to the new one."""
        # Without `apart`, the sizes that the user leaves open are equal, and of arrays only the
        # leading sizes change.
        shapes = self.base.shapes
        for shape, axes in zip(shapes, self._free, strict=True):
            for axis in axes if apart or self.has_free_sizes else axes[:1]:
                is_equal = self.has_free_sizes and not apart
                shape[axis] = size(_BASE if is_equal else shape[axis])
        return self._resized(shapes)

    def of_rank_0(self) -> Sample:
        """Return the arguments with scalars for those of any rank."""
        pairs = zip(self._specs, self.base.shapes, strict=True)
        return self._resized([[] if spec.shape.rank is None else shape for spec, shape in pairs])

    def leading(self, size: int) -> Sample:
        """Return arguments whose first free size is `size`; a ValueError if they are too large."""
        shapes = self.base.shapes
        # Of arrays, those change that are as long as the first one.
        first = next((shape[0] for shape, axes in zip(shapes, self._free, strict=True) if axes), 0)
        for shape, axes in zip(shapes, self._free, strict=True):
            if axes and (self.has_free_sizes or shape[0] == first):
                shape[axes[0]] = size
        shapes = self._bounded(shapes)
        pairs = zip(shapes, self.base.tensors, strict=True)
        if sum(np.prod(shape, dtype=float) * t.dtype.size for shape, t in pairs) > _MOST_BYTES:
            raise ValueError(f"arguments with {size:,} rows take more than 64 MiB")
        return self._resized(shapes)

    def _resized(self, shapes: Sequence[Sequence[int]]) -> Sample:
        pairs = zip(self.base.tensors, self._bounded(shapes), strict=True)
        tensors = [tensor_of(_tiled(_array(t), shape), t.dtype) for t, shape in pairs]
        return Sample(tuple(tensors), promised=self.has_free_sizes)


def _varied(array: np.ndarray, number: int, rolls: bool) -> np.ndarray:
    if precision(array.dtype) and array.size:
        factor = np.asarray(1 - number / 16).astype(array.dtype)
        array = (array * factor).astype(array.dtype)
    return np.roll(array, number) if array.ndim and rolls else array


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
            f"hostcall.check makes up tensors only, and {leaf!r} asks for a "
            f"{leaf.value_type.__name__}. Pass a value, such as tf.ragged.constant([[1.0], []])."
        )
    tensor = tf.convert_to_tensor(leaf)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _sizes(spec: tf.TensorSpec) -> list[int | None]:
    """Return the sizes of a spec, of which None may vary; one axis stands for any rank."""
    return [None] if spec.shape.rank is None else list(spec.shape.as_list())


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.numpy())


def tensor_of(array: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    """Return a tensor with the elements of an array, which may be strings."""
    return tf.constant(array.tolist() if dtype == tf.string else array, dtype, array.shape)


def _tiled(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Repeat the values until they fill a shape, or cut them to it."""
    if array.ndim != len(shape):
        array = array.ravel()[:1].reshape([1] * len(shape))
    if not array.size:  # there is nothing to repeat
        return np.zeros(shape, array.dtype)
    indices = [np.arange(size) % count for size, count in zip(shape, array.shape, strict=True)]
    return np.asarray(array[np.ix_(*indices)])


def _made_up(
    spec: tf.TensorSpec, shape: Sequence[int], generator: np.random.Generator
) -> tf.Tensor:
    dtype = spec.dtype
    if dtype == tf.string:
        words = np.resize(np.array([b"one", b"two", b"", b"three"], object), shape)
        return tensor_of(words, dtype)
    if dtype == tf.bool or dtype.is_integer:
        return tf.cast(tf.constant(generator.integers(0, 2, shape), tf.int32), dtype)
    values = generator.normal(size=shape)
    if dtype.is_complex:
        values = values + 1j * generator.normal(size=shape)
    return tf.constant(values.astype(dtype.as_numpy_dtype), dtype)
