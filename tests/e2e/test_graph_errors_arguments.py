"""Arguments that XLA takes for constants: graph mode's errors where XLA refuses or ends."""

from typing import Any

import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_same, beside, failure, jitted, outcome, plain

pytestmark = pytest.mark.cpu("programs for accelerators have no errors of values")

X = tf.constant([1.0, 2.0, 3.0])
BOOLEANS = tf.Variable([True, False, True])


@pytest.mark.parametrize(
    ("op", "good", "bad"),
    [
        (tf.reshape, [3, 1], [0, 4]),
        (tf.reshape, [1, -1], [-1, -1]),
        (tf.reshape, [1, 3], [-3, 1]),
        (tf.expand_dims, 1, 2),
        (tf.broadcast_to, [2, 3], [2, 2]),
        (lambda x, size: tf.broadcast_to(x[x > 0.0], [2, size]), 3, 4),
        (lambda x, size: tf.broadcast_to(x[:1], [2, size]), 3, -3),
    ],
    ids=[
        *("another size", "two unknown", "negative", "no such dimension", "broadcast"),
        *("a mask, broadcast", "broadcast to a negative size"),
    ],
)
@pytest.mark.parametrize("on_host", [False, True], ids=["alone", "beside an op on the host"])
def test_a_shape_that_does_not_fit(op: Any, good: Any, bad: Any, on_host: bool) -> None:
    """XLA takes the argument for a constant, and refuses it."""

    def program(x: tf.Tensor, shape: tf.Tensor) -> Any:
        y = op(x, shape)
        return tf.strings.length(tf.strings.as_string(y)) if on_host else y

    function = jitted(beside(program))
    for shape in (bad, good, bad, good):
        actual, expected = (
            outcome(each, X, tf.constant(shape)) for each in (function, plain(program))
        )
        assert_same(actual, expected)
    name = {tf.reshape: "Reshape", tf.expand_dims: "ExpandDims"}.get(op, "BroadcastTo")
    assert f"{{{{node {name}}}}}" in str(failure(function, X, tf.constant(bad)))


def a_stitch(x: tf.Tensor, indices: Any) -> tf.Tensor:
    return tf.dynamic_stitch([indices, [1]], [x[:1], x[1:2]])


def a_gradient_of_a_convolution(x: tf.Tensor, sizes: Any) -> tf.Tensor:
    numbers = x[tf.newaxis, :, tf.newaxis, tf.newaxis]
    return tf.raw_ops.Conv2DBackpropInput(
        input_sizes=sizes, filter=x[:1, None, None, None], out_backprop=numbers,
        strides=[1, 1, 1, 1], padding="SAME",
    )  # fmt: skip


def a_scatter_of_booleans(x: tf.Tensor, indices: Any) -> tf.Tensor:
    done = tf.raw_ops.ResourceScatterNdSub(
        ref=BOOLEANS.handle, indices=indices[:, None], updates=x[:1] > 0.0
    )
    with tf.control_dependencies([done]):
        return tf.identity(x)


GUARDED: list[tuple[Any, str, Any]] = [
    (a_stitch, "DynamicStitch", [0]),
    (a_gradient_of_a_convolution, "Conv2DBackpropInput", [1, 3, 1, 1]),
    (a_scatter_of_booleans, "ResourceScatterNdSub", [0]),
]


@pytest.mark.parametrize(("program", "op", "argument"), GUARDED, ids=[op for _, op, _ in GUARDED])
def test_ops_that_would_end_the_process_for_some_arguments(
    program: Any, op: str, argument: Any
) -> None:
    """They run on the host, which raises an error for these arguments."""
    function, argument = jitted(beside(program)), tf.constant(argument)
    assert_same(function(X, argument).numpy(), plain(program)(X, argument).numpy())
    assert op in {each.op for each in hostcall.explain(function, X, argument).host_ops}


@pytest.mark.custom_call("the function is one program")
@pytest.mark.parametrize(
    "program",
    [
        lambda x: a_stitch(x, [0]),
        lambda x: a_stitch(x, tf.range(tf.rank(x))),
        lambda x: a_gradient_of_a_convolution(x, [1, 3, 1, 1]),
        lambda x: a_gradient_of_a_convolution(x, tf.stack([1, tf.size(x), 1, 1])),
    ],
    ids=["a stitch", "a stitch of ranks", "a convolution", "a convolution of sizes"],
)
def test_such_ops_of_sizes_alone_stay_in_the_program(program: Any) -> None:
    function = jitted(beside(program))
    assert_same(function(X).numpy(), plain(program)(X).numpy())
    assert not hostcall.explain(function, X).host_ops
