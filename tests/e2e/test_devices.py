"""Values that cross between a function's device and the host; see `tests/support/device.py`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.device import DEVICE
from tests.support.helpers import DetailedError, assert_equal, assert_says, called, failure, jitted
from tests.support.versions import calls_from_the_device

# The device of the tests, and another one.
HERE, THERE = (f"/device:{name}" for name in ((DEVICE, "CPU:0") if DEVICE else ("CPU:0", "CPU:1")))

DTYPES = ["float32", "int32", "int64", "bool", "complex64", "bfloat16"]
ROUTES = [pytest.param("custom_call", marks=calls_from_the_device), "partition"]
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_route = pytest.mark.parametrize("route", ROUTES)


def on_route(route: str, program: Callable[..., Any], *args: Any) -> Any:
    """Run a jitted program twice, check that both results are equal, and return them."""
    function = jitted(program)
    with hostcall.scope(route=route):
        first, second = function(*args), function(*args)
    assert_equal(second, first)
    return first


def flipped(x: tf.Tensor) -> tf.Tensor:
    return called(lambda v: v[::-1], x)


def values(dtype: str) -> Any:
    return tf.cast(tf.constant([0, 1, 1, 0, 1, 1, 1]), dtype)


def assert_is_there(tensor: Any) -> None:
    """It is on the device of the tests, or, strings, on the host."""
    place = "CPU" if tensor.dtype == tf.string or not DEVICE else DEVICE.partition(":")[0]
    assert tf.DeviceSpec.from_string(tensor.backing_device).device_type == place


@each_route
@each_dtype
def test_an_argument_goes_to_the_host_and_the_result_comes_back(dtype: str, route: str) -> None:
    def program(x: tf.Tensor) -> Any:
        return flipped(x), tf.reverse(flipped(tf.concat([x, x], 0)), [0])

    x = values(dtype)
    result, computed = on_route(route, program, x)
    np.testing.assert_array_equal(result, x[::-1])
    np.testing.assert_array_equal(computed, tf.concat([x, x], 0))
    assert_is_there(result)
    assert_is_there(computed)


@each_dtype
def test_a_size_that_the_host_alone_knows(dtype: str) -> None:
    def program(x: tf.Tensor, count: tf.Tensor) -> Any:
        y = tf.numpy_function(lambda v, n: v[:n], [x, count], x.dtype)
        return tf.concat([y, y], 0), count + 1

    x = values(dtype)
    for count in (1, 5, 1):
        result, more = on_route("auto", program, x, tf.constant(count))
        np.testing.assert_array_equal(result, tf.concat([x[:count]] * 2, 0))
        assert more.numpy() == count + 1


@pytest.mark.parametrize("calls_host", [True, False])
@pytest.mark.parametrize("form", ["straight", "loop"])
def test_a_variable_on_another_device(form: str, calls_host: bool) -> None:
    steps = 1 if form == "straight" else 2
    with tf.device(THERE):
        variable = tf.Variable([1.0, 2.0, 3.0])

    def step(x: tf.Tensor) -> tf.Tensor:
        variable.assign_add(flipped(x) if calls_host else x[::-1])
        return tf.tanh(x) * 2.0 + variable

    def loop(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(steps):
            x = step(x)
        return x

    x = tf.constant([3.0, 1.0, 2.0])
    expected = np.array([1.0, 2.0, 3.0], np.float32)
    function = jitted(step if form == "straight" else loop)
    for _ in range(2):
        result = x.numpy()
        for _ in range(steps):
            expected = expected + result[::-1]
            result = np.tanh(result) * 2.0 + expected
        np.testing.assert_allclose(function(x), result, rtol=1e-6)
        np.testing.assert_allclose(variable, expected, rtol=1e-6)


@pytest.mark.parametrize("route", ["auto", "partition"])
@pytest.mark.parametrize("size", [10, 20_000])
def test_an_error_is_told_of_once_and_whole(size: int, route: str) -> None:
    """TensorFlow lists it for each device, and cuts the list off after 8 KiB."""
    with tf.device(THERE):
        variable = tf.Variable([1.0])

    def fail(x: Any) -> Any:
        raise ValueError("a" * size + "!")

    def program(x: tf.Tensor) -> tf.Tensor:
        variable.assign(tf.ensure_shape(tf.numpy_function(fail, [x], tf.float32), [1]))
        return variable + x

    with hostcall.scope(route=route):
        error = failure(jitted(program), tf.constant([1.0]))
    assert error.message.startswith("ValueError: " + "a" * size + "!")
    assert error.message.count("[hostcall error") == 1
    assert isinstance(hostcall.last_error(error), ValueError)
    assert variable.numpy() == [1.0]


@each_route
def test_several_devices_in_one_function(route: str) -> None:
    first, second = jitted(lambda x: flipped(x) + 1.0), jitted(lambda x: flipped(x * 3.0))

    @tf.function
    def program(x: tf.Tensor) -> Any:
        with tf.device(HERE):
            y = first(x)
        with tf.device(THERE):
            z = second(y)
        with tf.device(HERE):
            return y, z, first(z)

    with hostcall.scope(route=route):
        results = program(tf.constant([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(results, [[4, 3, 2], [6, 9, 12], [13, 10, 7]])


STRATEGIES: dict[str, Callable[[], tf.distribute.Strategy]] = {
    "one device": lambda: tf.distribute.OneDeviceStrategy(HERE),
    "mirrored on one": lambda: tf.distribute.MirroredStrategy([HERE]),
    "mirrored on two": lambda: tf.distribute.MirroredStrategy([HERE, THERE]),
}


@each_route
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_step_of_each_replica(name: str, route: str) -> None:
    strategy = STRATEGIES[name]()
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0, 3.0])

    @jitted
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            y = tf.ensure_shape(tf.py_function(tf.square, [variable * x], tf.float32), [3])
        return tape.gradient(y, variable) + flipped(x)

    run = tf.function(lambda x: strategy.run(step, args=(x,)))
    x = tf.constant([1.0, 0.5, 2.0])
    with hostcall.scope(route=route if name == "one device" else "auto"):
        results = strategy.experimental_local_results(run(x))
    assert len(results) == strategy.num_replicas_in_sync
    for result in results:
        np.testing.assert_array_equal(result, 2.0 * np.array([1, 2, 3]) * x**2 + x[::-1])


def test_an_exception_in_one_replica() -> None:
    def refuse(x: np.ndarray) -> np.ndarray:
        if x > 5.0:
            raise DetailedError("too much")
        return x

    strategy = STRATEGIES["mirrored on two"]()
    step = jitted(lambda x: tf.ensure_shape(tf.numpy_function(refuse, [x], tf.float32), []))
    in_each = tf.function(lambda x: strategy.run(step, args=(x,)))

    def run(*values: float) -> Any:
        given = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(values[context.replica_id_in_sync_group])
        )
        return strategy.experimental_local_results(in_each(given))

    error = failure(run, 1.0, 10.0)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(error, "DetailedError: too much")
    assert isinstance(hostcall.last_error(error), DetailedError)
    assert [float(result) for result in run(1.0, 2.0)] == [1.0, 2.0]


def test_strings_are_on_the_host() -> None:
    def program(x: tf.Tensor, name: tf.Tensor) -> Any:
        text = tf.strings.join([name, tf.strings.as_string(x[0], precision=1)])
        return x + 1.0, text, tf.constant("constant"), tf.strings.length(text)

    results = on_route("auto", program, tf.constant([3.0]), tf.constant("x"))
    assert_equal(results, ([4.0], b"x3.0", b"constant", 4))
    assert_is_there(results[1])
    assert_is_there(results[2])


@each_route
@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn"])
def test_a_loop_and_a_branch_with_floats_of_eight_bits(name: str, route: str) -> None:
    def program(x: tf.Tensor, count: tf.Tensor) -> Any:
        y = tf.cast(x, tf.as_dtype(name))
        for _ in tf.range(count):
            y = flipped(y)
        y = tf.cond(count > 2, lambda: flipped(y), lambda: y)
        return tf.cast(y, tf.float32)

    x = tf.constant([0.5, -0.0, np.inf if name == "float8_e5m2" else 448.0, np.nan])
    for count in (2, 3):
        result = on_route(route, program, x, tf.constant(count))
        np.testing.assert_array_equal(result, x)
        assert np.signbit(result[1])
