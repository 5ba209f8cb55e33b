"""`memory="device"`: on the CPU, functions are lent the program's arrays, whichever way they are
called, and other libraries take them and give them back.
"""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e.borrowed_views_programs import (
    LARGE,
    every_size,
    every_way,
    in_programs,
    numbers,
    values,
)
from tests.support.e2e.borrowed_views_programs import one as one_borrowing
from tests.support.helpers import assert_same, assert_says, failure, gradient_of, jitted, like

jax_array = jax.dlpack.from_dlpack


def one(function: Any, **declared: Any) -> Any:
    return one_borrowing(function, borrow=False, memory="device", **declared)


@every_way
@every_size
def test_libraries_take_the_arrays_and_give_theirs(way: Any, size: int) -> None:
    seen: list[Any] = []

    def double(x: hostcall.DeviceArray) -> Any:
        seen.append((type(x), x.shape, x.dtype, x.device, x.__dlpack_device__()))
        assert not hasattr(x, "__cuda_array_interface__")
        assert not any(read(x).flags.writeable for read in (np.asarray, np.from_dlpack))
        return jax_array(x) * 2 if size else np.from_dlpack(x)

    run = way(one(double))
    for _ in range(3):
        assert_same(run(values(size)).numpy(), numbers(size) * 4 + 1)
    assert set(seen) == {(hostcall.DeviceArray, (size,), np.dtype(np.float32), "cpu", (1, 0))}


@pytest.mark.cpu("the memory of other devices is not lent")
@in_programs
def test_large_arrays_lie_in_the_memory_of_the_program() -> None:
    def function(x: hostcall.DeviceArray) -> Any:
        addresses = {read(x).ctypes.data for read in (np.asarray, np.from_dlpack)}
        assert addresses == {jax_array(x).unsafe_buffer_pointer()}
        return x

    assert_same(jitted(one(function))(values(LARGE)).numpy(), numbers(LARGE) * 2 + 1)


@every_way
def test_what_was_lent_may_be_given_back(way: Any) -> None:
    reversed_twice = lambda x: np.asarray(x)[::-1][::-1]  # noqa: E731
    for given in (lambda x: x, reversed_twice, jax_array, lambda x: [np.from_dlpack(x)]):
        run = way(one(lambda x, given=given: given(x)))
        assert_same(run(values(LARGE)).numpy(), numbers(LARGE) * 2 + 1)


@every_way
@every_size
def test_the_arrays_themselves_refuse_after_the_call(way: Any, size: int) -> None:
    kept: list[hostcall.DeviceArray] = []
    run = way(one(lambda x: (kept.append(x), np.asarray(x) + 1)[1]))
    assert_same(run(values(size)).numpy(), numbers(size) * 2 + 2)
    array = kept[0]
    assert (array.shape, array.device) == ((size,), "cpu")
    assert "of a call that has ended" in repr(array)
    for use in (np.asarray, np.from_dlpack, lambda x: x.__dlpack__(), jax_array):
        with pytest.raises(BufferError, match="lent to a function for a call, and is used after"):
            use(array)


@pytest.mark.cpu("elsewhere arrays are copies, of which JAX makes its own if they are not aligned")
@pytest.mark.parametrize("read", [np.asarray, np.from_dlpack, jax_array])
@every_way
def test_memory_that_is_kept_is_an_error_and_stays(way: Any, read: Any) -> None:
    kept: list[Any] = []

    def keep(x: hostcall.DeviceArray) -> Any:
        kept.append(read(x))
        return np.asarray(x) + 1

    message = failure(way(one(keep)), values(LARGE)).message
    assert "something still has the memory of an array that it was lent" in message
    assert "test_device_arrays.py" in message
    for _ in range(3):
        way(one(lambda x: -np.asarray(x)))(values(LARGE))
    np.testing.assert_array_equal(np.asarray(kept[0]), numbers(LARGE) * 2)


@every_way
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int8", "bool", "complex64"])
def test_dtypes(way: Any, dtype: str) -> None:
    x = tf.cast(tf.constant([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]), dtype)

    def back(x: hostcall.DeviceArray) -> Any:
        return jax_array(x) if dtype != "bool" else np.from_dlpack(x)

    hostcall.declare(back, result=like, memory="device")
    run = way(lambda x: tf.numpy_function(back, [x], x.dtype))
    assert np.asarray(run(x)).tobytes() == np.asarray(x).tobytes()


@every_way
def test_scalars_and_structures(way: Any) -> None:
    @hostcall.callback(
        result=lambda pair: {"sum": pair["a"], "n": tf.TensorSpec([], tf.int32)}, memory="device"
    )
    def add(pair: Any) -> Any:
        a, b = (np.asarray(pair[key]) for key in "ab")
        assert (a.shape, b.shape) == ((), ())
        return {"sum": jnp.asarray(a) + b, "n": np.int32(2)}

    results = way(lambda a: add({"a": a, "b": a + 1}))(tf.constant(3.0))
    assert (results["sum"].numpy(), results["n"].numpy()) == (7.0, 2)


