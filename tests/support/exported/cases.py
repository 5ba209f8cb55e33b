"""Programs for both ways to run them, and what they have to do."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental import io_callback

from hostcall_mlir.program.files import Program
from tests.support.exported import functions
from tests.support.exported.programs import F3, call, from_jax, make

ONE = "(%x: tensor<3xf32>) -> tensor<3xf32>"
# Bodies of `@main` in StableHLO, of what JAX does not write.
_NEXT = "(tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)"
_PAIR = "tuple<tensor<3xf32>, tensor<3xf32>, !stablehlo.token>"
_POSITIVE = call(
    "positive", "(tensor<5xf32>) -> (tensor<5xf32>, tensor<i32>)", "%x", dynamic_results="0, 0"
)
_TOTAL = call(
    "total", "(tensor<5xf32>, tensor<i32>) -> tensor<f32>", "%q, %s", True, dynamic_operands="0, 0"
)
_THREE = "tensor<3x4xf32>, tensor<i32>, tensor<i32>"
_CORNER = call("corner", f"(tensor<3x4xf32>) -> ({_THREE})", "%x", dynamic_results="0, 1, 0, 0")
_LOG = call("log", f"({_THREE}) -> ()", "%p#0, %p#2, %p#1", True, dynamic_operands="0, 0, 0, 1")
_BITS: Any = {"sub_byte_operands": "0, 21", "sub_byte_results": "0, 21"}
_TRIPLE = call("triple", "(tensor<4xi8>) -> tensor<4xi8>", "%0", **_BITS)


def _next(operands: str) -> str:
    return call("next_number", _NEXT, operands)


# A value of bounded size that goes from cluster to cluster, through a loop and a branch.
_UP_TO_5 = "tensor<?xf32, #stablehlo.bounds<5>>"
BOUNDED = f"""
  %p:2 = {_POSITIVE}
  %d = stablehlo.set_dimension_size %p#0, %p#1, dim = 0
    : (tensor<5xf32>, tensor<i32>) -> {_UP_TO_5}
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %w:2 = stablehlo.while(%i = %zero, %v = %d) : tensor<i32>, {_UP_TO_5}
  cond {{
    %two = stablehlo.constant dense<2> : tensor<i32>
    %b = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %b : tensor<i1>
  }} do {{
    %s = stablehlo.get_dimension_size %v, dim = 0 : ({_UP_TO_5}) -> tensor<i32>
    %five = stablehlo.constant dense<5> : tensor<i32>
    %q = stablehlo.set_dimension_size %v, %five, dim = 0
      : ({_UP_TO_5}, tensor<i32>) -> tensor<5xf32>
    %t = {_TOTAL}
    %n = stablehlo.negate %v : {_UP_TO_5}
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %n : tensor<i32>, {_UP_TO_5}
  }}
  %s = stablehlo.get_dimension_size %w#1, dim = 0 : ({_UP_TO_5}) -> tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %r = stablehlo.set_dimension_size %w#1, %five, dim = 0
    : ({_UP_TO_5}, tensor<i32>) -> tensor<5xf32>
  return %r, %s : tensor<5xf32>, tensor<i32>
