"""Graph mode's errors in compiled programs: loops, branches, functions, gradients, and callers."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    assert_alike,
    assert_same,
    beside,
    failure,
    jitted,
    outcome,
    plain,
    to_numpy,
)

pytestmark = pytest.mark.cpu("programs for accelerators have no errors of values")

INVALID = tf.errors.InvalidArgumentError
X = tf.constant([1.0, 2.0, 3.0])
GOOD, BAD = tf.constant(1), tf.constant(7)

# The parts of a partitioned function are not in order with one another, nor in graph mode.
in_order = pytest.mark.custom_call(
    "what a partitioned function does before an error is graph mode's"
)


class Notes:
    """A callback with side effects, which returns its argument, and what it was called with."""

    def __init__(self, **declared: Any) -> None:
        self.seen: list[float] = []
        self.note = hostcall.callback(self._call, result=lambda v: v, **declared)

    def _call(self, v: np.ndarray) -> np.ndarray:
        self.seen.append(float(v))
        return v

    def taken(self) -> list[float]:
        """Return what the callback was called with since the last call of this."""
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def notes() -> Notes:
    return Notes()


def assert_raises_as_plain(program: Callable[..., Any], good: Any, bad: Any) -> None:
    """Compiled beside a callback, the program has graph mode's results and class of error."""
    function, expected = jitted(beside(program)), plain(program)
    assert_alike(function(*good), expected(*good))
    assert type(failure(function, *bad)) is type(failure(expected, *bad))
    assert_alike(function(*good), expected(*good))


