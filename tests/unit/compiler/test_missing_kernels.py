"""missing_kernels: what is found before XLA compiles a function, against what XLA says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from hostcall._compiler import missing_kernels
from hostcall._tf import function_defs
from tests.support.e2e.refused_programs import PROGRAMS
from tests.support.helpers import jitted
from tests.support.versions import is_older_than

X = tf.constant([1.0, 3.0, 2.0, 3.0])
CASES: list[Callable[..., Any]] = []


def _case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES.append(function)
    return function


def _text(x: tf.Tensor) -> Any:
    return tf.strings.to_number(tf.strings.as_string(x))


def _text_and_more(x: tf.Tensor, y: tf.Tensor) -> Any:
    return tf.strings.as_string(x), y + 1.0


@_case
def needed(x: tf.Tensor) -> Any:
    return _text(x)


@_case
def needed_by_nothing(x: tf.Tensor) -> Any:
    _text(x)
    return x * 2.0


@_case
def needed_by_nothing_in_a_call(x: tf.Tensor) -> Any:
    return tf.function(needed_by_nothing)(x)


@_case
def called_for_nothing(x: tf.Tensor) -> Any:
    tf.function(_text)(x)
    return x * 2.0


@_case
def needed_by_nothing_in_a_branch(x: tf.Tensor) -> Any:
    return tf.cond(x[0] > 0.0, lambda: needed_by_nothing(x), lambda: x)


@_case
def with_an_effect(x: tf.Tensor) -> Any:
    tf.print("constant")
    return x * 2.0


@_case
def of_constants(x: tf.Tensor) -> Any:
    return x + _text(tf.constant(3.0))


@_case
def of_a_known_size(x: tf.Tensor) -> Any:
    return x + _text(tf.shape(x)[0])


@_case
def of_a_called_constant(x: tf.Tensor) -> Any:
    return x + tf.function(_text)(tf.constant(3.0))


@_case
def in_a_call(x: tf.Tensor) -> Any:
    return tf.function(_text)(x)


@_case
def in_two_calls(x: tf.Tensor) -> Any:
    called = tf.function(_text)
    return called(tf.constant(3.0)) + called(x[0])


@_case
def in_a_result_that_nothing_needs(x: tf.Tensor) -> Any:
    return tf.function(_text_and_more)(x, x)[1]


@_case
def for_an_argument_that_nothing_needs(x: tf.Tensor) -> Any:
    return tf.function(lambda _, y: y * 2.0)(_text(x), x)


@_case
def for_an_argument_of_an_inner_call(x: tf.Tensor) -> Any:
    inner = tf.function(lambda text, y: (tf.strings.length(text), y))
    outer = tf.function(lambda text, y: inner(text, y)[0])
    return outer(tf.strings.as_string(x), x)


@_case
def in_a_branch(x: tf.Tensor) -> Any:
    return tf.cond(x[0] > 0.0, lambda: _text(x), lambda: x)


@_case
def in_a_branch_that_is_not_taken(x: tf.Tensor) -> Any:
    return tf.cond(tf.constant(True), lambda: x, lambda: _text(x))


@_case
def in_a_case_that_is_not_taken(x: tf.Tensor) -> Any:
    return tf.switch_case(tf.constant(0), [lambda: x, lambda: _text(x)])


@_case
def of_a_constant_that_a_loop_changes(x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, y + _text(i)

    return tf.while_loop(lambda i, _: i < 3, body, [0, x])


@_case
def of_a_constant_that_a_loop_passes_on(x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor, z: tf.Tensor) -> Any:
        return i + 1, y + _text(z), z

    return tf.while_loop(lambda i, *_: i < 3, body, [0, x, 5.0])[1]


@_case
def with_a_dtype_that_has_no_kernel(x: tf.Tensor) -> Any:
    return tf.math.real(tf.linalg.eigvals(tf.linalg.diag(x)))


def _found(traced: Any) -> list[str]:
    library = function_defs.library_of(traced, traced.graph.as_graph_def())
    name = traced.function_def.signature.name
    return [missing.op for missing in missing_kernels.find(library, name, "CPU")]


def _is_refused(program: Any) -> bool:
    """Whether XLA refuses it for a kernel, in a compilation that hostcall has no part in."""
    try:
        program.experimental_get_compiler_ir(X)(stage="hlo")
    except ValueError as error:
        return "Detected unsupported operations" in str(error)
    return False


@pytest.mark.parametrize("program", CASES, ids=lambda program: program.__name__)
def test_xla_refuses_what_is_found(program: Any) -> None:
    if program in (needed_by_nothing, needed_by_nothing_in_a_branch) and not is_older_than("2.22"):
        pytest.skip("TensorFlow 2.22 drops what nothing needs before it compiles")
    compiled = jitted(program)
    assert bool(_found(compiled.get_concrete_function(X))) == _is_refused(compiled)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_nothing_is_found_that_xla_takes(program: Any) -> None:
    compiled = jitted(program)
    if _found(compiled.get_concrete_function(X)):
        assert _is_refused(compiled)


def test_all_are_named() -> None:
    assert _found(jitted(_text).get_concrete_function(X)) == ["AsString", "StringToNumber"]


def test_what_has_an_effect_is_named_alone() -> None:
    """It is what the user has written, and the rest need not be looked for."""

    def program(x: tf.Tensor) -> Any:
        tf.print(_text(x))
        return x * 2.0

    assert _found(jitted(program).get_concrete_function(X)) == ["PrintV2"]
