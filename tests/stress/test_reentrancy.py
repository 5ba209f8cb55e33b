"""Whatever a callback does, and whoever calls it at once: right results, and no hang.

Each action that a callback may take computes 2 x + 1.
"""

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.stress.processes import Worker
from tests.support.stress.programs import SIZES, like, numpy_function, stateless
from tests.support.threads import in_threads

Action = Callable[[np.ndarray], np.ndarray]


def formula(x: Any) -> Any:
    return x * 2.0 + 1.0


def in_numpy(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(formula, [x], like(x))


def calling(function: Callable[..., Any]) -> Action:
    return lambda x: function(tf.constant(x)).numpy()


def itself(**options: Any) -> Action:
    """Calls the function that it is called by, each time with one element less."""

    def action(x: np.ndarray) -> np.ndarray:
        if len(x) % 4 == 0:
            return formula(x)
        shorter = run(x[1:]).numpy()
        return np.concatenate([formula(x[:1]), shorter])

    @tf.function(jit_compile=True, **options)
    def run(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(action, [x], like(x))

    hostcall.declare(action, result=like)
    return lambda x: run(np.concatenate([x, x[:3]])).numpy()[: len(x)]


# Stock TensorFlow crashes where one thread waits for all executors, which each `predict` does,
# while another thread ends the executor that read its data: see docs/sharp-bits.md.
_one_predicts = threading.Lock()


def keras_predict() -> Action:
    model = keras.Sequential([keras.layers.Rescaling(2.0, 1.0)])

    def action(x: np.ndarray) -> np.ndarray:
        with _one_predicts:
            return model.predict(x[None], verbose=0)[0]

    return action


def imported_jax() -> Any:
    os.environ["JAX_PLATFORMS"] = "cpu"
    return importlib.import_module("jax")


def jax_function() -> Action:
    function = imported_jax().jit(formula)
    return lambda x: np.asarray(function(x))


def jax_function_with_a_callback() -> Action:
    jax = imported_jax()
    # On arrays of NumPy's: JAX gives its own, and each of their operations is one more program,
    # for which callbacks wait when they have all the places of XLA's CPU.
    function = jax.jit(lambda x: jax.pure_callback(lambda v: formula(np.asarray(v)), x, x))
    # No more elements than these: from four threads on, with 100,000 of them, JAX's own callbacks
    # wait for one another for ever, without TensorFlow as well.
    return lambda x: np.concatenate([function(x[:4]), formula(x[4:])])


def in_threads_of_its_own(work: Action) -> Action:
    def action(x: np.ndarray) -> np.ndarray:
        parts: list[Any] = [None, None]

        def fill(i: int) -> None:
            parts[i] = work(x[i::2])

        in_threads(2, fill)
        result = np.empty_like(x)
        result[::2], result[1::2] = parts
        return result

    return action


UNKNOWN = [tf.TensorSpec([None], tf.float32)]
ACTIONS: dict[str, Callable[[], Action]] = {
    "eager_ops": lambda: calling(formula),
    "plain_function": lambda: calling(tf.function(formula)),
    "jitted_function": lambda: calling(tf.function(formula, jit_compile=True)),
    "jitted_function_with_a_callback": lambda: calling(tf.function(in_numpy, jit_compile=True)),
    "itself_traced_anew": itself,
    "itself_compiled_anew": lambda: itself(input_signature=UNKNOWN),
    "keras_predict": keras_predict,
    "jax_function": jax_function,
    "jax_function_with_a_callback": jax_function_with_a_callback,
    "threads": lambda: in_threads_of_its_own(ACTIONS["eager_ops"]()),
    "threads_with_jitted_functions": lambda: in_threads_of_its_own(
        ACTIONS["jitted_function_with_a_callback"]()
    ),
}


def py_function(action: Action, x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(lambda value: action(value.numpy()), [x], like(x))


KINDS: dict[str, Callable[..., Any]] = {
    "numpy_function": numpy_function,
    "py_function": py_function,
    "stateless": stateless,
}


def program(action: Action, kind: Callable[..., Any], callbacks: int) -> Callable[..., Any]:
    def argument(x: tf.Tensor, i: int) -> tf.Tensor:
        return x + float(i) + 0.0 * tf.sin(x)

    @tf.function(jit_compile=True, autograph=False)
    def run(x: tf.Tensor) -> list[tf.Tensor]:
        return [2.0 * kind(action, argument(x, i)) for i in range(callbacks)]

    return run


def call(function: Callable[..., Any], number: int, elements: int) -> None:
    x = np.arange(elements, dtype=np.float32) + np.float32(number)
    for i, result in enumerate(function(tf.constant(x))):
        expected = np.float32(2.0) * formula(x + np.float32(i))
        np.testing.assert_array_equal(result, expected)


def call_in_threads(function: Callable[..., Any], count: int, times: int, elements: int) -> None:
    def work(number: int) -> None:
        for _ in range(times):
            call(function, number, elements)

    in_threads(count, work)


CALLERS = ["one", "16 at first", "16 when warm"]


ONE_THREAD = "import tensorflow as tf; tf.config.threading.set_inter_op_parallelism_threads(1)"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[Worker]:
    with contextlib.closing(Worker(ONE_THREAD)) as worker:
        yield worker


_warm: dict[tuple[str, str, str], Callable[..., Any]] = {}


@pytest.mark.pairwise
@pytest.mark.runs_in("worker")
@pytest.mark.parametrize("callers", CALLERS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_callback_may(action: str, kind: str, size: str, callers: str) -> None:
    elements, callbacks = SIZES[size]
    function = _warm.pop((action, kind, size), None)
    if function is None or callers != "16 when warm":
        if action == "keras_predict":
            callbacks = 1  # for each of them takes a tenth of a second
        function = program(ACTIONS[action](), KINDS[kind], callbacks)
    if callers != "16 at first":
        call(function, 0, elements)
    if callers == "one":
        _warm[action, kind, size] = function
    elif action == "keras_predict":  # one thread at a time predicts, however many there are
        call_in_threads(function, 4, 1, elements)
    else:
        call_in_threads(function, 16, 2, elements)


@pytest.mark.pairwise
@pytest.mark.parametrize("inter_op", ["worker", "one_thread"])
@pytest.mark.parametrize("callers", [1, 4])
@pytest.mark.parametrize("action", ACTIONS)
def test_inside_plain_functions(
    request: pytest.FixtureRequest, action: str, callers: int, inter_op: str
) -> None:
    request.getfixturevalue(inter_op).run(run_inside_plain_functions, action, callers)


def run_inside_plain_functions(action: str, callers: int) -> None:
    """The compiled function is called from threads of TensorFlow's, and not from Python's."""
    elements, callbacks = SIZES["large"]
    inner = program(ACTIONS[action](), numpy_function, callbacks)
    call_in_threads(tf.function(lambda x: inner(x), autograph=False), callers, 2, elements)
