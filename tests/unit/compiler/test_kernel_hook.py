"""kernel_hook: of which functions TensorFlow asks Python what takes their place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_ASKED = """
import re

import tensorflow as tf
import hostcall
from hostcall._compiler import kernel_hook, lowering
from hostcall_runtime import _library

asked = []

def rewrite(library, entry, *rest):
    asked.append(entry)
    return kernel_hook.rewrite_for_kernel(library, entry, *rest)

_library.load("hostcall._tensorflow").set_hooks(
    lower=lowering.lower, evaluate=lowering.evaluate, rewrite=rewrite, announce=lambda entry: None
)

X = tf.constant([1.0, 2.0])

def grown(x):  # the function that takes the place of `x * x` has clusters without script ops
    return tf.ensure_shape(tf.numpy_function(lambda v: v, [x], tf.float32), [None])

def gradient(program):
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = program(x)
        return tape.gradient(y, x)
    return run

def run(program):
    asked.clear()
    program(X)
    return " ".join(re.sub("__(inference|forward)_|_[0-9]+", "", name) for name in asked) or None

@tf.function(jit_compile=True)
def plain(x):
    return tf.reduce_sum(x * x)

@tf.function(jit_compile=True)
def partitioned(x):
    grown(tf.stop_gradient(x))
    return tf.reduce_sum(x * x)
"""


@pytest.fixture
def asked(run_python: Callable[..., str]) -> Callable[[str], str]:
    """What a program prints that follows on the one above."""
    return lambda program: run_python(_ASKED + program)


def test_python_is_not_asked_for_functions_without_callbacks(asked: Callable[[str], str]) -> None:
    # Neither before a function is partitioned, nor after.
    printed = asked("""
program = gradient(plain)
print(run(program), run(tf.function(program)), run(gradient(program)))
assert run(partitioned)
plain = tf.function(plain.python_function, jit_compile=True)
program = gradient(plain)
print(run(program), run(tf.function(program)), run(gradient(program)))
""")
    assert printed.splitlines() == ["None None None"] * 2


def test_python_is_not_asked_for_the_clusters_of_a_partitioned_function(
    asked: Callable[[str], str],
) -> None:
    assert asked("print(run(partitioned))").strip() == "partitioned"


def test_python_is_asked_for_the_gradient_of_a_partitioned_function(
    asked: Callable[[str], str],
) -> None:
    assert asked("""
for program in (gradient(partitioned), tf.function(gradient(partitioned))):
    print(run(program))
print(run(gradient(gradient(partitioned))))
""").splitlines() == [
        "partitioned __backward_partitioned",
        "partitioned __backward_partitioned",
        "partitioned __backward_partitioned "
        "__backward___backward_partitioned __backward_partitioned",
    ]


def test_python_is_asked_for_a_gradient_whose_forward_function_another_graph_has(
    asked: Callable[[str], str],
) -> None:
    # The forward function runs from eager code, and the graph calls the backward one alone.
    printed = asked("""
x = tf.Variable(X)
with tf.GradientTape(persistent=True) as tape:
    y = partitioned(x)
print(run(tf.function(lambda _: tape.gradient(y, x))))
""")
    assert printed.strip() == "__backward_partitioned"


def test_python_is_asked_for_functions_whose_ops_are_for_the_host(
    asked: Callable[[str], str],
) -> None:
    assert asked("""
def printing(x):
    tf.print("printed", output_stream="file:///dev/null")
    return x * x

with hostcall.scope(route="partition"):
    print(run(tf.function(printing, jit_compile=True)))
print(run(plain))
""").splitlines() == ["printing", "None"]
