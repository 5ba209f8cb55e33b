"""Loops, branches and functions of random programs, and how programs are run."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tests.differential import (  # noqa: F401 - they fill the catalogue
    host_ops,
    layouts,
    ops,
    raising_ops,
    script_ops,
    sources,
)
from tests.differential.catalogue import OPS, like
from tests.differential.program import Block, Context, Statement

MOST_ITERATIONS = 3

Form = Callable[..., list[Any]]


def run_block(context: Context, block: Block, values: Sequence[Any]) -> list[Any]:
    values = list(values)
    for statement in block.statements:
        values.extend(run_statement(context, statement, values))
    return [values[i] for i in block.results]


def run_statement(context: Context, statement: Statement, values: Sequence[Any]) -> list[Any]:
    args = [values[i] for i in statement.args]
    if statement.op in FORMS:
        if statement.op in DYNAMIC_FORMS:
            context.flags.add("dynamic")
        bodies = [
            lambda *more, block=block: run_block(context, block, [*values, *more])
            for block in statement.blocks
        ]
        return FORMS[statement.op](context, statement.param, args, bodies)
    op = OPS[statement.op]
    if op.makes_sizes(statement.param):
        context.flags.add("dynamic")
    if op.on_host:
        context.flags.add("no_kernel")
    built = op.build(context, statement.param, *args)
    if not op.gives(statement.param):
        return []
    return list(built) if isinstance(built, list | tuple) else [built]


def branch(context: Context, _: Any, args: Any, bodies: Any) -> list[Any]:
    return [tf.cond(tf.ensure_shape(tf.identity(args[0]), []), lambda: bodies[0]()[0],
                    lambda: bodies[1]()[0])]  # fmt: skip


def switch(context: Context, _: Any, args: Any, bodies: Any) -> list[Any]:
    index = tf.ensure_shape(tf.identity(args[0]), [])
    return [tf.switch_case(index, [lambda body=body: body()[0] for body in bodies])]


def while_loop(context: Context, param: Any, args: Any, bodies: Any) -> list[Any]:
    """A loop; a second block is run by its condition, for what it does alone."""
    bounded, known = param
    start, count = args
    count = 2 if known else tf.clip_by_value(count, 0, MOST_ITERATIONS)

    def condition(i: Any, y: Any) -> Any:
        for block in bodies[1:]:
            block(y, i)
        return i < count

    def body(i: Any, y: Any) -> Any:
        return i + 1, like(bodies[0](y, i)[0], start)

    limit = MOST_ITERATIONS if bounded else None
    loop = tf.while_loop(condition, body, (tf.constant(0), start), maximum_iterations=limit)
    return [loop[1]]


def for_loop(context: Context, _: Any, args: Any, bodies: Any) -> list[Any]:
    start, count = args
    body = lambda y, i: like(bodies[0](y, i)[0], start)  # noqa: E731
    loop = tf.autograph.to_graph(plain_loop, recursive=False)
    return [loop(body, tf.clip_by_value(count, 0, MOST_ITERATIONS), start)]


def plain_loop(body: Any, count: Any, y: Any) -> Any:
    for i in tf.range(count):
        y = body(y, i)
    return y


def array(context: Context, _: Any, args: Any, bodies: Any) -> list[Any]:
    def body(i: Any, values: Any) -> Any:
        value = tf.ensure_shape(tf.identity(bodies[0](i)[0]), [])
        return i + 1, values.write(i, value)

    values = tf.TensorArray(tf.float64, size=3, element_shape=[])
    values = tf.while_loop(
        lambda i, _: i < 3, body, (tf.constant(0), values), maximum_iterations=3
    )[1]
    return [values.stack()]


def growing_loop(context: Context, _: Any, args: Any, bodies: Any) -> list[Any]:
    invariants = (tf.TensorShape([]), tf.TensorShape([None]))
    start = tf.ensure_shape(tf.identity(args[0]), [None])

    def body(i: Any, y: Any) -> Any:
        return i + 1, tf.ensure_shape(tf.identity(bodies[0](y, i)[0]), [None])

    return [
        tf.while_loop(
            lambda i, _: i < 2, body, (tf.constant(0), start), shape_invariants=invariants
        )[1]
    ]


def function(context: Context, param: Any, args: Any, bodies: Any) -> list[Any]:
    jitted, times = param
    called = tf.function(
        lambda *values: bodies[0](*values), jit_compile=context.jit and jitted, autograph=False
    )
    context.keep.append(called)
    for _ in range(times):
        results = called(*args)
    return list(results)


FORMS: dict[str, Form] = {
    "branch": branch,
    "switch": switch,
    "unequal_branch": branch,
    "unequal_switch": switch,
    "while_loop": while_loop,
    "for_loop": for_loop,
    "array": array,
    "growing_loop": growing_loop,
    "function": function,
}
# The results of their blocks have different sizes.
DYNAMIC_FORMS = {"unequal_branch", "unequal_switch", "growing_loop"}
