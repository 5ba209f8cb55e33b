"""Script ops of random programs: each behaviour by each way to call Python."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tests.differential.catalogue import BOUND, OPS, Op, op, sides, tame
from tests.differential.program import (
    DTYPES,
    Context,
    PlannedError,
    PlannedStopError,
    PlannedValueError,
)

STATEFUL = ("numpy_function", "py_function", "py_func", "callback", "eager_callback")
STATELESS = ("stateless_py_func", "stateless_callback")
EAGER_OR_NOT = ("numpy_function", "py_function")
EAGER = ("py_function", "eager_callback")

# The sources of the results' shapes: none, `set_shape` with a rank alone, `set_shape`, a rule.
SHAPES = ("nothing", "rank", "set_shape", "rule")


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """A function that programs call.

    Attributes:
      patterns: those of its arguments and, where something tells their shapes, of its results.
      function: works on arrays.
      eager: the same for tensors, so that it is differentiable; or None.
      bounded: whether the result is no larger than the argument.
    """

    patterns: str
    function: Callable[..., Any]
    eager: Callable[..., Any] | None = None
    bounded: bool = True

    @functools.cached_property
    def sides(self) -> list[tuple[str, ...]]:
        return sides(self.patterns)

    @property
    def has_shapes(self) -> bool:
        """True if the shapes of the results follow from those of the arguments."""
        return "!" not in self.patterns

    def shapes(self, *shapes: tf.TensorShape) -> list[Any]:
        takes, gives = ([tuple(pattern.split()[1:]) for pattern in side] for side in self.sides)
        # Of several arguments of one shape, the first tells it; what has no dimensions needs none.
        known = {dims: shape for dims, shape in zip(takes[::-1], shapes[::-1], strict=True) if dims}
        return [
            known[dims] if dims in known else [known[dim,][0] for dim in dims] for dims in gives
        ]


def clip(x: Any) -> Any:
    return tame(x) if tf.is_tensor(x) else np.clip(x, -BOUND, BOUND)


def of_both(patterns: str, function: Callable[..., Any]) -> Behaviour:
    return Behaviour(patterns, function, function)


BEHAVIOURS = {
    "affine": of_both("f a -> f a", lambda x: clip(2 * x + 1)),
    "square": of_both("f a -> f a", lambda x: clip(x * x)),
    "product": of_both("f a, f a -> f a", lambda x, y: clip(x * y)),
    "shift": of_both("f a, f -> f a", lambda x, y: clip(x + y)),
    "sum": Behaviour("f ... -> f", lambda x: clip(np.sum(x)), lambda x: clip(tf.reduce_sum(x))),
    "matrix": Behaviour("f a, f b -> f a b", lambda x, y: clip(np.outer(x, y))),
    "parity": Behaviour("f a -> b a", lambda x: x % 2 == 0),
    "halves": Behaviour("f a -> f a, f", lambda x: (clip(x + 1), clip(x.sum())),
        lambda x: (clip(x + 1), clip(tf.reduce_sum(x)))),
    "evens": Behaviour(
        "f a -> f h!", lambda x: x[x % 2 == 0], lambda x: tf.boolean_mask(x, x % 2 == 0)
    ),
    "unique": Behaviour("f a -> f h!", np.unique),
    "double": Behaviour(
        "f a -> f h!", lambda x: np.repeat(x, 2)[:6], lambda x: tf.repeat(x, 2)[:6], bounded=False
    ),
    "upper": Behaviour("s -> s", lambda x: to_bytes(x).upper() + b"!"),
    "describe": Behaviour("f a -> s", lambda x: b"%d" % np.sum(x)),
    "length_of": Behaviour("s -> i", lambda x: np.int32(min(BOUND, len(to_bytes(x))))),
}  # fmt: skip


def to_bytes(x: Any) -> bytes:
    return x if isinstance(x, bytes) else np.asarray(x).item()


def results_of(behaviour: Behaviour, shape: str) -> Sequence[str]:
    """The patterns of the results when `shape` tells their shapes."""
    if shape in ("set_shape", "rule"):
        return behaviour.sides[1]
    if shape == "bounded":
        return ["f x!"]
    return [f"{kind} h!" if dims == ["a"] else " ".join([kind, *dims])
            for kind, *dims in map(str.split, behaviour.sides[1])]  # fmt: skip


def params_of(behaviour: Behaviour, shapes: Sequence[str]) -> tuple[Any, ...]:
    """Ways to call, who tells the shapes, and whether the call is noted in the journal."""
    return tuple(itertools.chain(
        itertools.product(STATEFUL, shapes, (True, False)),
        itertools.product(STATELESS, shapes, (False,)),
    ))  # fmt: skip


def is_stock(api: str, shape: str) -> bool:
    """Return whether stock TensorFlow can make a call, without hostcall."""
    return not api.endswith("callback") and shape not in ("rule", "bounded")


def call(
    context: Context, api: str, function: Any, args: Sequence[Any], dtypes: list[Any], shape: str
) -> list[Any]:
    """Calls Python; the shapes of the results are unknown unless a rule is declared."""
    context.has_callbacks = True
    name = context.name(function) if context.exports else None
    if not is_stock(api, shape):
        import hostcall  # not above, for programs also run without it

        if api.endswith("callback"):
            result: Any = [tf.TensorSpec(None, dtype) for dtype in dtypes]
            if shape in ("rule", "bounded"):
                result = function.rule
            options: dict[str, Any] = {"kind": "eager" if api == "eager_callback" else "numpy"}
            options |= declared_of(api, args)
            options |= {"name": name, "stateful": api in STATEFUL}
            made = hostcall.callback(function, result=result, **options)
            return tf.nest.flatten(made(*args))
        hostcall.declare(function, result=function.rule, **declared_of(api, args))
    if api == "stateless_py_func":
        return tf.nest.flatten(tf.compat.v1.py_func(function, args, dtypes, stateful=False))
    make = {"py_func": tf.compat.v1.py_func, "py_function": tf.py_function,
            "numpy_function": tf.numpy_function}[api]  # fmt: skip
    return tf.nest.flatten(make(function, args, dtypes))


def declared_of(api: str, args: Sequence[Any]) -> dict[str, Any]:
    """Return options to declare that change no result: some functions borrow, some have a memo."""
    if api in EAGER:
        return {}
    return {"borrow": len(args) == 2, "memo": api in STATELESS}


def python_function(context: Context, name: str, api: str, noted: bool) -> Any:
    """The Python function of a behaviour, a new object each time."""
    behaviour = BEHAVIOURS[name]
    eager = api in EAGER and behaviour.eager is not None
    work = behaviour.eager if eager else behaviour.function

    def function(*args: Any) -> Any:
        if noted or (context.exports and api in STATEFUL):
            context.journal.append((name, *[np.asarray(x).tolist() for x in args]))
        if not eager:
            args = tuple(x if isinstance(x, bytes) else np.asarray(x) for x in args)
        results = work(*args)  # type: ignore[misc]
        return list(results) if isinstance(results, tuple) else [results]

    return function


def shape_rule(name: str, dtypes: list[Any], shape: str) -> Any:
    def rule(*specs: Any) -> Any:
        if shape == "bounded":
            import hostcall

            return [hostcall.BoundedSpec(specs[0].shape, specs[0].dtype)]
        shapes = BEHAVIOURS[name].shapes(*[spec.shape for spec in specs])
        return [tf.TensorSpec(s, dtype) for s, dtype in zip(shapes, dtypes, strict=True)]

    return rule


def with_rank(x: tf.Tensor, pattern: str) -> tf.Tensor:
    """The same, with a rank that tracing knows."""
    if x.shape.rank is not None:
        return x
    _, *dims = pattern.split()
    return tf.reshape(x, [-1]) if dims == ["..."] else tf.ensure_shape(x, [None] * len(dims))


def build_behaviour(name: str) -> Callable[..., Any]:
    def build(context: Context, param: Any, *args: Any) -> Any:
        api, shape, noted = param
        behaviour = BEHAVIOURS[name]
        takes, gives = behaviour.sides
        kinds = [pattern.split() for pattern in gives]
        dtypes = [DTYPES[kind] for kind, *_ in kinds]
        function = python_function(context, name, api, noted)
        function.rule = shape_rule(name, dtypes, shape)
        if api.endswith("callback"):  # which asks the rule in tracing: it wants to know ranks
            pairs = zip(args, takes, strict=True)
            args = tuple(itertools.starmap(with_rank, pairs))
        results = call(context, api, function, args, dtypes, shape)
        if shape == "set_shape" and behaviour.has_shapes:
            for y, s in zip(results, behaviour.shapes(*[x.shape for x in args]), strict=True):
                y.set_shape(s)
        elif shape == "rank":
            for y, (_, *dims) in zip(results, kinds, strict=True):
                y.set_shape([None] * len(dims))
        known = shape in ("rule", "bounded") or all(y.shape.is_fully_defined() for y in results)
        if not known or tf.string in (*dtypes, *[x.dtype for x in args]):
            context.flags.add("host")
        return results

    build.__name__ = name
    return build


def register(name: str, behaviour: Behaviour) -> None:
    unknown = ("nothing", "rank", "bounded") if behaviour.bounded else ("nothing", "rank")
    shapes = SHAPES if behaviour.has_shapes else unknown
    gives = lambda param: results_of(behaviour, param[1])  # noqa: E731
    OPS[name] = Op(behaviour.sides[0], gives, build_behaviour(name), params_of(behaviour, shapes))


for _name, _behaviour in BEHAVIOURS.items():
    register(_name, _behaviour)


@op("f a -> f h!", params=("nothing", "rank"))
def evens_of_any(context: Context, shape: str, x: Any) -> Any:
    return build_behaviour("evens")(context, ("numpy_function", shape, True), x)


@op("* ... ->", params=("numpy_function", "py_function", "py_func"))
def note(context: Context, api: str, x: Any) -> Any:
    if x.dtype == tf.string:
        context.flags.add("host")
    function = lambda x: context.journal.append(("note", np.asarray(x).tolist()))  # noqa: E731
    call(context, api, function, [x], [], "")
    return []


def scalar(context: Context, result: list[Any], known: bool) -> list[Any]:
    """Tell that a result is a scalar, or note that nothing does."""
    if known:
        result[0].set_shape([])
    else:
        context.flags.add("host")
    return result


@op("-> i", params=tuple(itertools.product(EAGER_OR_NOT, (True, False))))
def entries(context: Context, param: Any) -> Any:
    api, known = param
    function = lambda: np.int32(min(BOUND, len(context.journal)))  # noqa: E731
    return scalar(context, call(context, api, function, [], [tf.int32], ""), known)


@op("f -> f", params=(True, False))
def python_variable(context: Context, known: bool, x: Any) -> Any:
    variable = context.python_variable
    add = lambda x: tame(variable.assign_add(x))  # noqa: E731
    return scalar(context, call(context, "py_function", add, [x], [tf.float64], ""), known)


ERRORS = {
    "ValueError": PlannedValueError,
    "StopIteration": PlannedStopError,
    "another": PlannedError,
}


@op("f -> f", params=tuple(itertools.product(EAGER_OR_NOT, ERRORS, (0, 5), (True, False))))
def fail_above(context: Context, param: Any, x: Any) -> Any:
    api, error, threshold, known = param

    def function(x: Any) -> Any:
        context.journal.append(("fail above", float(x)))
        if x > threshold:
            raise ERRORS[error]("Planned")
        return x

    return scalar(context, call(context, api, function, [x], [tf.float64], ""), known)
