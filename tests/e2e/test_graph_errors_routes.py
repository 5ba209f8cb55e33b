"""Graph mode's errors of single ops in compiled programs, by each of the ways to compile them."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.semantics.checks import CHECKS
from tests.support.device import MODE_OF_REGIONS
from tests.support.e2e.failing_ops import USES, Use, hidden
from tests.support.helpers import assert_alike, compilations, failure, jitted, numbers, plain

pytestmark = [
    pytest.mark.usefixtures("auto_route"),
    pytest.mark.cpu("programs for accelerators have no errors of values"),
]

each_use = pytest.mark.parametrize("use", USES.values(), ids=USES)
ZERO = tf.constant(0.0)
THREE, FOUR = tf.constant(3), tf.constant(4)


@pytest.fixture
def one_compilation() -> Iterator[None]:
    hostcall.configure(max_compilations=1)
    yield
    hostcall.configure(max_compilations=10)


@functools.cache
def expected(use: Use) -> tuple[Any, type]:
    """Return plain graph mode's result for good arguments, and the class of error for bad ones."""
    function = plain(use.run)
    return function(*use.good), type(failure(function, *use.bad))


def assert_names_the_op(use: Use, error: tf.errors.OpError) -> None:
    found = re.search(r"\(op '(.+)', (\w+) at (.+):(\d+)\)", error.message)
    assert found, error.message
    name, op, file, line = found.groups()
    assert op.startswith(use.op)
    assert f"{{{{node {name}}}}}" in error.message
    assert file.endswith("failing_ops.py")
    assert use.is_made_by(int(line))


def test_each_checked_op_has_a_use() -> None:
    assert {use.op for use in USES.values()} == {*CHECKS}


@each_use
def test_in_one_program_it_raises_before_the_next_call(use: Use) -> None:
    value, error = expected(use)
    calls: list[float] = []
    note = hostcall.callback(lambda v: calls.append(float(v)) or v, result=lambda v: v)

    @jitted
    def program(*args: tf.Tensor) -> Any:
        zero = note(ZERO)
        return use.run(*hidden(args, zero) if use.is_seen else args), note(zero + 1.0)

    assert_alike(program(*use.good)[0], value)
    assert calls == [0.0, 1.0]
    raised = failure(program, *use.bad)
    assert type(raised) is error
    if use.is_compiled:
        assert_names_the_op(use, raised)
        assert calls == [0.0, 1.0, 0.0]
    assert_alike(program(*use.good)[0], value)


@each_use
def test_beside_an_op_on_the_host(use: Use) -> None:
    value, error = expected(use)

    @jitted
    def program(x: tf.Tensor, *args: tf.Tensor) -> Any:
        length = tf.cast(tf.strings.length(tf.strings.as_string(x)) - 8, tf.float32)
        return use.run(*hidden(args, length)), length

    assert_alike(program(ZERO, *use.good)[0], value)
    if use.is_compiled:
        explained = hostcall.explain(program, ZERO, *use.good).functions[0]
        assert explained.mode == MODE_OF_REGIONS
    raised = failure(program, ZERO, *use.bad)
    assert type(raised) is error
    assert_alike(program(ZERO, *use.good)[0], value)


def partitioned(use: Use) -> Callable[..., Any]:
    @jitted
    def behind_numbers(n: tf.Tensor, *args: tf.Tensor) -> Any:
        several = numbers(n)
        return use.run(*hidden(args, tf.reduce_min(several))), several + 1.0

    return behind_numbers


@each_use
@pytest.mark.usefixtures("every_cluster")
def test_clusters_raise_by_the_kernels_of_tensorflow_and_of_xla(use: Use) -> None:
    value, error = expected(use)
    program = partitioned(use)
    assert_alike(program(THREE, *use.good)[0], value)
    for _ in range(12):
        assert type(failure(program, FOUR, *use.bad)) is error
    for _ in range(12):
        assert_alike(program(FOUR, *use.good)[0], value)
    assert 2 in compilations("behind_numbers")


# The errors of TensorFlow's kernels are those of the test before: some uses stand for all.
SEEDED = [use for use in USES.values() if use.op.startswith("Stateless")]
SOME = dict.fromkeys([*[*USES.values()][::8], *SEEDED])


@pytest.mark.parametrize("use", SOME, ids=lambda use: use.op)
@pytest.mark.usefixtures("every_cluster", "one_compilation")
def test_clusters_raise_past_the_limit_of_compilations(use: Use) -> None:
    value, error = expected(use)
    program = partitioned(use)
    assert_alike(program(THREE, *use.good)[0], value)
    for _ in range(12):
        assert type(failure(program, FOUR, *use.bad)) is error
    assert type(failure(program, THREE, *use.bad)) is error
    assert_alike(program(FOUR, *use.good)[0], value)
    # Those with seeds are always compiled.
    assert max(compilations("behind_numbers")) == (2 if use in SEEDED else 1)


@each_use
@pytest.mark.usefixtures("everywhere")
def test_in_all_functions(use: Use) -> None:
    value, error = expected(use)

    @jitted
    def program(x: tf.Tensor, *args: tf.Tensor) -> Any:
        zero = tf.map_fn(lambda y: y, x[None])[0]  # a loop: XLA does not look into it
        return use.run(*hidden(args, zero) if use.is_seen else args)

    assert_alike(program(ZERO, *use.good), value)
    raised = failure(program, ZERO, *use.bad)
    assert type(raised) is error
    if use.is_compiled:
        assert_names_the_op(use, raised)
    assert_alike(program(ZERO, *use.good), value)


@pytest.mark.usefixtures("everywhere")
def test_a_program_without_calls_that_fails_assigns_no_variable() -> None:
    variable = tf.Variable(tf.ones([1000]))

    @jitted
    def program(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        variable.assign_add(tf.ones([1000]))
        return tf.gather(x, i)

    program(tf.ones([2]), tf.constant(1))
    assert type(failure(program, tf.ones([2]), tf.constant(2))) is tf.errors.InvalidArgumentError
    assert variable.numpy().tolist() == [2.0] * 1000