"""

# The same for two dimensions, in a branch.
BOTH = "tensor<?x?xf32, #stablehlo.bounds<3, 4>>"
CORNER = f"""
  %p:3 = {_CORNER}
  %c = stablehlo.set_dimension_size %p#0, %p#1, dim = 1
    : (tensor<3x4xf32>, tensor<i32>) -> tensor<3x?xf32, #stablehlo.bounds<?, 4>>
  %d = stablehlo.set_dimension_size %c, %p#2, dim = 0
    : (tensor<3x?xf32, #stablehlo.bounds<?, 4>>, tensor<i32>) -> {BOTH}
  %r = "stablehlo.if"(%b) ({{
    {_LOG}
    %n = stablehlo.negate %d : {BOTH}
    stablehlo.return %n : {BOTH}
  }}, {{
    stablehlo.return %d : {BOTH}
  }}) : (tensor<i1>) -> {BOTH}
  %rows = stablehlo.get_dimension_size %r, dim = 0 : ({BOTH}) -> tensor<i32>
  %columns = stablehlo.get_dimension_size %r, dim = 1 : ({BOTH}) -> tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %e = stablehlo.set_dimension_size %r, %three, dim = 0
    : ({BOTH}, tensor<i32>) -> tensor<3x?xf32, #stablehlo.bounds<?, 4>>
  %f = stablehlo.set_dimension_size %e, %four, dim = 1
    : (tensor<3x?xf32, #stablehlo.bounds<?, 4>>, tensor<i32>) -> tensor<3x4xf32>
  return %f, %rows, %columns : tensor<3x4xf32>, tensor<i32>, tensor<i32>
"""

# Four bits go as eight, and the function sees four; so does the result.
SUB_BYTE = f"""
  %0 = stablehlo.convert %x : (tensor<4xi4>) -> tensor<4xi8>
  %1 = {_TRIPLE}
  %2 = stablehlo.convert %1 : (tensor<4xi8>) -> tensor<4xi4>
  %3 = stablehlo.add %2, %x : tensor<4xi4>
  return %3 : tensor<4xi4>
"""

# As TensorFlow writes it: one tuple of results, a token in it, tuples of tokens in a branch.
TUPLES = f"""
  %t = stablehlo.create_token : !stablehlo.token
  %0 = {call("both", f"(tensor<3xf32>, !stablehlo.token) -> {_PAIR}", "%x, %t")}
  %1 = stablehlo.get_tuple_element %0[0] : ({_PAIR}) -> tensor<3xf32>
  %2 = stablehlo.get_tuple_element %0[1] : ({_PAIR}) -> tensor<3xf32>
  %3 = stablehlo.get_tuple_element %0[2] : ({_PAIR}) -> !stablehlo.token
  %4 = stablehlo.after_all %3, %t : !stablehlo.token
  %5:2 = {_next("%2, %4")}
  %6 = stablehlo.subtract %1, %5#0 : tensor<3xf32>
  return %6 : tensor<3xf32>
"""

# A loop without host calls that carries a token is in a cluster.
TOKEN_LOOP = f"""
  %t = stablehlo.create_token : !stablehlo.token
  %0:2 = {_next("%x, %t")}
  %w:2 = stablehlo.while(%a = %0#0, %u = %0#1) : tensor<3xf32>, !stablehlo.token
  cond {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %m = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    %limit = stablehlo.constant dense<100.0> : tensor<f32>
    %b = stablehlo.compare LT, %m, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %b : tensor<i1>
  }} do {{
    %n = stablehlo.add %a, %a : tensor<3xf32>
    stablehlo.return %n, %u : tensor<3xf32>, !stablehlo.token
  }}
  %2:2 = {_next("%w#0, %w#1")}
  return %2#0 : tensor<3xf32>
"""


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


def of_text(body: str, signature: str = ONE, **more: Any) -> Callable[[], Program]:
    return lambda: make(f"func.func public @main{signature} {{\n{body}\n}}", **more)


def pure(x: Any) -> Any:
    return jnp.sin(jax.pure_callback(functions.triple, x, jnp.cos(x)))


def ordered_loop(x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return io_callback(functions.next_number, x, y + i, ordered=True)

    return jax.lax.fori_loop(0, 3, body, x)


def nested_loops(x: Any) -> Any:
    def body(carried: Any) -> Any:
        i, z, y = carried
        after = jax.lax.fori_loop(
            0, i, lambda _, v: io_callback(functions.next_number, x, v, ordered=True), y
        )
        return i + 1, after, z  # `after` comes into the place of `z`, and must not hide it

    _, z, y = jax.lax.while_loop(lambda c: c[0] < 3, body, (0, -x, x))
    return y, z


def called_condition(x: Any) -> Any:
    def goes_on(y: Any) -> Any:
        return jax.pure_callback(functions.triple, x, y)[0] < 20

    return jax.lax.while_loop(goes_on, lambda y: y + 1, x)


def branches(x: Any, i: Any) -> Any:
    def log(y: Any) -> Any:
        io_callback(functions.log, None, y, ordered=True)
        return y

    def numbered(y: Any) -> Any:
        return io_callback(functions.next_number, y, y, ordered=True)

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
bounded = of_text(BOUNDED, "(%x: tensor<5xf32>) -> (tensor<5xf32>, tensor<i32>)", sizes=[(0, 0)])
corner = of_text(
    CORNER,
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
        of_text(SUB_BYTE, "(%x: tensor<4xi4>) -> tensor<4xi4>"),
        [np.array([0, 1, -1, 2], np.int8).astype(ml_dtypes.int4)],
        np.array([0, 4, -4, -8], np.int8).astype(ml_dtypes.int4),
    ),
    "tuples": Case(of_text(TUPLES), [F3], F3 * 2 - 1, [[-1.0, 2.0, -3.0]]),
    "token_loop": Case(
        of_text(TOKEN_LOOP), [F3], (F3 + 1) * 32 + 2, [[1.0, -2.0, 3.0], [64.0, -32.0, 128.0]]
    ),
    "no_host_call": Case(of_text("return %x : tensor<3xf32>"), [F3], F3),
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
