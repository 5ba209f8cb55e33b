"""JAX's own callbacks do in TensorFlow, by hostcall.jax.to_tf, what they do in JAX."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from jax import lax
from jax.experimental import io_callback

import hostcall.jax
from tests.support.helpers import assert_same, jitted
from tests.support.jax.helpers import struct
from tests.support.versions import reads_programs_of_jax

pytestmark = reads_programs_of_jax

X = np.arange(4, dtype=np.float32)

to_tf = hostcall.jax.to_tf

KINDS: dict[str, Callable[..., Any]] = {
    "pure_callback": jax.pure_callback,
    "io_callback": io_callback,
    "ordered": functools.partial(io_callback, ordered=True),
}

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
each_mode = pytest.mark.parametrize("mode", [tf.function, jitted], ids=["graph", "compiled"])


def plus_one(v: Any) -> Any:
    return np.asarray(v) + np.float32(1)


def structures(kind: Any, x: Any) -> Any:
    def nested(pair: Any) -> Any:
        assert isinstance(pair[0], jax.Array)
        return {"y": [plus_one(pair[0])], "empty": np.zeros([2, 0], np.int32)}

    declared = {"y": [x], "empty": struct([2, 0], np.int32)}
    return kind(nested, declared, [x, jnp.zeros([0, 3])])


def loops(kind: Any, x: Any) -> Any:
    x = lax.while_loop(lambda x: x[0] < 3, lambda x: kind(plus_one, x, x), x)
    x = lax.fori_loop(0, 3, lambda _, x: kind(plus_one, x, x), x)
    x, rows = lax.scan(lambda c, v: (kind(np.add, c, c, v), v), x, jnp.stack([x, x]))
    return x, rows, lax.map(lambda v: kind(plus_one, v, v), x)


def conditions(kind: Any, x: Any) -> Any:
    def below(v: Any) -> Any:
        return np.any(np.asarray(v) < 7)

    x = lax.while_loop(
        lambda x: kind(below, struct([], bool), x), lambda x: kind(plus_one, x, x), x
    )
    return lax.cond(kind(below, struct([], bool), x), lambda x: -x, lambda x: x, x)


def branches(kind: Any, x: Any) -> Any:
    def adding(n: int) -> Any:
        return lambda x: kind(lambda v: np.asarray(v) + np.float32(n), x, x)

    x = lax.switch(x[1].astype(int), [adding(1), adding(2), adding(3)], x)
    return lax.cond(x[0] > 9, adding(10), jax.jit(adding(20)), x)


def axes(kind: Any, x: Any) -> Any:
    # Only what JAX has of it for its own.
    if kind is KINDS["ordered"]:
        return x
    methods: Any = [{}]
    if kind is jax.pure_callback:
        methods = [{"vmap_method": name} for name in ("sequential", "expand_dims", "broadcast_all")]
    rows = jnp.stack([x, x + 1])
    return [jax.vmap(lambda r, m=m: kind(plus_one, r, r, **m), 1, 1)(rows) for m in methods]


def small_dtypes(kind: Any, x: Any) -> Any:
    results = []
    for dtype in (ml_dtypes.int2, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn, ml_dtypes.bfloat16):
        y = (x % 2).astype(dtype)
        results.append(kind(lambda v: np.asarray(v)[::-1], y, y).astype(np.float32))
    return results


def computing_with_jax(kind: Any, x: Any) -> Any:
    inner = jax.jit(lambda v: jnp.tanh(v @ v).sum())
    large = jnp.ones([200, 200]) * x[1]
    return kind(lambda v: np.asarray(inner(v)), struct([]), large)


@each_kind
@pytest.mark.parametrize(
    "program",
    [structures, loops, conditions, branches, axes, small_dtypes, computing_with_jax],
    ids=lambda program: program.__name__,
)
def test_values_are_those_of_jax(kind: Any, program: Any) -> None:
    function = functools.partial(program, kind)
    expected = jax.tree.map(np.asarray, jax.jit(function)(X))
    assert_same(jitted(to_tf(function))(tf.constant(X)), expected)


def of_rows(x: Any) -> Any:
    jax.vmap(lambda v: jax.debug.print("row {v}", v=v))(x)
    return x


def of_scans(x: Any) -> Any:
    def step(carry: Any, v: Any) -> Any:
        jax.debug.print("{c} and {v:.2f}", c=carry, v=v, ordered=True)
        return carry + 1, v

    return lax.scan(step, 0, x)


def of_conditions(x: Any) -> Any:
    def below(i: Any) -> Any:
        jax.debug.print("below {i}", i=i, ordered=True)
        return i < 2

    return lax.while_loop(below, lambda i: i + 1, x[0].astype(int))


def of_derivatives(x: Any) -> Any:
    @jax.custom_vjp
    def told(x: Any) -> Any:
        return x

    told.defvjp(
        lambda x: (x, None),
        lambda _, upstream: [jax.debug.print("upstream {u}", u=upstream), (upstream,)][1],
    )

    def program(x: Any) -> Any:
        jax.debug.print("x {x}", x=x)
        return told(x) ** 2

    return jax.grad(jax.checkpoint(program))(x[2])


def of_formats(x: Any) -> Any:
    with np.printoptions(precision=2, suppress=True):
        jax.debug.print("{}", x / 3)
    jax.debug.print("{a}: {b} {c}", a={"x": x[1]}, b=x.dtype, c=jax.random.key(1))
    jax.debug.callback(lambda v, **rest: print(v, rest), x[0], y=x[1])  # noqa: T201
    return x


@each_mode
@pytest.mark.parametrize(
    "program",
    [of_rows, of_scans, of_conditions, of_derivatives, of_formats],
    ids=lambda program: program.__name__,
)
def test_lines_are_those_of_jax(mode: Any, program: Any, capfd: Any) -> None:
    jax.jit(program)(X)
    jax.effects_barrier()
    expected = capfd.readouterr().out
    assert expected
    mode(to_tf(program))(tf.constant(X))
    lines = capfd.readouterr().out
    if program in (of_scans, of_conditions):
        assert lines == expected
    assert sorted(lines.splitlines()) == sorted(expected.splitlines())


@each_mode
@pytest.mark.parametrize("ordered", [True, False])
def test_calls_of_ours_in_the_condition_of_a_loop(mode: Any, ordered: bool) -> None:
    log: list[int] = []

    def program(x: Any) -> Any:
        def below(carry: Any) -> Any:
            hostcall.jax.call(lambda i: log.append(int(i)), None, carry[0], ordered=ordered)
            return carry[0] < 2

        return lax.while_loop(below, lambda carry: (carry[0] + 1, carry[1] + 1), (0, x))[1]

    np.testing.assert_array_equal(mode(to_tf(program))(tf.constant(X)), X + 2)
    assert log == [0, 1, 2]


@each_mode
def test_pure_callbacks_are_dropped_and_others_are_not(mode: Any) -> None:
    calls: list[str] = []

    def note(name: str) -> Any:
        return lambda v: [calls.append(name), v][1]

    def program(x: Any) -> Any:
        for name, kind in KINDS.items():
            kind(note(name), x, x)
        return x

    mode(to_tf(program))(X)
    assert sorted(calls) == ["io_callback", "ordered"]


@each_kind
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: X, "takes 0 positional arguments but 1 was given"),
        (lambda v: (v, v), "2 values|structure"),
        (lambda v: np.float32(0), r"shape \(\)"),
        (lambda v: np.zeros(4, np.int32), "int32"),
    ],
    ids=["arguments", "count", "shape", "dtype"],
)
def test_wrong_functions(kind: Any, function: Any, text: str) -> None:
    program = jitted(to_tf(lambda x: kind(function, x, x)))
    with pytest.raises(tf.errors.OpError, match=text):
        program(X)


@each_kind
def test_functions_that_arrays_are_reduced_by(kind: Any) -> None:
    add = lambda a, b: kind(np.add, a, a, b)  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"callback: .* jax\.lax\.reduce, of which XLA"):
        to_tf(lambda x: lax.reduce(x, 0.0, add, (0,)))(X)
