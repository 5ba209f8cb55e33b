"""The cost of a call from a program on a GPU, for 4 floats and 4 MiB, and in a loop."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np
import tensorflow as tf

from benchmarks.jax_programs import Call, by_hostcall, by_pure_callback, loop_of_calls
from benchmarks.report import Row, alone, beside
from benchmarks.steps import Array, compiled, identity, loop_of, numpy_step
from benchmarks.timing import FULL, Effort, measure
from tests.gpu import found

TITLE = "Calls from a GPU"

TENSORFLOW, JAX, PEER = "TensorFlow", "hostcall.jax.call", "jax.pure_callback"
_ROUNDS_OF_LOOP = 1000


def main(effort: Effort = FULL) -> list[Row]:
    there = found.find()
    sys.stdout.write(f"{there}\n")
    kinds = [kind for kind in ("tensorflow", "jax") if getattr(there, kind)]
    if not kinds:
        sys.stdout.write("No GPU found: nothing was measured.\n")
        sys.exit(found.NO_GPU)
    return rows(effort, kinds, "GPU:0")


def rows(effort: Effort, kinds: Sequence[str], device: str) -> list[Row]:
    """Measure "tensorflow" on a device, "jax" on its first one, or both."""
    small, large = np.ones(4, np.float32), np.ones(effort.of(2**20), np.float32)
    count = effort.of(_ROUNDS_OF_LOOP)
    answer = []
    for what, calls, x in (
        ("one call, 4 floats", 0, small),
        ("one call, 4 MiB", 0, large),
        (f"a loop of {count} calls, 4 floats", count, small),
    ):
        answer += _compared(effort, kinds, device, what, calls, x)
    return answer


def _compared(
    effort: Effort, kinds: Sequence[str], device: str, what: str, count: int, x: Array
) -> list[Row]:
    programs: dict[str, Callable[[], object]] = {}
    around = {}
    if "jax" in kinds:
        programs[f"{PEER} {what}"] = _jax_program(by_pure_callback, count, x)
        programs[f"{JAX} {what}"] = _jax_program(by_hostcall, count, x)
    if "tensorflow" in kinds:
        name = f"{TENSORFLOW} {what}"
        around[name] = partial(tf.device, f"/device:{device}")
        step = numpy_step(identity)
        with around[name]():
            programs[name] = compiled(loop_of(step, count) if count else step, tf.constant(x))
    samples = measure(programs, effort, around)
    first, *others = samples
    return [alone(first, samples[first]), *(beside(samples, name, first) for name in others)]


def _jax_program(call: Call, count: int, x: Array) -> Callable[[], object]:
    if count:
        return loop_of_calls(call, identity, x, count)
    program, argument = jax.jit(partial(call, identity)), jax.device_put(x)
    return lambda: program(argument).block_until_ready()
