"""The catalogue of the ops that random programs are made of, and which values they can take."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tests.differential.program import Context, Type

BOUND = 8


@dataclasses.dataclass(frozen=True)
class Op:
    """An op of random programs.

    Attributes:
      takes: a pattern for each argument: a kind, "*" for any, and a name for each size, where the
        same name wants the same size.
      gives: a pattern for each result, by the parameter: "h!" and "x!" are new sizes, and "x1!" is
        the same new one wherever it stands.
      build: makes the tensors, from the context, the parameter and the arguments.
      params: the parameters to choose from.
      on_host: whether XLA has no kernel for it.
    """

    takes: tuple[str, ...]
    gives: Callable[[Any], Sequence[str]]
    build: Callable[..., Any]
    params: tuple[Any, ...] = (None,)
    on_host: bool = False

    def results(
        self, args: Sequence[Type], param: Any, counter: itertools.count[int]
    ) -> list[Type]:
        bound: dict[str, str] = {}
        assert all(itertools.starmap(_binder(bound), zip(self.takes, args, strict=True)))

        def dim(name: str) -> str:
            if name[1:] == "!":
                return f"{name[0]}{next(counter)}"
            if name.endswith("!"):
                return bound.setdefault(name, f"{name[0]}{next(counter)}")
            found = "".join(bound.get(part, part) for part in name)
            return f"({found})" if len(name) > 1 else found

        patterns = [pattern.split() for pattern in self.gives(param)]
        return [Type(kind, tuple(map(dim, dims))) for kind, *dims in patterns]

    def makes_sizes(self, param: Any) -> bool:
        """Return whether the op makes values of sizes that XLA bounds, or would have to bound."""
        return any("x" in pattern for pattern in self.gives(param))

    def choices(self, types: Sequence[Type]) -> list[tuple[int, ...]]:
        """The positions of the values that it can be applied to."""
        found: list[tuple[tuple[int, ...], dict[str, str]]] = [((), {})]
        for pattern in self.takes:
            longer = []
            for (chosen, bound), (i, type_) in itertools.product(found, enumerate(types)):
                extended = dict(bound)
                if _binder(extended)(pattern, type_):
                    longer.append(((*chosen, i), extended))
            found = longer
        return [chosen for chosen, _ in found]


def _binder(bound: dict[str, str]) -> Callable[[str, Type], bool]:
    def bind(pattern: str, type_: Type) -> bool:
        kind, *names = pattern.split()
        if kind not in (type_.kind, "*"):
            return False
        if names == ["..."]:
            return True
        if len(names) != len(type_.dims):
            return False
        pairs = zip(names, type_.dims, strict=True)
        return all(dim == (name if name.isdigit() else bound.setdefault(name, dim))
                   for name, dim in pairs)  # fmt: skip

    return bind


OPS: dict[str, Op] = {}


def sides(patterns: str) -> list[tuple[str, ...]]:
    """Return the patterns of the arguments and of the results in "f a, i -> f x!"."""
    return [tuple(filter(None, map(str.strip, side.split(",")))) for side in patterns.split("->")]


def op(patterns: str, *, name: str = "", **options: Any) -> Any:
    """Register a function that builds an op of patterns like "f a, i -> f x!"."""
    takes, gives = sides(patterns)

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        OPS[name or build.__name__] = Op(takes, lambda param: gives, build, **options)
        return build

    return register


def register_all(
    table: dict[str, tuple[Any, ...]], *, stateful: bool = False, **options: Any
) -> None:
    """Register ops by their names: patterns, a function, and parameters if it takes one first.

    The functions of stateful ones take the context before these.
    """
    for name, (patterns, function, *params) in table.items():
        build = functools.partial(_build, function, stateful, bool(params))
        more = {"params": tuple(params[0])} if params else {}
        op(patterns, name=name, **more, **options)(build)


def _build(
    function: Any, stateful: bool, has_param: bool, context: Context, param: Any, *args: Any
) -> Any:
    return function(*[context] * stateful, *[param] * has_param, *args)


def like(y: Any, start: Any) -> Any:
    """Return a value with the static shape of another one."""
    if start.shape.rank is None:
        return tf.identity(y)  # for TensorFlow's EnsureShape an unknown rank is one of -1
    return tf.ensure_shape(tf.identity(y), start.shape)


def tame(x: tf.Tensor) -> tf.Tensor:
    """Keep the values small."""
    return tf.clip_by_value(x, tf.cast(-BOUND, x.dtype), tf.cast(BOUND, x.dtype))


def with_one(x: tf.Tensor) -> tf.Tensor:
    """Begin with a one, so that there is something."""
    return tf.concat([tf.constant([1.0], tf.float64), x], 0)
