"""hostcall._functions.memoization: pure functions that are called once for equal inputs."""

import collections
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._functions.declarations import declaration_of
from tests.support.fate import Fate
from tests.support.helpers import failure, jitted
from tests.support.memo import MODES, counting, declared, each_but_jitted, each_mode
from tests.support.threads import in_threads

X = tf.constant([1.0, 2.0])


@each_mode
@pytest.mark.parametrize("timeout", [None, 20.0])
def test_one_call_for_each_input(mode: Any, timeout: float | None) -> None:
    double, calls = declared(lambda v: v * 2.0, timeout=timeout)
    program = mode(double)
    for value in (1.0, 2.0, 1.0, 3.0, 2.0, 1.0):
        np.testing.assert_array_equal(program(X * value), X * value * 2.0)
    assert len(calls) == 3


def test_what_one_way_has_computed_the_others_find() -> None:
    double, calls = declared(lambda v: v * 2.0)
    for mode in MODES:
        np.testing.assert_array_equal(mode(double)(X), X * 2.0)
        np.testing.assert_array_equal(mode(lambda x: double(x) + 1.0)(X), X * 2.0 + 1.0)
    assert len(calls) == 1


@each_mode
def test_only_so_many_are_kept(mode: Any) -> None:
    double, calls = declared(lambda v: v * 2.0, memo=2)
    program = mode(double)
    for value, expected in ((1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4)):
        program(X * float(value))
        assert len(calls) == expected, "not the one that was used last is dropped"


def test_how_many_are_kept_if_no_number_is_given() -> None:
    double, calls = declared(lambda v: v * 2.0)
    for value in [*range(128), *range(128)]:
        double(tf.constant(float(value)))
    assert len(calls) == 128
    double(tf.constant(-1.0))
    double(tf.constant(0.0))
    assert len(calls) == 130


_FLOATS = np.zeros([2], np.float32)
BITS = [
    (np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 1),
    (np.array([0.0]), np.array([-0.0]), 2),
    (np.zeros([2, 1]), np.zeros([1, 2]), 2),
    (np.zeros([0, 3]), np.zeros([0, 2]), 2),
    (_FLOATS, np.zeros([2], np.int32), 2),
    (_FLOATS.astype(np.float16), _FLOATS.astype(ml_dtypes.bfloat16), 2),
    (np.float32(1.5), np.float32(1.5), 1),
    (np.bool_(True), np.int8(1), 2),
    (np.arange(5000.0), np.arange(5000.0), 1),
    (np.arange(5000.0), np.arange(5000.0) + np.eye(1, 5000, 4999)[0], 2),
]


@each_mode
@pytest.mark.parametrize(("one", "other", "expected"), BITS)
def test_inputs_are_compared_bit_by_bit(mode: Any, one: Any, other: Any, expected: int) -> None:
    same, calls = declared(lambda v: v)
    program = mode(same)
    for value in (one, other, one, other):
        result = program(tf.constant(value)).numpy()
        assert result.dtype == value.dtype
        assert result.tobytes() == value.tobytes()
    assert len(calls) == expected


@each_but_jitted
def test_strings(mode: Any) -> None:
    lengths, calls = counting(lambda s: np.int32(np.vectorize(len, otypes=[np.int32])(s)))
    hostcall.declare(lengths, memo=True)
    program = mode(lambda s: tf.numpy_function(lengths, [s], tf.int32))
    for strings in (["a", "bcd"], ["a", "bcd"], ["ab", "cd"], "abcd", "abcd", [["a"], ["bcd"]]):
        x = tf.constant(strings)
        np.testing.assert_array_equal(program(x), tf.strings.length(x))
    assert len(calls) == 4


@each_but_jitted
def test_strings_as_results(mode: Any) -> None:
    name, calls = counting(lambda n: [f"number {n}", np.array([b"a\0", b"bc"], object)])
    hostcall.declare(name, memo=True)
    program = mode(lambda n: tf.numpy_function(name, [n], [tf.string, tf.string]))
    for _ in range(2):
        one, two = program(tf.constant(7))
        assert one == b"number 7"
        assert two.numpy().tolist() == [b"a\0", b"bc"]
    assert len(calls) == 1


