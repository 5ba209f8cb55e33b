"""Programs for GPUs, on one that is none (`tests/support/fake_gpu.py`): no GPU runs here."""

import json
import subprocess
import sys

import pytest

from tests.support import gpu_programs
from tests.support.device import clean_environment
from tests.support.native.modules import ROOT
from tests.support.versions import has_a_fake_gpu

pytestmark = has_a_fake_gpu

CHECKS = [check.__name__ for check in gpu_programs.CHECKS]


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """The outcomes of the checks."""
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


@pytest.mark.parametrize("check", CHECKS)
def test_on_a_gpu(found: dict[str, str], check: str) -> None:
    assert not found[check], found[check]
