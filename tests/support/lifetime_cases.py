"""Cases that are repeated, and measurements of their leaks: memory, and entries in tables.

For processes of their own, some of them without hostcall: nothing here imports it.
"""

import ctypes
import gc
import itertools
import statistics
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import script_ops

X = tf.constant([1.0, 2.0])
SPEC = tf.TensorSpec([2], tf.float32)

# The collector need not look at TensorFlow itself again and again.
gc.freeze()


def by_py_function(x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(lambda v: v * 2.0, [x], SPEC)


def by_numpy_function(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(lambda v: v * 2.0, [x], SPEC)


def by_py_func(x: tf.Tensor) -> tf.Tensor:
    return tf.compat.v1.py_func(lambda v: v * 2.0, [x], SPEC)


def by_structured_numpy_function(x: tf.Tensor) -> tf.Tensor:
    # Structures go through the op when executing eagerly, too.
    return tf.numpy_function(lambda v: {"y": v["x"] * 2.0}, [{"x": x}], {"y": SPEC})["y"]


def by_callback(x: tf.Tensor) -> tf.Tensor:
    return _hostcall().callback(lambda v: v * 2.0, result=SPEC)(x)


def by_named_callback(x: tf.Tensor) -> tf.Tensor:
    return _hostcall().callback(lambda v: v * 2.0, result=SPEC, name="doubled")(x)


def by_eager_callback(x: tf.Tensor) -> tf.Tensor:
    return _hostcall().callback(lambda v: v * 2.0, result=SPEC, kind="eager")(x)


def by_callback_with_gradient(x: tf.Tensor) -> tf.Tensor:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        return 2.0 * upstream

    return _hostcall().callback(lambda v: v * 2.0, result=SPEC, grad=grad)(x)


def by_declared_function(x: tf.Tensor) -> tf.Tensor:
    function = _hostcall().declare(lambda v: v * 2.0, result=lambda x: x, timeout=10.0)
    return tf.py_function(function, [x], tf.float32)


def by_remembered_function(x: tf.Tensor) -> tf.Tensor:
    function = _hostcall().declare(lambda v: v * 2.0, result=lambda x: x, memo=True)
    return tf.numpy_function(function, [x], tf.float32)


def in_a_loop(x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, x: tf.Tensor) -> Any:
        return i + 1, tf.ensure_shape(by_py_function(x), x.shape)

    return tf.while_loop(lambda i, x: i < 3, body, (0, x), maximum_iterations=3)[1]


def in_a_branch(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x[0] > 0.0, lambda: by_py_function(x), lambda: -x)


def failing(x: tf.Tensor) -> tf.Tensor:
    def fail(v: Any) -> Any:
        raise ValueError("on purpose")

    return tf.py_function(fail, [by_py_function(x)], SPEC)


def by_tensorflow(x: tf.Tensor) -> tf.Tensor:
    return tf.identity(x)


def by_custom_gradient(x: tf.Tensor) -> tf.Tensor:
    return tf.custom_gradient(lambda x: (tf.identity(x), lambda upstream: 2.0 * upstream))(x)


Program = Callable[[tf.Tensor], tf.Tensor]


def eagerly(program: Program) -> None:
    program(X)


def eagerly_under_a_tape(program: Program) -> None:
    with tf.GradientTape() as tape:
        tape.watch(X)
        program(X)


def eagerly_with_a_gradient(program: Program) -> None:
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = program(X)
    tape.gradient(y, X)


def jitted_and_traced(program: Program) -> None:
    _new(program, jit_compile=True).get_concrete_function(SPEC)


def run(program: Program) -> None:
    _new(program)(X)


def run_with_a_gradient(program: Program) -> None:
    eagerly_with_a_gradient(_new(program))


def jitted_and_run(program: Program) -> None:
    _new(program, jit_compile=True)(X)


def jitted_and_run_in_a_plain_function(program: Program) -> None:
    _new(_new(program, jit_compile=True))(X)


def jitted_and_run_with_a_gradient(program: Program) -> None:
    eagerly_with_a_gradient(_new(program, jit_compile=True))


def _new(program: Program, **options: Any) -> Any:
    """A tf.function that shares nothing with an earlier one."""
    return tf.function(lambda x: program(x), autograph=False, **options)


def left_of(program: str, way: str, count: int) -> dict[str, Any]:
    """Run a case `count` times, after a quarter as many to warm up, and return what it leaks."""
    do, what = globals()[way], globals()[program]
    return _left(lambda: do(what), count, count // 4)


def left_of_session_runs(program: str, count: int) -> dict[str, Any]:
    """Run a v1 graph `count` times without its gradient, and return what the runs leak."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([1.0, 2.0])
        y = globals()[program](x)
        gradient = tf.gradients(y, x)
        session.run(gradient)
        return _left(lambda: session.run(y), count, count // 4)


def left_of_calls(program: str, way: str, jit_compile: bool, count: int) -> dict[str, Any]:
    """Call a function `count` times, after one gradient of it, and return what the calls leak."""
    function = _new(globals()[program], jit_compile=jit_compile)
    if program != "failing":
        eagerly_with_a_gradient(function)
    do = globals()[way]

    def call() -> None:
        try:
            do(function)
        except tf.errors.InvalidArgumentError:
            assert program == "failing"

    return _left(call, count, max(count // 4, 20))


def _left(do: Callable[[], None], count: int, warm_up: int) -> dict[str, Any]:
    """A leak shows in most of five parts; a thread that fills its cache of free memory, in one."""
    for _ in range(warm_up):
        do()
    before, part, in_use = tables(), count // 5, [_in_use()]
    for _ in range(5):
        for _ in range(part):
            do()
        in_use.append(_in_use())
    growth = statistics.median(one - last for last, one in itertools.pairwise(in_use))
    return {"bytes": growth / part, "before": before, "after": tables()}


def tables() -> dict[str, int]:
    """Collect garbage, and count the entries in tables and the graphs."""
    gc.collect()
    sizes = {
        "graphs": sum(isinstance(each, tf.Graph) for each in gc.get_objects()),
        "tokens": len(script_ops._py_funcs._funcs),
        "states": len(script_ops.tape_cache),
    }
    if "hostcall" in sys.modules:
        from hostcall._functions import declarations
        from hostcall._ops import tape_residuals
        from hostcall_runtime import _library

        sizes["runtime"] = _library.load("hostcall_runtime._runtime").size()
        sizes["numbers without a holder"] = len(tape_residuals.owners)
        sizes["declarations"] = len(declarations._table)
    return sizes


def functions_in_the_library() -> list[str]:
    """Those that eager execution could call, but for the ops that it has made functions of."""
    gc.collect()
    names = map(str, context.context().list_function_names())
    return sorted(name for name in names if not name.startswith("__wrapped__"))


def left_in_the_library(program: str, way: str) -> list[str]:
    before = functions_in_the_library()
    globals()[way](globals()[program])
    return sorted(set(functions_in_the_library()) - set(before))


_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Heap(ctypes.Structure):
    """The result of the C library's mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


_heap = ctypes.CDLL(None).mallinfo2
_heap.restype = _Heap

_BLOCK_OF_PYTHON = 64  # bytes, on average


def _in_use() -> int:
    """The bytes that C and C++ hold, and Python's blocks, which lie outside of that heap.

    The resident memory of the process depends on how other threads have split up the heap.
    """
    gc.collect()
    heap = _heap()
    return int(heap.uordblks + heap.hblkhd + _BLOCK_OF_PYTHON * sys.getallocatedblocks())


def _hostcall() -> Any:
    return sys.modules["hostcall"]
