"""hostcall_mlir.load(partitioned=True, device=...), on devices that stand in for accelerators."""

import functools
import json
from typing import Any

import pytest

from tests.support.exported.programs import F3
from tests.support.jax.helpers import run_python

RUN = "from tests.support.exported import device_programs; device_programs.main()"
TWO_PLATFORMS = {
    "JAX_PLATFORMS": "cpu,standin",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
}
# Another device of JAX's CPU, and a second client of it as a platform of its own.
each_device = pytest.mark.parametrize("kind", ["device", "platform"])

SUM = (-3 * F3).tolist()


@functools.cache
def outcomes() -> dict[str, Any]:
    """Run the programs in one process that has the devices, and return their outcomes."""
    return dict(json.loads(run_python(RUN, **TWO_PLATFORMS)))


def test_the_second_platform_has_a_client_of_its_own() -> None:
    assert outcomes()["client"] == [False, "cpu"]


@each_device
def test_programs_do_what_they_say_and_their_results_are_on_the_device(kind: str) -> None:
    count, wrong = outcomes()[kind]["cases"]
    assert count > 10
    assert wrong == []


@each_device
def test_clusters_run_on_the_device_and_host_calls_on_the_host(kind: str) -> None:
    compiled, *_ = outcomes()[kind]["places"]
    cluster, host_call = ["cluster", "device"], ["call", "host"]
    assert compiled == [cluster, host_call, host_call, cluster]


@each_device
def test_each_value_crosses_once_and_where_it_is_marked(kind: str) -> None:
    _, copied, results, (first, second) = outcomes()[kind]["places"]
    assert copied == [[12, "host"], [12, "device"]]
    assert results == [SUM, (-4 * F3).tolist()]
    assert "hostcall.to_host = array<i64: 0, 12>}" in first
    assert "hostcall.to_device" not in first
    assert "hostcall.to_device = array<i64: 0, 12>}" in second
    assert "hostcall.to_host" not in second


@each_device
def test_arguments_come_from_anywhere_and_stay_what_they_are(kind: str) -> None:
    *found, after = outcomes()[kind]["arguments"]
    assert found == [[True, F3.tolist(), SUM]] * 4
    assert after == [True, (-6 * F3).tolist()]


@each_device
def test_an_argument_that_was_donated_before_is_an_error(kind: str) -> None:
    assert outcomes()[kind]["donated"] == [True, True, SUM]


@each_device
def test_a_whole_program_is_refused(kind: str) -> None:
    assert "Load it with partitioned=True" in outcomes()[kind]["whole"]


@each_device
def test_variables_are_on_the_device(kind: str) -> None:
    assert outcomes()[kind]["variables"] == [True, (3 * F3).tolist()]
