"""hostcall_mlir.load(partitioned=True, device=...), on devices that stand in for accelerators.

There are two: the second of two devices of JAX's CPU, and the device of a second client of it,
which JAX takes for a platform of its own, so that arrays have to be copied between them. The runner
takes neither for a device whose programs can call back.
"""

from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

import hostcall_mlir
from hostcall_mlir import loading, runner
from hostcall_mlir.ir import jaxlib_names as private
from tests.support.exported import functions
from tests.support.exported.cases import CASES
from tests.support.exported.programs import F3, FUNCTIONS, call, make

# All of this runs in a process that has the devices.
PREPARATION = """
import os
os.environ["JAX_PLATFORMS"] = "cpu,standin"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
from jax._src import xla_bridge
from jaxlib import xla_client
xla_bridge.register_backend_factory("standin", xla_client.make_cpu_client, fail_quietly=False)
from hostcall_mlir import loading
loading._WITH_HOST_CALLS = ()
"""
pytestmark = [
    pytest.mark.runs_in("worker"),
    pytest.mark.parametrize("kind", ["device", "platform"]),
]

# A value that two calls take, one that only the next call takes, and a loop.
CROSSING = f"""
func.func public @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {{
  %0 = stablehlo.negate %x : tensor<3xf32>
  %1 = {call("triple", "(tensor<3xf32>) -> tensor<3xf32>", "%0")}
  %2 = {call("plus", "(tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>", "%0, %1")}
  %3 = stablehlo.add %2, %x : tensor<3xf32>
  return %3, %2 : tensor<3xf32>, tensor<3xf32>
}}
"""


def device_of(kind: str) -> jax.Device:
    host, second = jax.devices("cpu")
    other = jax.devices("standin")[0]
    assert (other.client is host.client, other.platform) == (False, "cpu")
    return second if kind == "device" else other


def load(program: Any, kind: str, partitioned: bool = True) -> Any:
    hostcall_mlir.allow(FUNCTIONS)
    return loading.LoadedProgram(program, {}, True, partitioned, device_of(kind))


def test_programs_do_what_they_say_and_their_results_are_on_the_device(kind: str) -> None:
    for case in CASES.values():
        functions.LOG.clear()
        results = jax.tree.leaves(load(case.make(), kind).call(*case.args))
        for result, expected in zip(results, jax.tree.leaves(case.expected), strict=True):
            np.testing.assert_allclose(np.asarray(result), expected)
            assert result.devices() == {device_of(kind)}
        assert [*case.log] == functions.LOG


def test_each_part_runs_where_it_can_and_each_value_crosses_once(kind: str) -> None:
    device, host = device_of(kind), jax.devices("cpu")[0]
    with (
        mock.patch.object(private, "compile_for", wraps=private.compile_for) as compiled,
        mock.patch.object(runner, "put", wraps=runner.put) as copied,
    ):
        results = load(make(CROSSING), kind)(jax.device_put(F3, device))
    parts = [(where, calls) for _, where, calls in (one.args for one in compiled.call_args_list)]
    assert parts == [(device, False), (host, True), (host, True), (device, False)]
    copies = [(array.nbytes, where) for array, where in (one.args for one in copied.call_args_list)]
    assert copies == [(12, host), (12, device)]
    np.testing.assert_array_equal(results, [-3 * F3, -4 * F3])


def test_arguments_come_from_anywhere_and_stay_what_they_are(kind: str) -> None:
    device = device_of(kind)
    program = load(make(CROSSING), kind)
    for place in (None, *jax.devices("cpu"), device):
        x = F3 if place is None else jax.device_put(F3, place)
        one, _ = program(x)
        assert one.devices() == {device}
        np.testing.assert_array_equal(np.asarray(x), F3)
        np.testing.assert_array_equal(np.asarray(one), -3 * F3)
    # The results go on from there.
    doubled = jax.jit(lambda y: y * 2)(one)
    assert doubled.devices() == {device}
    np.testing.assert_array_equal(np.asarray(doubled), -6 * F3)


def test_an_argument_that_was_donated_before_is_an_error(kind: str) -> None:
    program = load(make(CROSSING), kind)
    x = jax.device_put(F3, device_of(kind))
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        program(x)
    np.testing.assert_array_equal(np.asarray(program(F3)[0]), -3 * F3)


def test_a_whole_program_is_refused(kind: str) -> None:
    with pytest.raises(hostcall_mlir.ProgramError, match="Load it with partitioned=True"):
        load(make(CROSSING), kind, partitioned=False)


def test_variables_are_on_the_device(kind: str) -> None:
    text = f"""
func.func public @main(%x: tensor<3xf32>, %v: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {{
  %0 = {call("plus", "(tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>", "%x, %v")}
  return %x, %0 : tensor<3xf32>, tensor<3xf32>
}}
"""
    program = load(make(text, variables={"v": F3}, assigns=["v"]), kind)
    for _ in range(2):
        program(F3)
    value = program.variables["v"]
    assert value.devices() == {device_of(kind)}
    np.testing.assert_array_equal(np.asarray(value), 3 * F3)
