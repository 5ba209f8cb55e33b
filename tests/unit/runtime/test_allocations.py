"""Calls of fixed shapes ask the heap for nothing, once calls like them have been made."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.native.allocation_frames import CASES, OTHERS
from tests.support.native.modules import BUILD, ROOT

COUNTER = BUILD / "csrc" / "fuzz" / "allocations" / "liballocations.so"


@pytest.fixture(scope="module")
def counted() -> dict[str, list[int]]:
    """How often the runtime asked for memory, by case: in a process that has the counter first."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.native.allocation_frames"],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(COUNTER)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_warm_call_asks_for_no_memory(counted: dict[str, list[int]], case: str) -> None:
    assert set(counted[case]) == {0}


@pytest.mark.parametrize("case", OTHERS)
def test_the_counter_sees_what_others_ask_for(counted: dict[str, list[int]], case: str) -> None:
    assert min(counted[case]) > 0