@every_way
def test_strings(way: Any) -> None:
    @hostcall.callback(result=lambda x: x, memory="device")
    def shout(x: hostcall.DeviceArray) -> Any:
        return np.array([text.upper() for text in np.asarray(x)], object)

    assert way(lambda x: shout(x))(tf.constant(["a", "b"])).numpy().tolist() == [b"A", b"B"]


@in_programs
def test_bounded_sizes() -> None:
    some = hostcall.callback(
        lambda x: jax_array(x)[: x.shape[0] - 1],
        memory="device",
        result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype),
    )
    assert_same(jitted(lambda x: some(some(x)) * 2.0)(values(6)).numpy(), numbers(4) * 2)


def test_gradients_loops_and_batches() -> None:
    square = hostcall.callback(
        lambda x: jnp.square(jax_array(x)), result=like, memory="device", stateful=False,
        grad=lambda inputs, results, upstream: (2.0 * inputs[0] * upstream,),
        vmap_method="expand_dims",
    )  # fmt: skip

    def fourth_power(x: Any) -> Any:
        for _ in tf.range(2):
            x = square(x)
        return x

    gradient = jitted(lambda x: gradient_of(fourth_power, x))(values(4))
    np.testing.assert_allclose(gradient, 4 * numbers(4) ** 3)
    batch = jitted(lambda x: tf.vectorized_map(square, x[None] + 1.0))(values(4))
    np.testing.assert_allclose(batch, (numbers(4)[None] + 1) ** 2)


class Elsewhere:
    """An array on a GPU, as far as one can see."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1

    def __dlpack__(self, **wanted: Any) -> Any:
        raise AssertionError("it is not asked")


Interface = type("Interface", (), {"__cuda_array_interface__": {}})  # the same for CUDA's libraries


@every_way
@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (Elsewhere, "is a Elsewhere on CUDA device 1, and the program runs on cpu. Copy it there"),
        (Interface, "is a Interface on CUDA device, and the program runs on cpu"),
        (object, "which has neither __dlpack__ nor __cuda_array_interface__"),
        (lambda: jnp.zeros(5), "has shape (5,), but its declared shape is (4,)"),
        (lambda: jnp.zeros(4, jnp.int32), "is int32, but expects float"),
        (lambda: [jnp.zeros(4)] * 2, "2 values, but expects to see 1 values"),
    ],
)
def test_results_that_are_not_as_declared(way: Any, returned: Any, text: str) -> None:
    assert_says(failure(way(one(lambda x: returned())), values(4)), text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("borrow", True), ("out", True), ("memo", True), ("timeout", 1.0), ("wait", False)],
        ("executor", concurrent.futures.ThreadPoolExecutor),
    ],
)
def test_what_does_not_go_with_it(name: str, value: Any) -> None:
    option: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=rf"{name}=.*memory='device'|memory='device'.*{name}="):
        hostcall.declare(lambda x: x, result=like, memory="device", **option)
    with pytest.raises(ValueError, match=rf"{name}=.*memory='device'|memory='device'.*{name}="):
        hostcall.callback(lambda x: x, result=like, memory="device", stateful=False, **option)


def test_other_things_that_are_refused() -> None:
    makers: tuple[Any, ...] = (hostcall.declare, hostcall.callback)
    for declare in makers:
        with pytest.raises(ValueError, match="memory='gpu' is neither 'host'"):
            declare(lambda x: x, result=like, memory="gpu")
    function = hostcall.declare(lambda x: x, memory="device")
    uses: list[Callable[[], Any]] = [
        lambda: tf.py_function(function, [1.0], tf.float32),
        lambda: hostcall.callback(function, result=like, kind="eager", memory="device"),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="memory='device' is for functions that take arrays"):
            use()
    lent = hostcall.callback(function, result=like, memory="device")
    with pytest.raises(ValueError, match="memory='device' lend"):
        hostcall.map(lent, executor=concurrent.futures.ThreadPoolExecutor)
    program = jitted(lambda x: lent(x))
    with pytest.raises(hostcall.NotExportableError, match="declared with memory='device'"):
        hostcall.export(program, tf.TensorSpec([3]))


@pytest.mark.cpu("TensorFlow does not copy numbers of 4 bits to other devices")
@every_way
def test_dtypes_that_dlpack_lacks(way: Any) -> None:
    seen: list[Any] = []

    def back(x: hostcall.DeviceArray) -> Any:
        with pytest.raises(BufferError, match="DLPack has no dtype for int4"):
            x.__dlpack__()
        seen.append(x.dtype)
        return np.asarray(x)

    hostcall.declare(back, result=like, memory="device")

    def program(x: Any) -> Any:
        return tf.cast(tf.numpy_function(back, [tf.cast(x, "int4")], "int4"), tf.int8)

    assert way(program)(tf.constant([1, -2])).numpy().tolist() == [1, -2]
    assert seen == [np.dtype(ml_dtypes.int4)]
