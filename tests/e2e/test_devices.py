"""Values that cross between a function's device and the host; see `tests/support/device.py`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.device import DEVICE
from tests.support.helpers import assert_equal, failure, gradient_of, jitted
from tests.support.versions import calls_from_the_device, one_program_keeps_the_order

DTYPES = ["float32", "int32", "int64", "bool", "complex64", "bfloat16"]
ROUTES = [pytest.param("custom_call", marks=calls_from_the_device), "partition"]

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_route = pytest.mark.parametrize("route", ROUTES)


def on_route(route: str, program: Callable[..., Any], *args: Any) -> Any:
    """Run a jitted program twice, check that both results are equal, and return them."""
    function = jitted(program)
    with hostcall.scope(route=route):
        first, second = function(*args), function(*args)
    tf.nest.map_structure(np.testing.assert_array_equal, first, second)
    return first


def flipped(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(lambda v: v[::-1], [x], x.dtype), x.shape)


def values(dtype: str) -> Any:
    return tf.cast(tf.constant([0, 1, 1, 0, 1, 1, 1]), dtype)


def place_of(tensor: Any) -> str:
    return str(tf.DeviceSpec.from_string(tensor.backing_device).device_type)


@each_route
@each_dtype
def test_an_argument_goes_to_the_host_and_the_result_comes_back(dtype: str, route: str) -> None:
    x = values(dtype)
    result = on_route(route, flipped, x)
    np.testing.assert_array_equal(result, x[::-1])
    if DEVICE:
        assert place_of(result) == DEVICE.partition(":")[0]


@each_route
@each_dtype
def test_what_is_computed_on_the_device_goes_there_and_back(dtype: str, route: str) -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.reverse(flipped(tf.concat([x, x], 0)), [0])

    x = values(dtype)
    np.testing.assert_array_equal(on_route(route, program, x), tf.concat([x, x], 0))


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


@pytest.mark.parametrize("how", [{"borrow": True}, {"memory": "device"}], ids=str)
def test_memory_that_is_lent(how: Any) -> None:
    def positive(x: Any) -> Any:
        x = np.asarray(x)
        return x[x > 0]

    callback = hostcall.callback(
        positive, result=hostcall.BoundedSpec([8192], tf.float32), stateful=False, **how
    )
    x = tf.range(-10.0, 4000.0)
    result = on_route("auto", lambda x: callback(x) * 2.0, x)
    np.testing.assert_array_equal(result, 2.0 * x[11:])


def test_arguments_that_go_through_are_what_they_were() -> None:
    def program(*args: tf.Tensor) -> Any:
        return tf.numpy_function(np.unique, [args[0]], args[0].dtype), *args

    given = [values(dtype) for dtype in DTYPES]
    _, *through = on_route("partition", program, *given)
    assert_equal(through, given)


@each_route
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_variable_stays_on_the_device(dtype: str, route: str) -> None:
    if DEVICE.startswith("GPU") and dtype == "int32":
        pytest.skip("TensorFlow has such variables of a GPU's on the host, where XLA refuses them")
    variable = tf.Variable(values(dtype))

    def program(x: tf.Tensor) -> tf.Tensor:
        variable.assign_add(flipped(x))
        return flipped(variable + x)

    x = values(dtype)
    function = jitted(program)
    expected = x.numpy()
    with hostcall.scope(route=route):
        for _ in range(3):
            expected = expected + x.numpy()[::-1]
            np.testing.assert_array_equal(function(x), (expected + x.numpy())[::-1])
            np.testing.assert_array_equal(variable, expected)


@pytest.mark.parametrize("calls_host", [True, False])
@pytest.mark.parametrize("form", ["straight", "loop"])
def test_a_variable_on_another_device(form: str, calls_host: bool) -> None:
    with tf.device("CPU:0" if DEVICE else "CPU:1"):
        variable = tf.Variable([1.0, 2.0, 3.0])

    def step(x: tf.Tensor) -> tf.Tensor:
        variable.assign_add(flipped(x) if calls_host else x[::-1])
        return tf.tanh(x) * 2.0 + variable

    def straight(x: tf.Tensor) -> tf.Tensor:
        return step(x)

    def loop(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = step(x)
        return x

    program = {"straight": straight, "loop": loop}[form]
    x = tf.constant([3.0, 1.0, 2.0])
    expected = np.array([1.0, 2.0, 3.0], np.float32)
    function = jitted(program)
    for _ in range(2):
        result = x.numpy()
        for _ in range(1 if form == "straight" else 2):
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


# The device of the tests, and another one.
HERE, THERE = (f"/device:{name}" for name in ((DEVICE, "CPU:0") if DEVICE else ("CPU:0", "CPU:1")))


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
        y, z, last = program(tf.constant([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(y, [4.0, 3.0, 2.0])
    np.testing.assert_array_equal(z, [6.0, 9.0, 12.0])
    np.testing.assert_array_equal(last, [13.0, 10.0, 7.0])


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

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            y = tf.ensure_shape(tf.py_function(lambda v: v * v, [variable * x], tf.float32), [3])
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, variable) + flipped(x)

    @tf.function
    def run(x: tf.Tensor) -> Any:
        return strategy.run(step, args=(x,))

    x = tf.constant([1.0, 0.5, 2.0])
    with hostcall.scope(route=route if name == "one device" else "auto"):
        results = strategy.experimental_local_results(run(x))
    assert len(results) == strategy.num_replicas_in_sync
    for result in results:
        np.testing.assert_array_equal(result, 2.0 * np.array([1, 2, 3]) * x**2 + x[::-1])


def test_strings_are_on_the_host() -> None:
    def program(x: tf.Tensor, name: tf.Tensor) -> Any:
        text = tf.strings.join([name, tf.strings.as_string(x[0], precision=1)])
        return x + 1.0, text, tf.constant("constant"), tf.strings.length(text)

    result, text, constant, length = on_route("auto", program, tf.constant([3.0]), tf.constant("x"))
    np.testing.assert_array_equal(result, [4.0])
    assert (text.numpy(), constant.numpy(), length.numpy()) == (b"x3.0", b"constant", 4)
    assert {place_of(text), place_of(constant)} == {"CPU"}


@each_route
def test_a_loop_and_a_branch(route: str) -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(4):
            x = flipped(x) + i if i % 2 == 0 else x * 2
        return x

    expected = np.arange(3)
    for i in range(4):
        expected = expected[::-1] + i if i % 2 == 0 else expected * 2
    np.testing.assert_array_equal(on_route(route, program, tf.range(3)), expected)


@one_program_keeps_the_order
@each_route
@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn"])
def test_a_loop_and_a_branch_with_floats_of_eight_bits(name: str, route: str) -> None:
    dtype = tf.as_dtype(name)

    def program(x: tf.Tensor, count: tf.Tensor) -> Any:
        y = tf.cast(x, dtype)
        for _ in tf.range(count):
            y = flipped(y)
        y = tf.cond(count > 2, lambda: flipped(y), lambda: y)
        return tf.cast(y, tf.float32)

    x = tf.constant([0.5, -0.0, np.inf if name == "float8_e5m2" else 448.0, np.nan])
    for count, expected in ((2, x), (3, x)):
        result = on_route(route, program, x, tf.constant(count))
        np.testing.assert_array_equal(result, expected)
        assert np.signbit(result[1])


@each_route
def test_a_handle_that_is_returned_is_on_the_device(route: str) -> None:
    variable = tf.Variable(values("float32"))

    def program() -> tf.Tensor:
        variable.assign(flipped(variable.read_value()))
        return tf.identity(variable.handle)

    with hostcall.scope(route=route):
        handle = jitted(program)()
    found = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
    np.testing.assert_array_equal(found, values("float32")[::-1])


@each_route
def test_a_gradient(route: str) -> None:
    def square(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.py_function(lambda v: v * v, [x * 2.0], tf.float32), x.shape)

    def program(x: tf.Tensor) -> tf.Tensor:
        return gradient_of(square, x)

    x = tf.constant([1.0, 2.0])
    np.testing.assert_array_equal(on_route(route, program, x), 8.0 * x)
    if DEVICE:
        assert place_of(on_route(route, program, x)) == DEVICE.partition(":")[0]
