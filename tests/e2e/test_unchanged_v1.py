"""What works without hostcall in processes of TensorFlow 1 works with it, and the same."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support.stress.template import Template

SCRIPT = Path(__file__).parents[1] / "support" / "e2e" / "unchanged_run.py"
FILE = "unchanged_v1_programs"
PROGRAMS = list(runpy.run_path(str(SCRIPT.with_name(f"{FILE}.py")))["PROGRAMS"])
MODES = ["disable_eager_execution", "disable_v2_behavior"]


@pytest.fixture(scope="module")
def outcomes(fresh_python: Template) -> dict[tuple[str, str], dict[str, Any]]:
    """For each mode, without hostcall ("0") and with it ("1"), the outcome of each program."""
    results = {}
    for mode in MODES:
        for with_hostcall in ("0", "1"):
            ended = fresh_python.run_program(
                SCRIPT.read_text(),
                str(SCRIPT),
                V1=mode,
                WITH_HOSTCALL=with_hostcall,
                PROGRAMS=FILE,
            )
            assert ended.status == 0, ended.said
            results[mode, with_hostcall] = json.loads(ended.printed.splitlines()[-1])
    return results


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_stock(outcomes: Any, name: str, mode: str) -> None:
    stock = outcomes[mode, "0"][name]
    assert not isinstance(stock, dict), stock
    assert outcomes[mode, "1"][name] == stock
