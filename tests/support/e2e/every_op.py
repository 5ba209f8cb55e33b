"""Cases of ops that XLA has no kernels for: what `test_every_*.py` and the table of ops are about.

The files `every_*.py` beside this one add cases, one or more for an op. A case is a function of a
vector of four floats, so that what the op works on is not known before it runs. Whether an op
really has no kernel, for the dtypes that it is used with, is asked of TensorFlow, not written down.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._tf.graph import op_kinds
from hostcall._tf.types import NodeDef

# Whole, positive, one number twice: many ops take indices, lengths or counts made of it.
X = tf.constant([1.0, 3.0, 2.0, 3.0])


@dataclasses.dataclass(frozen=True)
class Case:
    """A use of an op.

    Attributes:
      op: its name in TensorFlow's registry.
      program: a function of what `setup` returns, if there is one, and of a vector of four floats.
      gradient: whether it is differentiable with respect to the vector.
      tape_outside: whether graph mode can differentiate a function that has it from outside.
      nested: whether it is tried in a loop and in a branch.
      setup: makes what the op works on, out of a folder that is empty: a table, a queue, a writer.
      effects: what can be seen of it afterwards; called with what `setup` has returned.
    """

    op: str
    program: Callable[..., Any]
    gradient: bool = False
    tape_outside: bool = True
    nested: bool = True
    setup: Callable[[Path], Any] | None = None
    effects: Callable[[Any], Any] | None = None

    def prepared(self, folder: Path) -> tuple[Callable[[tf.Tensor], Any], Callable[[], Any]]:
        """The function of the vector alone, and what reads the effects of its calls."""
        if self.setup is None:
            return self.program, lambda: None
        setup, effects = self.setup, self.effects
        folder.mkdir(parents=True)
        with tf.init_scope():
            state = setup(folder)
        return lambda x: self.program(state, x), lambda: effects(state) if effects else None


CASES: dict[str, Case] = {}


def case(op: str, program: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Adds a case of an op; a decorator, where the function is not given."""
    if program is None:
        return lambda function: case(op, function, **options)
    name, number = op, 1
    while name in CASES:
        number += 1
        name = f"{op}_{number}"
    CASES[name] = Case(op, program, **options)
    return program


def cases(**programs: Callable[..., Any]) -> None:
    """Adds a case of each op, by its name."""
    for op, program in programs.items():
        case(op, program)


def gradient_cases(**programs: Callable[..., Any]) -> None:
    """The same of ops that are differentiable with respect to the vector."""
    for op, program in programs.items():
        case(op, program, gradient=True)


def raw_case(op: str, *, gradient: bool = False, **arguments: Any) -> None:
    """Adds a case of a raw op, whose arguments may be functions of the vector."""

    def program(x: tf.Tensor) -> Any:
        given = {name: arg(x) if callable(arg) else arg for name, arg in arguments.items()}
        return getattr(tf.raw_ops, op)(**given)

    case(op, program, gradient=gradient)


def ints(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.int32)


def longs(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.int64)


def nodes(concrete: Any) -> Iterator[NodeDef]:
    """The nodes of a traced function and of all the functions that it reaches."""
    graph_def = concrete.graph.as_graph_def()
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def without_kernel(concrete: Any) -> set[str]:
    """The ops of a traced function that XLA has no kernel for, its arguments left out."""
    functions = {f.signature.name for f in concrete.graph.as_graph_def().library.function}
    return {
        node.op
        for node in nodes(concrete)
        if node.op not in {*functions, "Placeholder"} and not op_kinds.has_xla_kernel(node)
    }


def tensors(results: Any) -> list[Any]:
    """The tensors that a program returns; some return an op, or nothing."""
    flat = tf.nest.flatten(results, expand_composites=True)
    return [value for value in flat if isinstance(value, tf.Tensor)]


def digest(results: Any) -> tf.Tensor:
    """One float for a structure of tensors of any dtype and shape."""
    total = tf.zeros([])
    for weight, tensor in enumerate(tensors(results), 1):
        total += tf.cast(weight, tf.float32) * _digest(tensor)
    return total


def _digest(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype == tf.string:
        tensor = tf.strings.to_hash_bucket_fast(tensor, 1000)
    if tensor.dtype.is_complex:
        tensor = tf.math.real(tensor)
    if tensor.dtype.is_quantized:
        tensor = tf.bitcast(tensor, {1: tf.uint8, 4: tf.int32}[tensor.dtype.size])
    return tf.reduce_sum(tf.cast(tensor, tf.float32))


def straight(program: Callable[..., Any]) -> Callable[..., Any]:
    return program


def in_a_loop(program: Callable[..., Any]) -> Callable[..., Any]:
    """The program in each of two iterations."""

    def looping(x: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, y: tf.Tensor, total: tf.Tensor) -> Any:
            return i + 1, y[::-1], total + digest(program(y))

        # Graph mode would run an iteration before the one before has ended.
        one_by_one = {"parallel_iterations": 1}
        return tf.while_loop(lambda i, *_: i < 2, body, [0, x, 0.0], **one_by_one)[2]

    return looping


def in_a_branch(program: Callable[..., Any]) -> Callable[..., Any]:
    """The program where the vector begins with a number that is large enough."""
    return lambda x: tf.cond(x[0] > 2.0, lambda: digest(program(x)), lambda: -1.0)


def in_a_branch_of_a_loop(program: Callable[..., Any]) -> Callable[..., Any]:
    """The program in one of two iterations."""
    return in_a_loop(in_a_branch(program))


def differentiated(program: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the program, with the tape inside."""

    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = differentiable(program(x))
        return tf.convert_to_tensor(tape.gradient(y, x))

    return gradient


def differentiable(results: Any) -> tf.Tensor:
    """Return the sum of all floating-point and complex results, which is differentiated."""
    return tf.add_n([
        tf.reduce_sum(tf.cast(tf.math.real(t), tf.float32))
        for t in tensors(results)
        if t.dtype.is_floating or t.dtype.is_complex
    ])  # fmt: skip


def returning_tensors(program: Callable[..., Any]) -> Callable[..., Any]:
    """The program, without what a function cannot return."""
    return lambda x: tensors(program(x))


def assert_close(actual: list[tf.Tensor], expected: list[tf.Tensor]) -> None:
    """Both hold the same tensors, but for the rounding of floats."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        left, right = one.numpy(), other.numpy()
        if one.dtype.is_floating or one.dtype.is_complex:
            # XLA rounds what is around an op in another way.
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(left, right)
