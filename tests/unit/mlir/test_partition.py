"""hostcall-partition: random programs compute the same, and take the form that is promised."""

import re
from random import Random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxlib.mlir import ir

import hostcall  # noqa: F401
import hostcall_mlir
from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from tests.support.exported.programs import call
from tests.support.mlir_programs import Program, evaluate

IN_MAIN = {"func.call", "func.return", "stablehlo.get_tuple_element", "stablehlo.return"}
IN_MAIN |= {"stablehlo.while", "stablehlo.case", "stablehlo.if", "stablehlo.custom_call"}


@pytest.mark.parametrize("before", ["hostcall-check", "hostcall-cse-pure,hostcall-dce,cse"])
@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_partitioned_program_computes_the_same_in_the_same_order(
    before: str, random: Random, size: int
) -> None:
    text = Program(random, size).text
    changed = hostcall_mlir.transform(text, f"{before},hostcall-partition,hostcall-check")
    for args in ((2.0, -3.0), (0.5, 4.0)):
        assert evaluate(changed, *args) == pytest.approx(evaluate(text, *args), rel=0, abs=0)
    check_form(changed)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 32))
def test_output_is_the_same_each_time(seed: int) -> None:
    text = Program(Random(seed), 8).text
    one, other = (hostcall_mlir.transform(text, "hostcall-partition") for _ in range(2))
    assert one == other


def test_thousands_of_calls_that_wait_for_nothing_are_between_two_clusters() -> None:
    text = wide_program(2000)
    partitioned = hostcall_mlir.transform(text, "hostcall-partition")
    assert len(re.findall(r"func\.func private @cluster_", partitioned)) == 2
    check_form(partitioned)


def test_program_that_tensorflow_exports_is_partitioned() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            # A function of its own: what others declare of NumPy's would hold here.
            x = tf.numpy_function(lambda v: np.sin(v), [tf.cos(x)], tf.TensorSpec([3], tf.float32))
        one, other = tf.numpy_function(lambda v: (v, -v), [x], [tf.TensorSpec([3], tf.float32)] * 2)
        return one + tf.abs(other)

    text = program.experimental_get_compiler_ir(tf.zeros([3]))(stage="stablehlo")
    partitioned = hostcall_mlir.transform(text, "hostcall-check,hostcall-partition,hostcall-check")
    check_form(partitioned)
    main, *clusters = partitioned.split("func.func private @cluster_")
    assert main.count("custom_call @hostcall") == 2
    assert sum("stablehlo.cosine" in cluster for cluster in clusters) == 1
    assert sum("stablehlo.abs" in cluster for cluster in clusters) == 1


def check_form(text: str) -> None:
    """Only what the pass promises is in @main, and no host call in a cluster."""
    with private.new_context():
        module = ir.Module.parse(text)
        for function in module.body:
            ops = custom_calls.walk(function.operation)[1:]
            if traversal.name_of(function.operation) == "main":
                assert {op.name for op in ops} <= IN_MAIN
                callees = filter(None, map(traversal.callee_of, ops))
                assert all(callee.startswith("cluster_") for callee in callees)
            else:
                assert not any(map(custom_calls.is_host_call, ops))


def wide_program(calls: int) -> str:
    """Independent host calls of one value each, whose results are added: two clusters do."""
    lines = ["func.func @main(%s0: tensor<f32>) -> tensor<f32> {"]
    for i in range(calls):
        lines += [
            f"%x{i} = stablehlo.constant dense<{i}.0> : tensor<f32>",
            f"%y{i} = stablehlo.add %x{i}, %s0 : tensor<f32>",
            f"%z{i} = {call('triple', '(tensor<f32>) -> tensor<f32>', f'%y{i}')}",
            f"%s{i + 1} = stablehlo.add %s{i}, %z{i} : tensor<f32>",
        ]
    return "\n".join([*lines, f"return %s{calls} : tensor<f32>", "}"])
