"""missing_kernels: what is found before XLA compiles a function, against what XLA says."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from hostcall._compiler import refusals
from hostcall._tf import concrete_functions
from tests.support.e2e.refused_programs import PROGRAMS
from tests.support.helpers import jitted
from tests.support.versions import is_older_than

X = tf.constant([1.0, 3.0, 2.0, 3.0])


def _text(x: tf.Tensor) -> Any:
    return tf.strings.to_number(tf.strings.as_string(x))


_CALLED = tf.function(_text)


def _unneeded(x: tf.Tensor) -> Any:
    _text(x)
    return x * 2.0


def _for_an_argument_of_an_inner_call(x: tf.Tensor) -> Any:
    inner = tf.function(lambda text, y: (tf.strings.length(text), y))
    outer = tf.function(lambda text, y: inner(text, y)[0])
    return outer(tf.strings.as_string(x), x)


def _of_a_constant_that_a_loop_changes(x: tf.Tensor) -> Any:
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y + _text(i)), [0, x])


def _of_a_constant_that_a_loop_passes_on(x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor, z: tf.Tensor) -> Any:
        return i + 1, y + _text(z), z

    return tf.while_loop(lambda i, *_: i < 3, body, [0, x, 5.0])[1]


CASES: dict[str, Callable[..., Any]] = {
    "needed": _text,
    "needed by nothing": _unneeded,
    "needed by nothing in a call": lambda x: tf.function(_unneeded)(x),
    "called for nothing": lambda x: [tf.function(_text)(x), x * 2.0][1],
    "needed by nothing in a branch": lambda x: tf.cond(x[0] > 0.0, lambda: _unneeded(x), lambda: x),
    "with an effect": lambda x: [tf.print("constant"), x * 2.0][1],
    "of constants": lambda x: x + _text(tf.constant(3.0)),
    "of a known size": lambda x: x + _text(tf.shape(x)[0]),
    "of a called constant": lambda x: x + tf.function(_text)(tf.constant(3.0)),
    "in a call": lambda x: tf.function(_text)(x),
    "in two calls": lambda x: _CALLED(tf.constant(3.0)) + _CALLED(x[0]),
    "in a result that nothing needs": lambda x: tf.function(lambda x: (_text(x), x + 1.0))(x)[1],
    "for an argument that nothing needs": lambda x: tf.function(lambda _, y: y * 2.0)(_text(x), x),
    "for an argument of an inner call": _for_an_argument_of_an_inner_call,
    "in a branch": lambda x: tf.cond(x[0] > 0.0, lambda: _text(x), lambda: x),
    "in a branch not taken": lambda x: tf.cond(tf.constant(True), lambda: x, lambda: _text(x)),
    "in a case not taken": lambda x: tf.switch_case(tf.constant(0), [lambda: x, lambda: _text(x)]),
    "of a constant that a loop changes": _of_a_constant_that_a_loop_changes,
    "of a constant that a loop passes on": _of_a_constant_that_a_loop_passes_on,
    "with a dtype that has no kernel": lambda x: tf.math.real(tf.linalg.eigvals(tf.linalg.diag(x))),
}


def _found(traced: Any) -> list[str]:
    library = concrete_functions.library_of(traced, traced.graph.as_graph_def())
    name = traced.function_def.signature.name
    return [missing.op for missing in refusals.nodes_without_kernels(library, name, "CPU")]


def _is_refused(program: Any) -> bool:
    """Return whether XLA, without hostcall, refuses to compile a program for a missing kernel."""
    try:
        program.experimental_get_compiler_ir(X)(stage="hlo")
    except ValueError as error:
        return "Detected unsupported operations" in str(error)
    return False


@pytest.mark.parametrize("name", CASES)
def test_xla_refuses_what_is_found(name: str) -> None:
    dropped = ("needed by nothing", "needed by nothing in a branch")
    if name in dropped and not is_older_than("2.22"):
        pytest.skip("TensorFlow 2.22 drops what nothing needs before it compiles")
    compiled = jitted(CASES[name])
    assert bool(_found(compiled.get_concrete_function(X))) == _is_refused(compiled)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_nothing_is_found_that_xla_takes(program: Any) -> None:
    compiled = jitted(program)
    if _found(compiled.get_concrete_function(X)):
        assert _is_refused(compiled)


def test_all_are_named() -> None:
    assert _found(jitted(_text).get_concrete_function(X)) == ["AsString", "StringToNumber"]


def test_what_has_an_effect_is_named_alone() -> None:
    """The op that the user has written is named, and those that it needs are not looked for."""

    def program(x: tf.Tensor) -> Any:
        tf.print(_text(x))
        return x * 2.0

    assert _found(jitted(program).get_concrete_function(X)) == ["PrintV2"]
