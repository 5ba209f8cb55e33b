"""Bodies of `@main` in StableHLO, of what JAX does not write."""

from typing import Any

from tests.support.exported.programs import call

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
BOUNDED = f"""
  %p:2 = {_POSITIVE}
  %d = stablehlo.set_dimension_size %p#0, %p#1, dim = 0
    : (tensor<5xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<5>>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %w:2 = stablehlo.while(%i = %zero, %v = %d) : tensor<i32>, tensor<?xf32, #stablehlo.bounds<5>>
  cond {{
    %two = stablehlo.constant dense<2> : tensor<i32>
    %b = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %b : tensor<i1>
  }} do {{
    %s = stablehlo.get_dimension_size %v, dim = 0
      : (tensor<?xf32, #stablehlo.bounds<5>>) -> tensor<i32>
    %five = stablehlo.constant dense<5> : tensor<i32>
    %q = stablehlo.set_dimension_size %v, %five, dim = 0
      : (tensor<?xf32, #stablehlo.bounds<5>>, tensor<i32>) -> tensor<5xf32>
    %t = {_TOTAL}
    %n = stablehlo.negate %v : tensor<?xf32, #stablehlo.bounds<5>>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %n : tensor<i32>, tensor<?xf32, #stablehlo.bounds<5>>
  }}
  %s = stablehlo.get_dimension_size %w#1, dim = 0
    : (tensor<?xf32, #stablehlo.bounds<5>>) -> tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %r = stablehlo.set_dimension_size %w#1, %five, dim = 0
    : (tensor<?xf32, #stablehlo.bounds<5>>, tensor<i32>) -> tensor<5xf32>
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
