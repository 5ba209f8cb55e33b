"""What a recording holds: values of all kinds, and exceptions."""

import concurrent.futures
import functools
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.recordings import ROUTES, Machine, X, program_of, recorded

DTYPES = ["bool", "int8", "uint64", "float16", "bfloat16", "float8_e4m3fn", "complex128", "int4"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_bit_comes_back(
    dtype: str, shape: tuple[int, ...], file: str, machine: Machine
) -> None:
    numbers = np.random.default_rng(7)
    kind = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)

    def random(x: Any) -> Any:
        machine.use()
        assert x.dtype == kind
        if dtype in ("bool", "int4"):
            return numbers.integers(0, 2, shape).astype(kind)
        return np.ndarray(shape, kind, bytearray(numbers.bytes(64 * kind.itemsize)))

    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        y = tf.numpy_function(random, [x], tf.TensorSpec(shape, dtype))
        return tf.cast(y, tf.int8) if dtype == "int4" else y

    given = tf.constant(np.zeros(shape, kind))
    recorded(file, machine, lambda: program(given))


def test_scalars_of_tensors_are_recorded(file: str, machine: Machine) -> None:
    def act(x: Any) -> Any:
        return x * machine.use()

    for route in ROUTES:
        body = functools.partial(tf.py_function, act, Tout=tf.TensorSpec([], tf.bfloat16))
        program = program_of(lambda x, body=body: body([x]), route)
        recorded(f"{file}.{route}", machine, functools.partial(program, tf.constant(2, "bfloat16")))


def test_strings_structures_and_no_results(file: str, machine: Machine) -> None:
    def name(x: Any, labels: Any) -> Any:
        machine.use()
        return {"text": np.array([b"a\0b", b"", "ü".encode()], object), "sum": x["a"] + 1}

    callback = hostcall.callback(
        name,
        result={"text": tf.TensorSpec([3], tf.string), "sum": tf.TensorSpec([], tf.float32)},
    )
    seen: list[Any] = []

    def log(x: Any) -> None:
        machine.use()
        seen.append(x)

    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        tf.numpy_function(log, [x], [])
        named = callback({"a": x}, tf.constant(["one", "two"]))
        return tf.strings.length(named["text"]), named["sum"]

    recorded(file, machine, lambda: program(2.0))
    assert len(seen) == 1


def test_results_of_unknown_size(file: str, machine: Machine) -> None:
    def unique(x: Any) -> Any:
        machine.use()
        return np.unique(x)

    hostcall.declare(unique, result=hostcall.BoundedSpec([8], tf.float32))

    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        return tf.reduce_sum(tf.numpy_function(unique, [x], tf.float32)) + 1

    recorded(file, machine, lambda: [program(tf.ones([8])), program(tf.range(8.0))])


def test_functions_that_write_into_their_results(file: str, machine: Machine) -> None:
    def double(x: Any, out: Any) -> None:
        machine.use()
        np.multiply(x, 2, out=out)

    callback = hostcall.callback(double, result=lambda x: x, borrow=True, out=True)
    for route in ROUTES:
        program = program_of(lambda x: callback(x) + 1, route)
        recorded(f"{file}.{route}", machine, functools.partial(program, tf.range(5000.0)))


def test_arrays_that_are_lent(file: str, machine: Machine) -> None:
    def double(x: Any) -> Any:
        machine.use()
        return 2 * np.from_dlpack(x)

    callback = hostcall.callback(double, result=lambda x: x, memory="device")
    for route in ROUTES:
        program = program_of(lambda x: callback(x) + 1, route)
        recorded(f"{file}.{route}", machine, functools.partial(program, tf.range(5000.0)))


def test_executors_and_timeouts_are_not_asked_in_a_replay(file: str, machine: Machine) -> None:
    def measure(x: Any) -> Any:
        return x * np.float32(machine.use())

    pool = concurrent.futures.ThreadPoolExecutor(2)
    callback = hostcall.callback(measure, result=lambda x: x, executor=pool, timeout=60)
    program = tf.function(lambda x: callback(x), jit_compile=True)
    with hostcall.record(file):
        expected = program(X).numpy()
    pool.shutdown()
    with hostcall.replay(file):
        np.testing.assert_array_equal(program(X).numpy(), expected)


def test_calls_that_nobody_waits_for(file: str) -> None:
    seen: list[float] = []
    log = hostcall.callback(lambda x: seen.append(float(x)), result=[], wait=False, name="log")

    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        log(x)
        return x + 1

    with hostcall.record(file):
        program(1.0)
        program(2.0)
    hostcall.barrier()
    with hostcall.replay(file):
        program(1.0)
        program(2.0)
    hostcall.barrier()
    assert seen == [1.0, 2.0]


def test_exceptions_are_raised_again(file: str, machine: Machine) -> None:
    class OwnError(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"code {code}")

    errors = itertools.cycle(
        [
            KeyError("no such sensor"),
            FileNotFoundError(2, "gone", "camera"),
            OwnError(7),
            tf.errors.OutOfRangeError(None, None, "the end"),
        ]
    )

    def fail(x: Any) -> Any:
        machine.use()
        raise next(errors)

    program = tf.function(
        lambda x: tf.numpy_function(fail, [x], tf.TensorSpec([3], tf.float32)), jit_compile=True
    )

    def run() -> list[tuple[type, BaseException | None]]:
        caught = []
        for _ in range(4):
            with pytest.raises(tf.errors.OpError) as error:
                program(X)
            caught.append((type(error.value), hostcall.last_error(error.value)))
        return caught

    with hostcall.record(file):
        first = run()
    machine.is_there = False
    with hostcall.replay(file):
        second = run()
    assert [kind for kind, _ in first] == [kind for kind, _ in second]
    for (_, one), (_, other) in zip(first, second, strict=True):
        if isinstance(one, OwnError):  # a class of a function, which nobody finds
            assert type(other) is hostcall.RecordedError
            assert str(other).endswith("OwnError: code 7")
        else:
            assert type(one) is type(other)
            assert str(one) == str(other)
