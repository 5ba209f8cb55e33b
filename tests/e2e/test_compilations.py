"""Clusters that meet many sizes, or what XLA wants to know when it compiles: what is compiled."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._ops import settings
from tests.support.helpers import (
    assert_close,
    assert_says,
    failure,
    gradient_of,
    jitted,
    numbers,
    plain,
)
from tests.support.threads import in_threads

# The number of runs with a size before it is compiled, when another one was.
WAITING = 8


@pytest.fixture(autouse=True)
def _bound(auto_route: None, every_cluster: None) -> Iterator[None]:
    bound = settings.current.max_compilations
    yield
    hostcall.configure(max_compilations=bound)


@pytest.fixture
def _one() -> None:
    hostcall.configure(max_compilations=1)


one_compilation = pytest.mark.usefixtures("_one")


def total(n: tf.Tensor) -> Any:
    y = numbers(n)
    return tf.reduce_sum(tf.sqrt(y) * 2.0), y + 1.0


def rows_of(function: Any) -> list[hostcall.ClusterStats]:
    found = hostcall.stats().compilations
    names = [c.function_def.signature.name for c in function._list_all_concrete_functions()]
    return [row for row in found if row.cluster.startswith(tuple(f"{name}__" for name in names))]


def each_count(function: Any) -> list[tuple[int, int]]:
    """Compilations and uncompiled runs of the clusters of a tf.function."""
    return [(row.compilations, row.uncompiled_runs) for row in rows_of(function)]


def counts(function: Any) -> tuple[int, int]:
    [found] = each_count(function)
    return found


def check(function: Any, expected: Any, *sizes: int) -> None:
    for size in sizes:
        n = tf.constant(size)
        assert_close(function(n), expected(n))


# Steps of a function: the bound, if it is set, the sizes, and the counts after these.
STEPS: dict[str, list[tuple[int | None, list[int], tuple[int, int]]]] = {
    "one size": [(None, [2, 2, 2], (1, 0))],
    "a further size that has come often": [
        (None, [2, *[3] * WAITING], (1, WAITING)),
        (None, [3, 3, 2], (2, WAITING)),
    ],
    "few sizes": [(None, [2, 3, 4] * (WAITING + 2), (3, 2 * WAITING))],
    "no more than the bound": [
        (2, [2, *[3] * (WAITING + 1), *[4] * (WAITING + 2)], (2, WAITING + WAITING + 2)),
        (2, [2, 3], (2, WAITING + WAITING + 2)),  # these are compiled already
    ],
    "a hundred sizes": [(None, [*range(100)] * 2, (1, 2 * 99))],
    "a higher bound lets more be compiled": [
        (1, [2, *[3] * (WAITING + 1)], (1, WAITING + 1)),
        (2, [3] * (WAITING + 1), (2, 2 * WAITING + 1)),
    ],
    "a lower bound leaves programs as they are": [
        (None, [2, *[3] * (WAITING + 1)], (2, WAITING)),
        (1, [2, 3, 4], (2, WAITING + 1)),
    ],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_how_often_sizes_are_compiled(steps: Any) -> None:
    function, expected = jitted(total), plain(total)
    for bound, sizes, expected_counts in steps:
        if bound is not None:
            hostcall.configure(max_compilations=bound)
        check(function, expected, *sizes)
        assert counts(function) == expected_counts


def test_explain_counts() -> None:
    function = jitted(total)
    [cluster] = hostcall.explain(function, tf.constant(2)).clusters
    assert (cluster.compilations, cluster.uncompiled_runs) == (0, 0)
    check(function, plain(total), 2, 3)
    explanation = hostcall.explain(function, tf.constant(2))
    [cluster] = explanation.clusters
    assert (cluster.compilations, cluster.uncompiled_runs) == (1, 1)
    assert [row.cluster for row in rows_of(function)] == [cluster.name]
    shown = " ".join(str(explanation).replace("│", " ").split())
    assert "(compiled 1 time; 1 run by TensorFlow's kernels)" in shown


def test_a_function_that_is_refused_is_counted_too() -> None:
    def program(x: tf.Tensor) -> Any:
        values, _, _ = tf.unique_with_counts(x)
        return tf.reduce_sum(tf.exp(values))

    function = tf.function(program, jit_compile=True, input_signature=[tf.TensorSpec([None])])
    for size in (2, 3, 4, 5):
        x = tf.range(size, dtype=tf.float32)
        np.testing.assert_allclose(function(x), program(x), rtol=1e-6)
    assert counts(function) == (1, 3)
    [cluster] = hostcall.explain(function, tf.zeros([2])).clusters
    assert (cluster.compilations, cluster.uncompiled_runs) == (1, 3)


@one_compilation
def test_variables_are_assigned_once_in_each_run() -> None:
    count, last = tf.Variable(0.0), tf.Variable(0.0)

    @jitted
    def program(n: tf.Tensor) -> Any:
        y = numbers(n)
        count.assign_add(1.0)
        last.assign(tf.reduce_sum(y))
        return count + last

    for turn, size in enumerate((2, 3, 4, 2), 1):
        assert program(tf.constant(size)).numpy() == turn + sum(range(size))
        assert (count.numpy(), last.numpy()) == (turn, sum(range(size)))
    assert each_count(program) == [(1, 2)]


@one_compilation
def test_a_variable_that_changes_its_size() -> None:
    variable = tf.Variable([1.0, 2.0], shape=[None])
    function = jitted(lambda n: tf.reduce_sum(variable * 2.0) + tf.reduce_sum(numbers(n) * 0.0))
    for size in (2, 3, 4, 2):
        variable.assign(tf.ones([size]))
        assert function(tf.constant(1)).numpy() == 2.0 * size
    assert sum(row.uncompiled_runs for row in rows_of(function)) == 2


def gradient_of_gathered(n: tf.Tensor) -> Any:
    def total(x: tf.Tensor) -> tf.Tensor:
        index = tf.numpy_function(lambda k: np.arange(k) % 4, [n], tf.int64)
        return tf.reduce_sum(tf.gather(x, index) ** 2)

    return tf.convert_to_tensor(gradient_of(total, tf.ones([4])))


def gradient_of_a_call_in_the_cluster(n: tf.Tensor) -> Any:
    cube = hostcall.callback(lambda v: v**3, result=lambda v: v, kind="eager")
    return gradient_of(lambda x: cube(x * 2.0) ** 2, numbers(n) + 1.0)


@one_compilation
@pytest.mark.parametrize("program", [gradient_of_gathered, gradient_of_a_call_in_the_cluster])
def test_gradients(program: Callable[..., Any]) -> None:
    check(jitted(program), plain(program), 2, 3, 7, 4, 2)


def noting(calls: list[Any], route: Any = "auto") -> Any:
    """A callback of known shape, so that it is part of a cluster."""

    def note(v: np.ndarray) -> np.ndarray:
        calls.append(v.tolist())
        v *= 2  # an array of its own
        return v

    hostcall.declare(note, result=lambda v: v, route=route)
    return lambda x: tf.numpy_function(note, [x], tf.float32)


@one_compilation
@pytest.mark.cpu("counts what is compiled for the CPU")
def test_a_cluster_that_calls_python() -> None:
    def program(calls: list[Any]) -> Callable[..., Any]:
        note = noting(calls)

        def run(n: tf.Tensor) -> Any:
            y = numbers(n) + 1.0
            tf.numpy_function(lambda v: calls.append(("first", v.sum())), [y], [])
            for _ in tf.range(2):
                y = note(y) + 1.0
            tf.numpy_function(lambda v: calls.append(("last", v.sum())), [y], [])
            return y

        return run

    calls: list[Any] = []
    expected_calls: list[Any] = []
    function = jitted(program(calls))
    check(function, plain(program(expected_calls)), 2, 3, 4, 2)
    assert calls == expected_calls
    assert counts(function) == (1, 2)


@one_compilation
def test_an_error_in_python_in_a_cluster_that_is_not_compiled() -> None:
    @hostcall.callback(result=lambda x: x)
    def wrong(v: np.ndarray) -> np.ndarray:
        if len(v) == 4:
            raise ValueError("four")
        return v if len(v) < 3 else v[:1]

    function = jitted(lambda n: wrong(numbers(n) * 2.0) + 1.0)
    np.testing.assert_array_equal(function(tf.constant(1)), [1.0])
    for size, message in ((3, "shape"), (4, "four")):
        np.testing.assert_array_equal(function(tf.constant(2)), [1.0, 3.0])
        error = failure(function, tf.constant(size))
        assert isinstance(error, tf.errors.InvalidArgumentError)
        assert_says(error, message)
    np.testing.assert_array_equal(function(tf.constant(2)), [1.0, 3.0])


@one_compilation
def test_a_call_that_shall_be_in_a_program_is_compiled_each_time() -> None:
    calls: list[Any] = []
    note = noting(calls, route="custom_call")
    function = jitted(lambda n: note(numbers(n) + 1.0) + 1.0)
    for size in (2, 3, 4):
        expected = 2 * np.arange(size, dtype=np.float32) + 3
        np.testing.assert_array_equal(function(tf.constant(size)), expected)
    assert [len(values) for values in calls] == [2, 3, 4]
    assert counts(function) == (3, 0)


@one_compilation
def test_numbers_drawn_by_a_seed_stay_the_same() -> None:
    def program(n: tf.Tensor) -> Any:
        return tf.random.stateless_uniform(tf.shape(numbers(n)), [1, 2])

    function, fresh = jitted(program), jitted(program)
    sizes = [tf.constant(size) for size in (2, 3, 4)]
    drawn = [function(n).numpy() for n in sizes]
    for n, expected in zip(reversed(sizes), reversed(drawn), strict=True):
        np.testing.assert_array_equal(fresh(n), expected)
    assert counts(function) == (3, 0)


@pytest.mark.cpu("counts what is compiled for the CPU")
def test_threads_with_many_sizes() -> None:
    function = jitted(total)
    function(tf.constant(1))
    in_threads(4, lambda i: check(function, total, *((i + j) % 17 for j in range(40))))
    compilations, uncompiled_runs = counts(function)
    assert 1 < compilations <= 10
    assert uncompiled_runs >= WAITING


@pytest.mark.parametrize("wrong", [0, -1, True, 2.5, "many"])
def test_a_bound_that_is_none(wrong: Any) -> None:
    before = settings.current.max_compilations
    with pytest.raises(ValueError, match="is not a count: give a positive int"):
        hostcall.configure(route="partition", max_compilations=wrong)
    assert settings.current.max_compilations == before


def test_the_environment_variable(run_python: Callable[..., str]) -> None:
    script = """
