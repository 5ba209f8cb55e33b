"""`sharding=` of hostcall.jax.call: one call with whole arrays, or one for each part of them."""

import functools
import json
from typing import Any

import pytest

from tests.support.jax.helpers import run_python

RUN = "from tests.support.jax import sharded_programs; sharded_programs.main()"
EIGHT_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}

WHOLE = [[0.0, 16]]
# Each call, by the first element and the size of the function's argument.
QUARTERS = [[0.0, 4], [4.0, 4], [8.0, 4], [12.0, 4]]
HALVES = [[0.0, 8], [8.0, 8]]
EIGHTHS = [[2.0 * k, 2] for k in range(8)]
# The axis of two devices is divided first, then that of four.
OTHER_EIGHTHS = [[8.0 * j + 2 * i, 2] for i in range(4) for j in range(2)]

CALLS = {
    "whole": WHOLE,
    "one device": WHOLE,
    "named whole": WHOLE,
    "i": QUARTERS,
    "j": HALVES,
    "both": EIGHTHS,
    "the other way": OTHER_EIGHTHS,
}
DOUBLED = [2.0 * k for k in range(16)]
NO_SUCH_THING = "KeyError('no such thing')"


@functools.cache
def outcomes() -> dict[str, Any]:
    """Run the programs in one process of eight devices, and return their outcomes."""
    said = run_python(RUN, **EIGHT_DEVICES)
    return dict(json.loads(said.replace("PartitionSpec(", "P(")))  # as JAX 0.8 writes it


@pytest.mark.parametrize("kind", ["", " pure", " ordered"])
@pytest.mark.parametrize("name", CALLS)
def test_calls_get_what_is_said(name: str, kind: str) -> None:
    right, *runs = outcomes()["shardings"][name + kind]
    assert right
    for calls in runs:
        assert (calls if kind == " ordered" else sorted(calls)) == (
            CALLS[name] if kind == " ordered" else sorted(CALLS[name])
        )


def test_a_pure_call_is_one_for_all_devices_where_nothing_is_said() -> None:
    assert outcomes()["nothing_said"][:2] == [True, *WHOLE]


def test_a_call_with_a_side_effect_is_refused_where_nothing_is_said() -> None:
    *_, refused, stateful = outcomes()["nothing_said"]
    for text in (*refused, stateful):
        assert text.startswith("NotImplementedError: hostcall.")
        assert "sharding=jax.P()" in text
        assert "sharding=jax.NamedSharding" in text
        assert "jax.shard_map" in text


def test_ordered_calls_run_in_program_order_and_in_that_of_parts() -> None:
    of_an_iteration = (0, 4, 8, 12, 1)
    assert outcomes()["order"] == [k + call for k in (0, 100, 200, 300) for call in of_an_iteration]


def test_branches_and_conditions_of_loops() -> None:
    # 240 is doubled by the branch to 480 in all, and by the loop to 960 and 1920.
    assert outcomes()["branches_and_conditions"] == [[8 * v for v in range(0, 32, 2)], WHOLE]


def test_structures_of_arrays_and_of_shardings() -> None:
    shapes, results = outcomes()["structures"]
    assert shapes == [[[2, 2], [], []]] * 4
    rows = [[2 * k, 2 * k + 1] for k in range(8)]
    assert results["scaled"] == [[3 * a + 1, 3 * b + 1] for a, b in rows]
    assert results["sum"] == [[sum(rows[k] + rows[k + 1])] for k in range(0, 8, 2)]


def test_dtypes() -> None:
    assert outcomes()["dtypes"] == []


def test_vmap() -> None:
    found, with_axis_name = outcomes()["vmap"]
    one_by_one = [[2.0 * k, 2] for k in range(8)]
    at_once = [[2.0 * k, 4] for k in range(4)]
    assert found == [[True, calls] for calls in (HALVES, WHOLE, one_by_one, at_once)]
    assert "devices that should have the same shard of an array have different" in with_axis_name


def test_gradients() -> None:
    gradient, calls, without = outcomes()["gradients"]
    assert gradient == DOUBLED
    assert sorted(calls) == sorted(QUARTERS + WHOLE)
    assert "JAX knows no derivative of a Python function" in without


def test_a_mesh_that_types_tell_of() -> None:
    *found, unknown = outcomes()["under_a_mesh_with_types"]
    assert found == [[True, 8], [True, 1], [True, 1]]
    assert "sharding names ['e'], and the axes of the mesh are ['d']." in unknown[0]


def test_an_array_is_gathered_for_a_call_and_divided_again() -> None:
    assert outcomes()["gathered_and_put_back"] == ["P(('i', 'j'),)", DOUBLED, WHOLE]


def test_all_devices_end_where_one_call_fails() -> None:
    # The sums are those of the runs after the ones that failed.
    whole = [NO_SUCH_THING, sum(range(16)) + 5.0 * 16]
    parts = [NO_SUCH_THING, sum(range(16)) + 16.0]
    assert outcomes()["failures"] == [*whole * 2, *parts * 2]


def test_devices_do_not_wait_for_one_that_has_failed_before() -> None:
    assert outcomes()["a_failure_before_others_wait"] == [True, []]


def test_inside_of_shard_map_each_device_calls_for_itself() -> None:
    right, calls, refused = outcomes()["inside_of_shard_map"]
    assert right
    assert calls == sorted(QUARTERS * 2)
    assert all("sharding= is for calls outside of jax.shard_map" in text for text in refused)


def test_what_cannot_be_divided_is_refused() -> None:
    expected = [
        "TypeError: hostcall.jax.call of negative, ",
        "and is a tuple of 3.",
        "nothing says of which mesh",
        "argument [16] has 1 dimensions, and its sharding P('i', 'j') is for 2",
        "argument [15] cannot be divided by P('i',): 15 is no multiple of 4",
        "the shardings of one call have to be of one mesh",
        "a result of shape [] has no sharding along ['i']",
        "sharding is not of the structure of the arrays",
    ]
    found = outcomes()["refusals"]
    assert [part in text for part, text in zip(expected, found, strict=True)] == [True] * 8


def test_gpus_and_several_processes_are_refused_when_compiled() -> None:
    refused, allowed = outcomes()["elsewhere"]
    for text, whom in zip(refused, ["cuda, and 1 p"] * 2 + ["cpu, and 2 p"] * 2, strict=True):
        assert text.startswith("NotImplementedError: hostcall.jax.call of negative")
        assert f"this program is for {whom}rocess(es)" in text
    assert allowed == "nothing was raised"


def test_programs_in_calls() -> None:
    right, refused = outcomes()["programs_in_calls"]
    assert right
    assert "a JAX program for several devices calls runs another such program" in refused


def test_several_threads() -> None:
    assert outcomes()["several_threads"] == []


def test_with_the_older_partitioner_of_xla() -> None:
    assert outcomes()["without_shardy"] == WHOLE + QUARTERS


def test_calls_for_shards_take_turns_unless_they_are_concurrent() -> None:
    assert outcomes()["calls_at_the_same_time"] == [0, 8, True]
