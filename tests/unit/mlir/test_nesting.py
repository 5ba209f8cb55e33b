"""Programs that are nested deep, or whose functions call one another again and again."""

import os
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from jaxlib.mlir import ir

import hostcall_mlir
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir import traversal
from tests.support.exported.programs import FUNCTIONS, call, load, make

TYPES = "(tensor<f32>, tensor<i1>) -> tensor<f32>"
CALL = call("triple", "(tensor<f32>) -> tensor<f32>", "%x")


def function(name: str, body: str) -> str:
    return (
        f"func.func {name}(%x: tensor<f32>, %p: tensor<i1>) -> tensor<f32> {{\n"
        f"{body}\nreturn %r : tensor<f32>\n}}\n"
    )


def branch(result: str, inner: str, inner_result: str) -> str:
    return (
        f'{result} = "stablehlo.if"(%p) ({{\n{inner}\n'
        f'"stablehlo.return"({inner_result}) : (tensor<f32>) -> ()\n}}, {{\n'
        '"stablehlo.return"(%x) : (tensor<f32>) -> ()\n}) : (tensor<i1>) -> tensor<f32>'
    )


def branches(depth: int) -> str:
    """Branches in branches, the innermost with a host call."""
    opening = [f'%v{i} = "stablehlo.if"(%p) ({{' for i in range(depth)]
    closing = [
        f'"stablehlo.return"(%v{i}) : (tensor<f32>) -> ()\n}}, {{\n'
        '"stablehlo.return"(%x) : (tensor<f32>) -> ()\n}) : (tensor<i1>) -> tensor<f32>'
        for i in reversed(range(1, depth + 1))
    ]
    sum_ = "%r = stablehlo.add %v0, %v0 : tensor<f32>"
    return function("@main", "\n".join([*opening, f"%v{depth} = {CALL}", *closing, sum_]))


def functions(levels: int, times: int = 1, inside: bool = False) -> str:
    """Functions that call the next one so many times, the last with a host call."""
    texts = []
    for level in range(levels):
        lines = [f"%v{i} = func.call @f{level + 1}(%x, %p) : {TYPES}" for i in range(times)]
        lines.append(f"%s = stablehlo.add %v0, %v{times - 1} : tensor<f32>")
        inner = "\n".join(lines)
        straight = f"{inner}\n%r = stablehlo.sine %s : tensor<f32>"
        body = branch("%r", inner, "%s") if inside else straight
        texts.append(function(f"private @f{level}", body))
    texts.append(function(f"private @f{levels}", f"%r = {CALL}"))
    return function("@main", f"%r = call @f0(%x, %p) : {TYPES}") + "".join(texts)


def around(opening: str, inner: str, closing: str) -> str:
    return opening * 5000 + inner + closing * 5000


def names(first: str, other: str, last: str) -> str:
    """Each of many names stands for what the one before it does, and one bracket more."""
    lines = [first, *(other.format(new=i + 1, old=i) for i in range(20_000)), last]
    return "\n".join(lines)


TOO_DEEP = {
    "branches": branches(5000),
    "modules": around("module {", "", "}"),
    "types": f"func.func private @f({around('tuple<', 'i1', '>')})",
    "attributes": f"module attributes {{a.b = {around('[', '', ']')}}} {{}}",
    "locations": "module {} loc(" + around("callsite(", '"a"', ' at "b")') + ")",
    "type names": names("!t0 = i1", "!t{new} = tuple<!t{old}>", "func.func private @f(!t20000)"),
    "attribute names": names(
        "#a0 = 1 : i32", "#a{new} = [#a{old}]", "module attributes {a.b = #a20000} {}"
    ),
    "location names": names(
        '#l0 = loc("a")', '#l{new} = loc("b"(#l{old}))', "module {} loc(#l20000)"
    ),
}


