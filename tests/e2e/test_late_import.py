"""hostcall can be imported after functions were traced and compiled."""

from typing import Any

_LATE_IMPORT = """
import numpy as np, tensorflow as tf

x = tf.constant([1.0, 4.0])
entries = []

def noting_root(x):
    entries.append(1)
    return np.sqrt(x)

def make(op, **options):
    @tf.function(**options)
    def program(x):
        return tf.ensure_shape(op(noting_root, [x], tf.float32), [2])
    return program

OPS = {"numpy": tf.numpy_function, "eager": tf.py_function, "v1": tf.compat.v1.py_func}
tf.function(lambda x: x * 2.0, jit_compile=True)(x)
wrapped = {name: make(op, jit_compile=True) for name, op in OPS.items()}
traced = {name: make(op) for name, op in OPS.items()}
for program in traced.values():
    program(x)
inner = {name: make(op) for name, op in OPS.items()}
jitted_before = {name: tf.function(program, jit_compile=True) for name, program in inner.items()}
for program in inner.values():
    program(x)
assert len(entries) == 6

import hostcall
hostcall.declare(noting_root, result=lambda x: x)

for name, op in OPS.items():
    entries.clear()
    results = {
        "made after": make(op, jit_compile=True)(x),
        "made before": wrapped[name](x),
        "plain, traced before": traced[name](x),
        "jitted around one traced before": tf.function(traced[name], jit_compile=True)(x),
        "jitted before around one traced before": jitted_before[name](x),
    }
    for how, result in results.items():
        print(name, how, result.numpy().tolist() == [1.0, 2.0])
    print(name, len(entries), "calls")
"""


def test_imported_after_functions_were_compiled_and_traced(run_python: Any) -> None:
    ways = [
        "made after",
        "made before",
        "plain, traced before",
        "jitted around one traced before",
        "jitted before around one traced before",
    ]
    expected = [
        line
        for name in ("numpy", "eager", "v1")
        for line in (*(f"{name} {way} True" for way in ways), f"{name} 5 calls")
    ]
    assert run_python(_LATE_IMPORT).splitlines() == expected


_LATE_UNKNOWN_SHAPE = """
import numpy as np, tensorflow as tf

def my_root(x):
    return np.sqrt(x)

x = tf.constant([1.0, 4.0])
root = tf.function(lambda x: tf.numpy_function(my_root, [x], tf.float32))
root(x)
import hostcall
from hostcall._compiler import route_selection

def show():
    nodes = root.get_concrete_function(x).function_def.node_def
    (route,) = [route_selection.choose(node).route for node in nodes if node.op == "PyFunc"]
    print(route, tf.function(root, jit_compile=True)(x).numpy())

show()
hostcall.declare(my_root, result=lambda x: tf.TensorSpec(x.shape, tf.float32))
show()
"""


def test_a_function_traced_before_the_import_is_partitioned_until_it_is_declared(
    run_python: Any,
) -> None:
    assert run_python(_LATE_UNKNOWN_SHAPE) == "partition [1. 2.]\ncustom_call [1. 2.]\n"


_LATE_GRADIENT = """
import tensorflow as tf

x = tf.constant([1.0, 4.0])

@tf.function
def cube(x):
    return tf.ensure_shape(tf.py_function(lambda x: x**3, [x], tf.float32), [2])

def gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = cube(x)
    return tape.gradient(y, x)

gradient_before = tf.function(gradient)
print(gradient_before(x).numpy())
import hostcall
print(gradient(x).numpy())
print(gradient_before(x).numpy())
print(tf.function(gradient)(x).numpy())
"""


def test_gradients_of_functions_traced_before_the_import(run_python: Any) -> None:
    assert run_python(_LATE_GRADIENT) == "[ 3. 48.]\n" * 4


_LATE_UFUNC = """
import numpy as np, tensorflow as tf

x = tf.constant([1.0, 4.0])
root = tf.function(lambda x: tf.numpy_function(np.sqrt, [x], tf.float32))
total = tf.function(lambda x, y: tf.numpy_function(np.add, [x, y], tf.float32))
root(x), total(x, x)
import hostcall
hostcall.declare(np.sqrt, result=lambda x: x)
hostcall.declare(np.add, result=lambda x, y: x)
print(tf.function(root, jit_compile=True)(x).numpy())
print(tf.function(total, jit_compile=True)(x, x).numpy())
"""


def test_a_ufunc_traced_before_the_import(run_python: Any) -> None:
    assert run_python(_LATE_UFUNC) == "[1. 2.]\n[2. 8.]\n"
