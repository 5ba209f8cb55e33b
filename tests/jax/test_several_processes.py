"""Calls in programs for the devices of several processes."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.full_run("its processes take ports")

TIMEOUT = 300
X = [float(n) for n in range(8)]
DOUBLED = [2 * n for n in X]


@pytest.fixture(scope="module")
def found() -> list[Any]:
    """What each of two processes saw of the programs of `several_processes`."""
    with contextlib.closing(socket.socket()) as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    module = "tests.support.jax.several_processes"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, port, str(process)],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    try:
        ended = [process.communicate(timeout=TIMEOUT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (printed, said) in zip(processes, ended, strict=True):
        assert process.returncode == 0, printed + said
    # Libraries that JAX uses print lines of their own.
    lines = [printed.splitlines() for printed, _ in ended]
    return [json.loads(next(one for one in each if one.startswith("{"))) for each in lines]


def both(found: list[Any], program: str) -> tuple[Any, Any]:
    first, second = (seen[program] for seen in found)
    return first, second


@pytest.mark.parametrize("program", ["stock", "pure"])
def test_process_0_makes_a_pure_call_and_the_other_gets_its_results(
    found: list[Any], program: str
) -> None:
    first, second = both(found, program)
    assert first["calls"] == [X]
    assert second["calls"] == []
    assert first["results"] == second["results"]
    by = first["results"][0]
    assert 0 <= by < 1
    assert first["results"] == pytest.approx([n + by for n in DOUBLED], rel=1e-6)


def test_results_are_used_by_what_is_divided(found: list[Any]) -> None:
    first, second = both(found, "used_by_what_is_divided")
    assert first["calls"] == [[n + 1 for n in X]]
    assert second["calls"] == []
    assert first["results"] == second["results"] == sum((2 * (n + 1) + 1) * n for n in X)


def test_side_effects_happen_once(found: list[Any]) -> None:
    first, second = both(found, "effects")
    assert first["calls"] == [[n + 1 for n in X], X, X]
    assert second["calls"] == []
    assert first["results"] == second["results"]
    assert first["results"] == [[n + 2 * (n + 1) for n in X], X, DOUBLED]


def test_ordered_calls_run_in_program_order_in_each_process(found: list[Any]) -> None:
    first, second = both(found, "ordered")
    assert first == [0, 0, 100, 100] * 2
    assert second == [4, 104] * 2


def test_calls_for_shards_are_made_by_a_process_that_has_them(found: list[Any]) -> None:
    first, second = both(found, "shards")
    pairs = [X[n : n + 2] for n in range(0, 8, 2)]
    assert [first[axes]["calls"] for axes in first] == [[X[:4]], [X[:4], X[4:]], pairs[:2]]
    assert [second[axes]["calls"] for axes in second] == [[X[4:]], [], pairs[2:]]
    by_process = [n + 1 for n in DOUBLED[:4]] + [n + 2 for n in DOUBLED[4:]]
    for seen in (first, second):
        assert seen["process"]["results"] == seen["both"]["results"] == by_process
        assert seen["device"]["results"] == [n + 1 for n in DOUBLED]


def test_the_process_of_a_named_device_makes_the_call(found: list[Any]) -> None:
    first, second = both(found, "named_devices")
    assert [seen["calls"] for seen in first] == [1, 0]
    assert [seen["calls"] for seen in second] == [0, 1]
    for one, other, by in zip(first, second, (0, 1), strict=True):
        assert one["results"] == other["results"] == [n + by for n in DOUBLED]


def test_results_arrive_bit_for_bit(found: list[Any]) -> None:
    for seen in both(found, "dtypes"):
        assert [name for name, is_same in seen.items() if not is_same] == []


@pytest.mark.parametrize(("program", "failing"), [("whole", 0), ("shard", 1), ("ordered", 0)])
def test_all_processes_end_with_the_error_of_one(
    found: list[Any], program: str, failing: int
) -> None:
    seen = [one["errors"][program] for one in found]
    for text, *_ in seen:
        assert text.startswith("JaxRuntimeError: UNKNOWN: KeyError: 'no such thing'")
        assert 'raise KeyError("no such thing")' in text
        assert "In hostcall.jax.call of errors.<locals>.fail" in text
    assert seen[failing][1] == "KeyError('no such thing')"
    assert seen[1 - failing][1] == "None"
    assert f"[the exception itself is in process {failing}]" in seen[1 - failing][0]


def test_the_next_run_is_sound(found: list[Any]) -> None:
    for one in found:
        assert one["errors"]["whole"][2] == one["errors"]["shard"][2] == "nothing was raised"


def test_nothing_that_comes_after_a_failed_call_is_called(found: list[Any]) -> None:
    assert [one["errors"]["calls after a failed one"] for one in found] == [0, 0]


def test_results_that_are_not_as_declared(found: list[Any]) -> None:
    for one in found:
        text = one["errors"]["wrong shape"][0]
        assert "has shape (2,), but its declared shape is (8,)" in text


def test_long_messages_are_shortened_in_the_middle(found: list[Any]) -> None:
    (first, exception), (second, _) = (one["errors"]["long"] for one in found)
    assert "INVALID_ARGUMENT: ValueError: begin---" in first
    assert "\n...\n" in first
    assert exception.startswith("ValueError('begin---")
    assert "[the exception itself is in process 0]" in second


def test_vmap_and_gradients(found: list[Any]) -> None:
    first, second = both(found, "vmap_and_gradients")
    rows = [DOUBLED[:4], DOUBLED[4:]]
    assert (first["vmap"], second["vmap"]) == ([rows, 2], [rows, 0])
    slope = [2 * n + 2 * n for n in X]
    assert (first["gradient"], second["gradient"]) == ([slope, 2], [slope, 0])


def test_calls_that_do_not_wait_for_one_another(found: list[Any]) -> None:
    first, second = both(found, "several_calls")
    assert (first["same"], second["same"]) == (True, True)
    assert (first["calls"], second["calls"]) == (10 * 8, 0)
    assert first["first"] == second["first"] == [7 * 2 * n + 2 * 15 for n in X]


def test_fire_and_forget_calls(found: list[Any]) -> None:
    assert both(found, "fire_and_forget") == ([X], [])


def test_in_shard_map_each_device_calls_for_itself(found: list[Any]) -> None:
    first, second = both(found, "shard_map")
    assert (first["calls"], second["calls"]) == ([X[:2], X[2:4]], [X[4:6], X[6:]])
    assert first["results"] == second["results"] == DOUBLED


def test_programs_for_the_devices_of_one_process(found: list[Any]) -> None:
    alone = {"results": DOUBLED, "calls": 1}
    assert both(found, "devices_of_one_process") == (alone, alone)


def test_a_program_for_both_processes_in_a_call_is_refused(found: list[Any]) -> None:
    for text, _ in both(found, "a_program_for_both_in_a_call"):
        assert "a JAX program for several devices calls runs another such program" in text
