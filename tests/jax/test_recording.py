"""hostcall.record and hostcall.replay of JAX programs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall.jax
from tests.support.recordings import Machine
from tests.support.versions import reads_programs_of_jax

X = jnp.array([1.0, -0.0, 3.0])


def replayed(file: str, machine: Machine, run: Callable[[], Any]) -> None:
    """Records and replays; nobody waits for the results before the end."""
    with hostcall.record(file):
        first = run()
    machine.is_there = False
    with hostcall.replay(file):
        second = run()
    machine.is_there = True
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.tobytes() == other.tobytes()


def like(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


@pytest.mark.parametrize("how", [{"ordered": True}, {}, {"pure": True}], ids=str)
def test_calls_of_programs(how: Any, file: str, machine: Machine) -> None:
    def measure(x: Any) -> Any:
        factor = np.float32(2) if how.get("pure") else machine.use()
        machine.use()
        return x * factor

    @jax.jit
    def program(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            carry = hostcall.jax.call(measure, like(carry), carry, **how)
            return carry, carry

        steps = jax.lax.scan(step, x, length=3)
        return steps, [hostcall.jax.call(measure, like(x), x + i, **how) for i in range(3)]

    program(X)  # compiled before
    replayed(file, machine, lambda: [program(X), program(X + 1)])


def test_calls_outside_of_programs_and_callbacks(file: str, machine: Machine) -> None:
    callback = hostcall.callback(
        lambda tree: {"sum": tree["a"] + tree["b"] * machine.use()},
        result=lambda tree: {"sum": tree["a"]},
    )
    given = {"a": X, "b": X.astype(jnp.float32)}
    replayed(file, machine, lambda: [callback(given), jax.jit(callback)(given)])


def test_batches_and_gradients(file: str, machine: Machine) -> None:
    def sine(x: Any) -> Any:
        return np.sin(x) * machine.use()

    @jax.custom_vjp
    def measured(x: Any) -> Any:
        return hostcall.jax.call(sine, like(x), x, vmap_method="expand_dims")

    measured.defvjp(lambda x: (measured(x), x), lambda x, dy: (dy * jnp.cos(x),))
    run = jax.jit(jax.vmap(jax.value_and_grad(measured)))
    replayed(file, machine, lambda: run(X))


@reads_programs_of_jax
def test_programs_in_tensorflow(file: str, machine: Machine) -> None:
    def measure(x: Any) -> Any:
        return x * machine.use()

    def program(x: Any) -> Any:
        y = hostcall.jax.call(measure, like(x), x, ordered=True)
        return jax.pure_callback(measure, like(x), y)

    compiled = tf.function(hostcall.jax.to_tf(program), jit_compile=True)
    plain = tf.function(hostcall.jax.to_tf(program))
    given = tf.constant([1.0, 2.0])
    replayed(file, machine, lambda: [compiled(given).numpy(), plain(given).numpy()])
