"""hostcall.jax and the frameworks: without JAX, and in every order of imports."""

import itertools

import pytest

from tests.support.jax.helpers import run_python

PROGRAM = """
import numpy as np
x = np.arange(4, dtype=np.float32)
f = jax.jit(lambda v: hostcall.jax.call(np.cos, v, v))
g = tf.function(
    lambda v: tf.ensure_shape(tf.numpy_function(np.cos, [v], tf.float32), [4]), jit_compile=True
)
for _ in range(2):
    assert np.asarray(f(x)).tobytes() == g(x).numpy().tobytes() == np.cos(x).tobytes()
print("same")
"""

IMPORTS = ["import jax", "import tensorflow as tf", "import hostcall.jax"]


@pytest.mark.parametrize("order", list(itertools.permutations(IMPORTS)), ids=str)
def test_import_orders(order: tuple[str, ...]) -> None:
    assert run_python("\n".join(order) + PROGRAM) == "same\n"


def test_jax_may_have_run_before() -> None:
    code = "import jax; jax.numpy.ones(3).sum(); import tensorflow as tf; import hostcall.jax"
    assert run_python(code + PROGRAM) == "same\n"


def test_where_hostcall_is_switched_off() -> None:
    code = """
import jax, numpy as np, hostcall.jax
print(jax.jit(lambda v: hostcall.jax.call(np.cos, v, v))(np.float32(0)))
"""
    assert run_python(code, HOSTCALL_DISABLE="1") == "1.0\n"


def test_hostcall_imports_no_jax() -> None:
    # Where TensorFlow itself imports JAX, this is as it was.
    code = "import sys, tensorflow; before = 'jax' in sys.modules; import hostcall; "
    assert run_python(code + "print(('jax' in sys.modules) == before)") == "True\n"


def test_without_jax_the_import_says_what_to_install() -> None:
    code = """
import sys
sys.modules["jax"] = None
import hostcall
try:
    import hostcall.jax
except ImportError as error:
    print(error)
"""
    assert "pip install 'hostcall[jax]'" in run_python(code)
