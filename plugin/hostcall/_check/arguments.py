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
    """One set of arguments.

    Attributes:
      tensors: the arguments, flat.
      promised: whether the user's specs say that the function accepts these shapes.
    """

    tensors: tuple[Any, ...]
    promised: bool = True

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
    """The arguments that the user has given: arrays, or specs of them.

    Attributes:
      specs: the spec of each argument, flat; sizes that the user lets vary are None.
      made_up: whether some values are made up, because the user has given specs.
      any_rank: whether some arguments may have any rank.
      of_jax: whether some arguments are JAX arrays.
      fixed: whether no argument may change.
    """

    def __init__(self, leaves: Sequence[Any], fixed: bool) -> None:
        """Read the arguments.

        Args:
          leaves: the arguments, flat.
          fixed: whether the arguments depend on each other, as the parts of a ragged tensor do, so
            that none may change.
        """
        self.fixed = fixed
        generator = np.random.default_rng(_SEED)
        jax = sys.modules.get("jax")
        self.of_jax = any(isinstance(leaf, getattr(jax, "Array", ())) for leaf in leaves)
        leaves = [
            np.asarray(leaf) if self.of_jax and not is_spec(leaf) else leaf for leaf in leaves
        ]
        self.specs = [_spec(leaf) for leaf in leaves]
        self._given = [not is_spec(leaf) for leaf in leaves]
        self._bounds = [leaf.shape if isinstance(leaf, BoundedSpec) else None for leaf in leaves]
        self.made_up = any(map(is_spec, leaves))
        self._apart = True
        self.any_rank = any(spec.shape.rank is None for spec in self.specs)
        self._tensors = [
            _made_up(spec, self._shape(number, _BASE), generator)
            if is_spec(leaf)
            else tf.convert_to_tensor(leaf)
            for number, (leaf, spec) in enumerate(zip(leaves, self.specs, strict=True))
        ]

    @property
    def base(self) -> Sample:
        """The user's arrays, and small made-up arrays in the place of specs."""
        return Sample(tuple(self._tensors))

    @property
    def has_free_sizes(self) -> bool:
        """True if the user's specs leave sizes open."""
        return any(not spec.shape.is_fully_defined() for spec in self.specs)

    @property
    def can_vary(self) -> bool:
        """True if any size may vary."""
        if self.fixed:
            return False
        return self.has_free_sizes or bool(self._leading)

    @property
    def vary_alone(self) -> bool:
        """True if exactly one argument's size varies, so that no other size must vary with it."""
        if not self.has_free_sizes and len(set(self._leading)) != 1:
            return False
        axes = [self._first_open_axis(number) for number in range(len(self._tensors))]
        return sum(axis is not None for axis in axes) == 1

    @property
    def _leading(self) -> list[int]:
        """The leading sizes of the user's arrays."""
        pairs = zip(self._tensors, self._given, strict=True)
        return [int(tensor.shape[0]) for tensor, given in pairs if given and tensor.shape.rank]

    def tie(self) -> bool:
        """Make all sizes that are None equal from now on, and return whether that changes any."""
        several = sum(_open_sizes(spec) for spec in self.specs) > 1
        if not (self._apart and several and self.has_free_sizes):
            return False
        self._apart = False
        shapes = [self._shape(number, _BASE, False) for number in range(len(self._tensors))]
        self._tensors = list(self._resized(shapes, promised=True).tensors)
        return True

    def of_size(self, size: Callable[[int], int], apart: bool = True) -> Sample:
        """Return arguments of other sizes.

        Args:
          size: maps a size to the new one; a size that the user leaves open starts as `_BASE`.
          apart: whether the open sizes of one argument differ from one another. For arrays: whether
            all sizes equal to a leading one change, rather than only the leading ones.
        """
        if self.has_free_sizes:
            apart = apart and self._apart
            shapes = [self._shape(i, size(_BASE), apart) for i in range(len(self._tensors))]
            return self._resized(shapes, promised=True)
        shapes = [
            [
                size(n) if given and n in self._leading and (apart or axis == 0) else n
                for axis, n in enumerate(tensor.shape.as_list())
            ]
            for tensor, given in zip(self._tensors, self._given, strict=True)
        ]
        return self._resized(shapes, promised=False)

    def of_rank_0(self) -> Sample:
        """Return the arguments with scalars for those of any rank."""
        shapes = [
            [] if spec.shape.rank is None else self._shape(number, _BASE)
            for number, spec in enumerate(self.specs)
        ]
        return self._resized(shapes, promised=True)

    def leading(self, size: int) -> Sample:
        """Return arguments whose first size that may vary is `size`, or its bound if smaller.

        Raises:
          ValueError: when the arguments would take too much memory.
        """
        shapes: list[list[int]] = []
        for number, tensor in enumerate(self._tensors):
            shape = tensor.shape.as_list()
            axis = self._first_open_axis(number)
            if axis is not None:
                bound = self._bounds[number]
                shape[axis] = size if bound is None else min(size, bound[axis])
            shapes.append(shape)
        pairs = zip(shapes, self._tensors, strict=True)
        if sum(np.prod(shape, dtype=float) * t.dtype.size for shape, t in pairs) > _MOST_BYTES:
            raise ValueError(f"arguments with {size:,} rows take more than 64 MiB")
        return self._resized(shapes, promised=self.has_free_sizes)

    def _first_open_axis(self, number: int) -> int | None:
        """Return the first axis that may vary, or None: 0 for arrays as long as the first one."""
        spec, shape = self.specs[number], self._tensors[number].shape
        if not self.has_free_sizes:
            is_like_first = shape.rank and self._leading[:1] == [shape[0]]
            return 0 if self._given[number] and is_like_first else None
        if spec.shape.rank is None:
            return 0 if shape.rank else None
        return next((axis for axis, size in enumerate(spec.shape) if size is None), None)

    def _shape(self, number: int, size: int, apart: bool = True) -> list[int]:
        spec, bound = self.specs[number], self._bounds[number]
        if spec.shape.rank is None:
            return [size]
        sizes = []
        for axis, known in enumerate(spec.shape):
            free = size + axis if apart and size else size
            limit = free if bound is None else bound[axis]
            sizes.append(min(free, limit) if known is None else known)
        return sizes

    def _resized(self, shapes: Sequence[Sequence[int]], promised: bool) -> Sample:
        pairs = zip(self._tensors, shapes, strict=True)
        tensors = [_tensor(_tiled(_array(t), shape), t.dtype) for t, shape in pairs]
        return Sample(tuple(tensors), promised)


