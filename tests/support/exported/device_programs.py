"""Loaded programs on devices that stand in for accelerators, in a process that has such.

There are two: the second of two devices of JAX's CPU, and the device of a second client of it,
which JAX takes for a platform of its own, so that arrays have to be copied between them. The runner
takes neither for a device whose programs can call back.
"""

import json
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax._src import xla_bridge
from jaxlib import xla_client

import hostcall_mlir
from hostcall_mlir import loading, runner
from hostcall_mlir.ir import jaxlib_names as private
from tests.support.exported import functions
from tests.support.exported.cases import CASES
from tests.support.exported.programs import F3, call, make

xla_bridge.register_backend_factory("standin", xla_client.make_cpu_client, fail_quietly=False)
HOST = jax.devices("cpu")[0]
DEVICES = {"device": jax.devices("cpu")[1], "platform": jax.devices("standin")[0]}
loading._WITH_HOST_CALLS = ()  # type: ignore[assignment]  # those of the constant
COMPILE, PUT = private.compile_for, runner.put

CHECKS: dict[str, Callable[[jax.Device], Any]] = {}

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


def check(function: Callable[[jax.Device], Any]) -> Callable[[jax.Device], Any]:
    CHECKS[function.__name__] = function
    return function


def load(program: Any, device: jax.Device, partitioned: bool = True) -> Any:
    return loading.LoadedProgram(program, {}, True, partitioned, device)


def name_of(device: jax.Device) -> str:
    return "host" if device == HOST else "device" if device in DEVICES.values() else str(device)


@check
def cases(device: jax.Device) -> Any:
    """The programs whose results, calls or devices are not as they should be."""
    wrong = []
    for name, case in CASES.items():
        functions.LOG.clear()
        results = jax.tree.leaves(load(case.make(), device).call(*case.args))
        expected = jax.tree.leaves(case.expected)
        right = all(map(np.allclose, map(np.asarray, results), expected))
        there = all(result.devices() == {device} for result in results)
        if not (right and there and [*case.log] == functions.LOG):
            wrong.append(name)
    return [len(CASES), wrong]


@check
def places(device: jax.Device) -> Any:
    """Return the devices that a program's parts are compiled for, and the copies of a call."""
    compiled, copied = [], []

    def compiling(code: bytes, where: jax.Device, calls: bool) -> Any:
        compiled.append(["call" if calls else "cluster", name_of(where)])
        return COMPILE(code, where, calls)

    def putting(array: Any, where: jax.Device) -> Any:
        copied.append([array.nbytes, name_of(where)])
        return PUT(array, where)

    with (
        mock.patch.object(private, "compile_for", compiling),
        mock.patch.object(runner, "put", putting),
    ):
        program = load(make(CROSSING), device)
        results = [np.asarray(y).tolist() for y in program(jax.device_put(F3, device))]
    marks = hostcall_mlir.transform(CROSSING, "hostcall-partition")
    return [compiled, copied, results, [line for line in marks.split("\n") if "@hostcall" in line]]


@check
def arguments(device: jax.Device) -> Any:
    """Arrays from elsewhere, some committed to a device; all stay what they are."""
    program = load(make(CROSSING), device)
    found = []
    for place in (None, *jax.devices("cpu"), device):
        x = F3 if place is None else jax.device_put(F3, place)
        one, _ = program(x)
        found.append([one.devices() == {device}, np.asarray(x).tolist(), np.asarray(one).tolist()])
    # The results go on from there.
    doubled = jax.jit(lambda y: y * 2)(one)
    found.append([doubled.devices() == {device}, np.asarray(doubled).tolist()])
    return found


@check
def donated(device: jax.Device) -> Any:
    """An array that another program was given for good is an error, and the next call works."""
    program = load(make(CROSSING), device)
    x = jax.device_put(F3, device)
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    try:
        program(x)
    except RuntimeError as error:
        found = [x.is_deleted(), "deleted" in str(error)]
    return [*found, np.asarray(program(F3)[0]).tolist()]


@check
def whole(device: jax.Device) -> Any:
    """A program that XLA would have to call back from."""
    try:
        load(make(CROSSING), device, partitioned=False)
    except hostcall_mlir.ProgramError as error:
        return str(error)
    return "nothing was raised"


@check
def variables(device: jax.Device) -> Any:
    text = f"""
func.func public @main(%x: tensor<3xf32>, %v: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {{
  %0 = {call("plus", "(tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>", "%x, %v")}
  return %x, %0 : tensor<3xf32>, tensor<3xf32>
}}
"""
    program = load(make(text, variables={"v": F3}, assigns=["v"]), device)
    for _ in range(2):
        program(F3)
    value = program.variables["v"]
    return [value.devices() == {device}, np.asarray(value).tolist()]


def main() -> None:
    """Runs all on each device, and writes what comes of it as JSON."""
    found = {
        kind: {name: function(device) for name, function in CHECKS.items()}
        for kind, device in DEVICES.items()
    }
    same = [DEVICES["platform"].client is HOST.client, DEVICES["platform"].platform]
    sys.stdout.write(json.dumps({**found, "client": same}))
