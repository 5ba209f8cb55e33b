"""What splitting costs: beside splitting by hand, beside plain graph mode, and to do it at all.

All variants of a row are timed in turn, in one run. Times are medians over the rounds; compare the
ratios, not the figures.
"""

import logging
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf
from timing import measure

from hostcall import _rewriting

ROUNDS = 31

# How often clusters and script ops alternate in the programs that are timed.
FEW, MANY = 1, 10

NODES = ((1_000, 10), (10_000, 100), (100_000, 1_000))
REWRITINGS = 5

Part = Callable[[tf.Tensor], tf.Tensor]


def host(x: tf.Tensor) -> tf.Tensor:
    """A script op whose result may have any shape."""
    return tf.ensure_shape(tf.numpy_function(lambda v: v, [x], tf.float32), [None] * x.shape.rank)


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


CASES: dict[str, tuple[Part, list[int], int]] = {
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


def whole(part: Part, script_ops: int) -> Callable[[tf.Tensor], tf.Tensor]:
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in range(script_ops):
            x = host(part(x))
        return part(x)

    return program


def by_hand(part: Part, script_ops: int) -> Callable[[tf.Tensor], tf.Tensor]:
    compiled = [tf.function(part, jit_compile=True) for _ in range(script_ops + 1)]

    def program(x: tf.Tensor) -> tf.Tensor:
        for cluster in compiled[:-1]:
            x = host(cluster(x))
        return compiled[-1](x)

    return tf.function(program)


def variants(part: Part, script_ops: int) -> dict[str, Callable[[tf.Tensor], tf.Tensor]]:
    return {
        "automatic": tf.function(whole(part, script_ops), jit_compile=True),
        "by hand": by_hand(part, script_ops),
        "plain": tf.function(whole(part, script_ops)),
    }


def report_calls() -> None:
    print(
        "A call of a function that is split: microseconds, and the automatic one beside the others"
    )
    columns = ("automatic", "by hand", "plain")
    print(f"{'':>40}" + "".join(f"{name:>12}" for name in columns), end="")
    print(f"{'spread':>9}{'to by hand':>12}{'faster than plain':>19}")
    for name, (part, shape, script_ops) in CASES.items():
        x = tf.constant(np.random.default_rng(0).standard_normal(shape), tf.float32)
        programs = variants(part, script_ops)
        samples = measure({key: partial(run, x) for key, run in programs.items()}, ROUNDS)
        line = f"{name:>40}" + "".join(f"{samples[key].median * 1e6:12.1f}" for key in columns)
        to_hand, to_plain = (
            statistics.median(
                one / other
                for one, other in zip(
                    samples["automatic"].seconds, samples[key].seconds, strict=True
                )
            )
            for key in ("by hand", "plain")
        )
        line += f"{samples['automatic'].spread:9.0%}{to_hand:11.2f}x{1 / to_plain:18.2f}x"
        print(line, flush=True)


def long_function(nodes: int, script_ops: int) -> tuple[bytes, str]:
    """A library with one function, which is a chain of nodes; they would take minutes to trace."""
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


KEPT: list[object] = []  # with it the Python functions of its script ops


def report_rewriting() -> None:
    print("\nSplitting itself: seconds of CPU, when TensorFlow wants the kernel of the function")
    print(f"{'nodes':>10}{'script ops':>12}{'seconds':>10}{'spread':>9}{'us a node':>12}")
    for nodes, script_ops in NODES:
        library, name = long_function(nodes, script_ops)
        seconds = []
        for _ in range(REWRITINGS):
            start = time.process_time()
            _, _, split = _rewriting.rewrite_for_kernel(library, name)
            seconds.append(time.process_time() - start)
            assert split
        median = statistics.median(seconds)
        spread = (max(seconds) - min(seconds)) / median
        print(
            f"{nodes:10}{script_ops:12}{median:10.3f}{spread:9.0%}{median / nodes * 1e6:12.1f}",
            flush=True,
        )


def main() -> None:
    logging.getLogger("hostcall").setLevel(logging.ERROR)  # it tells what is split
    report_calls()
    report_rewriting()


if __name__ == "__main__":
    main()