def test_the_methods_of_two_objects() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor, self.calls = factor, 0

        @hostcall.callback(result=lambda x: x, stateful=False, memo=True)
        def scale(self, x: Any) -> Any:
            self.calls += 1
            return x * np.float32(self.factor)

    models = [Model(2.0), Model(3.0)]
    for mode in MODES:
        for number, factor in enumerate([2.0, 3.0]):
            program = mode(lambda x, n=number: models[n].scale(x))
            np.testing.assert_array_equal(program(X), X * factor)
    assert [model.calls for model in models] == [1, 1]
    fate = Fate(models.pop())
    del program
    fate.assert_goes()


def test_a_call_may_ask_for_another() -> None:
    @hostcall.callback(result=lambda n: n, stateful=False, memo=True)
    def fibonacci(n: Any) -> Any:
        calls.append(int(n))
        return n if n < 2 else np.int64(fibonacci(n - 1)) + np.int64(fibonacci(n - 2))

    calls: list[int] = []
    assert int(jitted(lambda n: fibonacci(n))(tf.constant(20, tf.int64))) == 6765
    assert sorted(calls) == list(range(21))


@each_mode
def test_threads(mode: Any) -> None:
    double, calls = declared(lambda v: v * 2.0)
    program = mode(double)
    program(X)

    def work(number: int) -> None:
        for value in range(20):
            x = X * float(value + number % 2)
            np.testing.assert_array_equal(program(x), x * 2.0)

    in_threads(6, work)
    different = len({args[0].tobytes() for args in calls})
    assert different == 21 <= len(calls) <= 6 * 21


SPEC = tf.TensorSpec([2], tf.float32)


@pytest.mark.parametrize("memo", [0, -1, 1.5, "128", None, X])
def test_a_memo_is_a_positive_number(memo: Any) -> None:
    with pytest.raises(ValueError, match="neither True"):
        hostcall.declare(lambda v: v, memo=memo)
    with pytest.raises(ValueError, match="neither True"):
        hostcall.callback(lambda v: v, result=SPEC, stateful=False, memo=memo)


def test_a_callback_with_it_is_stateless() -> None:
    with pytest.raises(ValueError, match=r"stateful=False, memo=5\)"):
        hostcall.callback(lambda v: v, result=SPEC, memo=5)
    with pytest.raises(ValueError, match=r"stateful=False, memo=True\)"):
        hostcall.callback(result=SPEC, memo=True)


def test_functions_of_tensors_have_none() -> None:
    with pytest.raises(ValueError, match=r"kind='eager' gives .*each call runs"):
        hostcall.callback(lambda v: v, result=SPEC, kind="eager", memo=True)
    function = hostcall.declare(lambda v: v, result=SPEC, memo=True)
    for mode in MODES:
        with pytest.raises(ValueError, match=r"test_memoization\.py.*each call runs"):
            mode(lambda x: tf.py_function(function, [x], tf.float32))(X)


def test_functions_with_one_decorator_share_nothing() -> None:
    declare = hostcall.declare(result=lambda x: x, memo=True)
    callback = hostcall.callback(result=lambda x: x, stateful=False, memo=True)
    one, other = declare(lambda v: v + 1.0), declare(lambda v: v + 2.0)
    third, fourth = callback(lambda v: v + 3.0), callback(lambda v: v + 4.0)
    for mode in MODES:
        program = mode(lambda x: [tf.numpy_function(f, [x], tf.float32) for f in (one, other)])
        np.testing.assert_array_equal(program(X), [X + 1.0, X + 2.0])
        np.testing.assert_array_equal(mode(lambda x: [third(x), fourth(x)])(X), [X + 3.0, X + 4.0])


# Whose the results are that are kept, and what is not kept.

Point = collections.namedtuple("Point", ["x", "y"])


@each_mode
def test_what_the_function_writes_to_later_is_not_kept(mode: Any) -> None:
    own = np.zeros([5000], np.float32)

    def fill(x: np.ndarray) -> np.ndarray:
        own[:] = x[0]
        return own

    filled, calls = declared(fill)
    program = mode(filled)
    for value in (1.0, 2.0, 1.0, 2.0):
        np.testing.assert_array_equal(program(tf.fill([5000], value)), np.full([5000], value))
    assert len(calls) == 2


@each_mode
def test_results_are_the_callers_own(mode: Any) -> None:
    """TensorFlow may share an array's memory, and has ops that write to what they are given."""
    same, calls = declared(lambda v: v)
    program = mode(same)
    numbers = tf.random.uniform([5000])
    inputs = [numbers[: 5000 - n] for n in range(40)]  # it depends on where an array begins
    for x in inputs * 2:
        result = program(x)
        np.testing.assert_array_equal(result, x)
        tf.raw_ops.InplaceAdd(x=result, i=[0], v=[1.0])
    assert len(calls) == 40


