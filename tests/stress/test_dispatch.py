"""JAX programs whose callbacks compute with JAX come to an end, whoever waits for them."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall.jax
import hostcall_mlir
from tests.support.jax.flavours import FLAVOURS
from tests.support.threads import PATIENCE, in_threads

PREPARATION = 'import os; os.environ["JAX_PLATFORMS"] = "cpu"'

pytestmark = pytest.mark.runs_in("worker")

# XLA's CPU takes this many programs at once, and lets further ones wait.
IN_FLIGHT = 32

ROUNDS = 2 * IN_FLIGHT

# So large that XLA does not do the work on the thread that asks for it.
SIZE = 200

Program = Callable[[Any], Any]

_plain = jax.jit(lambda x: x @ x / SIZE)


def in_jax(x: Any) -> Any:
    """Compute in JAX what the callbacks return, which is ones for ones."""
    return np.asarray(_plain(jnp.asarray(x)))


def _not_there_yet() -> Any:
    return _plain(_plain(jnp.ones([SIZE, SIZE])))


def _in_a_row(program: Program, rounds: int = ROUNDS) -> None:
    results = [program(_not_there_yet()) for _ in range(rounds)]
    results.append(program(results[-1]))
    for result in results:
        np.testing.assert_array_equal(result, np.ones_like(result))


def _calling(flavour: str) -> Program:
    return lambda x: FLAVOURS[flavour](in_jax, x, x)


def _nested(flavour: str) -> Program:
    inner = jax.jit(_calling(flavour))

    return lambda x: FLAVOURS[flavour](lambda x: np.asarray(inner(x)), x, x)


def _from_tf(flavour: str) -> Program:
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(in_jax, [x], tf.TensorSpec([SIZE, SIZE], x.dtype))

    options: dict[str, Any] = {} if flavour == "unordered" else {flavour: True}
    return hostcall.jax.from_tf(tf.function(function), **options)


BODIES = {"calling": _calling, "nested": _nested, "from_tf": _from_tf}


def eagerly(body: str, flavour: str) -> None:
    _in_a_row(BODIES[body](flavour))


def jitted(body: str, flavour: str) -> None:
    _in_a_row(jax.jit(BODIES[body](flavour)))


def compiled_before(body: str, flavour: str) -> None:
    x = jnp.ones([SIZE, SIZE])
    _in_a_row(jax.jit(BODIES[body](flavour)).lower(x).compile())


def with_what_is_given_away(body: str, flavour: str) -> None:
    """Others may still read it."""
    program = jax.jit(BODIES[body](flavour), donate_argnums=0)
    x = _not_there_yet()
    for _ in range(ROUNDS):
        _plain(x)
        x = program(x)
    np.testing.assert_array_equal(x, np.ones_like(x))


def in_front_of_others(body: str, flavour: str) -> None:
    program = jax.jit(BODIES[body](flavour))
    x = program(_not_there_yet())
    for _ in range(ROUNDS):
        x = _plain(x)
    np.testing.assert_array_equal(x, np.ones_like(x))


def on_threads(body: str, flavour: str) -> None:
    """On more than XLA has itself."""
    program = jax.jit(BODIES[body](flavour))
    in_threads(8, lambda _: _in_a_row(program, rounds=8))


EACH = (eagerly, jitted, compiled_before, with_what_is_given_away, in_front_of_others, on_threads)
WAYS = {way.__name__: way for way in EACH}


@pytest.mark.pairwise
@pytest.mark.parametrize("flavour", ["unordered", "ordered", "pure"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("way", WAYS)
def test_programs_that_nobody_waits_for(way: str, body: str, flavour: str) -> None:
    WAYS[way](body, flavour)


def test_more_threads_than_xla_takes_programs() -> None:
    """All callbacks that there is a place for are under way before one computes."""
    waiting = threading.Semaphore(0)
    go_on = threading.Event()
    go_on.set()

    def wait_and_compute(x: Any) -> Any:
        waiting.release()
        assert go_on.wait(PATIENCE)
        return in_jax(x)

    program = jax.jit(lambda x: hostcall.jax.call(wait_and_compute, x, x))
    x = jnp.ones([SIZE, SIZE])
    program(x)  # while it is compiled, no other thread can run it
    go_on.clear()

    def run(number: int) -> None:
        if number == 0:
            for _ in range(IN_FLIGHT):  # and the one above
                assert waiting.acquire(timeout=PATIENCE)
            go_on.set()
        np.testing.assert_array_equal(program(x), x)

    in_threads(IN_FLIGHT + 8, run)


def programs_in_programs(ordered: bool, depth: int) -> str:
    """Return the error of a program that calls itself that often, or "nothing"."""
    said = ["nothing"]

    def again(x: Any) -> Any:
        if x == 0:
            return in_jax(np.ones([SIZE, SIZE], np.float32))[0, 0] - 1
        try:
            return np.asarray(program(x - 1))
        except RuntimeError as error:
            said.append(str(error))
            return np.float32(0)

    program = jax.jit(lambda x: hostcall.jax.call(again, x, x, ordered=ordered))
    for number in (0, depth):  # while it is compiled, it cannot call itself
        assert program(np.float32(number)) == 0
    return said[-1]


@pytest.mark.parametrize("ordered", [False, True])
def test_programs_in_programs(ordered: bool) -> None:
    assert programs_in_programs(ordered, 30) == "nothing"
    said = programs_in_programs(ordered, 40)
    assert said.startswith("31 JAX programs with calls of Python functions are under way")


@pytest.mark.parametrize("partitioned", [False, True])
def test_exported_programs(tmp_path: str, partitioned: bool) -> None:
    in_tf = hostcall.callback(in_jax, name="in_jax", result=tf.TensorSpec([SIZE, SIZE]))
    function = tf.function(lambda x: in_tf(x @ x / SIZE) @ x / SIZE, jit_compile=True)
    hostcall.export(function, tf.TensorSpec([SIZE, SIZE])).save(tmp_path)
    program = hostcall_mlir.load(tmp_path, callbacks={"in_jax": in_jax}, partitioned=partitioned)
    _in_a_row(program.call)
    in_threads(8, lambda _: _in_a_row(program.call, rounds=8))