@pytest.mark.parametrize("text", TOO_DEEP.values(), ids=TOO_DEEP)
def test_text_that_would_end_the_stack_is_an_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "deep.mlir"
    file.write_text(text)
    command = os.path.join(sysconfig.get_path("scripts"), "hostcall-opt")
    done = subprocess.run(
        [command, "--mlir-print-debuginfo", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.returncode
    assert f"{file}:" in done.stderr
    assert "error: the program is nested deeper than 1000 brackets in brackets" in done.stderr


def test_the_error_is_where_the_text_is_too_deep() -> None:
    with pytest.raises(hostcall_mlir.PassError, match=r"^x\.mlir:501:\d+: error: the program is"):
        hostcall_mlir.transform(branches(501), "", source="x.mlir")


def test_brackets_that_nest_nothing_do_not_count() -> None:
    text = '// (((\nmodule attributes {a.b = "' + r"\"([{<" * 2000 + '"} {}\n' + "// {\n" * 2000
    assert hostcall_mlir.transform(text, "")
    text = f"func.func private @f({', '.join(['tuple<i1>'] * 2000)}) -> ({', '.join(['i1'] * 9)})"
    assert hostcall_mlir.transform(text, "")


@pytest.mark.parametrize(
    "passes",
    ["hostcall-partition", "hostcall-dce,hostcall-cse-pure,hostcall-check,canonicalize,cse"],
)
def test_programs_at_the_limit_go_through_passes(passes: str) -> None:
    assert "@hostcall" in hostcall_mlir.transform(branches(400), passes)


def test_bytecode_is_held_against_the_limit_too() -> None:
    module = ir.Module.parse(branches(600), private.new_context())
    with pytest.raises(hostcall_mlir.PassError, match="nested deeper than 500 ops in ops"):
        hostcall_mlir.transform(private.bytecode_of(module), "")


def test_an_artifact_is_held_against_the_limit_too(tmp_path: Path) -> None:
    with pytest.raises(hostcall_mlir.ProgramError, match="nested deeper than 500 ops in ops"):
        load(make(branches(600)), tmp_path)


# Of a program that is compiled as a whole, and of one that is run in parts.
COMPILED = {False: private.MOST_COMPILED, True: min(traversal.SPLIT_OPS, private.MOST_COMPILED)}


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_compiled_program_has_a_smaller_limit(tmp_path: Path, partitioned: bool) -> None:
    most = COMPILED[partitioned]
    hostcall_mlir.allow(FUNCTIONS)
    with pytest.raises(hostcall_mlir.ProgramError, match=f"nested deeper than {most} ops in ops"):
        load(make(branches(most + 1)), tmp_path, partitioned=partitioned)


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_program_below_the_limits_runs(tmp_path: Path, partitioned: bool) -> None:
    hostcall_mlir.allow(FUNCTIONS)
    made = make(branches(COMPILED[partitioned] - 10))
    program = load(made, tmp_path, partitioned=partitioned)
    assert program.call(np.float32(1), np.bool_(True)) == 6


def test_functions_that_double_are_counted_before_they_are_inlined() -> None:
    message = r"would make 234881021 ops of @main, in one another 0 deep; 500000 are the most"
    with pytest.raises(hostcall_mlir.PassError, match=message):
        hostcall_mlir.transform(functions(25, times=2), "hostcall-partition")


def test_functions_that_nest_are_counted_before_they_are_inlined() -> None:
    with pytest.raises(hostcall_mlir.PassError, match="in one another 1000 deep; 500000 are the"):
        hostcall_mlir.transform(functions(1000, inside=True), "hostcall-partition")


def test_functions_that_double_go_through_all_other_passes() -> None:
    names = "{names=1=tests.support.exported.functions:triple}"
    passes = f"hostcall-resolve{names},hostcall-name{names},hostcall-from-jax,"
    passes += "hostcall-cse-pure,hostcall-dce,hostcall-check"
    text = functions(60, times=2)
    assert hostcall_mlir.transform(text, passes).count("call @") == 122


def test_functions_without_host_calls_are_not_inlined() -> None:
    text = functions(60, times=2).replace(CALL, "stablehlo.sine %x : tensor<f32>")
    text += function("@other", f"%r = {CALL}")
    assert hostcall_mlir.transform(text, "hostcall-partition").count("call @f") == 121


def test_long_chains_of_functions_are_inlined() -> None:
    text = hostcall_mlir.transform(functions(3000), "hostcall-partition")
    assert text.count("stablehlo.sine") == 3000
