"""Random StableHLO programs with host calls, and what they compute when the calls do arithmetic."""

import re
from random import Random

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from hostcall_mlir.ir import jaxlib_names as private

_ATTRIBUTES = (
    "api_version = 4 : i32, {effect}backend_config = {{callback = {callback} : i64, "
    "dynamic_operands = array<i64>, dynamic_results = array<i64>, "
    "sub_byte_operands = array<i64>, sub_byte_results = array<i64>}}"
)
_CALL = re.compile(
    r"stablehlo\.custom_call @hostcall\((.*?)\) \{.*callback = (\d+) : i64.*?\} : "
    r"\((.*?)\) -> (\(.*\)|\S+)"
)
_TOKEN = "!stablehlo.token"


class Program:
    """A program of about `size` ops as `text`: @main of two f32 values and a token, to such."""

    def __init__(self, random: Random, size: int) -> None:
        self._random = random
        self._left = size
        self._names = 0
        self._functions: list[str] = []
        self._functions.insert(0, self._function("main", "public"))
        self.text = "\n".join(self._functions)

    def _function(self, name: str, visibility: str) -> str:
        values = ["%a", "%b"]
        lines, token = self._block(values, "%t")
        one, other = self._random.choices(values, k=2)
        return "\n".join(
            [
                f"func.func {visibility} @{name}(%a: tensor<f32>, %b: tensor<f32>, %t: {_TOKEN}) "
                f"-> (tensor<f32>, tensor<f32>, {_TOKEN}) {{",
                *lines,
                f"return {one}, {other}, {token} : tensor<f32>, tensor<f32>, {_TOKEN}",
                "}",
            ]
        )

    def _new(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def _block(self, values: list[str], token: str) -> tuple[list[str], str]:
        """Lines that add to `values`, and the token behind them."""
        lines: list[str] = []
        kinds = [self._constant, self._arithmetic, self._arithmetic, self._call, self._ordered]
        for _ in range(self._random.randint(1, 6)):
            self._left -= 1
            more = [self._case, self._while, self._function_call] if self._left > 0 else []
            lines_of_op, token = self._random.choice([*kinds, *more])(values, token)
            lines += lines_of_op
        return lines, token

    def _constant(self, values: list[str], token: str) -> tuple[list[str], str]:
        values.append(self._new())
        number = self._random.randint(1, 9)
        return [f"{values[-1]} = stablehlo.constant dense<{number}.0> : tensor<f32>"], token

    def _arithmetic(self, values: list[str], token: str) -> tuple[list[str], str]:
        one, other = self._random.choices(values, k=2)
        values.append(self._new())
        name = self._random.choice(["add", "subtract", "maximum"])
        return [f"{values[-1]} = stablehlo.{name} {one}, {other} : tensor<f32>"], token

    def _call(self, values: list[str], token: str) -> tuple[list[str], str]:
        operand = self._random.choice(values)
        values.append(self._new())
        effect = self._random.choice(["", "has_side_effect = true, "])
        attributes = _ATTRIBUTES.format(effect=effect, callback=self._random.randint(0, 99))
        call = f"stablehlo.custom_call @hostcall({operand}) {{{attributes}}}"
        return [f"{values[-1]} = {call} : (tensor<f32>) -> tensor<f32>"], token

    def _ordered(self, values: list[str], token: str) -> tuple[list[str], str]:
        operand = self._random.choice(values)
        name = self._new()
        values.append(f"{name}#0")
        attributes = _ATTRIBUTES.format(
            effect="has_side_effect = true, ", callback=self._random.randint(0, 99)
        )
        call = f"stablehlo.custom_call @hostcall({operand}, {token}) {{{attributes}}}"
        types = f"(tensor<f32>, {_TOKEN})"
        return [f"{name}:2 = {call} : {types} -> {types}"], f"{name}#1"

    def _case(self, values: list[str], token: str) -> tuple[list[str], str]:
        index, name = self._new(), self._new()
        branches = []
        for _ in range(2):
            inner = [*values]
            lines, last = self._block(inner, token)
            result = self._random.choice(inner)
            end = f"stablehlo.return {result}, {last} : tensor<f32>, {_TOKEN}"
            branches.append("\n".join([*lines, end]))
        convert = f"stablehlo.convert {self._random.choice(values)} : (tensor<f32>) -> tensor<i32>"
        values.append(f"{name}#0")
        text = "\n}, {\n".join(branches)
        types = f"(tensor<i32>) -> (tensor<f32>, {_TOKEN})"
        lines = [f"{index} = {convert}", f'{name}:2 = "stablehlo.case"({index}) ({{', text]
        return [*lines, f"}}) : {types}"], f"{name}#1"

    def _while(self, values: list[str], token: str) -> tuple[list[str], str]:
        name, i, a, t, p, j = (self._new() for _ in range(6))
        start = self._new()
        condition, body = [*values, i, a], [*values, i, a]
        test, _ = self._call(condition, "")
        lines, last = self._block(body, t)
        result = self._random.choice(body)
        step, limit = self._new(), self._new()
        types = f"tensor<f32>, tensor<f32>, {_TOKEN}"
        loop = [
            f"{start} = stablehlo.constant dense<0.0> : tensor<f32>",
            f"{name}:3 = stablehlo.while({i} = {start}, {a} = {self._random.choice(values)}, "
            f"{t} = {token}) : {types}",
            "cond {",
            *(test if self._random.random() < 0.5 else []),
            f"{limit} = stablehlo.constant dense<2.0> : tensor<f32>",
            f"{p} = stablehlo.compare LT, {i}, {limit} : (tensor<f32>, tensor<f32>) -> tensor<i1>",
            f"stablehlo.return {p} : tensor<i1>",
            "} do {",
            *lines,
            f"{step} = stablehlo.constant dense<1.0> : tensor<f32>",
            f"{j} = stablehlo.add {i}, {step} : tensor<f32>",
            f"stablehlo.return {j}, {result}, {last} : {types}",
            "}",
        ]
        values.append(f"{name}#1")
        return loop, f"{name}#2"

    def _function_call(self, values: list[str], token: str) -> tuple[list[str], str]:
        one, other = self._random.choices(values, k=2)
        function, name = f"f{len(self._functions)}_{self._names}", self._new()
        self._functions.append(self._function(function, "private"))
        values += [f"{name}#0", f"{name}#1"]
        types = f"(tensor<f32>, tensor<f32>, {_TOKEN})"
        call = f"func.call @{function}({one}, {other}, {token}) : {types} -> {types}"
        return [f"{name}:3 = {call}"], f"{name}#2"


def evaluate(text: str, one: float, other: float) -> list[float]:
    """The results of @main where host calls do arithmetic, and its token, which tells their order.

    Tokens become numbers: a call's is made of the one before, of what the call gets and of its own
    number, so that another order or another call shows.
    """
    called: set[int] = set()

    def call(match: re.Match[str]) -> str:
        called.add(int(match[2]))
        ordered = _TOKEN in match[3]
        kind = "ordered" if ordered else "plain"
        return f"func.call @{kind}_{match[2]}({match[1]}) : ({match[3]}) -> {match[4]}"

    # One line a function keeps MLIR's printed form, on which the pattern relies.
    program = _CALL.sub(call, _printed(text)).replace(_TOKEN, "tensor<f32>")
    functions = "\n".join(_host_function(number) for number in sorted(called))
    with private.new_context(), ir.Location.unknown():
        end = program.rstrip().rindex("}")
        module = ir.Module.parse(f"{program[:end]}{functions}\n}}")
        numbers = (one, other, 1.0)
        arguments = [ir.DenseElementsAttr.get(np.array(n, np.float32)) for n in numbers]
        return [
            float(np.array(ir.DenseFPElementsAttr(value)))
            for value in stablehlo.eval_module(module, arguments)
        ]


def _printed(text: str) -> str:
    with private.new_context():
        return str(ir.Module.parse(text))


def _host_function(number: int) -> str:
    return f"""
func.func private @plain_{number}(%x: tensor<f32>) -> tensor<f32> {{
  %h = stablehlo.constant dense<0.5> : tensor<f32>
  %n = stablehlo.constant dense<{number}.0> : tensor<f32>
  %0 = stablehlo.multiply %x, %h : tensor<f32>
  %1 = stablehlo.add %0, %n : tensor<f32>
  return %1 : tensor<f32>
}}
func.func private @ordered_{number}(%x: tensor<f32>, %t: tensor<f32>)
    -> (tensor<f32>, tensor<f32>) {{
  %0 = func.call @plain_{number}(%x) : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.add %0, %t : tensor<f32>
  %2 = func.call @plain_{number}(%t) : (tensor<f32>) -> tensor<f32>
  %3 = stablehlo.add %1, %2 : tensor<f32>
  return %1, %3 : tensor<f32>, tensor<f32>
}}"""
