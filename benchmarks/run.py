"""What a callback costs, beside the same program without jit_compile, in one run.

All variants of a row are timed in turn, round after round, so that a machine that gets slower does
so for all of them. Times are medians over the rounds; compare the ratios, not the figures.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf
from timing import measure

import hostcall  # noqa: F401 - makes script ops work in compiled functions

SIZES = {"4": 4, "1k": 1 << 10, "64k": 1 << 16, "1M": 1 << 20}
LOOP_SIZES = ("4", "1k", "64k")
LOOP = 1000

Step = Callable[[tf.Tensor], tf.Tensor]
Program = Callable[[tf.Tensor], tf.Tensor]


def no_callback(x: tf.Tensor) -> tf.Tensor:
    return x + 1.0


def script_op(op: Callable[..., tf.Tensor]) -> Step:
    def add_one(x: np.ndarray | tf.Tensor) -> np.ndarray | tf.Tensor:
        return x + np.float32(1)

    def step(x: tf.Tensor) -> tf.Tensor:
        y = op(add_one, [x], tf.float32)
        y.set_shape(x.shape)
        return y

    return step


def one_call(step: Step) -> Program:
    return lambda x: step(x) * 2.0


def loop_of_calls(step: Step) -> Program:
    return lambda x: tf.while_loop(
        lambda i, _: i < LOOP, lambda i, y: (i + 1, step(y)), (tf.constant(0), x)
    )[1]


STEPS = {
    "no callback": no_callback,
    "numpy_function": script_op(tf.numpy_function),
    "py_function": script_op(tf.py_function),
}


def variants(make: Callable[[Step], Program]) -> dict[tuple[str, bool], Program]:
    return {
        (name, jit): tf.function(make(step), jit_compile=jit)
        for name, step in STEPS.items()
        for jit in (False, True)
    }


def report(title: str, make: Callable[[Step], Program], sizes: list[str], calls: int) -> None:
    print(f"\n{title}: microseconds a call, and how many times as fast the compiled one is")
    print(f"{'':>10}" + "".join(f"{name:>29}" for name in STEPS))
    print(f"{'elements':>10}" + f"{'graph':>11}{'compiled':>10}{'ratio':>8}" * len(STEPS))
    for size in sizes:
        x = tf.zeros([SIZES[size]])
        samples = measure({key: partial(run, x) for key, run in variants(make).items()})
        line = f"{size:>10}"
        for name in STEPS:
            plain, compiled = (samples[name, jit].median / calls * 1e6 for jit in (False, True))
            line += f"{plain:11.1f}{compiled:10.1f}{plain / compiled:7.1f}x"
        print(line, flush=True)


def main() -> None:
    report("One call", one_call, list(SIZES), 1)
    report(f"A loop of {LOOP} calls", loop_of_calls, list(LOOP_SIZES), LOOP)


if __name__ == "__main__":
    main()
