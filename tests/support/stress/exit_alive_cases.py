"""What a process has alive when it ends: when the function has returned."""

from __future__ import annotations

import atexit
import gc
import itertools
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import hostcall
from tests.support.stress import programs, template
from tests.support.stress.exit_cases import WAYS, keep
from tests.support.stress.programs import check, compiled, gradient, like, program


def double(x: Any) -> Any:
    return x * np.float32(2.0)


def every_program() -> list[Any]:
    """Programs that have run."""
    functions = []
    for kind, (way, options) in zip(programs.KINDS, WAYS.values(), strict=True):
        for size in programs.SIZES:
            functions.append(way(program(lambda x: double(x), kind, size, **options)))
            check(functions[-1](programs.values(size)), programs.values(size))
    return functions


def functions_in_globals_and_cycles() -> None:
    class Cycle:
        pass

    cycle = Cycle()
    cycle.itself = cycle  # type: ignore[attr-defined]
    cycle.functions = every_program()  # type: ignore[attr-defined]
    globals()["functions"] = every_program()
    globals()["named"] = hostcall.callback(double, result=like, name="named")
    keep(cycle)
    gc.disable()


class Doubled(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        outputs = programs.py_function(double, inputs)
        outputs.set_shape(inputs.shape)
        return outputs

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


def a_keras_model() -> None:
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(4), Doubled()])
    model.compile("adam", "mse", jit_compile=True)
    x = np.random.default_rng(0).random([8, 4], np.float32)
    model.fit(x, x, batch_size=4, verbose=0)
    model.predict(x, verbose=0)
    globals()["model"] = model
    model.itself = [model]


def states_of_gradients() -> None:
    """Tapes that somebody may still ask."""
    tapes = []
    for way in (compiled, programs.plain, lambda run: run):
        for size in programs.SIZES:
            x = programs.values(size)
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = way(program(double, "py_function", size))(x)
            np.testing.assert_array_equal(tape.gradient(y[0], x), tf.fill(x.shape, 2.0))
            tapes.append((tape, y))
    globals()["tapes"] = tapes
    keep(*tapes)


def handlers_at_exit() -> None:
    """Handlers that call what has run already, and what has not."""
    functions = [
        (compiled(program(double, kind, size)), programs.values(size))
        for kind, size in itertools.product(programs.KINDS, programs.SIZES)
    ]

    def call() -> None:
        for function, x in functions:
            check(function(x), x)
        x = programs.values("small")
        np.testing.assert_array_equal(
            gradient(compiled(program(double, "py_function", "small")), x), tf.fill([4], 2.0)
        )
        sys.stdout.write("right\n")

    template.last_handlers.append(call)
    atexit.register(call)
    call()
    atexit.register(call)


def nothing() -> None:
    """Imports alone."""


ALIVE = {
    alive.__name__: alive
    for alive in (
        functions_in_globals_and_cycles,
        a_keras_model,
        states_of_gradients,
        handlers_at_exit,
        nothing,
    )
}


def alive_at_exit(alive: str) -> None:
    ALIVE[alive]()