def varied(number: int, rolls: bool = True) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that changes the values of an array but keeps their kind.

    Args:
      number: the number of the change, different for each; 0 changes nothing.
      rolls: whether elements change their places.
    """

    def change(array: np.ndarray) -> np.ndarray:
        if precision(array.dtype) and array.size:
            factor = np.asarray(1 - number / 16).astype(array.dtype)
            array = (array * factor).astype(array.dtype)
        return np.roll(array, number) if array.ndim and rolls else array

    return change


def is_spec(leaf: object) -> bool:
    """Return whether a leaf is a spec, for an argument without a value from the user."""
    return isinstance(leaf, tf.TensorSpec | BoundedSpec)


def _spec(leaf: Any) -> tf.TensorSpec:
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


def _open_sizes(spec: tf.TensorSpec) -> int:
    return 1 if spec.shape.rank is None else sum(size is None for size in spec.shape)


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.numpy())


def _tensor(array: np.ndarray, dtype: tf.DType) -> Any:
    return tf.constant(array.tolist() if dtype == tf.string else array, dtype, array.shape)


def _tiled(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Repeat the values until they fill a shape, or cut them to it."""
    if array.ndim != len(shape):
        array = array.reshape([1] * len(shape)) if array.size == 1 else array.ravel()[:1]
        array = array.reshape([1] * len(shape))
    for axis, size in enumerate(shape):
        count = array.shape[axis]
        if count == size:
            continue
        if not count:  # there is nothing to repeat
            array = np.zeros([*array.shape[:axis], size, *array.shape[axis + 1 :]], array.dtype)
        else:
            array = array.take(np.arange(size) % count, axis)
    return array


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
