"""The cost of one of 10,000 calls in a compiled loop, on 4 floats.

In a loop of 1,000, a quarter of a call's apparent cost is TensorFlow's call of the program.
"""

import tempfile
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from benchmarks import jax_programs, native_programs
from benchmarks.report import Row, alone, at_least, at_most, beside
from benchmarks.steps import (
    Function,
    Step,
    add_one,
    add_one_to_tensor,
    bare,
    compiled,
    eager_step,
    identity,
    in_graph,
    loop_of,
    numpy_step,
)
from benchmarks.timing import FULL, Effort, Run, Samples, measure

TITLE = "One of 10,000 calls in a compiled loop, on 4 floats"
CALLS = 10_000
JAX_CALLS = {
    "jax.pure_callback": jax_programs.by_pure_callback,
    "hostcall.jax.call": jax_programs.by_hostcall,
}


def rows_for(
    name: str, function: Function, on_tensors: Step, folder: str, effort: Effort
) -> list[Row]:
    count = effort.of(CALLS)
    array = np.zeros(4, np.float32)
    x = tf.constant(array)

    def bare_loop() -> None:
        v = array
        for _ in range(count):
            v = bare(function, v)

    def bare_loop_on_tensors() -> None:
        v = x
        for _ in range(count):
            v = on_tensors(v)

    steps = {"numpy_function": numpy_step(function), "py_function": eager_step(on_tensors)}
    programs: dict[str, Run] = {
        f"bare call and copy, {name}": bare_loop,
        f"bare call on a tensor, {name}": bare_loop_on_tensors,
    }
    for op, step in steps.items():
        programs[f"compiled {op}, {name}"] = compiled(loop_of(step, count), x)
    # It adds 1 beside the identity, too: on 4 floats the addition costs next to nothing.
    programs[f"compiled native, {name}"] = compiled(
        loop_of(native_programs.native_step(), count), x
    )
    programs[f"least call of Python, {name}"] = compiled(
        loop_of(native_programs.least_step(function, folder), count), x
    )
    for op, step in steps.items():
        programs[f"graph mode {op}, {name}"] = in_graph(loop_of(step, count), x)
    for jax_name, call in JAX_CALLS.items():
        programs[f"{jax_name}, {name}"] = jax_programs.loop_of_calls(call, function, array, count)
    samples = measure(programs, effort)
    return compare({key: value.per(count) for key, value in samples.items()}, function)


def compare(samples: Mapping[str, Samples], function: Function) -> list[Row]:
    limit, on_tensor, array_op, tensor_op, native, least, graph, graph_tensor, jax, jax_call = (
        samples
    )
    # The identity of a tensor costs nothing; an addition to a tensor costs an eager op.
    tensor_limit = limit if function is identity else on_tensor
    return [
        alone(limit, samples[limit]),
        alone(on_tensor, samples[on_tensor]),
        beside(samples, array_op, limit, at_most(3)),
        beside(samples, tensor_op, tensor_limit, at_most(6)),
        beside(samples, native, array_op),
        beside(samples, least, limit),
        beside(samples, array_op, least),
        beside(samples, jax, array_op, at_least(40)),
        beside(samples, jax, least),
        beside(samples, jax, limit),
        beside(samples, jax_call, limit),
        beside(samples, jax, jax_call, at_least(10)),
        beside(samples, graph, array_op, at_least(40)),
        beside(samples, graph_tensor, tensor_op),
    ]


def main(effort: Effort = FULL) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="hostcall_benchmarks_") as folder:
        rows = rows_for("identity", identity, identity, folder, effort)
        rows += rows_for("add 1", add_one, add_one_to_tensor, folder, effort)
    return rows
