"""The cost to run and to make partitioned functions, beside graph mode and partitioning by hand."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf

from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Step, compiled, identity, quiet
from benchmarks.timing import FULL, Effort, Samples, measure, measure_once_a_round
from hostcall._compiler import kernel_hook

TITLE = "Functions that are partitioned"

# The number of script ops, each behind a cluster, in the programs that are timed.
FEW, MANY = 1, 10

NODES = ((1_000, 10), (10_000, 100), (100_000, 1_000))

AUTOMATIC, BY_HAND, PLAIN = "partition", "partitioned by hand", "graph mode"


def host(x: tf.Tensor) -> tf.Tensor:
    """Call a script op whose result may have any shape."""
    return tf.ensure_shape(tf.numpy_function(identity, [x], tf.float32), [None] * x.shape.rank)


def nothing_much(x: tf.Tensor) -> tf.Tensor:
    return x * 2.0 + 1.0


def elementwise(x: tf.Tensor) -> tf.Tensor:
    for _ in range(10):
        x = tf.tanh(x * 0.5 + 0.1) - 0.25 * x
    return x


def cheap_elementwise(x: tf.Tensor) -> tf.Tensor:
    for _ in range(10):
        x = tf.maximum(x * 0.5 + 0.1, -x)
    return x


def matmuls(x: tf.Tensor) -> tf.Tensor:
    for _ in range(3):
        x = tf.nn.relu(tf.matmul(x, x) * 0.01 - 0.1)
    return x


def softmaxes(x: tf.Tensor) -> tf.Tensor:
    for _ in range(3):
        x = x - tf.reduce_max(x, axis=1, keepdims=True)
        x = tf.exp(x) / tf.reduce_sum(tf.exp(x), axis=1, keepdims=True)
    return x


CASES: dict[str, tuple[Step, list[int], int]] = {
    "x * 2 + 1 on 4 floats": (nothing_much, [4], FEW),
    "the same, 10 script ops": (nothing_much, [4], MANY),
    "10 times multiply, add, maximum, on 1k": (cheap_elementwise, [1 << 10], FEW),
    "10 times multiply, add, maximum, on 1M": (cheap_elementwise, [1 << 20], FEW),
    "10 times tanh(a x + b) - c x, on 1M": (elementwise, [1 << 20], FEW),
    "that with 10 script ops": (elementwise, [1 << 20], MANY),
    "3 times softmax, on 1024 x 1024": (softmaxes, [1024, 1024], FEW),
    "3 times matmul, relu, on 64 x 64": (matmuls, [64, 64], FEW),
    "3 times matmul, relu, on 512 x 512": (matmuls, [512, 512], FEW),
}


def whole(part: Step, script_ops: int) -> Step:
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in range(script_ops):
            x = host(part(x))
        return part(x)

    return program


def by_hand(part: Step, script_ops: int) -> Step:
    compiled = [tf.function(part, jit_compile=True) for _ in range(script_ops + 1)]

    def program(x: tf.Tensor) -> tf.Tensor:
        for cluster in compiled[:-1]:
            x = host(cluster(x))
        return compiled[-1](x)

    return tf.function(program)


def rows_of_calls(effort: Effort) -> list[Row]:
    rows = []
    cases = list(CASES.items())[: effort.of(len(CASES))]
    for name, (part, shape, script_ops) in cases:
        x = tf.constant(np.random.default_rng(0).standard_normal(shape), tf.float32)
        automatic, by_hand_, plain = (f"{name}, {way}" for way in (AUTOMATIC, BY_HAND, PLAIN))
        calls = {
            automatic: compiled(whole(part, script_ops), x),
            by_hand_: partial(by_hand(part, script_ops), x),
            plain: partial(tf.function(whole(part, script_ops)), x),
        }
        samples = measure(calls, effort)
        rows += [
            alone(by_hand_, samples[by_hand_]),
            beside(samples, automatic, by_hand_, at_most(1.05) if script_ops == MANY else None),
            beside(samples, plain, automatic),
        ]
    return rows


def rows_of_compiling(effort: Effort) -> list[Row]:
    """Measure the seconds of tracing, partitioning and compiling with 10 script ops."""
    name = "10 script ops, tanh(a x + b) - c x between them"
    part, script_ops = elementwise, effort.of(MANY)
    x = tf.ones([16])

    def seconds_of(make: Callable[[], Callable[[], object]]) -> float:
        start = time.perf_counter()
        make()()
        return time.perf_counter() - start

    automatic, by_hand_ = (f"tracing and compiling {name}, {way}" for way in (AUTOMATIC, BY_HAND))
    samples = measure_once_a_round(
        {
            automatic: lambda: seconds_of(lambda: compiled(whole(part, script_ops), x)),
            by_hand_: lambda: seconds_of(lambda: partial(by_hand(part, script_ops), x)),
        },
        effort.times(0.25),
    )
    return [alone(by_hand_, samples[by_hand_]), beside(samples, automatic, by_hand_, at_most(1.1))]


def long_function(nodes: int, script_ops: int) -> tuple[bytes, str]:
    """Make a library with one function, a chain of nodes that would take minutes to trace."""
    traced = tf.function(host).get_concrete_function(tf.TensorSpec([None], tf.float32))
    library = tf.compat.v1.GraphDef().library
    function = library.function.add()
    function.CopyFrom(traced.function_def)
    [script_op] = [node for node in function.node_def if node.op == "PyFunc"]
    argument = function.signature.input_arg[0].name
    result = next(iter(function.ret))
    name = "long"
    function.signature.name = name
    del function.node_def[:]
    value, older = argument, argument
    for i in range(nodes):
        node = function.node_def.add(name=f"node_{i}")
        if i % (nodes // script_ops) == 1:
            node.CopyFrom(script_op)
            node.name = f"node_{i}"
            del node.input[:]
            node.input.append(value)
            value, older = f"{node.name}:output:0", value
            continue
        node.op = "AddV2"
        node.attr["T"].type = tf.float32.as_datatype_enum
        node.input.extend([value, older])
        value, older = f"{node.name}:z:0", value
    function.ret[result] = value
    del function.signature.control_output[:]
    function.control_ret.clear()
    function.attr["_XlaMustCompile"].b = True
    KEPT.append(traced)
    return library.SerializeToString(), name


KEPT: list[object] = []  # traced functions, which keep the Python functions of script ops alive


def seconds_of_partitioning(nodes: int, script_ops: int) -> float:
    library, name = long_function(nodes, script_ops)
    start = time.process_time()
    rewritten = kernel_hook.rewrite_for_kernel(library, name)
    seconds = time.process_time() - start
    assert rewritten.partitioned
    return seconds


def rows_of_partitioning(effort: Effort) -> list[Row]:
    """Measure the CPU seconds per node when TensorFlow asks for the kernel of a long function."""
    sizes = {f"partitioning, a node of {nodes:,}": (nodes, ops) for nodes, ops in NODES}
    values: dict[str, list[float]] = {name: [] for name in sizes}
    for _ in range(effort.times(0.25).rounds):
        for name, (nodes, script_ops) in sizes.items():
            nodes = max(100, effort.of(nodes))
            values[name].append(
                seconds_of_partitioning(nodes, max(2, effort.of(script_ops))) / nodes
            )
    samples = {name: Samples(seconds) for name, seconds in values.items()}
    few, *more = samples
    return [alone(few, samples[few]), *(beside(samples, name, few) for name in more)]


def main(effort: Effort = FULL) -> list[Row]:
    with quiet("hostcall"):  # it logs partitioning
        return rows_of_calls(effort) + rows_of_compiling(effort) + rows_of_partitioning(effort)
