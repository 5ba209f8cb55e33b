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

OPS = [tf.numpy_function, tf.py_function, tf.compat.v1.py_func]
tf.function(lambda x: x * 2.0, jit_compile=True)(x)
wrapped = [make(op, jit_compile=True) for op in OPS]
traced = [make(op) for op in OPS]
inner = [make(op) for op in OPS]
jitted_before = [tf.function(program, jit_compile=True) for program in inner]
for program in traced + inner:
    program(x)
assert len(entries) == 6

import hostcall
hostcall.declare(noting_root, result=lambda x: x)

for i, op in enumerate(OPS):
    entries.clear()
    programs = {
        "made after": make(op, jit_compile=True),
        "made before": wrapped[i],
        "plain, traced before": traced[i],
        "jitted around one traced before": tf.function(traced[i], jit_compile=True),
        "jitted before around one traced before": jitted_before[i],
    }
    for how, program in programs.items():
        assert program(x).numpy().tolist() == [1.0, 2.0], (op, how)
    assert len(entries) == 5, op
print("done")
"""


def test_imported_after_functions_were_compiled_and_traced(run_python: Any) -> None:
    assert run_python(_LATE_IMPORT) == "done\n"


_LATE_DECLARATION = """
import numpy as np, tensorflow as tf

def my_root(x):
    return np.sqrt(x)

x = tf.constant([1.0, 4.0])
root = tf.function(lambda x: tf.numpy_function(my_root, [x], tf.float32))
of_ufunc = tf.function(lambda x: tf.numpy_function(np.add, [x, x], tf.float32))
cube = tf.function(lambda x: tf.ensure_shape(tf.py_function(lambda x: x**3, [x], tf.float32), [2]))

def gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = cube(x)
    return tape.gradient(y, x)

gradient_before = tf.function(gradient)
root(x), of_ufunc(x), gradient_before(x)
import hostcall

def show():
    compiled = tf.function(root, jit_compile=True)
    print(hostcall.explain(compiled, x).functions[0].mode, compiled(x).numpy())

show()
hostcall.declare(my_root, result=lambda x: tf.TensorSpec(x.shape, tf.float32))
show()
hostcall.declare(np.add, result=lambda x, y: x)
print(tf.function(of_ufunc, jit_compile=True)(x).numpy())
for function in (gradient, gradient_before, tf.function(gradient)):
    print(function(x).numpy())
"""


def test_a_function_traced_before_the_import_is_partitioned_until_it_is_declared(
    run_python: Any,
) -> None:
    lines = run_python(_LATE_DECLARATION).splitlines()
    assert lines[:2] == ["partitioned [1. 2.]", "compiled [1. 2.]"]
    assert lines[2:] == ["[2. 8.]", *["[ 3. 48.]"] * 3]
