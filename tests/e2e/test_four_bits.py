"""Integers of four bits cross the border of compiled functions: XLA packs two in a byte."""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    assert_same,
    each_caller,
    gradient_of,
    jitted,
    partitioned,
    plain,
    raising,
    to_numpy,
)

pytestmark = pytest.mark.cpu("TensorFlow copies no integers of four bits to other devices")

VALUES = {ml_dtypes.int4: [1, 2, 3, 4, -5, 6, 7, -8, -1], ml_dtypes.uint4: [1, 2, 3, 15, 5, 8, 7]}
each_dtype = pytest.mark.parametrize("dtype", VALUES, ids=lambda dtype: dtype.__name__)
each_way = pytest.mark.parametrize("way", [jitted, partitioned])

INT4 = tf.as_dtype("int4")


def given(dtype: Any) -> tf.Tensor:
    return tf.constant(np.array(VALUES[dtype], np.int32).astype(dtype))


def wide(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, {"int4": tf.int8, "uint4": tf.uint8}[x.dtype.name])


def called(function: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(function, [x], tf.TensorSpec(x.shape, x.dtype))


def flipped(x: tf.Tensor) -> tf.Tensor:
    return called(lambda v: v[::-1], x)


def of_unknown_size(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(lambda v: v[:3], [x], x.dtype)


def beside_a_call(x: tf.Tensor) -> tf.Tensor:
    flipped(tf.zeros([2]))
    return tf.cast(wide(x) // 2, x.dtype)


def of_text(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(lambda v: str(v.astype(int)), [x], tf.TensorSpec([], tf.string))


PROGRAMS: dict[str, Callable[[tf.Tensor], Any]] = {
    "argument": lambda x: tf.numpy_function(
        lambda v: v.astype(np.int32), [x], tf.TensorSpec(x.shape, tf.int32)
    ),
    "result": flipped,
    "passed on": lambda x: (x, flipped(x), tf.identity(x), wide(x)),
    "beside a call": beside_a_call,
    "unknown size": of_unknown_size,
    "unknown size inside": lambda x: wide(of_unknown_size(x)) * 2,
    "text": lambda x: (tf.strings.length(of_text(x)), x),
    "op without XLA kernel": lambda x: (
        tf.strings.length(tf.strings.as_string(tf.cast(wide(x), tf.int32))),
        flipped(x),
    ),
    "without a call": lambda x: (tf.strings.length(tf.strings.as_string(wide(x))), x),
    "compiled inside": lambda x: jitted(lambda v: (flipped(v), v))(flipped(x)),
    "tensors": lambda x: tf.ensure_shape(tf.py_function(tf.identity, [x], x.dtype), x.shape),
}


@pytest.mark.pairwise
@each_dtype
@each_way
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_graph_mode(name: str, way: Any, dtype: Any) -> None:
    x = given(dtype)
    expected = to_numpy(plain(PROGRAMS[name])(x))
    program = way(PROGRAMS[name])
    for _ in range(2):
        assert_same(to_numpy(program(x)), expected)


@each_way
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2,), (3, 5), (7, 10_001)])
def test_values_of_every_shape(way: Any, shape: Any) -> None:
    x = np.asarray(np.random.default_rng(0).integers(-8, 8, shape)).astype(ml_dtypes.int4)
    assert_same(to_numpy(way(lambda x: called(np.copy, x))(tf.constant(x))), x)


@each_dtype
def test_captured_tensors(dtype: Any) -> None:
    x = given(dtype)
    assert_same(to_numpy(jitted(lambda: flipped(x))()), x.numpy()[::-1])


@each_dtype
@each_way
def test_loops_and_branches(way: Any, dtype: Any) -> None:
    """Graph mode has no kernels for them."""

    def loop(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, flipped(v)), [0, x])[1]

    def branch(x: tf.Tensor, taken: tf.Tensor) -> tf.Tensor:
        return tf.cond(taken, lambda: flipped(x), lambda: tf.cast(wide(x) // 2, x.dtype))

    x = given(dtype)
    assert_same(to_numpy(way(loop)(x)), x.numpy()[::-1])
    halves = (x.numpy().astype(int) // 2).astype(dtype)
    for taken, expected in ((True, x.numpy()[::-1]), (False, halves)):
        assert_same(to_numpy(way(branch)(x, tf.constant(taken))), expected)


@each_dtype
@pytest.mark.parametrize("kind", ["reads", "assigns", "both", "loop", "beside"])
def test_variables(kind: str, dtype: Any) -> None:
    """Stock TensorFlow ends the process where a compiled function assigns one of odd size."""

    def program(state: tf.Variable, count: tf.Variable, x: tf.Tensor) -> Any:
        count.assign_add(1.0)
        if kind == "assigns":
            state.assign(flipped(x))
        if kind == "both":
            state.assign(flipped(state.read_value()))
            state.assign(tf.cast(wide(state) // 2, dtype))
        if kind == "loop":
            for _ in tf.range(3):
                state.assign(flipped(state.read_value()))
        return flipped(x) if kind in ("assigns", "beside") else [flipped(x), state.read_value()]

    outcomes = []
    for mode in (plain, jitted):
        x = given(dtype)
        state, count = tf.Variable(x), tf.Variable(0.0)
        run = mode(lambda x, state=state, count=count: program(state, count, x))
        results = [to_numpy(run(x)) for _ in range(2)]
        outcomes.append([*results, state.numpy(), count.numpy()])
    assert_same(outcomes[1], outcomes[0])


@each_way
def test_values_that_gradients_keep(way: Any) -> None:
    @tf.custom_gradient
    def rounded(x: tf.Tensor) -> Any:
        kept = flipped(tf.cast(tf.cast(x, tf.int8), INT4))
        return wide_float(kept), lambda upstream: upstream * wide_float(kept)

    def wide_float(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(wide(x), tf.float32)

    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(rounded(x) * x)

    x = tf.constant([1.0, 2.0, -3.0, 7.0, -8.0])
    assert_same(to_numpy(gradient_of(way(loss), x)), to_numpy(gradient_of(plain(loss), x)))


@each_caller
def test_callers(caller: Any) -> None:
    inner = jitted(flipped)

    def program(x: tf.Tensor) -> tf.Tensor:
        return wide(inner(tf.cast(tf.cast(x, tf.int8), INT4)))

    x = tf.constant([1.0, -2.0, 7.0])
    assert_same(to_numpy(caller(program, x)), np.array([7, -2, 1], np.int8))


def test_datasets_bound_functions_and_rewritten_ones() -> None:
    x = given(ml_dtypes.int4)
    expected, program = x.numpy()[::-1], jitted(flipped)
    (mapped,) = tf.data.Dataset.from_tensors(x).map(program)
    concrete = program.get_concrete_function(x)
    ways = [hostcall.bind(program, x), hostcall.rewrite(concrete)]
    ways.append(hostcall.rewrite(concrete, route="partition"))
    for one in (mapped, *(way(x) for way in ways)):
        assert_same(to_numpy(one), expected)


def test_saved_models(tmp_path: Any) -> None:
    x = given(ml_dtypes.int4)
    module = tf.Module()
    module.state = tf.Variable(x)
    spec = tf.TensorSpec([None], INT4)

    @tf.function(jit_compile=True, input_signature=[spec])
    def run(x: tf.Tensor) -> Any:
        return [called(np.flip, x), called(np.flip, module.state.read_value())]

    module.run = run
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert_same(to_numpy(loaded.run(x)), [x.numpy()[::-1]] * 2)


def test_threads(threads: concurrent.futures.ThreadPoolExecutor) -> None:
    x = given(ml_dtypes.int4)
    program = jitted(flipped)
    for result in threads.map(lambda _: program(x), range(20)):
        assert_same(to_numpy(result), x.numpy()[::-1])


@pytest.mark.custom_call("a partitioned function has clusters")
@pytest.mark.usefixtures("stock_errors")
def test_the_function_stays_whole_where_users_want_that() -> None:
    x = given(ml_dtypes.int4)
    with hostcall.scope(route="custom_call"):
        assert_same(to_numpy(jitted(flipped)(x)), x.numpy()[::-1])
    assert "one compiled program" in str(hostcall.explain(jitted(flipped), x))


def test_explanations_say_why_a_variable_is_on_the_host() -> None:
    state = tf.Variable(given(ml_dtypes.int4))
    said = str(hostcall.explain(jitted(lambda: flipped(state.read_value()))))
    assert "XLA has two int4 in a byte, and the variable has one" in " ".join(
        said.replace("│", " ").split()
    )


def branch_without_a_call(x: tf.Tensor) -> Any:
    wider = wide(x)
    halves = tf.cond(wider[0] > 0, lambda: wider // 2, lambda: wider)
    return tf.cast(halves, x.dtype)


# Functions that stock TensorFlow compiles.
STOCK: dict[str, Callable[[tf.Tensor], Any]] = {
    "argument": wide,
    "result": lambda x: tf.cast(wide(x) // 2, x.dtype),
    "passed on": lambda x: (x, tf.identity(x)),
    "passed on beside a cast": lambda x: (x, tf.identity(x), wide(x)),
    "branch": branch_without_a_call,
    "compiled inside": lambda x: jitted(lambda v: (v, wide(v)))(x),
}


@pytest.mark.usefixtures("everywhere")
@each_dtype
@pytest.mark.parametrize("name", STOCK)
def test_functions_without_calls(name: str, dtype: Any) -> None:
    x = given(dtype)
    program = jitted(STOCK[name])
    for _ in range(2):
        assert_same(to_numpy(program(x)), to_numpy(plain(STOCK[name])(x)))
    assert_same(to_numpy(jitted(lambda: STOCK[name](x))()), to_numpy(plain(STOCK[name])(x)))


@pytest.mark.usefixtures("everywhere")
@each_dtype
@pytest.mark.parametrize("kind", ["reads", "reads alone", "assigns", "both"])
def test_variables_of_functions_without_calls(kind: str, dtype: Any) -> None:
    def program(state: tf.Variable, x: tf.Tensor) -> Any:
        if kind == "reads":
            return state.read_value()
        if kind == "reads alone":
            return tf.reduce_sum(tf.cast(wide(state), tf.int32))
        if kind == "both":
            x = tf.cast(wide(state) // 2, dtype)
        state.assign(x)
        return wide(x)

    outcomes = []
    for mode in (plain, jitted):
        x = given(dtype)
        state = tf.Variable(given(dtype) if kind != "assigns" else np.zeros_like(x))
        run = mode(lambda x, state=state: program(state, x))
        outcomes.append([*(to_numpy(run(x)) for _ in range(2)), state.numpy()])
    assert_same(outcomes[1], outcomes[0])


@pytest.mark.usefixtures("everywhere")
@each_dtype
def test_a_function_without_calls_assigns_a_constant(dtype: Any) -> None:
    state = tf.Variable(np.zeros_like(given(dtype)))

    def assign() -> None:
        state.assign(given(dtype))

    jitted(assign)()
    assert state.numpy().astype(int).tolist() == VALUES[dtype]


@pytest.mark.usefixtures("everywhere")
@each_caller
def test_callers_of_functions_without_calls(caller: Any) -> None:
    inner = jitted(lambda x: tf.cast(wide(x) // 2, x.dtype))

    def program(x: tf.Tensor) -> tf.Tensor:
        return wide(inner(tf.cast(tf.cast(x, tf.int8), INT4)))

    x = tf.constant([1.0, -2.0, 7.0])
    assert_same(to_numpy(caller(program, x)), np.array([0, -1, 3], np.int8))


@pytest.mark.tensorflow("2.21", "TensorFlow has them from then on")
@each_way
@pytest.mark.parametrize("name", ["int2", "uint2", "float4_e2m1fn"])
def test_values_that_xla_lacks(name: str, way: Any) -> None:
    x = tf.constant(np.array([0, 1, 1, 0, 1]).astype(tf.as_dtype(name).as_numpy_dtype))

    def program(x: tf.Tensor) -> Any:
        return flipped(flipped(x)), tf.identity(x)

    assert_same(to_numpy(way(program)(x)), to_numpy(plain(program)(x)))


@each_way
def test_errors_are_those_of_other_functions(way: Any) -> None:
    def divided(x: tf.Tensor) -> tf.Tensor:
        return tf.constant(3) // tf.cast(wide(flipped(x)), tf.int32)

    zeros = tf.constant(np.zeros(3, ml_dtypes.int4))
    with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: what went wrong"):
        way(lambda x: called(raising(ValueError("what went wrong")), x))(zeros)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Integer division by zero"):
        way(divided)(zeros)
