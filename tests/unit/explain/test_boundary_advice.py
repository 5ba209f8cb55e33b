"""What an explanation advises for each op between compiled clusters."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._explain.facts import HostOp
from tests.support.helpers import jitted

X = tf.TensorSpec([3], tf.float32)


@pytest.fixture(autouse=True)
def _auto_route() -> Iterator[None]:
    with hostcall.scope(route="auto"):
        yield


def unique(x: np.ndarray) -> np.ndarray:
    return np.unique(x)


def called(x: Any) -> Any:
    return tf.numpy_function(unique, [x], tf.float32)


def asked_for(x: Any) -> Any:
    with hostcall.scope(route="partition"):
        return tf.numpy_function(unique, [x], tf.TensorSpec([3], tf.float32))


def declared(x: Any) -> Any:
    return hostcall.callback(unique, result=tf.TensorSpec([None], tf.float32))(x)


def of_strings(x: Any) -> Any:
    return tf.numpy_function(unique, [tf.strings.as_string(x)], tf.float32)


def beside_a_boundary(x: Any) -> Any:
    length = tf.numpy_function(len, [tf.strings.as_string(x)], tf.TensorSpec([], tf.int64))
    return called(x), length


def printing(x: Any) -> Any:
    tf.print(x)
    return called(x)


def asserting(x: Any) -> Any:
    tf.debugging.Assert(x[0] > 0.0, [x])
    return called(x)


@pytest.mark.parametrize(
    ("program", "op", "advice"),
    [
        (called, "unique", "declare(unique, result=lambda x: tf.TensorSpec([...], tf.float32))"),
        (asked_for, "unique", "take route='partition' away"),
        (declared, "unique", "@hostcall.callback(result=lambda x: tf.TensorSpec([...], tf.float32"),
        (of_strings, "unique", "declare(unique, result=lambda x: tf.TensorSpec([...]"),
        (beside_a_boundary, "len", "nothing here: one program calls it"),
        (printing, "PrintV2", "hostcall.callback(print, result=[])(x)"),
        (asserting, "Assert", "leave it out where the program can do without"),
    ],
)
def test_the_line_to_write(program: Callable[[Any], Any], op: str, advice: str) -> None:
    explanation = hostcall.explain(jitted(program), X)
    found = {
        one.op if isinstance(one, HostOp) else one.callback: one.advice
        for one in explanation.boundaries
    }
    assert advice in found[op]
    assert advice.split("(")[0] in str(explanation)


def test_the_line_makes_it_one_program() -> None:
    lines = [one.advice for one in hostcall.explain(jitted(called), X).boundaries]
    assert len(lines) == 1

    def padded(x: np.ndarray) -> np.ndarray:
        return np.resize(np.unique(x), x.shape)

    line = lines[0].replace("unique", "padded").replace("[...]", "x.shape")
    exec(line, {"hostcall": hostcall, "tf": tf, "padded": padded})
    program = jitted(lambda x: tf.numpy_function(padded, [x], tf.float32))
    explanation = hostcall.explain(program, X)
    assert explanation.headline == "one compiled program with 1 script op in it"
    assert explanation.boundaries == ()


def test_printing_by_a_callback_works(capfd: pytest.CaptureFixture[str]) -> None:
    program = jitted(lambda x: [hostcall.callback(print, result=[])(x), x][1])
    assert hostcall.explain(program, X).boundaries == ()
    program(tf.zeros([3]))
    assert "[0. 0. 0.]" in capfd.readouterr().out


def test_functions_that_are_not_compiled_have_no_boundaries() -> None:
    assert hostcall.explain(tf.function(called), X).boundaries == ()