import hostcall, tensorflow as tf, numpy as np
@tf.function(jit_compile=True)
def program(n):
    y = tf.numpy_function(lambda k: np.ones(k, np.float32), [n], tf.float32)
    return tf.reduce_sum(tf.sqrt(tf.exp(y * 2.0)))
for n in [1] + [2] * 9:
    program(tf.constant(n))
print([(row.compilations, row.uncompiled_runs) for row in hostcall.stats().compilations])
"""
    assert run_python(script, HOSTCALL_MAX_COMPILATIONS="1").strip() == "[(1, 9)]"


# Code with values that XLA needs at compile time, or that depend on data, is not compiled.

X = tf.reshape(tf.range(24.0), [4, 6])


def same(x: tf.Tensor) -> tf.Tensor:
    """A script op whose result may have any shape, so that the function is partitioned."""
    return tf.numpy_function(lambda v: v, [x], x.dtype)


def in_a_branch(x: tf.Tensor, i: tf.Tensor) -> Any:
    y = tf.reduce_sum(same(x))
    return y + tf.reduce_sum(tf.exp(x)[:, :i]) if x[0, 0] < 1.0 else y * 2.0


def in_a_loop_on_the_host(x: tf.Tensor, i: tf.Tensor) -> Any:
    y = tf.constant(0.0)
    for j in tf.range(i):
        y += tf.reduce_sum(same(x) * 2.0) + tf.exp(x * 0.1)[0, j]
    return y


_inner = tf.function(lambda x, i: tf.exp(x * 0.1)[:, i] + 1.0)
PROGRAMS: dict[str, Callable[..., Any]] = {
    "sliced": lambda x, i: tf.reduce_sum(tf.exp(tf.slice(x, [0, 1], [4, i]))) + same(x) * 2.0,
    "indexed": lambda x, i: tf.math.log(tf.nn.softmax(x)[0, i]) + tf.reduce_sum(same(x) * 2.0),
    "index from Python": lambda x, i: (
        tf.nn.softmax(x)[0, tf.ensure_shape(same(i), [])] * 2.0 + tf.reduce_sum(same(x))
    ),
    "ranged": lambda x, i: tf.cast(tf.range(i * 2), tf.float32) ** 2 + tf.reduce_sum(same(x)),
    "reshaped": lambda x, i: tf.reshape(x * 2.0, [12 // i, -1]) + tf.reduce_sum(same(x)),
    "tiled": lambda x, i: tf.tile(x * 2.0, [i, 1]) + tf.reduce_sum(same(x)),
    "along an axis": lambda x, i: tf.reduce_sum(x * 2.0, axis=i % 2) + tf.reduce_sum(same(x)),
    "in a branch": in_a_branch,
    "in a call": lambda x, i: _inner(x, i) + tf.reduce_sum(same(x)),
    "in a loop on the host": in_a_loop_on_the_host,
    "a gradient": lambda x, i: gradient_of(
        lambda x: PROGRAMS["sliced"](x, i) + PROGRAMS["indexed"](x, i), x
    ),
    "a gradient of a loop": lambda x, i: gradient_of(lambda x: in_a_loop_on_the_host(x, i), x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_computes_what_graph_mode_does_and_values_make_no_new_programs(name: str) -> None:
    function, expected = jitted(PROGRAMS[name]), plain(PROGRAMS[name])
    for i in (1, 2, 3, 4, 2):
        args = X + float(i) * 0.01, tf.constant(i)
        np.testing.assert_allclose(function(*args), expected(*args), rtol=1e-5)
        if i == 1:
            hostcall.stats(reset=True)
    if name in ("indexed", "index from Python", "in a call", "in a branch"):
        # In the branch, the slice of the array has another size each time.
        counted = [row for row in rows_of(function) if "true" not in row.cluster]
        assert {(row.compilations, row.uncompiled_runs) for row in counted} == {(0, 0)}
        assert {row.compilations for row in rows_of(function)} == {0}


def test_a_size_that_changes_leaves_the_rest_compiled() -> None:
    """The loop compiles its cluster for no index, though each iteration has another one."""
    function = jitted(in_a_loop_on_the_host)
    function(X, tf.constant(6))
    assert {*each_count(function)} == {(1, 0)}


def test_explain_says_why() -> None:
    explanation = hostcall.explain(jitted(PROGRAMS["sliced"]), X, tf.constant(2))
    [op] = [op for op in explanation.host_ops if op.op == "Slice"]
    reason = "XLA wants to know operand 'size' when it compiles, and it depends on data"
    assert op.reason == reason
    assert "give it as a Python number" in op.advice


def test_what_follows_from_shapes_is_compiled() -> None:
    def program(x: tf.Tensor) -> Any:
        y = same(x)
        count = tf.shape(y)[0] * tf.shape(y)[1]
        return tf.reshape(y * 2.0, tf.stack([count])) + tf.cast(tf.range(count), tf.float32)

    explanation = hostcall.explain(jitted(program), X)
    assert not [op for op in explanation.host_ops if op.op in ("Reshape", "Range")]
    function = jitted(program)
    for i in range(3):
        np.testing.assert_allclose(function(X + float(i)), plain(program)(X + float(i)))
    assert {*each_count(function)} == {(1, 0)}


@pytest.mark.parametrize("name", ["sliced", "indexed", "index from Python", "in a call"])
def test_an_index_out_of_bounds_is_the_error_of_graph_mode(name: str) -> None:
    function, expected = jitted(PROGRAMS[name]), plain(PROGRAMS[name])
    function(X, tf.constant(1))
    actual = failure(function, X, tf.constant(9))
    assert type(actual) is type(failure(expected, X, tf.constant(9)))
    assert "out of bounds" in str(actual) or "Expected size" in str(actual)
    np.testing.assert_allclose(function(X, tf.constant(1)), expected(X, tf.constant(1)), rtol=1e-5)
