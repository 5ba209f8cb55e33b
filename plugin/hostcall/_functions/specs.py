"""Specs of results, without a framework."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol, TypeGuard, TypeVar, cast

import numpy as np
import numpy.typing as npt

from hostcall._functions import frameworks, source_location
from hostcall_runtime import _errors
from hostcall_runtime._errors import counted

# Types that NumPy takes as dtypes, and their subclasses.
_NUMBERS = (np.generic, int, float, complex)


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """The spec that a shape function gets for an argument where TensorFlow is not imported."""

    shape: tuple[Any, ...] | None  # the sizes, a tuple of ints; None if the rank is unknown
    dtype: np.dtype[Any]  # NumPy's dtype


class Declared(Protocol):
    """A spec of one array, of any framework."""

    @property
    def shape(self) -> Any:
        """The sizes."""

    @property
    def dtype(self) -> Any:
        """The element dtype."""


@dataclasses.dataclass(frozen=True, init=False, eq=False, repr=False)
class BoundedSpec:
    """A tensor with a bounded size: XLA knows an upper bound, and each run the exact size.

    The callback returns an array of any size up to the bound. XLA reserves memory for the bound.
    The program sees the true size: in `tf.shape`, reductions, masks and the tensor that the
    function returns. JAX has no arrays of bounded size, so calling the callback there is an error.

    Attributes:
      shape: a `tf.TensorShape`, or a tuple where TensorFlow is not imported; for the dimensions in
        `dynamic_dims` an upper bound, for the others the size.
      dtype: a `tf.DType`, or NumPy's dtype where TensorFlow is not imported.
      dynamic_dims: the dimensions of bounded size, a tuple of ints in rising order. Negative ones
        count from the end. The default is the first dimension.

    Raises:
      ValueError: when a size is unknown or negative, or a dimension is out of range or named twice.

    Examples:
      >>> @hostcall.callback(result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))
      ... def distinct(x):
      ...     return np.unique(x)
      >>> program = tf.function(lambda x: 2.0 * distinct(x), jit_compile=True)
      >>> program(tf.constant([3.0, 1.0, 3.0])).numpy()
      array([2., 6.], dtype=float32)
    """

    __slots__ = ("_dtype", "_shape", "dynamic_dims")
    _shape: tuple[int, ...]
    _dtype: Any
    dynamic_dims: tuple[int, ...]

    def __init__(
        self, shape: Iterable[int] | None, dtype: npt.DTypeLike, dynamic_dims: Iterable[int] = (0,)
    ) -> None:
        side = frameworks.tensorflow()
        sizes = sizes_of(shape if side is None else side.shape(shape))
        if sizes is None or any(size is None for size in sizes):
            raise ValueError(
                f"BoundedSpec wants a bound for every dimension, and got the shape {shape}. Write "
                "the largest size that the callback can return, e.g. "
                "hostcall.BoundedSpec([100, 3], tf.float32, dynamic_dims=[0])."
            )
        sizes = tuple(map(operator.index, sizes))
        if any(size < 0 for size in sizes):
            raise ValueError(f"BoundedSpec: a size of the shape {sizes} is negative.")
        named = list(dynamic_dims)
        rank = len(sizes)
        if any(not -rank <= dim < rank for dim in named):
            raise ValueError(
                f"BoundedSpec: dynamic_dims={named} names a dimension that the shape {sizes} does "
                f"not have; it has rank {rank}."
            )
        dynamic = tuple(sorted(dim % rank for dim in named))
        if len(set(dynamic)) != len(dynamic):
            raise ValueError(f"BoundedSpec: dynamic_dims={named} names a dimension twice.")
        object.__setattr__(self, "_shape", sizes)
        object.__setattr__(self, "_dtype", np.dtype(dtype) if side is None else side.dtype(dtype))
        object.__setattr__(self, "dynamic_dims", dynamic)

    @property
    def shape(self) -> Any:
        """The bounds and sizes."""
        side = frameworks.tensorflow()
        return self._shape if side is None else side.shape(self._shape)

    @property
    def dtype(self) -> Any:
        """The element dtype."""
        side = frameworks.tensorflow()
        return self._dtype if side is None else side.dtype(self._dtype)

    def tensor_spec(self) -> Any:
        """Return the `tf.TensorSpec` of all tensors within the bounds: bounded sizes are None."""
        dims = tuple(None if i in self.dynamic_dims else n for i, n in enumerate(self._shape))
        side = frameworks.tensorflow()
        return ArraySpec(dims, self._dtype) if side is None else side.spec(dims, self.dtype)

    def __reduce__(self) -> tuple[type[BoundedSpec], tuple[object, ...]]:
        return BoundedSpec, (self._shape, self.dtype, self.dynamic_dims)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundedSpec):
            return NotImplemented
        same = (self._shape, self.dynamic_dims) == (other._shape, other.dynamic_dims)
        return same and bool(self.dtype == other.dtype)

    def __hash__(self) -> int:
        return hash((self._shape, self.dynamic_dims))

    def __repr__(self) -> str:
        return (
            f"BoundedSpec(shape={self.shape!r}, dtype={self.dtype!r}, "
            f"dynamic_dims={self.dynamic_dims!r})"
        )

    def __str__(self) -> str:
        sizes = [f"<={n}" if i in self.dynamic_dims else str(n) for i, n in enumerate(self._shape)]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def says_shape_and_dtype(value: object) -> TypeGuard[Declared]:
    """Return whether a value is a spec of one array: TensorFlow's, JAX's or hostcall's."""
    # NumPy's arrays, which may be shapes, and its scalar types have both attributes, too.
    is_numpys = isinstance(value, np.ndarray | np.generic | type)
    return hasattr(value, "shape") and hasattr(value, "dtype") and not is_numpys


