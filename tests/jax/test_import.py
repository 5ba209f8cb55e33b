"""hostcall.jax and the frameworks: without JAX, and in every order of imports.

It leaves TensorFlow alone until that is imported, and works in it from then on.
"""

from collections.abc import Callable

import pytest

from tests.support.jax.helpers import run_python
from tests.support.versions import reads_programs_of_jax

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

JAX, TENSORFLOW, HOSTCALL = "import jax", "import tensorflow as tf", "import hostcall.jax"
# Where TensorFlow itself imports JAX, this is as it was.
NO_JAX = (
    "import sys; had = 'jax' in sys.modules; import hostcall; assert ('jax' in sys.modules) == had"
)
ORDERS = [
    ("import jax; jax.numpy.ones(3).sum()", TENSORFLOW, HOSTCALL),
    (JAX, HOSTCALL, TENSORFLOW),
    (HOSTCALL, JAX, TENSORFLOW),
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_import_orders(order: tuple[str, ...]) -> None:
    assert run_python("\n".join(order) + PROGRAM) == "same\n"


@pytest.mark.parametrize("order", [(JAX, HOSTCALL), (NO_JAX, HOSTCALL, JAX)], ids=str)
def test_import_orders_after_tensorflow(
    order: tuple[str, ...], run_python: Callable[..., str]
) -> None:
    code = "\n".join((TENSORFLOW, *order)) + PROGRAM
    assert run_python(code, JAX_PLATFORMS="cpu") == "same\n"


def test_without_jax_the_import_says_what_to_install() -> None:
    code = """
import sys
sys.modules["jax"] = None
try:
    import hostcall.jax
except ImportError as error:
    print(error)
"""
    assert "pip install 'hostcall[jax]'" in run_python(code)


_BEGINNING = """
import sys
import hostcall.jax, hostcall_mlir
import jax, jax.numpy as jnp, numpy as np

gradient = lambda inputs, results, upstream: 2 * upstream
@hostcall.callback(result=lambda x: x, stateful=False, grad=gradient)
def double(x):
    return 2 * x

def tripled(tf):
    function = lambda x: tf.ensure_shape(tf.py_function(lambda x: 3 * x, [x], tf.float32), [2])
    return tf.function(function, jit_compile=True, autograph=False)(tf.ones([2])).numpy().tolist()

assert jax.jit(double)(jnp.ones(2)).tolist() == [2.0, 2.0]
assert isinstance(double(np.ones(2, np.float32)), jax.Array)
assert hostcall.stats() == []
bounded = hostcall.BoundedSpec([2], np.float32)
assert "tensorflow" not in sys.modules
"""


@reads_programs_of_jax
@pytest.mark.full_run("starts processes that import both frameworks")
def test_tensorflow_is_imported_by_nobody_else_and_works_from_then_on() -> None:
    code = """
import tensorflow as tf
assert tripled(tf) == [3.0, 3.0]
assert isinstance(double(np.ones(2, np.float32)), tf.Tensor)
assert tf.function(double, jit_compile=True)(tf.ones([2])).numpy().tolist() == [2.0, 2.0]
assert jax.jit(jax.grad(lambda x: double(x).sum()))(jnp.ones(2)).tolist() == [2.0, 2.0]
assert bounded == hostcall.BoundedSpec([2], tf.float32)
assert hash(bounded) == hash(hostcall.BoundedSpec([2], tf.float32))
assert bounded.shape.as_list() == [2] and bounded.dtype is tf.float32
assert hostcall.jax.to_tf(jnp.negative)(np.ones(2, np.float32)).numpy().tolist() == [-1.0, -1.0]
print("works")
"""
    assert run_python(_BEGINNING + code) == "works\n"


@pytest.mark.full_run("starts processes that import both frameworks")
def test_switched_off_before_a_name_of_hostcalls_imports_tensorflow_and_on_after() -> None:
    code = """
hostcall.disable()
from hostcall import configure
assert "tensorflow" in sys.modules
configure(route="auto")
import tensorflow as tf
from tensorflow.python.ops import script_ops
assert not hasattr(script_ops.py_func_common, "__wrapped__")
try:
    tripled(tf)
except tf.errors.InvalidArgumentError as error:
    print("EagerPyFunc" in str(error))
assert jax.jit(double)(jnp.ones(2)).tolist() == [2.0, 2.0]
hostcall.enable()
print(tripled(tf))
hostcall.disable()
assert not hasattr(script_ops.py_func_common, "__wrapped__")
hostcall.enable()
print(tripled(tf))
"""
    assert run_python(_BEGINNING + code) == "True\n[3.0, 3.0]\n[3.0, 3.0]\n"


@pytest.mark.full_run("starts processes that import both frameworks")
def test_a_tensorflow_that_hostcall_was_not_built_for_is_imported_with_a_warning() -> None:
    code = """
import importlib.metadata, warnings
import hostcall.jax
from hostcall import _versions
_versions.choose(importlib.metadata.version(_versions.PACKAGE))
import hostcall._build_info
hostcall._build_info.TENSORFLOW_VERSION = "1.15.0"
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import tensorflow as tf
[warning] = [one for one in said if "built against 1.15.0" in str(one.message)]
assert issubclass(warning.category, RuntimeWarning)
try:
    hostcall.explain
except ImportError as error:
    print("built against 1.15.0" in str(error))
import jax
print(jax.jit(lambda x: hostcall.jax.call(abs, x, x))(-1.0))
"""
    assert run_python(code) == "True\n1.0\n"
