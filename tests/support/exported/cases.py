"""Programs for both ways to run them, and what they have to do."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental import io_callback

from hostcall_mlir.program.files import Program
from tests.support.exported import functions, hand_written
from tests.support.exported.programs import F3, call, from_jax, make


def like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


class Case(NamedTuple):
    """A program, what it is called with, what it returns and what the functions log."""

    make: Callable[[], Program]
    args: Sequence[Any]
    expected: Any
    log: Sequence[Any] = ()


def of_jax(
    function: Callable[..., Any], called: Sequence[str], *args: Any
) -> Callable[[], Program]:
    return lambda: from_jax(function, *args, called=called)


def of_text(body: str, signature: str, **more: Any) -> Callable[[], Program]:
    return lambda: make(f"func.func public @main{signature} {{\n{body}\n}}", **more)


def pure(x: Any) -> Any:
    return jnp.sin(jax.pure_callback(functions.triple, like(x), jnp.cos(x)))


def ordered_loop(x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return io_callback(functions.next_number, like(x), y + i, ordered=True)

    return jax.lax.fori_loop(0, 3, body, x)


def nested_loops(x: Any) -> Any:
    def body(carried: Any) -> Any:
        i, z, y = carried
        after = jax.lax.fori_loop(
            0, i, lambda _, v: io_callback(functions.next_number, like(x), v, ordered=True), y
        )
        return i + 1, after, z  # `after` comes into the place of `z`, and must not hide it

    _, z, y = jax.lax.while_loop(lambda c: c[0] < 3, body, (0, -x, x))
    return y, z


def called_condition(x: Any) -> Any:
    def goes_on(y: Any) -> Any:
        return jax.pure_callback(functions.triple, like(x), y)[0] < 20

    return jax.lax.while_loop(goes_on, lambda y: y + 1, x)


def branches(x: Any, i: Any) -> Any:
    def log(y: Any) -> Any:
        io_callback(functions.log, None, y, ordered=True)
        return y

    def numbered(y: Any) -> Any:
        return io_callback(functions.next_number, like(y), y, ordered=True)

    y = jax.lax.switch(i, [log, jnp.negative, numbered], x)
    return jax.lax.cond(y[0] > 0, numbered, lambda v: v * 2, y)


def tokens_alone(x: Any, i: Any) -> Any:
    def told(number: float) -> Any:
        return lambda: io_callback(functions.log, None, np.float32(number), ordered=True)

    def step(_: Any, y: Any) -> Any:
        jax.lax.switch(i, [told(1), told(2)])
        jax.jit(told(3))()
        return y + 1

    return jax.lax.fori_loop(0, 2, step, x)


GRID = np.arange(12, dtype=np.float32).reshape(3, 4)
BRANCHES = of_jax(branches, ["log", "next_number", "next_number"], F3, 0)
bounded = of_text(
    hand_written.BOUNDED, "(%x: tensor<5xf32>) -> (tensor<5xf32>, tensor<i32>)", sizes=[(0, 0)]
)
corner = of_text(
    hand_written.CORNER,
    "(%x: tensor<3x4xf32>, %b: tensor<i1>) -> (tensor<3x4xf32>, tensor<i32>, tensor<i32>)",
    sizes=[(0, 0), (0, 1)],
)

CASES = {
    "pure": Case(of_jax(pure, ["triple"], F3), [F3], np.sin(np.cos(F3) * np.float32(3))),
    "ordered_loop": Case(
        of_jax(ordered_loop, ["next_number"], F3),
        [F3],
        F3 + 9,
        [[1.0, -2.0, 3.0], [3.0, 0.0, 5.0], [7.0, 4.0, 9.0]],
    ),
    "nested_loops": Case(
        of_jax(nested_loops, ["next_number"], F3),
        [F3],
        (-F3 + 1, F3 + 5),
        [[-1.0, 2.0, -3.0], [1.0, -2.0, 3.0], [3.0, 0.0, 5.0]],
    ),
    "called_condition": Case(of_jax(called_condition, ["triple"], F3), [F3], F3 + 6),
    "first_branch": Case(BRANCHES, [F3, np.int32(0)], F3 + 2, [[1.0, -2.0, 3.0]] * 2),
    "functions_of_tokens_alone": Case(
        of_jax(tokens_alone, ["log", "log", "log"], F3, 0),
        [F3, np.int32(1)],
        F3 + 2,
        [2.0, 3.0, 2.0, 3.0],
    ),
    "second_branch": Case(BRANCHES, [F3, np.int32(1)], F3 * -2),
    "branch_beyond_the_last": Case(
        BRANCHES, [-F3, np.int32(9)], (-F3 + 1) * 2, [[-1.0, 2.0, -3.0]]
    ),
    "bounded": Case(
        bounded,
        [np.array([1, -2, 3, -4, 5], np.float32)],
        np.array([1, 3, 5], np.float32),
        [(3,), (3,)],
    ),
    "bounded_empty": Case(
        bounded, [np.zeros(5, np.float32)], np.zeros(0, np.float32), [(0,), (0,)]
    ),
    "bounded_twice": Case(
        corner, [GRID, np.True_], -GRID[:2, :3], [[[0.0, 1.0, 2.0], [4.0, 5.0, 6.0]]]
    ),
    "bounded_in_no_branch": Case(corner, [GRID, np.False_], GRID[:2, :3]),
    "sub_byte": Case(
        of_text(hand_written.SUB_BYTE, "(%x: tensor<4xi4>) -> tensor<4xi4>"),
        [np.array([0, 1, -1, 2], np.int8).astype(ml_dtypes.int4)],
        np.array([0, 4, -4, -8], np.int8).astype(ml_dtypes.int4),
    ),
    "tuples": Case(
        of_text(hand_written.TUPLES, "(%x: tensor<3xf32>) -> tensor<3xf32>"),
        [F3],
        F3 * 2 - 1,
        [[-1.0, 2.0, -3.0]],
    ),
    "token_loop": Case(
        of_text(hand_written.TOKEN_LOOP, "(%x: tensor<3xf32>) -> tensor<3xf32>"),
        [F3],
        (F3 + 1) * 32 + 2,
        [[1.0, -2.0, 3.0], [64.0, -32.0, 128.0]],
    ),
    "no_host_call": Case(
        of_text("return %x : tensor<3xf32>", "(%x: tensor<3xf32>) -> tensor<3xf32>"), [F3], F3
    ),
    "nothing_at_all": Case(of_text("return", "()"), [], ()),
    "no_results": Case(
        of_text(
            f"{call('log', '(tensor<3xf32>) -> ()', '%x', effect=True)}\nreturn",
            "(%x: tensor<3xf32>)",
        ),
        [F3],
        (),
        [[1.0, -2.0, 3.0]],
    ),
}
