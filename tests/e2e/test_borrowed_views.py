"""`borrow=True` and `out=True`: what functions are lent, and what comes of their results."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall_runtime import _library
from tests.support.e2e.borrowed_views_programs import (
    LARGE,
    WAYS,
    double,
    every_size,
    every_way,
    in_programs,
    lies_in_a_program,
    numbers,
    one,
    values,
)
from tests.support.helpers import (
    assert_same,
    assert_says,
    eagerly,
    failure,
    jitted,
    like,
    on_two,
    partitioned,
    plain,
    to_numpy,
    value_and_gradient,
)

# What a function is lent.


@pytest.mark.pairwise
@pytest.mark.parametrize("lent", [{"borrow": True}, {"out": True}, {"borrow": True, "out": True}])
@every_way
@every_size
def test_values_are_those_of_a_function_that_is_lent_nothing(
    way: Any, size: int, lent: dict[str, bool]
) -> None:
    def doubled(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        assert (out is not None) == lent.get("out", False)
        if lent.get("borrow"):
            with pytest.raises(ValueError, match="read-only"):
                x[...] = 0.0
        return np.multiply(x, 2.0, out=out)

    run = way(one(doubled, **{"borrow": False, **lent}))
    for _ in range(3):
        assert_same(run(values(size)).numpy(), numbers(size) * 4 + 1)


@pytest.mark.cpu("the memory of variables on another device is not lent")
@in_programs
@pytest.mark.parametrize(("size", "lent"), [(LARGE, True), (4, False)])
def test_compiled_programs_lend_their_own_memory_where_it_pays(size: int, lent: bool) -> None:
    def look(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        assert [lies_in_a_program(array) for array in (x, y, out)] == [lent] * 3
        assert all(array.flags.c_contiguous and array.flags.aligned for array in (x, y, out))
        np.add(x, y, out=out)

    hostcall.declare(look, borrow=True, out=True, result=lambda x, y: x)
    program = jitted(lambda x: tf.numpy_function(look, [x, x * 2.0], tf.float32) + 1.0)
    assert_same(program(values(size)).numpy(), numbers(size) * 3 + 1)


@pytest.mark.cpu("the memory of variables on another device is not lent")
def test_the_memory_of_variables_is_lent() -> None:
    seen = []

    def total(weights: np.ndarray) -> np.ndarray:
        seen.append(lies_in_a_program(weights))
        return weights.sum(keepdims=True)

    hostcall.declare(total, borrow=True, result=tf.TensorSpec([1], tf.float32))
    weights = tf.Variable(tf.ones([LARGE]))

    @jitted
    def step() -> tf.Tensor:
        summed = tf.numpy_function(total, [weights], tf.float32)
        weights.assign_add(tf.ones([LARGE]))
        return summed

    assert [step().numpy().item() for _ in range(3)] == [LARGE, 2 * LARGE, 3 * LARGE]
    assert seen == [True] * 3


def test_a_loop_lends_its_memory_again_and_again() -> None:
    grow = hostcall.callback(
        lambda x, out: np.add(x, 1.0, out=out), result=like, borrow=True, out=True
    )

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(50):
            x = grow(x)
        return x

    assert_same(program(values(LARGE)).numpy(), numbers(LARGE) + 50)


def test_a_bounded_argument_is_lent_at_its_true_size() -> None:
    def shape_of(x: np.ndarray) -> np.ndarray:
        assert not x.flags.writeable
        return np.array([*x.shape, int(x.sum())], np.int64)

    positive = hostcall.callback(
        lambda x: x[x > 0], result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype)
    )
    shape = hostcall.callback(shape_of, borrow=True, result=tf.TensorSpec([2], tf.int64))
    x = np.zeros(LARGE, np.float32)
    x[5:1234] = 1.0
    assert jitted(lambda x: shape(positive(x)))(x).numpy().tolist() == [1229, 1229]


@pytest.mark.parametrize("dtype", ["int4", "bool", "bfloat16", "int64", "complex128"])
def test_every_dtype_can_be_lent(dtype: str) -> None:
    tf_dtype = tf.as_dtype(dtype)

    def copy(x: np.ndarray, out: np.ndarray) -> None:
        assert x.dtype == out.dtype == tf_dtype.as_numpy_dtype
        out[...] = x

    hostcall.declare(copy, borrow=True, out=True, result=like)

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        # TensorFlow itself misreads int4 that enters or leaves a compiled program.
        y = tf.numpy_function(copy, [tf.cast(x, tf_dtype)], tf_dtype)
        return tf.cast(y, tf.int32)

    x = tf.range(LARGE) % 2
    assert_same(program(x).numpy(), x.numpy())


def test_scalars_are_what_they_always_are() -> None:
    def scale(x: np.ndarray, factor: Any, out: np.ndarray) -> None:
        assert isinstance(factor, np.float32)
        assert out.shape == ()
        out[...] = x.sum() * factor

    hostcall.declare(scale, borrow=True, out=True, result=tf.TensorSpec([], tf.float32))
    for way in WAYS:
        run = way(lambda x: tf.numpy_function(scale, [x, 2.0], tf.float32))
        assert run(tf.ones([3])).numpy() == 6.0


def test_strings_can_be_borrowed_outside_of_compiled_programs() -> None:
    join = hostcall.declare(lambda words: b"".join(words), borrow=True)
    for way in (plain, eagerly, partitioned):
        run = way(lambda words: tf.numpy_function(join, [words], tf.string))
        assert run(tf.constant(["a", "b"])).numpy() == b"ab"


@in_programs
def test_functions_with_a_timeout_are_lent_copies() -> None:
    def copies(x: np.ndarray, out: np.ndarray) -> None:
        assert [lies_in_a_program(array) for array in (x, out)] == [False] * 2
        assert not x.flags.writeable
        double(x, out)

    run = jitted(one(copies, out=True, timeout=60))
    assert_same(run(values(LARGE)).numpy(), numbers(LARGE) * 4 + 1)


# Results.


@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[::-1], lambda x: x.view()])
@every_way
def test_a_function_may_return_what_it_has_borrowed(way: Any, part: Any) -> None:
    x = values(LARGE)
    assert_same(way(one(lambda x: part(x)))(x).numpy(), part(numbers(LARGE) * 2) + 1)
    assert_same(x.numpy(), numbers(LARGE))


@pytest.mark.pairwise
@pytest.mark.parametrize("answer", [lambda out: None, lambda out: out, list, tuple])
@every_way
@every_size
def test_several_results_are_written_into_a_tuple(way: Any, size: int, answer: Any) -> None:
    def swap(x: np.ndarray, y: np.ndarray, out: tuple[np.ndarray, np.ndarray]) -> Any:
        assert isinstance(out, tuple)
        out[0][...], out[1][...] = y, x
        return answer(out)

    hostcall.declare(swap, borrow=True, out=True, result=lambda x, y: [y, x])
    run = way(lambda x: tf.numpy_function(swap, [x, x + 1.0], [tf.float32, tf.float32]))
    assert_same(to_numpy(run(values(size))), [numbers(size) + 1, numbers(size)])


@every_way
def test_structured_results_are_written_into_the_same_structure(way: Any) -> None:
    @hostcall.callback(result=lambda x: {"a": x, "b": (x,)}, borrow=True, out=True)
    def parts(x: np.ndarray, out: Any) -> None:
        out["a"][...] = x
        out["b"][0][...] = x + 1.0

    result = to_numpy(way(parts)(values(LARGE)))
    assert_same(result, {"a": numbers(LARGE), "b": (numbers(LARGE) + 1,)})


@every_way
def test_numpys_own_functions_take_out(way: Any) -> None:
    hostcall.declare(np.hypot, borrow=True, out=True, result=lambda x, y: x)
    run = way(lambda x: tf.numpy_function(np.hypot, [x, x], tf.float32))
    assert_same(run(values(LARGE)).numpy(), np.hypot(numbers(LARGE), numbers(LARGE)))


@every_way
@every_size
def test_another_value_than_out_is_an_error(way: Any, size: int) -> None:
    def wrong(x: np.ndarray, out: np.ndarray) -> Any:
        out[...] = x
        return out + 1.0

    error = failure(way(one(wrong, out=True)), values(size))
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(error, "not `out`", "out[...] = value", "wrong", __file__)


def test_the_sizes_must_be_known_before_the_call() -> None:
    def fill(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x

    hostcall.declare(fill, out=True)
    program = lambda x: tf.numpy_function(fill, [x], tf.float32)  # noqa: E731
    for way in (partitioned, plain, eagerly):
        assert_says(failure(way(program), values(4)), "out=True", "hostcall.declare(fill, result=")
    hostcall.declare(fill, out=True, result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))
    for way in WAYS:
        assert "out=True" in str(failure(way(program), values(4)))


# Threads, gradients, and what is refused.


@pytest.mark.parametrize("option", ["borrow", "out"])
def test_functions_of_tensors_are_refused(option: str) -> None:
    function: Any = lambda x: x  # noqa: E731
    how: Any = {option: True}
    hostcall.declare(function, **how)
    message = f"{option}=True is for functions that take arrays"
    for way in WAYS:
        with pytest.raises(ValueError, match=message):
            way(on_two(tf.py_function, function))(tf.zeros([2]))
    with pytest.raises(ValueError, match=message):
        hostcall.callback(function, result=like, kind="eager", **how)


def test_a_gradient_may_be_given() -> None:
    how: Any = {"borrow": True, "out": True, "grad": lambda inputs, results, upstream: 2 * upstream}
    twice = hostcall.callback(double, result=like, **how)
    y, dx = jitted(lambda x: value_and_gradient(twice, x))(values(LARGE))
    assert_same(y.numpy(), numbers(LARGE) * 2)
    assert_same(dx.numpy(), np.full(LARGE, 2.0, np.float32))


# Arrays that are kept.

KEEPERS: dict[str, Callable[[np.ndarray], Any]] = {
    "itself": lambda x: x,
    "a part": lambda x: x[3:],
    "a memoryview": lambda x: x.data,
    "an iterator": lambda x: x.flat,
    "a view of a view": lambda x: np.asarray(x.data)[::2],
}


@pytest.mark.pairwise
@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
@every_way
@every_size
def test_a_borrowed_array_that_is_kept_is_an_error(way: Any, size: int, keep: Any) -> None:
    kept: list[Any] = []

    def keeps(x: np.ndarray) -> np.ndarray:
        kept.append(keep(x))
        return x + 1.0

    run = way(one(keeps))
    error = failure(run, values(size))
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(error, "still refers to an array", "np.array(x)", "keeps", __file__)
    # And it may be looked at for as long as one likes: nothing has come in its place.
    others = run_over(size)
    expected = np.array(list(keep(numbers(size) * 2)), np.float32)
    assert_same(np.array(list(kept[0]), np.float32), expected)
    del others


def run_over(size: int) -> list[tf.Tensor]:
    """Takes memory and fills it, as what comes next would."""
    return [values(size) * 0.0 - 1.0 for _ in range(20)]


@every_way
@every_size
def test_an_out_array_that_is_kept_is_an_error(way: Any, size: int) -> None:
    kept: list[np.ndarray] = []

    def keeps(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x
        kept.append(out[:2])

    error = failure(way(one(keeps, out=True)), values(size))
    assert "still refers to an array" in str(error)
    others = run_over(size)
    assert_same(kept[0], numbers(size)[:2] * 2)
    kept[0][...] = 5.0  # writable for ever, and nobody's but ours
    assert all((other.numpy() == -1.0).all() for other in others)


@every_way
def test_one_of_several_out_arrays_that_is_kept_is_an_error(way: Any) -> None:
    kept: list[Any] = []

    def keeps(x: np.ndarray, out: tuple[np.ndarray, np.ndarray]) -> None:
        out[0][...], out[1][...] = x, x
        kept.append(out if not kept else out[1])

    hostcall.declare(keeps, out=True, result=lambda x: [x, x])
    run = way(lambda x: tf.numpy_function(keeps, [x], [tf.float32] * 2))
    for _ in range(2):
        assert "still refers to an array" in str(failure(run, values(LARGE)))


@pytest.mark.parametrize("lent", [{"borrow": True}, {"borrow": False, "memory": "device"}])
@every_way
def test_a_cycle_that_a_function_leaves_behind_is_no_error(way: Any, lent: Any) -> None:
    def leaves(x: Any) -> np.ndarray:
        cycle: list[Any] = [np.asarray(x)]
        cycle.append(cycle)
        return np.asarray(x) + 1.0

    gc.disable()
    try:
        assert_same(way(one(leaves, **lent))(values(LARGE)).numpy(), numbers(LARGE) * 2 + 2)
    finally:
        gc.enable()


@every_way
def test_an_exception_may_hold_what_was_lent(way: Any) -> None:
    def fails(x: np.ndarray) -> np.ndarray:
        raise KeyError("why")

    error = failure(way(one(fails)), values(LARGE))
    frames = hostcall.last_error(error).__traceback__  # type: ignore[union-attr]
    others = run_over(LARGE)
    while frames is not None and "x" not in frames.tb_frame.f_locals:
        frames = frames.tb_next
    assert frames is not None
    assert_same(np.array(frames.tb_frame.f_locals["x"]), numbers(LARGE) * 2)
    del others


# Lifetime.


@pytest.mark.cpu("the memory of variables on another device is not lent")
@in_programs
def test_memory_is_given_back() -> None:
    def keeps(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x
        kept.append((x, out))

    provided_memory = _library.load("hostcall._tensorflow").provided_memory
    kept: list[Any] = []
    run = jitted(one(keeps, out=True))
    gc.collect()
    before = provided_memory()
    for _ in range(5):
        failure(run, values(LARGE))
    assert provided_memory() > before
    kept.clear()
    gc.collect()
    assert provided_memory() == before


def test_results_outlive_their_program() -> None:
    hostcall.declare(double, borrow=True, out=True, result=like)
    program = lambda x: tf.numpy_function(double, [x], tf.float32)  # noqa: E731
    results = [jitted(program)(values(LARGE)) for _ in range(5)]
    gc.collect()
    for result in results:
        assert_same(result.numpy(), numbers(LARGE) * 2)


def test_nothing_of_a_run_is_used_when_it_has_ended(run_python: Callable[..., str]) -> None:
    """Runs are started on threads of TensorFlow's, and memory that is freed is overwritten."""
    run_python("""
import ctypes
assert ctypes.CDLL(None).mallopt(-6, 165)  # M_PERTURB

import tensorflow as tf
from tests.support.e2e.borrowed_views_programs import LARGE, double, one, values
from tests.support.helpers import assert_same, jitted, plain

run = jitted(one(double, out=True))

@plain
def program(x):
    return tf.add_n([run(x + float(i)) for i in range(8)])

for again in range(50):
    x = values(LARGE) + float(again)
    assert_same(program(x).numpy(), sum((x.numpy() + i) * 4 + 1 for i in range(8)))
""")
