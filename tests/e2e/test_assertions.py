"""Assertions in compiled functions: dropped, as XLA does, or checked in the program."""

from typing import Any

import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_same, jitted, plain

X = tf.constant([1.0, 2.0])


pytestmark = pytest.mark.usefixtures("auto_route")


def straight(x: tf.Tensor) -> tf.Tensor:
    tf.debugging.assert_positive(x, message="must be positive")
    return x * 2.0


def in_a_loop(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(3):
        tf.debugging.Assert(tf.reduce_all(x > 0.0), [x, "must be positive"])
        x = x * 2.0
    return x


def in_a_branch(x: tf.Tensor) -> tf.Tensor:
    if tf.reduce_sum(x) < 10.0:
        tf.debugging.Assert(x[0] > 0.0, ["must be positive"])
    return x + 1.0


def of_numbers(x: tf.Tensor) -> tf.Tensor:
    return tf.debugging.check_numerics(tf.math.log(x), "must be positive") * 2.0


@pytest.mark.parametrize(
    "program", [straight, in_a_loop, in_a_branch, of_numbers], ids=lambda program: program.__name__
)
def test_xla_drops_them_or_the_program_checks_them(
    program: Any, request: pytest.FixtureRequest
) -> None:
    jitted(program)(-X)
    request.getfixturevalue("everywhere")
    hostcall.configure(semantics="xla")
    jitted(program)(-X)
    hostcall.configure(semantics="graph")
    function = jitted(program)
    assert_same(function(X).numpy(), plain(program)(X).numpy())
    explained = hostcall.explain(function, X)
    assert explained.functions[0].mode == "compiled"
    assert not explained.host_ops
    for run in (function, plain(program)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be positive"):
            run(-X)
    assert_same(function(X).numpy(), plain(program)(X).numpy())


def test_beside_a_callback() -> None:
    calls: list[float] = []
    note = hostcall.callback(lambda v: calls.append(float(v[0])) or v, result=lambda v: v)

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        y = note(x)
        tf.debugging.assert_positive(y, message="must be positive")
        return note(10.0 * y) + 1.0

    program(X)
    assert calls == [1.0, 10.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be positive"):
        program(-X)
    assert calls == [1.0, 10.0, -1.0]
