"""Programs for GPUs, on one that is none (`tests/support/fake_gpu.py`): no GPU runs here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.device import clean_environment
from tests.support.native.modules import ROOT
from tests.support.versions import has_a_fake_gpu

pytestmark = has_a_fake_gpu

CHECKS = [
    "the_handler_of_the_runtime_is_registered_for_cuda",
    "a_script_op_becomes_the_call_that_it_is_on_the_cpu",
    "operands_and_results_are_dense",
    "transposed_operands_have_their_values",
    "calls_with_side_effects_keep_their_order",
    "sizes_may_be_bounded",
    "no_call_begins_early",
    "native_code_is_called_between_clusters",
    "integers_cross_where_tensorflow_has_them_on_the_host",
    "loops_and_branches_on_the_host_have_their_clusters_on_the_device",
    "gradients_are_taken",
    "a_function_that_fails_is_an_error_of_the_program",
    "an_explanation_says_what_happens",
]


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """What has come of each check."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.gpu_programs"],
        env=clean_environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    said: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return said


def test_all_checks_are_listed(found: dict[str, str]) -> None:
    assert [*found] == CHECKS


@pytest.mark.parametrize("check", CHECKS)
def test_on_a_gpu(found: dict[str, str], check: str) -> None:
    assert not found[check], found[check]
