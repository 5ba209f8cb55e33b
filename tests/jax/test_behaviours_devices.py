"""Tests that our callbacks keep the promises of JAX's own on several devices."""

import functools
import json
from typing import Any

import pytest

from tests.support.jax.helpers import run_python

RUN = "from tests.support.jax import device_programs; device_programs.main()"
TWO_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}

DOUBLED = [0.0, 2.0, 4.0, 6.0]

EXPECTED = {
    "pmap_of_a_loop": [0, 1, 1, 2, 2],
    "shard_map": [[1.0, 2.0, 3.0, 4.0], DOUBLED, DOUBLED],
    "order_on_each_device": [[[0, 1], [1, 2]], [[2, 3], [3, 4]]],
    "order_across_devices": [200.0**3, 3.0] * 3,
    "ordered_on_two_devices_and_then_on_one": [[2], [2], [4], [4]],
    "divided_by_xla": [[1.0, 3.0, 5.0, 7.0], True, True, True],
    # Programs with callbacks stay out, all others go there.
    "cache_on_disk": [DOUBLED, [0.0, 3.0, 6.0, 9.0], [], True],
}


@functools.cache
def outcomes() -> dict[str, Any]:
    """Run the programs in one process of two devices, and return their outcomes."""
    return dict(json.loads(run_python(RUN, **TWO_DEVICES)))


@pytest.mark.parametrize("name", EXPECTED)
def test_programs_for_two_devices(name: str) -> None:
    assert outcomes()[name] == EXPECTED[name]


def test_pmap() -> None:
    # As many rows as devices.
    assert outcomes()["pmap"] == [[0.0, 2.0]] * 3


def test_what_only_some_axes_are_divided_of_by_hand() -> None:
    assert "all mesh axes are partitioned manually" in outcomes()["divided_by_xla_in_part"]
