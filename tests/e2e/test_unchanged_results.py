"""What a function may return comes to the same with hostcall as without, errors included."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support.stress.template import Template

SCRIPT = Path(__file__).parents[1] / "support" / "e2e" / "unchanged_run.py"
FILE = "unchanged_results"
VALUES = list(runpy.run_path(str(SCRIPT.with_name(f"{FILE}.py")))["PROGRAMS"])


@pytest.fixture(scope="module")
def outcomes(fresh_python: Template) -> dict[str, dict[str, Any]]:
    """Without hostcall ("0") and with it ("1"), the outcomes of each value."""
    results = {}
    for with_hostcall in ("0", "1"):
        ended = fresh_python.run_program(
            SCRIPT.read_text(), str(SCRIPT), WITH_HOSTCALL=with_hostcall, PROGRAMS=FILE
        )
        assert ended.status == 0, ended.said
        results[with_hostcall] = json.loads(ended.printed.splitlines()[-1])
    return results


@pytest.mark.parametrize("value", VALUES)
def test_same_as_stock(outcomes: Any, value: str) -> None:
    assert "raised" not in outcomes["0"][value]
    assert outcomes["1"][value] == outcomes["0"][value]
