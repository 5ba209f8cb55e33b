"""kernel_hook: of which functions TensorFlow asks Python what takes their place."""

from typing import Any

import pytest

_ASKED = """
import re

import tensorflow as tf
import hostcall
from hostcall._compiler import kernel_hook
from hostcall._compiler.one_program import lowering
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


_UNASKED = """
program = gradient(plain)
print(run(program), run(tf.function(program)), run(gradient(program)))
assert run(partitioned)
plain = tf.function(plain.python_function, jit_compile=True)
program = gradient(plain)
print(run(program), run(tf.function(program)), run(gradient(program)))
"""

_GRADIENTS = """
for program in (gradient(partitioned), tf.function(gradient(partitioned))):
    print(run(program))
print(run(gradient(gradient(partitioned))))
"""

# The forward function runs from eager code, and the graph calls the backward one alone.
_GRADIENT_ALONE = """
x = tf.Variable(X)
with tf.GradientTape(persistent=True) as tape:
    y = partitioned(x)
print(run(tf.function(lambda _: tape.gradient(y, x))))
"""

_FOR_THE_HOST = """
def printing(x):
    tf.print("printed", output_stream="file:///dev/null")
    return x * x

with hostcall.scope(route="partition"):
    print(run(tf.function(printing, jit_compile=True)))
print(run(plain))
"""

_BACKWARD = "__backward_partitioned"
# Programs that follow on the one above, and the lines that they print.
CASES = {
    "not_functions_without_callbacks": (_UNASKED, ["None None None"] * 2),
    "not_the_clusters_of_a_partitioned_function": ("print(run(partitioned))", ["partitioned"]),
    "the_gradient_of_a_partitioned_function": (
        _GRADIENTS,
        [
            *[f"partitioned {_BACKWARD}"] * 2,
            f"partitioned {_BACKWARD} __backward_{_BACKWARD} {_BACKWARD}",
        ],
    ),
    "a_gradient_whose_forward_function_another_graph_has": (_GRADIENT_ALONE, [_BACKWARD]),
    "functions_whose_ops_are_for_the_host": (_FOR_THE_HOST, ["printing", "None"]),
}


@pytest.mark.parametrize(("program", "printed"), CASES.values(), ids=CASES)
def test_python_is_asked_for(program: str, printed: list[str], run_python: Any) -> None:
    assert run_python(_ASKED + program).splitlines() == printed