def is_shape_function(result: object) -> bool:
    """Return whether a declared result is a function from the arguments' specs to the results."""
    is_spec = says_shape_and_dtype(result) or is_dtype(result)
    return callable(result) and not is_spec and not frameworks.is_pytree(result)


F = TypeVar("F", bound=Callable[..., Any])

# What to write where the result is left out, by the public function that wants it.
_WANTED = {
    "callback": (
        "hostcall.callback wants the shapes and dtypes of the results. Write, where a result is "
        "like the argument x:\n"
        "    @hostcall.callback(result=lambda x: tf.TensorSpec(x.shape, x.dtype))"
    ),
    "call": (
        "hostcall.jax.call wants the shapes and dtypes of the results after the function. Write, "
        "where a result is like the argument x:\n"
        "    hostcall.jax.call(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)"
    ),
}


def wanting_result(function: F) -> F:
    """Have a public function say what to write where its `result` is left out."""
    result = inspect.signature(function).parameters["result"]
    before = 1 if result.kind is result.POSITIONAL_OR_KEYWORD else math.inf

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> object:
        if "result" not in given and len(args) <= before:
            raise result_left_out(function.__name__)
        return function(*args, **given)

    return cast(F, call)


def result_left_out(way: str) -> TypeError:
    """Return the error of a public function whose `result` is left out."""
    return TypeError(_WANTED[way])


_TAKES_SPECS = "hostcall: a shape function takes the spec of each argument"


def is_of_arity(error: Exception) -> bool:
    """Return whether an error is that of a shape function that takes another number."""
    # No class of its own: AutoGraph passes on Python's own errors alone.
    return str(error).startswith(_TAKES_SPECS)


def ask(
    shape_function: Callable[..., object], arguments: Sequence[object], function: Callable[..., Any]
) -> object:
    """Call the shape function of `function`; say so where it takes another number of arguments."""
    try:
        return shape_function(*arguments)
    except TypeError as error:
        if not _errors.is_of_call(error):
            raise
        names = parameters(function, len(arguments))
        raise TypeError(
            f"{_TAKES_SPECS}, and calls of {source_location.of_function(function)} have "
            f"{counted(len(arguments), 'argument')}. result= is "
            f"{source_location.of_function(shape_function)}, which says: {error}. Write:\n"
            f"    result=lambda {', '.join(names)}: ..."
        ) from None


_TAKEN = frozenset({"tf", "hostcall"})  # names that the suggested lines use themselves


def parameters(
    function: Callable[..., Any], count: int, taken: Collection[str] = _TAKEN
) -> list[str]:
    """Return argument names for a shape function: the function's parameter names, if any."""
    found: list[inspect.Parameter] = []
    with contextlib.suppress(TypeError, ValueError):  # some C functions have no signature
        found = [*inspect.signature(function).parameters.values()]
    names = [
        f"{one.name}_" if one.name in taken else one.name
        for one in found
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    made_up = ["x", "y", "z", *(f"x{i}" for i in range(len(names) + count))]
    return [*names, *(name for name in made_up if name not in names)][:count]


def is_dtype(value: object) -> bool:
    """Return whether a value is only a dtype: of NumPy or TensorFlow, or a type like np.float32."""
    if isinstance(value, type):
        says = isinstance(getattr(value, "dtype", None), np.dtype)  # for example jnp.float32
        return says or issubclass(value, _NUMBERS)
    return isinstance(value, np.dtype) or hasattr(value, "as_numpy_dtype")


def lacking(value: object) -> str:
    """Return the part of a message that names the missing property of a declared result."""
    if is_dtype(value):
        return f"must say its shape, and {value!r} is a dtype alone"
    return f"must say its dtype, and {value!r} does not"


def checked(value: object) -> object:
    """Return a declared result; raise a TypeError if it lacks a shape or a dtype."""
    if says_shape_and_dtype(value):
        return value
    raise TypeError(
        f"hostcall: a result {lacking(value)}. Write a spec such as "
        "tf.TensorSpec([3], tf.float32) or jax.ShapeDtypeStruct((3,), np.float32), or "
        "result=[] if the function returns nothing."
    )


def plain(spec: Declared) -> ArraySpec:
    """Convert a spec of any framework to an `ArraySpec`."""
    dtype = getattr(spec.dtype, "as_numpy_dtype", spec.dtype)
    return ArraySpec(sizes_of(spec.shape), np.dtype(dtype))


def sizes_of(shape: Any) -> tuple[Any, ...] | None:
    """Return a shape's sizes, each an int, None or a JAX symbol; or None if the rank is unknown."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    return tuple(shape.as_list() if hasattr(shape, "as_list") else shape)


def spec_of_array(array: np.ndarray) -> Declared:
    """Return the spec that a shape function gets for an object with a shape and a dtype."""
    side = frameworks.tensorflow()
    make: Callable[..., Declared] = ArraySpec if side is None else side.spec
    return make(array.shape, array.dtype)
