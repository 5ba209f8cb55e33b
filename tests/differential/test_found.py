"""Programs that random ones have led to, made smaller: routes agree, and loaded programs do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.differential import running
from tests.differential.exporting import check_exported
from tests.differential.program import Block, Program, Statement
from tests.differential.raising import check_raising
from tests.support.helpers import assert_same, gradient_of, to_numpy

# What tells no shape: neither is one program.
ROUTES = ["auto", "partition"]


def unknown(x: tf.Tensor) -> tf.Tensor:
    """The same tensor, of which tracing knows nothing any more."""
    return tf.numpy_function(lambda v: v, [x], x.dtype)


def differentiable(x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(lambda v: v, [x], x.dtype)


def clipped(x: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(x, -8.0, 8.0)


def check(route: str, program: Callable[..., Any], *args: Any) -> None:
    expected = to_numpy(tf.function(program, autograph=False)(*args))
    with hostcall.scope(route=route):
        jitted = tf.function(program, jit_compile=True, autograph=False)
        assert_same(to_numpy(jitted(*args)), expected)


@pytest.mark.parametrize("route", ROUTES)
def test_a_spec_without_a_shape_tells_nothing_more_when_xla_compiles(route: str) -> None:
    same = hostcall.callback(lambda v: v, result=[tf.TensorSpec(None, tf.float32)])
    check(route, lambda x: same(unknown(x)), tf.constant([1.0, 2.0]))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("size", [0, 3])
def test_what_nothing_needs_is_not_compiled(route: str, size: int) -> None:
    def loss(x: tf.Tensor) -> tf.Tensor:
        # The numpy_function has no gradient, so nothing needs that of tf.sort.
        return tf.reduce_sum(tf.sort(unknown(x))) + tf.reduce_sum(x)

    check(route, lambda x: gradient_of(loss, x), tf.zeros([size]))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_the_gradient_of_branches_of_which_one_calls_python(route: str, chosen: int) -> None:
    def program(x: tf.Tensor, index: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = differentiable(x)

            def quiet() -> tf.Tensor:
                return clipped(clipped(tf.maximum(y, y)) * y)

            def calling() -> tf.Tensor:
                differentiable(y)
                return y

            branch = tf.switch_case(index, [lambda: y, quiet, calling])
            result = differentiable(y + branch)
        return result, tape.gradient(result, x)

    check(route, program, tf.constant([2.0]), tf.constant(chosen))


def test_an_error_of_a_callback_in_a_loop_has_its_class_on_all_routes() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise StopIteration("enough")

    def program(x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda i, _: i < count,
            lambda i, y: (i + 1, tf.ensure_shape(tf.numpy_function(fail, [y], y.dtype), [None])),
            (0, x),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        )[1]

    for route in ROUTES:
        with hostcall.scope(route=route), pytest.raises(tf.errors.OutOfRangeError, match="enough"):
            tf.function(program, jit_compile=True)(tf.zeros([2]), tf.constant(2))


def test_the_gradient_of_a_loop_that_needs_nothing_of_what_the_loop_has_kept() -> None:
    """It takes the loop's list nevertheless, and no compiled program can."""
    note = Statement(op="affine", args=(2,), param=("numpy_function", "nothing", True))
    body = Block(statements=(note,), results=(0,))
    loop = Statement(op="while_loop", args=(0, 1), param=(True, False), blocks=(body,))
    program = Program(
        body=Block(statements=(loop,), results=(2,)),
        inputs=(((), 0), ((1, 2), 3)),
        fixed_shapes=False,
        gradient="outside",
    )
    running.check(program)


@pytest.mark.parametrize("api", ["eager_callback", "py_function"])
def test_a_bounded_result_of_a_function_of_tensors(api: str) -> None:
    """The true size is behind the number of the state, which goes."""
    evens = Statement("evens", (0,), (api, "bounded", True))
    check_exported(Program(Block((evens,), (2,)), inputs=(((1, 2, 4), 0), ((2, 6, -4), 1))))


@pytest.mark.parametrize(
    "program",
    [
        Program(
            Block(
                (
                    Statement("indexed", (0, 1)),
                    Statement(
                        "function",
                        param=(False, 1),
                        blocks=(
                            Block(
                                (
                                    Statement(
                                        "affine", (0,), ("numpy_function", "set_shape", False)
                                    ),
                                ),
                                (2,),
                            ),
                        ),
                    ),
                    Statement("along", (0,), "reverse"),
                    Statement("affine", (4,), ("numpy_function", "set_shape", True)),
                ),
                (5,),
            ),
            (((), 0), ((), 0)),
            gradient="inside",
        ),
        Program(Block((Statement("read", (0, 1)),), (2,)), (((), 0), ((), 0)), gradient="outside"),
    ],
    ids=["a function on the host returns it", "a tape around it is refused"],
)
def test_what_nothing_uses_and_graph_mode_drops(program: Program) -> None:
    check_raising(program)