@each_mode
def test_inputs_that_the_function_writes_to(mode: Any) -> None:
    def zeroed(x: np.ndarray) -> np.ndarray:
        x[:] = 0.0
        return x

    counted, calls = counting(zeroed)
    zero = hostcall.callback(counted, result=lambda x: x, stateful=False, memo=True)
    program = mode(lambda x: zero(x))
    x = tf.ones([5000])
    for _ in range(3):
        np.testing.assert_array_equal(program(x), np.zeros([5000]))
        np.testing.assert_array_equal(x, np.ones([5000]))
    assert len(calls) == 1


@each_mode
def test_what_is_raised_is_not_kept(mode: Any) -> None:
    broken = [True]

    def fail_once(x: Any) -> Any:
        if broken:
            raise KeyError(broken.pop())
        return x

    program = mode(declared(fail_once)[0])
    error = failure(program, X)
    assert "KeyError: True" in error.message
    assert isinstance(hostcall.last_error(error), KeyError)
    np.testing.assert_array_equal(program(X), X)


@each_mode
@pytest.mark.parametrize("wrong", [np.ones(2), [], [X.numpy(), X.numpy()], "blah"])
def test_wrong_results_are_errors_each_time(mode: Any, wrong: Any) -> None:
    program = mode(declared(lambda v: wrong, result=[2])[0])
    first, second = (failure(program, X).message.split("[hostcall")[0] for _ in range(2))
    assert first == second


@each_mode
def test_equal_arrays_in_other_structures_are_other_inputs(mode: Any) -> None:
    counted, calls = counting(lambda *args: np.float32(len(args) + len(args[0])))
    count = hostcall.callback(counted, result=tf.TensorSpec([], tf.float32), stateful=False, memo=9)
    arguments = [([X, X],), (X, X), ((X, X),), ({"a": X, "b": X},), (Point(X, X),), ({"b": X},)]
    program = mode(lambda: [count(*args) for args in arguments])
    for _ in range(2):
        assert [float(result) for result in program()] == [3.0, 4.0, 3.0, 3.0, 3.0, 2.0]
    assert len(calls) == 6


@each_mode
def test_results_that_are_read_in_two_ways(mode: Any) -> None:
    """A list of two arrays is read as two results, and as one stacked array."""
    counted, calls = counting(lambda x: [(x, x + 1.0)])
    hostcall.declare(counted, memo=True)

    def program(x: tf.Tensor) -> Any:
        [(one, other)] = tf.numpy_function(counted, [x], [(SPEC, SPEC)])
        [both] = tf.numpy_function(counted, [x], [tf.TensorSpec([2, 2], tf.float32)])
        return one, other, both

    run = mode(program)
    for _ in range(2):
        one, other, both = run(X)
        np.testing.assert_array_equal(both, [one, other])
        np.testing.assert_array_equal(both, [X, X + 1.0])
    assert len(calls) == 2


@each_mode
def test_inputs_are_not_kept_and_the_function_dies_with_its_graphs(mode: Any) -> None:
    inputs: list[Any] = []

    def double(v: np.ndarray) -> np.ndarray:
        inputs.append(weakref.ref(v))
        return v * 2.0

    hostcall.declare(double, memo=True, result=lambda x: x)
    program = mode(lambda x, f=double: tf.numpy_function(f, [x], tf.float32))
    program(X)
    gc.collect()
    assert [reference() for reference in inputs] == [None]
    options = declaration_of(double)
    assert options is not None
    fates = [Fate(double), Fate(options.table)]
    del double, program, options
    for fate in fates:
        fate.assert_goes()


@each_mode
def test_with_arrays_that_are_lent(mode: Any) -> None:
    calls = []

    def double(v: np.ndarray) -> np.ndarray:
        calls.append(v.flags.writeable)
        return v * 2.0

    hostcall.declare(double, result=lambda x: x, memo=True, borrow=True)
    program = mode(lambda x: tf.numpy_function(double, [x], tf.float32))
    for value in (1.0, 2.0, 1.0):
        x = tf.fill([5000], value)
        np.testing.assert_array_equal(program(x), x * 2.0)
    assert calls == [False, False]