def counted(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    total = tf.constant(0.0)
    for k in tf.range(3):
        total += tf.gather(x, i - k)
    return total


def by_a_condition(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    while tf.gather(x, i) < 3.0:
        i += 1
    return i


def without_an_end(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    """A loop that garbage would never end: XLA's gather takes the last element for all others."""
    while i > 0:
        i = tf.cast(tf.gather(x, i), tf.int32)
    return i


def nested_loops(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    total = tf.constant(0.0)
    for k in tf.range(2):
        for j in tf.range(2):
            total += x[i - k - j]
    return total


def a_branch(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return tf.gather(x, i) if i > 0 else x[0]


def a_branch_in_a_loop(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    total = tf.constant(0.0)
    for k in tf.range(3):
        if k > 0:
            total += tf.gather(x, i + 1 - k)
        else:
            total += 1.0
    return total


def a_switch(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    branches = [lambda: x[0], lambda: tf.gather(x, i * 5), lambda: x[1] * 2.0]
    return tf.switch_case(i, branches)


def a_map(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(lambda k: tf.gather(x, k) * 2.0, i - tf.range(2), tf.float32)


def a_vectorized_map(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return tf.vectorized_map(lambda k: tf.gather(x, k) * 2.0, i - tf.range(2))


def a_while_loop_over_two_values(x: tf.Tensor, i: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda k, y: tf.reduce_all(tf.stack([k < 4, tf.reduce_sum(y) < 1e3])),
        lambda k, y: (k + 1, tf.tensor_scatter_nd_update(y, [[i]], [tf.cast(k, tf.float32)])),
        [tf.constant(0), x],
    )


@tf.function
def called(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return tf.gather(x, i) * 2.0


@tf.function
def calling(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return called(x, 0 * i) + called(x, i)


@tf.function(jit_compile=True)
def compiled(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return calling(x, i) + 1.0


def functions_in_functions(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return calling(x, 0 * i) + calling(x, i)


def a_compiled_function(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return compiled(x, i) * 2.0


def without_inlining(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    function = tf.function(
        lambda x, i: tf.gather(x, i), experimental_attributes={"_noinline": True}
    )
    return function(x, i) + function(x, 0 * i)


def a_recomputed_function(x: tf.Tensor, i: tf.Tensor) -> Any:
    function = tf.recompute_grad(lambda y: tf.gather(y, i) ** 2.0)
    return tf.gradients(function(x), x)


def behind_a_mask(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    """The size of what is indexed is known to the run alone: 2."""
    return tf.gather(tf.boolean_mask(x, x > 1.5), [i, 0])


def of_indices_behind_a_mask(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    """What the masked places of the indices hold is not looked at."""
    indices = tf.stack([i, 0, 9])
    return tf.reduce_sum(tf.gather(x, tf.boolean_mask(indices, indices < 9)))


def of_no_indices(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    indices = tf.boolean_mask([9, 8, 9], tf.stack([i > 1, i > 2, i > 3]))
    return tf.reduce_sum(tf.gather(x, indices))


PROGRAMS = [
    counted,
    by_a_condition,
    without_an_end,
    nested_loops,
    a_branch,
    a_branch_in_a_loop,
    a_map,
    a_vectorized_map,
    a_while_loop_over_two_values,
    functions_in_functions,
    without_inlining,
    a_recomputed_function,
    behind_a_mask,
    of_indices_behind_a_mask,
    of_no_indices,
]
GOOD_INDICES = {
    counted: 2, without_an_end: 0, nested_loops: 2, a_branch_in_a_loop: 2
}  # fmt: skip
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)


@each_program
@pytest.mark.parametrize("bad", [3, 7], ids=["next", "beyond"])
def test_it_raises_as_graph_mode_does(program: Any, bad: int) -> None:
    good = tf.constant(GOOD_INDICES.get(program, 1))
    assert_raises_as_plain(program, (X, good), (X, tf.constant(bad)))


@each_program
@pytest.mark.custom_call("the message is one of a compiled program")
def test_the_message_names_the_line_of_the_op(program: Any) -> None:
    error = failure(jitted(beside(program)), X, BAD)
    line = re.search(r"\(op '.+', \w+ at .+test_graph_errors.py:(\d+)\)", error.message)
    assert line, error.message
    lines, first = inspect.getsourcelines(
        called.python_function if program is functions_in_functions else program
    )
    assert first < int(line[1]) < first + len(lines)


@each_program
@pytest.mark.usefixtures("everywhere")
def test_without_a_callback_where_all_functions_are_taken(program: Any) -> None:
    good, function = tf.constant(GOOD_INDICES.get(program, 1)), jitted(program)
    assert_alike(function(X, good), plain(program)(X, good))
    assert type(failure(function, X, BAD)) is type(failure(plain(program), X, BAD))


@pytest.mark.parametrize("index", [0, 2, 5])
def test_branches_that_are_not_taken_raise_nothing(index: int) -> None:
    i = tf.constant(index)  # the last branch is also taken for other indices
    assert_same(to_numpy(jitted(beside(a_switch))(X, i)), to_numpy(plain(a_switch)(X, i)))
    i = tf.constant(-index)
    assert_same(to_numpy(jitted(beside(a_branch))(X, i)), to_numpy(plain(a_branch)(X, i)))


def test_a_branch_of_several_that_is_taken_raises() -> None:
    assert_raises_as_plain(a_switch, (X, tf.constant(0)), (X, tf.constant(1)))


def test_a_compiled_function_in_another_raises_where_that_is_taken() -> None:
    function = jitted(beside(a_compiled_function))
    assert_same(function(X, GOOD).numpy(), plain(a_compiled_function)(X, GOOD).numpy())
    assert type(failure(function, X, BAD)) is INVALID
    plain(a_compiled_function)(X, BAD)  # as stock TensorFlow compiles the inner one


@pytest.mark.parametrize(
    "unused", [tf.gather, a_branch, a_switch, counted, a_map, calling, compiled]
)
@pytest.mark.parametrize("checked", [False, True])
def test_what_nothing_uses_raises_nothing(unused: Any, checked: bool, notes: Notes) -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        unused(x, i)
        y = notes.note(x[0]) + 1.0
        return y / tf.gather(x, i - 7) if checked else y

    for i in (BAD, tf.constant(8)):
        assert_same(outcome(jitted(program), X, i), outcome(plain(program), X, i))


@pytest.mark.parametrize(
    "take",
    [tf.gather, lambda x, i: x[i], lambda x, i: tf.linalg.inv(x[:1, None] * 0.0)[0, 0]],
    ids=["gather", "at", "on the host"],
)
def test_iterations_that_do_not_run_raise_nothing(take: Any) -> None:
    """XLA moves what does not change in a loop out of it."""

    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0.0)
        for _ in tf.range(tf.cast(x[0], tf.int32)):
            total += take(x, i)
        return total

    function, expected = jitted(beside(program)), plain(program)
    assert_same(function(X - 1.0, BAD).numpy(), expected(X - 1.0, BAD).numpy())
    assert type(failure(function, X, BAD)) is type(failure(expected, X, BAD))


@in_order
def test_an_op_on_the_host_raises_between_the_calls_around_it(notes: Notes) -> None:
    @jitted
    def program(x: tf.Tensor) -> Any:
        first = notes.note(x[0])
        inverse = tf.linalg.inv(x[:2, None] * x[None, :2])
        return inverse, first + notes.note(x[1])

    assert type(failure(program, X)) is INVALID
    assert notes.taken() == [1.0]


def test_results_without_elements_raise_nothing() -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> Any:
        nothing = tf.zeros([0], tf.int32)
        return tf.gather(tf.zeros([3, 0]), i), nothing // (i - 7), tf.pow(nothing, -i), x

    for i in (GOOD, BAD):
        assert_same(to_numpy(jitted(beside(program))(X, i)), to_numpy(plain(program)(X, i)))


@pytest.mark.parametrize("least", [0.0, 1.5, 5.0], ids=["all", "some", "none"])
def test_indices_into_what_is_behind_a_mask(least: float) -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> Any:
        masked = tf.boolean_mask(x, x > least)
        return tf.gather(masked, [i]), tf.gather(masked, tf.range(tf.size(masked)))

    function, expected = jitted(beside(program)), plain(program)
    for i in map(tf.constant, (0, 1, 2, 3)):
        assert_same(outcome(function, X, i), outcome(expected, X, i))


@pytest.mark.parametrize("size", [3, 4])
def test_indices_behind_masks_that_keep_them_inside_or_not(size: int) -> None:
    def program(i: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.constant([1.0, 2.0, 4.0, 8.0][:size]), tf.bitwise.bitwise_and(i, 3))

    function, expected = jitted(beside(program)), plain(program)
    for i in map(tf.constant, (2, 3, 7)):
        assert_same(outcome(function, i), outcome(expected, i))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_indices_that_are_places_in_a_value(size: int) -> None:
    values = tf.range(float(size))

    def program(x: tf.Tensor, i: tf.Tensor) -> Any:
        behind = tf.where(x > 1.5)[:, 0]
        added = tf.math.unsorted_segment_sum(x[1:], behind[: tf.size(x) - 1], size)
        return tf.gather(values, tf.argmax(x)), tf.gather(values, behind), added, i

    function, expected = jitted(beside(program)), plain(program)
    for x in (X, X[::-1], tf.constant([2.0, 3.0, 0.0])):
        assert_same(outcome(function, x, GOOD), outcome(expected, x, GOOD))


@pytest.mark.parametrize("size", [3, 4, 5])
def test_indices_that_are_places_along_a_dimension(size: int) -> None:
    """All of the value has as many elements as no dimension has."""

    def program(x: tf.Tensor) -> Any:
        values = tf.range(float(size))
        places = [tf.argmax(x, 1), tf.argmin(x, -1), tf.math.top_k(x, 2).indices[:, 0]]
        return [tf.gather(values, i) for i in places]

    function, expected = jitted(beside(program)), plain(program)
    x = tf.reshape(tf.range(160.0), [40, 4])
    for each in (x, -x):
        assert_same(outcome(function, each), outcome(expected, each))


@pytest.mark.parametrize("length", [2, 3, 4])
def test_elements_of_a_list_that_a_loop_counts(length: int) -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        read = tf.TensorArray(tf.float32, 3).unstack(x)
        written = tf.TensorArray(tf.float32, length, element_shape=[])
        for k in tf.range(i):
            written = written.write(k, read.read(k) * 2.0)
        return written.stack()

    function, expected = jitted(beside(program)), plain(program)
    for i in map(tf.constant, (1, 2, 3, 4)):
        assert_same(outcome(function, X, i), outcome(expected, X, i))


def test_later_iterations_of_a_loop_call_nothing(notes: Notes) -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0.0)
        for k in tf.range(6):
            total += notes.note(tf.gather(x, i + k))
        return total

    function = jitted(program)
    assert type(failure(function, X, GOOD)) is INVALID
    assert notes.taken() == [2.0, 3.0]
    assert type(failure(function, X, BAD)) is INVALID
    assert notes.taken() == []
    assert function(tf.range(9.0), GOOD) == 21.0
    assert notes.taken() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@in_order
def test_a_loop_raises_before_a_call_behind_it(notes: Notes) -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        notes.note(x[0])
        return counted(x, i) + notes.note(x[1])

    function = jitted(tf.autograph.to_graph(program))
    assert type(failure(function, X, BAD)) is INVALID
    assert notes.taken() == [1.0]
    assert function(X, tf.constant(2)) == 8.0


@in_order
def test_a_function_raises_before_a_call_behind_it(notes: Notes) -> None:
    @jitted
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        y = calling(x, 0 * i) + notes.note(x[0])
        z = calling(x, i)
        return y + z + notes.note(x[1])

    assert type(failure(program, X, BAD)) is INVALID
    assert notes.taken() == [1.0]


@in_order
def test_a_function_that_calls_python_raises_between_its_calls(notes: Notes) -> None:
    @tf.function
    def inner(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return notes.note(x[0]) + notes.note(tf.gather(x, i)) + notes.note(x[1])

    @jitted
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return inner(x, 0 * i) + inner(x, i) + notes.note(x[2])

    assert type(failure(program, X, BAD)) is INVALID
    assert notes.taken() == [1.0, 1.0, 2.0, 1.0]


def test_a_branch_raises_before_its_next_call(notes: Notes) -> None:
    @jitted
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        def branch() -> tf.Tensor:
            return notes.note(tf.gather(x, i)) + notes.note(x[1])

        return tf.cond(i > 0, branch, lambda: x[0]) + notes.note(x[2])

    assert type(failure(program, X, BAD)) is INVALID
    assert notes.taken() == []
    assert program(X, tf.constant(-7)) == 4.0
    assert notes.taken() == [3.0]


@in_order
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("of_function", [False, True], ids=["in the program", "in a function"])
def test_calls_before_an_error_that_a_loop_ends_with(
    times: int, of_function: bool, notes: Notes
) -> None:
    """Only data orders the raise and the loop, also where XLA might unroll it."""

    def loop(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0.0)
        for k in tf.range(times):
            notes.note(x[k])
            total += tf.gather(x, i)
        return total

    function = jitted(lambda x, i: tf.function(loop)(x, i)) if of_function else jitted(loop)
    assert function(X, GOOD) == 2.0 * times
    assert notes.taken() == [1.0, 2.0][:times]
    assert type(failure(function, X, BAD)) is INVALID
    assert notes.taken() == [1.0]


@in_order
@pytest.mark.parametrize("condition", [True, None], ids=["known", "of the run"])
def test_calls_before_an_error_that_a_branch_ends_with(
    condition: bool | None, notes: Notes
) -> None:
    def branch(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        notes.note(x[0])
        return tf.gather(x, i)

    @jitted
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        taken = i > 0 if condition is None else tf.constant(condition)
        return tf.cond(taken, lambda: branch(x, i), lambda: x[2])

    assert type(failure(program, X, BAD)) is INVALID
    assert notes.taken() == [1.0]


@in_order
@pytest.mark.parametrize("in_loop", [False, True], ids=["alone", "in a loop"])
def test_calls_before_an_error_that_does_not_follow_from_them(in_loop: bool, notes: Notes) -> None:
    @jitted
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        if in_loop:
            for k in tf.range(2):
                notes.note(x[k])
        else:
            notes.note(notes.note(x[0]) + 1.0)
        return tf.gather(x, i)

    assert type(failure(program, X, BAD)) is INVALID
    assert notes.taken() == [1.0, 2.0]


def test_the_first_error_in_program_order_is_raised() -> None:
    @jitted
    def program(x: tf.Tensor, i: tf.Tensor, j: tf.Tensor) -> Any:
        tf.numpy_function(lambda: None, [], [])
        first = tf.gather(x, i, name="first")
        looped = counted(x, j)
        last = tf.cast(x, tf.int32) // i
        return last, looped, first

    program = jitted(tf.autograph.to_graph(program.python_function))
    two, nine, zero = tf.constant(2), tf.constant(9), tf.constant(0)
    assert "node first" in failure(program, X, nine, nine).message
    assert "node while/GatherV2" in failure(program, X, two, nine).message
    assert "Integer division by zero" in failure(program, X, zero, two).message


def test_the_first_error_of_a_branch_is_raised() -> None:
    @jitted
    def program(x: tf.Tensor, i: tf.Tensor, j: tf.Tensor) -> Any:
        def both() -> tf.Tensor:
            return tf.gather(x, i, name="first") + tf.gather(x, j, name="second")

        tf.numpy_function(lambda: None, [], [])
        return tf.cond(x[0] < 1e9, both, lambda: 0.0)

    two, nine = tf.constant(2), tf.constant(9)
    assert "first" in failure(program, X, nine, nine).message
    assert "second" in failure(program, X, two, nine).message


def of_many(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.gather(x, tf.fill([40], i)))


def divided(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    return x[0] * tf.cast(7 // (i - 10), tf.float32)


CALLED = tf.function(lambda x, i: divided(x, i) + of_many(x, i))
KINDS: list[Callable[..., Any]] = [
    of_many,
    lambda x, i: tf.gather(x, i),
    divided,
    of_many,
    counted,
    lambda x, i: tf.gather(x, i),
    a_branch,
    CALLED,
    divided,
    of_many,
]


@pytest.mark.parametrize("first", range(len(KINDS)))
def test_the_first_of_several_kinds_of_failures_is_raised(first: int) -> None:
    def program(x: tf.Tensor, places: tf.Tensor) -> Any:
        results: list[Any] = []
        for kind, i in zip(KINDS, tf.unstack(places), strict=True):
            with tf.name_scope(f"kind_{len(results)}_"):
                results.append(kind(x, i))
        return results

    function = jitted(beside(program))
    places = tf.constant([2] * len(KINDS))
    assert_alike(function(X, places), plain(program)(X, places))
    message = failure(function, X, tf.concat([places[:first], places[first:] + 8], 0)).message
    assert (f"node kind_{first}_/" if KINDS[first] is not CALLED else "node floordiv") in message


@pytest.mark.parametrize("declared", [{}, {"concurrent": True}], ids=["alone", "concurrent"])
def test_calls_without_side_effects_do_not_run_for_garbage(declared: Any) -> None:
    pure = Notes(stateful=False, **declared)

    @jitted
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        y = pure.note(tf.gather(x, i))
        return pure.note(tf.gather(x, tf.cast(y, tf.int32))) + pure.note(y * 2.0)

    assert type(failure(program, X, BAD)) is INVALID
    assert pure.taken() == []
    assert program(X, GOOD) == 7.0
    assert sorted(pure.taken()) == [2.0, 3.0, 4.0]


@in_order
def test_variables_are_not_assigned_when_the_program_raises() -> None:
    first, second = tf.Variable(1.0), tf.Variable([1.0, 2.0])

    @jitted
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(lambda: None, [], [])
        first.assign(5.0)
        y = tf.gather(x, i)
        second.scatter_add(tf.IndexedSlices(y, 0))
        return y

    assert type(failure(program, X, BAD)) is INVALID
    assert (first.numpy(), second.numpy().tolist()) == (1.0, [1.0, 2.0])
    program(X, GOOD)
    assert (first.numpy(), second.numpy().tolist()) == (5.0, [3.0, 2.0])


@in_order
def test_what_python_has_done_before_stays(notes: Notes) -> None:
    variable = tf.Variable(0.0)

    @jitted
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        y = notes.note(x[0])
        variable.assign_add(y)
        return tf.gather(x, i) + notes.note(y + 1.0)

    for _ in range(3):
        assert type(failure(program, X, BAD)) is INVALID
    assert notes.taken() == [1.0] * 3
    program(X, GOOD)
    assert (notes.taken(), variable.numpy()) == ([1.0, 2.0], 1.0)
